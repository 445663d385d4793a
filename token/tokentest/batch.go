package tokentest

import (
	"errors"
	"testing"
	"time"

	"example.com/tokend/token"
)

func testIssueBatch(t *testing.T, e *env) {
	rate := token.Rate{PerMinute: 1, Burst: 5}
	svc := e.service(token.Options{Rate: rate})
	ask := token.IssueRequest{User: e.user, Purpose: purpose, Limited: true}
	got, err := svc.IssueBatch(t.Context(), ask, 4)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[token.ID]bool{}
	for _, tok := range got {
		if seen[tok.ID] || !tok.IssuedAt.Equal(got[0].IssuedAt) || tok.Text == "" {
			t.Errorf("a batch's token: %+v", tok)
		}
		seen[tok.ID] = true
		opened, err := svc.Open(token.Use{Text: tok.Text, User: e.user, Purpose: purpose})
		if err != nil {
			t.Fatal(err)
		}
		e.consumed(opened, "a", "")
	}
	// 4 of 5 are spent: 2 more are refused whole, 1 more is not.
	var no *token.Refusal
	if _, err := svc.IssueBatch(t.Context(), ask, 2); !errors.As(err, &no) || no.Reason != token.ErrRateLimited {
		t.Errorf("2 tokens where 1 is left: %v, want %v", err, token.ErrRateLimited)
	} else if no.RetryAfter <= 0 || no.RetryAfter > time.Minute {
		t.Errorf("retry after %v", no.RetryAfter)
	}
	if _, err := svc.IssueBatch(t.Context(), ask, 1); err != nil {
		t.Errorf("the last one: %v", err)
	}
	var invalid *token.InvalidError
	if _, err := svc.IssueBatch(t.Context(), ask, 6); !errors.As(err, &invalid) || invalid.Field != "count" {
		t.Errorf("more than the burst: %v, want an InvalidError that names count", err)
	}
	ask.Limited = false
	if _, err := svc.IssueBatch(t.Context(), ask, 100); err != nil {
		t.Errorf("a call that is not limited: %v", err)
	}
}

func testConsumeBatch(t *testing.T, e *env) {
	del := e.service(token.Options{Mode: token.Delete})
	fresh, used, deleted, deletedUsed := e.issue(e.svc, time.Minute), e.issue(e.svc, time.Minute), e.issue(del, time.Minute), e.issue(del, time.Minute)
	e.consumed(used, "before", "")
	e.consumed(deletedUsed, "before", "")
	lost := *fresh
	lost.ID = token.NewID()
	other := e.user
	cs := []token.Consumption{
		e.consumption(fresh, "a", ""), e.consumption(used, "a", ""), e.consumption(&lost, "a", ""),
		e.consumption(fresh, "b", ""), e.consumption(fresh, "a", ""), e.consumption(used, "before", ""),
		e.consumption(deleted, "a", ""), e.consumption(deletedUsed, "a", ""), e.consumption(deleted, "b", ""),
	}
	// And tokens of users whose keys other servers may hold.
	for i := range 20 {
		e.user = other + token.User(rune('a'+i))
		cs = append(cs, e.consumption(e.issue(e.svc, time.Minute), "a", ""))
	}
	want := make([]error, len(cs))
	want[1], want[2], want[3] = token.ErrUsed, token.ErrLost, token.ErrUsed
	want[7], want[8] = token.ErrUsed, token.ErrUsed
	got, errs := e.Store.ConsumeBatch(t.Context(), cs)
	if len(got) != len(cs) || len(errs) != len(cs) {
		t.Fatalf("%d and %d answers to %d", len(got), len(errs), len(cs))
	}
	for i := range cs {
		if want[i] == nil && errs[i] != nil || want[i] != nil && !errors.Is(errs[i], want[i]) {
			t.Errorf("item %d: %v, want %v", i, errs[i], want[i])
		}
		if replayed := i == 4 || i == 5; errs[i] == nil && got[i].Replayed != replayed {
			t.Errorf("item %d: replayed is %v", i, got[i].Replayed)
		}
	}
}

