package auth

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/MicahParks/jwkset"
)

// jwk returns a key's JWK, with changed members; nil takes one away.
func jwk(key any, kid string, change map[string]any) string {
	k := must(jwkset.NewJWKFromKey(key, jwkset.JWKOptions{
		Metadata: jwkset.JWKMetadataOptions{KID: kid},
		Marshal:  jwkset.JWKMarshalOptions{Private: true},
	}))
	var m map[string]any
	if err := json.Unmarshal(must(json.Marshal(k.Marshal())), &m); err != nil {
		panic(err)
	}
	for name, v := range change {
		if m[name] = v; v == nil {
			delete(m, name)
		}
	}
	return string(must(json.Marshal(m)))
}

// jwks returns a set of JWKs.
func jwks(keys ...string) string { return `{"keys":[` + strings.Join(keys, ",") + `]}` }

// public returns the JWK of a private key's public part.
func public(key crypto.Signer, kid string) string { return jwk(key.Public(), kid, nil) }

// TestJWK holds each key in a set to what it says that it is for.
func TestJWK(t *testing.T) {
	k := private()
	type m = map[string]any
	rsa1024 := must(rsa.GenerateKey(rand.Reader, 1024))
	oct := jwk([]byte(secret), "k", nil)
	tests := []struct {
		name string
		jwk  string
		only string
		want string // the algorithms it verifies; empty: passed over
	}{
		{"RSA", public(k.rsa, "k"), "", "RS256 RS384 RS512 PS256 PS384 PS512"},
		{"P-256", public(k.p256, "k"), "", "ES256"},
		{"P-384", public(k.p384, "k"), "", "ES384"},
		{"P-521", public(k.p521, "k"), "", "ES512"},
		{"Ed25519", public(k.ed, "k"), "", "EdDSA"},
		{"Ed25519 without alg", jwk(k.ed.Public(), "k", m{"alg": nil}), "", "EdDSA"},
		{"no kid", public(k.p256, ""), "", "ES256"},
		{"x a number", jwk(k.p256.Public(), "k", m{"x": 1}), "", ""},
		{"more members", jwk(k.p256.Public(), "k", m{"iat": 5, "ext": true}), "", "ES256"},
		{"alg", jwk(k.rsa.Public(), "k", m{"alg": "RS384"}), "", "RS384"},
		{"alg of another type", jwk(k.rsa.Public(), "k", m{"alg": "ES256"}), "", ""},
		{"alg HS256 on a public key", jwk(k.rsa.Public(), "k", m{"alg": "HS256"}), "", ""},
		{"alg for encryption", jwk(k.rsa.Public(), "k", m{"alg": "RSA-OAEP"}), "", ""},
		{"narrowed", public(k.rsa, "k"), "PS512", "PS512"},
		{"narrowed away", public(k.rsa, "k"), "ES256", ""},
		{"narrowed to another than its alg", jwk(k.rsa.Public(), "k", m{"alg": "RS256"}), "RS512", ""},
		{"use sig", jwk(k.p256.Public(), "k", m{"use": "sig"}), "", "ES256"},
		{"use enc", jwk(k.p256.Public(), "k", m{"use": "enc"}), "", ""},
		{"use unknown", jwk(k.p256.Public(), "k", m{"use": "all"}), "", ""},
		{"key_ops verify", jwk(k.p256.Public(), "k", m{"key_ops": []string{"verify"}}), "", "ES256"},
		{"key_ops encrypt", jwk(k.p256.Public(), "k", m{"key_ops": []string{"encrypt"}}), "", ""},
		{"key_ops sign", jwk(k.p256.Public(), "k", m{"key_ops": []string{"sign"}}), "", ""},
		{"symmetric", oct, "", ""},
		{"symmetric with alg", jwk([]byte(secret), "k", m{"alg": "HS256", "use": "sig"}), "", ""},
		{"private RSA", jwk(k.rsa, "k", nil), "", ""},
		{"private EC", jwk(k.p256, "k", nil), "", ""},
		{"private Ed25519", jwk(k.ed, "k", nil), "", ""},
		{"RSA of 1024 bits", public(rsa1024, "k"), "", ""},
		{"secp256k1", jwk(k.p256.Public(), "k", m{"crv": "secp256k1"}), "", ""},
		{"not on the curve", jwk(k.p256.Public(), "k", m{"x": "AAAA"}), "", ""},
		{"kid a number", jwk(k.p256.Public(), "k", m{"kid": 1}), "", ""},
		{"kty missing", jwk(k.p256.Public(), "k", m{"kty": nil}), "", ""},
		{"a certificate that is none", jwk(k.p256.Public(), "k", m{"x5c": []string{"AAAA"}}), "", ""},
		{"not an object", `5`, "", ""},
		{"null", `null`, "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseJWK([]byte(tt.jwk), tt.only)
			if list := strings.Join(got.algorithms, " "); list != tt.want || (err == nil) != (tt.want != "") {
				t.Fatalf("verifies %q, error %v; want %q", list, err, tt.want)
			}
			for _, hmac := range secretAlgorithms {
				if slices.Contains(got.algorithms, hmac) {
					t.Errorf("verifies %s", hmac)
				}
			}
		})
	}
}

// TestJWKS reads whole documents: a bad key costs itself only, a bad document all.
func TestJWKS(t *testing.T) {
	good := public(private().p256, "k")
	tests := []struct {
		name         string
		document     string
		keys, passed int // no key: an error
	}{
		{"one", jwks(good), 1, 0},
		{"two", jwks(good, public(private().ed, "l")), 2, 0},
		{"among bad ones", jwks(`{}`, `{"kty":"new"}`, good, `7`), 1, 3},
		{"only bad ones", jwks(`{}`, jwk([]byte(secret), "k", nil)), 0, 2},
		{"no keys", jwks(), 0, 0},
		{"no member", `{}`, 0, 0},
		{"null", `{"keys":null}`, 0, 0},
		{"KEYS", `{"KEYS":[` + good + `]}`, 0, 0},
		{"a list", `[` + good + `]`, 0, 0},
		{"HTML", `<html>`, 0, 0},
		{"empty", ``, 0, 0},
		{"cut off", jwks(good)[:100], 0, 0},
		{"keys twice", `{"keys":[` + good + `],"keys":[]}`, 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			keys, passed, err := parseJWKS([]byte(tt.document), "")
			if len(keys) != tt.keys || passed != tt.passed || (err == nil) != (tt.keys > 0) {
				t.Errorf("%d keys, %d passed over, error %v", len(keys), passed, err)
			}
		})
	}
}
