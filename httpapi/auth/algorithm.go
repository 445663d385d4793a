package auth

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"errors"
	"slices"
)

// The algorithms (RFC 7518, section 3.1; RFC 8037), by what kind of key verifies them.
var (
	secretAlgorithms = []string{"HS256", "HS384", "HS512"}
	rsaAlgorithms    = []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}
	publicAlgorithms = append(slices.Clone(rsaAlgorithms), "ES256", "ES384", "ES512", "EdDSA")
)

// minRSABits is what RFC 7518, section 3.3, asks for.
const minRSABits = 2048

// algorithmsOf returns the algorithms that a public key verifies, by its own type. What it
// returns for a key never includes an HMAC, which is what keeps a public key from serving
// as a shared secret.
func algorithmsOf(key any) ([]string, error) {
	switch k := key.(type) {
	case *rsa.PublicKey:
		if k.N.BitLen() < minRSABits {
			return nil, errors.New("an RSA key must have at least 2048 bits")
		}
		return rsaAlgorithms, nil
	case *ecdsa.PublicKey:
		switch k.Curve {
		case elliptic.P256():
			return []string{"ES256"}, nil
		case elliptic.P384():
			return []string{"ES384"}, nil
		case elliptic.P521():
			return []string{"ES512"}, nil
		}
		return nil, errors.New("an EC key must be on P-256, P-384 or P-521")
	case ed25519.PublicKey:
		return []string{"EdDSA"}, nil
	}
	return nil, errors.New("a key must be RSA, EC or Ed25519")
}

// narrow returns those of algorithms that only allows: all where it is empty.
func narrow(algorithms []string, only string) []string {
	if only == "" {
		return algorithms
	}
	if slices.Contains(algorithms, only) {
		return []string{only}
	}
	return nil
}
