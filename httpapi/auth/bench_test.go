package auth

import (
	"context"
	"testing"
	"time"
)

// BenchmarkAuthenticate is what every request pays. The JWTs are some 400 bytes long, as
// issuers' are. The uncached ones are forgotten each time.
func BenchmarkAuthenticate(b *testing.B) {
	k := private()
	claims := alice(`,"iss":"https://issuer.example/","aud":["tokend"],"scope":"openid profile tokend.consume","client_id":"orders","jti":"0b9c5b5e-6f0e-4b43-9b0e-6d6a2a0f3c11"`)
	key, sum := NewServiceKey()
	for _, bm := range []struct {
		name     string
		config   Config
		bearer   string
		uncached bool
	}{
		{"HS256 cached", Config{Secrets: [][]byte{secret}}, hs256(claims), false},
		{"HS256 uncached", Config{Secrets: [][]byte{secret}}, hs256(claims), true},
		{"ES256 cached", Config{PublicKeys: pkix(k.p256.Public())}, sign("ES256", k.p256, `{"alg":"ES256"}`, claims), false},
		{"ES256 uncached", Config{PublicKeys: pkix(k.p256.Public())}, sign("ES256", k.p256, `{"alg":"ES256"}`, claims), true},
		{"RS256 uncached", Config{PublicKeys: pkix(k.rsa.Public())}, sign("RS256", k.rsa, `{"alg":"RS256"}`, claims), true},
		{"service key", Config{ServiceKeys: must(ParseServiceKeys("orders:" + sum + ":tokend.consume"))}, key, false},
	} {
		b.Run(bm.name, func(b *testing.B) {
			bm.config.Leeway, bm.config.Clock = DefaultLeeway, func() time.Time { return now }
			a := open(b, bm.config)
			header := []string{"Bearer " + bm.bearer}
			b.ReportAllocs()
			for b.Loop() {
				if bm.uncached {
					a.keys.current().verified.forget(bm.bearer)
				}
				if _, err := a.Authenticate(context.Background(), header); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestHitsAllocateNothing keeps the request path as cheap as the cache is meant to make it.
func TestHitsAllocateNothing(t *testing.T) {
	a := open(t, Config{Secrets: [][]byte{secret}})
	header := []string{"Bearer " + hs256(alice(""))}
	got := testing.AllocsPerRun(100, func() {
		if _, err := a.Authenticate(context.Background(), header); err != nil {
			t.Fatal(err)
		}
	})
	if got > 1 {
		t.Errorf("%v allocations", got)
	}
}
