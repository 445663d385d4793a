package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"net/http"

	"example.com/tokend/client/guard"
	"example.com/tokend/client/sqlguard"
)

// note is what the log says of a request: who, under which key, which request, what became of
// the transaction, and which lines were in conflict. Bodies are no part of it.
type note struct {
	scope, user, key, digest string
	transaction              string // "not begun", "committed", "replayed", "rolled back" or "unknown"
	conflicts                []int
	status                   int
	code, ref                string
	err                      error
}

type noteKey struct{}

// noteOf returns the note on r.
func noteOf(r *http.Request) *note {
	if n, ok := r.Context().Value(noteKey{}).(*note); ok {
		return n
	}
	return new(note) // nobody reads it
}

// noted writes a line for each request that h serves.
func (s *service) noted(scope string, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := &note{scope: scope, user: userOf(r), key: r.Header.Get("Idempotency-Key"), transaction: "not begun"}
		defer func() {
			attrs := []slog.Attr{
				slog.String("user", n.user), slog.String("key", masked(n.key)), slog.String("digest", n.digest),
				slog.String("transaction", n.transaction), slog.Int("status", n.status), slog.String("code", n.code),
			}
			if len(n.conflicts) > 0 {
				attrs = append(attrs, slog.Any("conflict_lines", n.conflicts))
			}
			if n.ref != "" {
				attrs = append(attrs, slog.String("ref", n.ref))
			}
			level := slog.LevelInfo
			if n.err != nil {
				level, attrs = slog.LevelError, append(attrs, slog.String("error", n.err.Error()))
			}
			s.log.LogAttrs(r.Context(), level, scope, attrs...)
		}()
		r = r.WithContext(context.WithValue(r.Context(), noteKey{}, n))
		if err := checkHeaders(r); err != nil {
			s.failed(w, r, err)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// observed notes what the guard has done by itself.
func (s *service) observed(e guard.Event) {
	if e.Kind == guard.EventReplayed {
		n := noteOf(e.Request)
		n.ref, n.code = e.Ref, "REPLAYED"
	}
}

// masked is enough of a key to find it by, and too little to use it.
func masked(key string) string {
	if key == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(key))
	tail := "…" + hex.EncodeToString(sum[:4])
	if len(key) < 16 {
		return tail
	}
	return key[:4] + tail
}

// noteDigest makes a digest of what read makes of a body, for guard and sqlguard alike: both
// layers then call the same two requests the same.
func noteDigest[T any](read func(body []byte) (T, string, error)) func(*http.Request, []byte) ([]byte, error) {
	return func(r *http.Request, body []byte) ([]byte, error) {
		_, meaning, err := read(body)
		if err != nil {
			return nil, err
		}
		n := noteOf(r)
		n.digest = sqlguard.Digest(r.Method, r.URL.Path, meaning)
		return []byte(n.digest), nil
	}
}
