package auth

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
)

// parsePEM reads public keys: PKIX ("PUBLIC KEY"), PKCS #1 ("RSA PUBLIC KEY") or the key
// of a certificate, whose dates and issuer are not looked at. Several verify all alike, so
// that keys can be rotated; that is also why no certificate chain may stand there. Anything
// else is refused, private keys by name.
func parsePEM(file []byte, only string) ([]key, error) {
	var keys []key
	for n := 1; ; n++ {
		block, rest := pem.Decode(file)
		if block == nil {
			break
		}
		file = rest
		public, err := parseBlock(block)
		if err != nil {
			return nil, fmt.Errorf("block %d: %w", n, err)
		}
		algorithms, err := algorithmsOf(public)
		if err != nil {
			return nil, fmt.Errorf("block %d: %w", n, err)
		}
		if algorithms = narrow(algorithms, only); len(algorithms) == 0 {
			return nil, fmt.Errorf("block %d: the key does not verify %s", n, only)
		}
		keys = append(keys, key{algorithms: algorithms, verifier: public})
	}
	switch {
	case len(bytes.TrimSpace(file)) > 0: // a key cut off, say, which must not go unseen
		return nil, errors.New("there is something behind the last block that is not PEM")
	case len(keys) == 0:
		return nil, errors.New("there is no key")
	}
	return keys, nil
}

func parseBlock(block *pem.Block) (any, error) {
	switch block.Type {
	case "PUBLIC KEY":
		return hidden(x509.ParsePKIXPublicKey(block.Bytes))
	case "RSA PUBLIC KEY":
		return hidden(x509.ParsePKCS1PublicKey(block.Bytes))
	case "CERTIFICATE":
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return hidden[any](nil, err)
		}
		return cert.PublicKey, nil
	}
	if strings.HasSuffix(block.Type, "PRIVATE KEY") {
		return nil, errors.New("a private key: only public ones belong here")
	}
	return nil, errors.New("must be a PUBLIC KEY, an RSA PUBLIC KEY or a CERTIFICATE")
}

// hidden puts a plain text in err's place, so that no error quotes the file.
func hidden[K any](public K, err error) (any, error) {
	if err != nil {
		return nil, errors.New("cannot be parsed")
	}
	return public, nil
}
