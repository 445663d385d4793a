package tokentest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.com/tokend/token"
)

// again calls f until it is answered.
func again[T any](f func() (T, error)) (T, error) {
	got, err := f()
	for isFault(err) {
		got, err = f()
	}
	return got, err
}

// testOneHolder has many claim at once: one holds it, and then the next.
func testOneHolder(t *testing.T, e *env) {
	e.both(t, func(t *testing.T, sub token.Subject) {
		e.t = t
		for round := range uint32(10) {
			var holders atomic.Int32
			var holder token.Handle
			var wg sync.WaitGroup
			for i := range 50 {
				wg.Go(func() {
					c := claiming(sub, token.Attempt(fmt.Sprintf("%d-%d", round, i)))
					got, err := again(func() (token.Claimed, error) { return e.Store.Claim(t.Context(), c) })
					switch {
					case err == nil:
						holder = got.Handle
						holders.Add(1)
					case !errors.Is(err, token.ErrInProgress):
						t.Errorf("a loser: %v", err)
					}
				})
			}
			wg.Wait()
			if n := holders.Load(); n != 1 || holder.Fence != round+1 {
				t.Fatalf("%d hold the claim, fence %d, want 1 and %d", n, holder.Fence, round+1)
			}
			e.released(holder)
		}
	})
}

// testStepsRace has a holder whose lease is over take a step while others claim. Whoever
// comes first, exactly one is right, and fences only grow.
func testStepsRace(t *testing.T, e *env) {
	steps := map[string]func(token.Handle) error{
		"complete": func(h token.Handle) error { _, err := e.Store.Complete(t.Context(), h, nil); return err },
		"release":  func(h token.Handle) error { return e.Store.Release(t.Context(), h) },
		"commit":   func(h token.Handle) error { _, err := e.Store.Commit(t.Context(), h); return err },
		"renew":    func(h token.Handle) error { _, err := e.Store.Renew(t.Context(), h, lease); return err },
	}
	for name, step := range steps {
		const rounds = 30
		var handles [rounds]token.Handle
		subs := make([]token.Subject, rounds)
		for i := range rounds {
			subs[i] = e.key()
			c := claiming(subs[i], "holder")
			c.Lease = time.Second
			handles[i] = e.claimed(c).Handle
		}
		e.Advance(1100 * time.Millisecond)
		won := 0
		for i, sub := range subs {
			var stepErr error
			take := func() {
				_, stepErr = again(func() (struct{}, error) { return struct{}{}, step(handles[i]) })
			}
			const claimers = 3
			var got [claimers]token.Claimed
			var errs [claimers]error
			claim := func(j int) {
				c := claiming(sub, token.Attempt(fmt.Sprint(j)))
				got[j], errs[j] = again(func() (token.Claimed, error) { return e.Store.Claim(t.Context(), c) })
			}
			var wg sync.WaitGroup
			switch i { // both orders come up, whatever the scheduler does
			case 0:
				take()
			case 1:
				claim(0)
				take()
			default:
				wg.Go(take)
			}
			for j := range claimers {
				wg.Go(func() { claim(j) })
			}
			wg.Wait()
			var fences []uint32
			for j := range claimers {
				if errs[j] == nil && got[j].State == token.StateClaimed {
					fences = append(fences, got[j].Handle.Fence)
				}
			}
			slices.Sort(fences)
			// A release lets another in; the other steps and a claim exclude each other.
			switch {
			case stepErr == nil && name == "release" && slices.Equal(fences, []uint32{2}):
				won++
			case stepErr == nil && name != "release" && len(fences) == 0:
				won++
			case errors.Is(stepErr, token.ErrSuperseded) && slices.Equal(fences, []uint32{2}):
			default:
				t.Fatalf("%s: %v, and claims of fences %v: %v", name, stepErr, fences, errs)
			}
		}
		if won == 0 || won == rounds {
			t.Errorf("%s came first in %d of %d rounds", name, won, rounds)
		}
	}
}

// testWait has calls wait that are answered by what the holder does.
func testWait(t *testing.T, e *env) {
	r := &token.Result{Status: 200, Headers: map[string]string{}, Body: []byte("done")}
	tests := []struct {
		name string
		end  func(token.Handle, token.Subject)
		want func(token.Claimed, error) bool
	}{
		{"completed", func(h token.Handle, _ token.Subject) { e.completed(h, r) },
			func(got token.Claimed, err error) bool {
				return err == nil && got.State == token.StateCompleted && string(got.Result.Body) == "done"
			}},
		{"released", func(h token.Handle, _ token.Subject) { e.released(h) },
			func(got token.Claimed, err error) bool {
				return err == nil && got.State == token.StateClaimed && got.Handle.Fence == 2 && got.Text != ""
			}},
		{"revoked", func(_ token.Handle, sub token.Subject) { e.Store.Revoke(t.Context(), sub) },
			func(_ token.Claimed, err error) bool { return errors.Is(err, token.ErrRevoked) }},
	}
	for _, tt := range tests {
		sub := e.subject(e.issue(e.svc, time.Minute))
		h := e.claimed(claiming(sub, "a")).Handle
		woken, stop := e.Store.Watch(sub) // tells that watching has begun, for the waiter below too
		defer stop()
		type answer struct {
			got token.Claimed
			err error
		}
		answered := make(chan answer)
		go func() {
			got, err := e.svc.Claim(t.Context(), token.ClaimRequest{Subject: sub, Purpose: purpose, Attempt: "b", Lease: lease, Wait: 25 * time.Second})
			answered <- answer{got, err}
		}()
		<-woken
		select {
		case a := <-answered:
			t.Fatalf("%s: answered before it was: %+v, %v", tt.name, a.got, a.err)
		case <-time.After(50 * time.Millisecond):
		}
		e.tells(tt.name, woken, func() { tt.end(h, sub) })
		if a := <-answered; !tt.want(a.got, a.err) {
			t.Errorf("%s: %+v, %v", tt.name, a.got, a.err)
		}
	}
}

// testConsumeTells has a consume take over what others wait for.
func testConsumeTells(t *testing.T, e *env) {
	c := claiming(e.subject(e.issue(e.svc, time.Minute)), "a")
	c.Lease = time.Second
	e.claimed(c)
	e.Advance(1100 * time.Millisecond)
	woken, stop := e.Store.Watch(c.Subject)
	defer stop()
	<-woken // it has begun
	e.tells("consumed", woken, func() { e.consumed(c.Token, "b", "") })
}

// tells fails the test unless a watch is told of end, which needs no poll then.
func (e *env) tells(what string, woken <-chan struct{}, end func()) {
	e.t.Helper()
	for len(woken) > 0 {
		<-woken
	}
	end()
	select {
	case <-woken:
	case <-time.After(10 * time.Second):
		e.t.Errorf("%s: nobody was told", what)
	}
}