func testRevoke(t *testing.T, e *env) {
	tok := e.issue(e.svc, time.Minute)
	got, err := e.Store.Revoke(t.Context(), e.subject(tok))
	if err != nil || got.State != token.StateRevoked || got.RevokedAt.IsZero() {
		t.Fatalf("revoke: %+v, %v", got, err)
	}
	no := e.refused(tok, "a", "", token.ErrRevoked)
	if !no.RevokedAt.Equal(got.RevokedAt) {
		t.Errorf("revoked at %v, want %v", no.RevokedAt, got.RevokedAt)
	}
	for _, sub := range []token.Subject{e.subject(tok), e.byRef(tok)} {
		if again, err := e.Store.Revoke(t.Context(), sub); err != nil || again != got {
			t.Errorf("revoke again: %+v, %v; want %+v", again, err, got)
		}
	}
	if st := e.status(tok, token.StateRevoked); !st.RevokedAt.Equal(got.RevokedAt) || st.IssuedAt.IsZero() {
		t.Errorf("status: %+v", st)
	}
	tok = e.issue(e.svc, time.Minute)
	if got, err := e.Store.Revoke(t.Context(), e.byRef(tok)); err != nil || got.State != token.StateRevoked || !got.ExpiresAt.Equal(tok.ExpiresAt) {
		t.Errorf("revoke by ref: %+v, %v", got, err)
	}
	e.refused(tok, "a", "", token.ErrRevoked)
}

func testRevokeTooLate(t *testing.T, e *env) {
	used, expired := e.issue(e.svc, time.Minute), e.issue(e.svc, time.Second)
	stale := e.issue(e.service(token.Options{Settings: token.Settings{Retention: time.Second}}), time.Second)
	revoked := e.issue(e.svc, time.Second)
	if _, err := e.Store.Revoke(t.Context(), e.subject(revoked)); err != nil {
		t.Fatal(err)
	}
	e.consumed(used, "a", "")
	lost := *used
	lost.ID = token.NewID()
	e.Advance(2200 * time.Millisecond)
	for _, tt := range []struct {
		tok   *token.Token
		want  token.State
		byRef token.State
		why   *token.Reason
	}{
		{used, token.StateUsed, token.StateUsed, token.ErrUsed},
		{expired, token.StateExpired, token.StateGone, token.ErrExpired},
		{stale, token.StateStale, token.StateGone, token.ErrStale},
		{&lost, token.StateLost, token.StateGone, token.ErrLost},
		{revoked, token.StateRevoked, token.StateRevoked, token.ErrRevoked}, // past its expiry
	} {
		if got, err := e.Store.Revoke(t.Context(), e.subject(tt.tok)); err != nil || got.State != tt.want {
			t.Errorf("revoke of what is %s: %q, %v", tt.want, got.State, err)
		}
		if got, err := e.Store.Revoke(t.Context(), e.byRef(tt.tok)); err != nil || got.State != tt.byRef {
			t.Errorf("revoke by ref of what is %s: %q, %v; want %q", tt.want, got.State, err, tt.byRef)
		}
		e.refused(tt.tok, "b", "", tt.why)
	}
}

// testRevokeJustExpired revokes what is past its life while its record still stands: it is
// expired, and stays so.
func testRevokeJustExpired(t *testing.T, e *env) {
	plain, released := e.issue(e.svc, time.Second), e.issue(e.svc, time.Second)
	e.released(e.claimed(claiming(e.subject(released), "a")).Handle)
	e.Advance(1100 * time.Millisecond)
	for _, tok := range []*token.Token{plain, released} {
		if got, err := e.Store.Revoke(t.Context(), e.subject(tok)); err != nil || got.State != token.StateExpired {
			t.Errorf("revoke of what is expired: %+v, %v", got, err)
		}
		e.refused(tok, "a", "", token.ErrExpired)
	}
}

func testByRef(t *testing.T, e *env) {
	ask := func(sub token.Subject) token.Status {
		t.Helper()
		got, err := e.Store.Status(t.Context(), sub)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	tok := e.issue(e.svc, time.Minute)
	for range 2 {
		if got, want := ask(e.byRef(tok)), ask(e.subject(tok)); got != want {
			t.Errorf("by ref: %+v, want %+v", got, want)
		}
		e.consumed(tok, "a", "")
	}
	sub := e.byRef(tok)
	sub.User += "x"
	if got := ask(sub); got != (token.Status{State: token.StateGone}) {
		t.Errorf("another user's: %+v, want it gone", got)
	}
	expired := e.issue(e.svc, time.Second)
	e.Advance(1100 * time.Millisecond)
	if got := ask(e.byRef(expired)); got.State != token.StateExpired && got.State != token.StateGone {
		t.Errorf("just expired: %+v", got)
	}
	e.Advance(1500 * time.Millisecond)
	if got := ask(e.byRef(expired)); got.State != token.StateGone {
		t.Errorf("expired: %+v, want it gone", got)
	}
}
