package tokentest

import (
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"example.com/tokend/token"
)

// modelToken is what a token should be, without a store.
type modelToken struct {
	tok     *token.Token
	used    bool
	revoked bool
	attempt token.Attempt
	digest  token.Digest
}

// consume returns what a consume at now must answer: nil, with replayed, or the reason.
func (m *modelToken) consume(now time.Time, a token.Attempt, d token.Digest) (replayed bool, why *token.Reason) {
	last := m.tok.ExpiresAt.Add(m.tok.Retention)
	switch {
	case now.After(last):
		return false, token.ErrStale
	case m.used && m.digest != "" && d != "" && m.digest != d:
		return false, token.ErrDigestMismatch
	case m.used && m.attempt == a:
		return true, nil
	case m.used:
		return false, token.ErrUsed
	case m.revoked:
		return false, token.ErrRevoked
	case !now.Before(m.tok.ExpiresAt):
		return false, token.ErrExpired
	}
	m.used, m.attempt, m.digest = true, a, d
	return false, nil
}

func (m *modelToken) state(now time.Time) token.State {
	switch {
	case now.After(m.tok.ExpiresAt.Add(m.tok.Retention)):
		return token.StateStale
	case m.used:
		return token.StateUsed
	case m.revoked:
		return token.StateRevoked
	case !now.Before(m.tok.ExpiresAt):
		return token.StateExpired
	}
	return token.StateIssued
}

// revoke returns the state that a revoke at now must answer.
func (m *modelToken) revoke(now time.Time) token.State {
	if m.state(now) == token.StateIssued {
		m.revoked = true
	}
	return m.state(now)
}

// testModel runs random calls against the store and a model of it side by side.
func testModel(t *testing.T, e *env) {
	span := 10 * time.Second
	if !e.Movable {
		span = time.Hour // nothing expires while the test runs, however slowly
	}
	rapid.Check(t, func(rt *rapid.T) {
		var tokens []*modelToken
		now := e.issueNow(rt)
		pick := func(rt *rapid.T) *modelToken {
			if len(tokens) == 0 {
				rt.Skip("no token yet")
			}
			return tokens[rapid.IntRange(0, len(tokens)-1).Draw(rt, "token")]
		}
		actions := map[string]func(*rapid.T){
			"issue": func(rt *rapid.T) {
				svc := e.service(token.Options{Settings: token.Settings{
					Retention: time.Duration(rapid.IntRange(1, 5).Draw(rt, "retention")) * span,
				}})
				ttl := time.Duration(rapid.IntRange(1, 5).Draw(rt, "ttl")) * span
				tokens = append(tokens, &modelToken{tok: e.issue(svc, ttl)})
			},
			"consume": func(rt *rapid.T) {
				m := pick(rt)
				a := rapid.SampledFrom([]token.Attempt{"a", "b", "c"}).Draw(rt, "attempt")
				d := rapid.SampledFrom([]token.Digest{"", "d1", "d2"}).Draw(rt, "digest")
				replayed, why := m.consume(now, a, d)
				got, err := e.consume(m.tok, a, d)
				if why == nil && (err != nil || got.Replayed != replayed) || why != nil && !errors.Is(err, why) {
					rt.Fatalf("consume by %s with %q: %+v, %v; want replayed=%v, %v", a, d, got, err, replayed, why)
				}
			},
			"revoke": func(rt *rapid.T) {
				m := pick(rt)
				want := m.revoke(now)
				got, err := e.Store.Revoke(e.t.Context(), e.subject(m.tok))
				if err != nil || got.State != want {
					rt.Fatalf("revoke: %q, %v; want %q", got.State, err, want)
				}
			},
			"status": func(rt *rapid.T) {
				m := pick(rt)
				got, err := e.Store.Status(e.t.Context(), e.subject(m.tok))
				if err != nil || got.State != m.state(now) {
					rt.Fatalf("status: %q, %v; want %q", got.State, err, m.state(now))
				}
			},
		}
		if e.Movable {
			actions["advance"] = func(rt *rapid.T) {
				// Steps miss the boundaries, which have tests of their own.
				d := time.Duration(rapid.IntRange(1, 20).Draw(rt, "seconds"))*time.Second + time.Millisecond
				e.Advance(d)
				now = now.Add(d)
			}
		}
		rt.Repeat(actions)
	})
}

// issueNow returns the store's time.
func (e *env) issueNow(rt *rapid.T) time.Time {
	got, err := e.Store.Issue(e.t.Context(), token.NewRecords{
		IDs: newIDs(1), User: e.user, Mode: token.Record, TTL: time.Second, Retention: time.Second,
	})
	if err != nil {
		rt.Fatal(err)
	}
	return got.IssuedAt
}
