package tokentest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.com/tokend/token"
)

func testDeleteMode(t *testing.T, e *env) {
	svc := e.service(token.Options{Mode: token.Delete})
	tok, kept := e.issue(svc, time.Minute), e.issue(svc, time.Second)
	e.status(tok, token.StateIssued)
	if got := e.consumed(tok, "a", "d"); got.Replayed || got.UsedAt.IsZero() {
		t.Errorf("consumed: %+v", got)
	}
	for _, a := range []token.Attempt{"b", "a"} { // the same attempt too: nothing remembers it
		no := e.refused(tok, a, "", token.ErrUsed)
		if !no.UsedAt.IsZero() || no.UsedBy != "" {
			t.Errorf("refusal: %+v, want no used_at and used_by", no)
		}
	}
	e.status(tok, token.StateUsed)
	if _, err := svc.Revoke(t.Context(), e.subject(tok)); !errors.Is(err, token.ErrModeUnsupported) {
		t.Errorf("revoke: %v, want %v", err, token.ErrModeUnsupported)
	}
	if _, err := svc.Revoke(t.Context(), e.byRef(kept)); !errors.Is(err, token.ErrModeUnsupported) {
		t.Errorf("revoke by ref: %v, want %v", err, token.ErrModeUnsupported)
	}
	e.Advance(1100 * time.Millisecond)
	e.refused(kept, "a", "", token.ErrGone) // its key may still stand
	e.status(kept, token.StateGone)
	e.Advance(1500 * time.Millisecond)
	e.refused(kept, "a", "", token.ErrGone)
	e.status(kept, token.StateGone)
}

func testDeleteModeOneWinner(t *testing.T, e *env) {
	svc := e.service(token.Options{Mode: token.Delete})
	for range 10 {
		tok := e.issue(svc, time.Minute)
		var winners, unknown atomic.Int32
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				_, err := e.consume(tok, token.Attempt(fmt.Sprintf("caller-%d", i)), "")
				var f *token.Fault
				switch {
				case err == nil:
					winners.Add(1)
				case errors.As(err, &f) && f.Unknown:
					unknown.Add(1)
				case !errors.Is(err, token.ErrUsed):
					t.Errorf("a loser: %v", err)
				}
			})
		}
		wg.Wait()
		if n := winners.Load(); n > 1 || n == 0 && unknown.Load() == 0 {
			t.Fatalf("%d callers consumed one token", n)
		}
	}
}
