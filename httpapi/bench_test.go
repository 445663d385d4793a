package httpapi_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"example.com/tokend/httpapi"
	"example.com/tokend/httpapi/auth"
	"example.com/tokend/httpapi/wire"
	"example.com/tokend/token"
)

// instantStore answers at once: what is left is what a request costs beside Redis.
type instantStore struct{ token.Store }

func (instantStore) Issue(_ context.Context, n token.NewRecords) (token.Issued, error) {
	now := time.Now()
	return token.Issued{IssuedAt: now, ExpiresAt: now.Add(n.TTL)}, nil
}

func (instantStore) Consume(context.Context, token.Consumption) (token.Consumed, error) {
	return token.Consumed{UsedAt: time.Now()}, nil
}

func BenchmarkRequest(b *testing.B) {
	ring, err := token.NewRing(signingKey)
	if err != nil {
		b.Fatal(err)
	}
	callers, err := auth.New(auth.Config{Secrets: [][]byte{jwtSecret}})
	if err != nil {
		b.Fatal(err)
	}
	svc := token.NewService(ring, instantStore{}, token.Options{
		Mode: token.Record, Settings: token.Settings{TTL: time.Minute, MaxTTL: time.Hour, Retention: time.Hour},
	})
	srv := httpapi.New(httpapi.Options{
		Tokens: svc, Callers: callers, Log: slog.New(slog.NewJSONHandler(io.Discard, nil)),
		Metrics: httpapi.NewMetrics("", "", ring.KeyIDs(), func() httpapi.Pool { return httpapi.Pool{} }),
	})
	issued, err := svc.Issue(b.Context(), token.IssueRequest{User: "alice", Purpose: "order.create"})
	if err != nil {
		b.Fatal(err)
	}
	for _, bench := range []struct{ name, path, auth, body string }{
		{"issue", wire.PathTokens, userJWT(b, "alice"), `{"purpose":"order.create"}`},
		{"consume", wire.PathConsume, serviceJWT(b, "tokend.consume"), body("token", issued.Text, "user", "alice", "purpose", "order.create")},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			req, err := http.NewRequest(http.MethodPost, bench.path, nil)
			if err != nil {
				b.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+bench.auth)
			req.Header.Set("Content-Type", "application/json")
			w := discard{}
			for b.Loop() {
				req.Body = io.NopCloser(strings.NewReader(bench.body))
				req.ContentLength = int64(len(bench.body))
				srv.ServeHTTP(w, req)
			}
		})
	}
}
