package auth

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestPEM(t *testing.T) {
	k := private()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Unix(1, 0)}
	cert := pemOf("CERTIFICATE", must(x509.CreateCertificate(rand.Reader, template, template, k.ed.Public(), k.ed)))
	small := must(rsa.GenerateKey(rand.Reader, 1024))
	p224 := must(ecdsa.GenerateKey(elliptic.P224(), rand.Reader))
	ed := pkix(k.ed.Public())

	tests := []struct {
		name string
		file []byte
		keys int    // how many are read
		want string // or a part of the error
	}{
		{"PKIX", ed, 1, ""},
		{"PKCS #1", pemOf("RSA PUBLIC KEY", x509.MarshalPKCS1PublicKey(&k.rsa.PublicKey)), 1, ""},
		{"a certificate, its dates over", cert, 1, ""},
		{"several", slices.Concat(ed, pkix(k.p521.Public()), cert), 3, ""},
		{"CRLF", bytes.ReplaceAll(ed, []byte("\n"), []byte("\r\n")), 1, ""},
		{"text in front", append([]byte("the issuer's key\n"), ed...), 1, ""},
		{"blank lines behind", append(ed, "\n \n"...), 1, ""},
		{"empty", nil, 0, "no key"},
		{"blank", []byte("\n"), 0, "no key"},
		{"text", []byte("ssh-ed25519 AAAA"), 0, "not PEM"},
		{"text behind", append(bytes.Clone(ed), "x"...), 0, "not PEM"},
		{"the second cut off", append(bytes.Clone(ed), ed[:60]...), 0, "not PEM"},
		{"PKCS #8", pemOf("PRIVATE KEY", must(x509.MarshalPKCS8PrivateKey(k.ed))), 0, "private key"},
		{"PKCS #1 private", pemOf("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(k.rsa)), 0, "private key"},
		{"SEC 1", pemOf("EC PRIVATE KEY", must(x509.MarshalECPrivateKey(k.p256))), 0, "private key"},
		{"encrypted", pemOf("ENCRYPTED PRIVATE KEY", []byte{1}), 0, "private key"},
		{"private behind public", append(bytes.Clone(ed), pemOf("PRIVATE KEY", nil)...), 0, "block 2: a private key"},
		{"private called public", pemOf("PUBLIC KEY", must(x509.MarshalPKCS8PrivateKey(k.ed))), 0, "cannot be parsed"},
		{"RSA of 1024 bits", pkix(small.Public()), 0, "2048"},
		{"P-224", pkix(p224.Public()), 0, "P-256"},
		{"a broken certificate", pemOf("CERTIFICATE", []byte{1}), 0, "cannot be parsed"},
		{"another block", pemOf("X509 CRL", []byte{1}), 0, "must be a PUBLIC KEY"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			keys, err := parsePEM(tt.file, "")
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Fatalf("error is %v, want %q", err, tt.want)
			}
			if len(keys) != tt.keys {
				t.Errorf("%d keys, want %d", len(keys), tt.keys)
			}
		})
	}
}
