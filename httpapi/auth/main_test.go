package auth

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// now is when the tests take place.
var now = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

var secret = []byte("0123456789abcdef0123456789abcdef")

// The private keys, made once: RSA ones are slow to make.
var private = sync.OnceValue(func() (k struct {
	rsa, rsa2               *rsa.PrivateKey
	p256, other, p384, p521 *ecdsa.PrivateKey
	ed                      ed25519.PrivateKey
}) {
	k.rsa, k.rsa2 = must(rsa.GenerateKey(rand.Reader, 2048)), must(rsa.GenerateKey(rand.Reader, 2048))
	k.p256, k.other = must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)), must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	k.p384 = must(ecdsa.GenerateKey(elliptic.P384(), rand.Reader))
	k.p521 = must(ecdsa.GenerateKey(elliptic.P521(), rand.Reader))
	_, k.ed = must2(ed25519.GenerateKey(rand.Reader))
	return k
})

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func must2[T, U any](v T, u U, err error) (T, U) {
	if err != nil {
		panic(err)
	}
	return v, u
}

func b64(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }

// sign makes a JWT of exactly this header and these claims.
func sign(alg string, key any, header, claims string) string {
	text := b64(header) + "." + b64(claims)
	return text + "." + b64(string(must(jwt.GetSigningMethod(alg).Sign(text, key))))
}

// hs256 makes a JWT of these claims that the test's secret verifies.
func hs256(claims string) string { return sign("HS256", secret, `{"alg":"HS256","typ":"JWT"}`, claims) }

// at is a NumericDate, so far from now.
func at(d time.Duration) string { return fmt.Sprint(now.Add(d).Unix()) }

// alice makes claims that are good for an hour, with more in front of the closing brace.
func alice(more string) string { return `{"sub":"alice","exp":` + at(time.Hour) + more + `}` }

func pemOf(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func pkix(public any) []byte { return pemOf("PUBLIC KEY", must(x509.MarshalPKIXPublicKey(public))) }

// open returns the Authenticator of c at the test's time.
func open(t testing.TB, c Config) *Authenticator {
	t.Helper()
	if c.Clock == nil {
		c.Clock = func() time.Time { return now }
	}
	a, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	return a
}

func ask(a *Authenticator, bearer string) (Identity, error) {
	return a.Authenticate(context.Background(), []string{"Bearer " + bearer})
}

// wantReason fails unless err is a *Refusal of want, or nil where want is.
func wantReason(t testing.TB, err error, want *Reason) {
	t.Helper()
	if want == nil {
		if err != nil {
			t.Errorf("refused: %v", err)
		}
		return
	}
	var no *Refusal
	if !errors.As(err, &no) || no.Reason != want {
		t.Errorf("got %v, want %v", err, want)
	}
}
