package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// testCert is a self-signed certificate in files.
type testCert struct {
	t                 *testing.T
	certFile, keyFile string
	modified          time.Time
}

func newTestCert(t *testing.T, name string) *testCert {
	t.Helper()
	dir := t.TempDir()
	c := &testCert{t, filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), time.Now()}
	c.write(name)
	return c
}

// write puts a new certificate of name into the files.
func (c *testCert) write(name string) {
	c.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		c.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		c.t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		c.t.Fatal(err)
	}
	c.put(c.certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	c.put(c.keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}))
}

// put writes a file that was modified later than all before it.
func (c *testCert) put(path string, b []byte) {
	c.t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		c.t.Fatal(err)
	}
	c.modified = c.modified.Add(time.Second)
	if err := os.Chtimes(path, c.modified, c.modified); err != nil {
		c.t.Fatal(err)
	}
}

func TestCertificateIsReloaded(t *testing.T) {
	files := newTestCert(t, "one")
	cert, err := newCertificate(files.certFile, files.keyFile, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	cert.now = func() time.Time { return now }
	served := func() string {
		t.Helper()
		pair, err := cert.get(nil)
		if err != nil {
			t.Fatal(err)
		}
		return pair.Leaf.Subject.CommonName
	}
	steps := []struct {
		what string
		do   func()
		want string
	}{
		{"nothing", func() {}, "one"},
		{"new files, no look yet", func() { files.write("two") }, "one"},
		{"a second later", func() { now = now.Add(checkEvery) }, "two"},
		{"half written", func() { files.put(files.keyFile, nil); now = now.Add(checkEvery) }, "two"},
		{"removed", func() { os.Remove(files.keyFile); now = now.Add(checkEvery) }, "two"},
		{"whole again", func() { files.write("three"); now = now.Add(checkEvery) }, "three"},
	}
	for _, s := range steps {
		s.do()
		if got := served(); got != s.want {
			t.Errorf("%s: %s is served, want %s", s.what, got, s.want)
		}
	}
}
