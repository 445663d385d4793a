package tokentest

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/tokend/token"
)

const lease = 30 * time.Second

// claiming returns a claim of sub by attempt a, to be changed as the test needs.
func claiming(sub token.Subject, a token.Attempt) token.Claiming {
	return token.Claiming{Subject: sub, Attempt: a, Lease: lease, Retention: time.Hour}
}

// key returns a key that no other test uses.
func (e *env) key() token.Subject {
	return token.KeySubject(e.user, purpose, token.IdempotencyKey(token.NewAttempt()))
}

// both runs test on a new token and on a new key.
func (e *env) both(t *testing.T, test func(t *testing.T, sub token.Subject)) {
	e.t = t
	t.Run("token", func(t *testing.T) { test(t, e.subject(e.issue(e.svc, time.Minute))) })
	t.Run("key", func(t *testing.T) { test(t, e.key()) })
}

// claimed claims, or fails the test.
func (e *env) claimed(c token.Claiming) token.Claimed {
	e.t.Helper()
	got, err := e.Store.Claim(e.t.Context(), c)
	if err != nil || got.State != token.StateClaimed {
		e.t.Fatalf("claim by %s: %+v, %v", c.Attempt, got, err)
	}
	if got.Handle.Ref() != c.Ref() || got.Handle.Attempt != c.Attempt.Hash() || got.Handle.User != c.User.Hash() {
		e.t.Errorf("claim by %s: its handle is of %+v", c.Attempt, got.Handle)
	}
	return got
}

// notClaimed claims and fails the test unless it is refused for why.
func (e *env) notClaimed(c token.Claiming, why *token.Reason) *token.Refusal {
	e.t.Helper()
	got, err := e.Store.Claim(e.t.Context(), c)
	var no *token.Refusal
	if !errors.As(err, &no) || no.Reason != why {
		e.t.Fatalf("claim by %s: %+v, %v; want the refusal %q", c.Attempt, got, err, why)
	}
	if no.Ref != c.Ref() {
		e.t.Errorf("claim by %s: the refusal is of %s, want %s", c.Attempt, no.Ref, c.Ref())
	}
	return no
}

// replay claims and fails the test unless it is answered with want.
func (e *env) replay(c token.Claiming, want *token.Result) {
	e.t.Helper()
	got, err := e.Store.Claim(e.t.Context(), c)
	if err != nil || got.State != token.StateCompleted || !got.Replayed {
		e.t.Fatalf("claim of what is completed: %+v, %v", got, err)
	}
	if diff := cmp.Diff(want, got.Result); diff != "" {
		e.t.Errorf("the result differs (-want +got):\n%s", diff)
	}
}

// steps are a claim's later steps, each with what it is told.
func (e *env) steps(ctx context.Context, h token.Handle) map[string]error {
	_, commit := e.Store.Commit(ctx, h)
	_, renew := e.Store.Renew(ctx, h, lease)
	_, complete := e.Store.Complete(ctx, h, &token.Result{Status: 299})
	return map[string]error{"commit": commit, "renew": renew, "complete": complete, "release": e.Store.Release(ctx, h)}
}

// refusesSteps fails the test unless each later step of h's claim is refused for why, but
// for those named.
func (e *env) refusesSteps(h token.Handle, why *token.Reason, but ...string) {
	e.t.Helper()
	for step, err := range e.steps(e.t.Context(), h) {
		want := error(why)
		for _, name := range but {
			if name == step {
				want = nil
			}
		}
		if !errors.Is(err, want) {
			e.t.Errorf("%s by fence %d: %v, want %v", step, h.Fence, err, want)
		}
	}
}

func (e *env) completed(h token.Handle, r *token.Result) token.Completed {
	e.t.Helper()
	got, err := e.Store.Complete(e.t.Context(), h, r)
	if err != nil {
		e.t.Fatalf("complete: %v", err)
	}
	return got
}

func (e *env) released(h token.Handle) {
	e.t.Helper()
	if err := e.Store.Release(e.t.Context(), h); err != nil {
		e.t.Fatalf("release: %v", err)
	}
}

func (e *env) committed(h token.Handle) token.Held {
	e.t.Helper()
	got, err := e.Store.Commit(e.t.Context(), h)
	if err != nil || !got.Committed {
		e.t.Fatalf("commit: %+v, %v", got, err)
	}
	return got
}

// claimStatus returns sub's status, or fails the test unless its state is want.
func (e *env) claimStatus(sub token.Subject, want token.State) token.Status {
	e.t.Helper()
	got, err := e.Store.ClaimStatus(e.t.Context(), sub)
	if err != nil || got.State != want {
		e.t.Fatalf("status: %+v, %v; want %s", got, err, want)
	}
	without, err := e.Store.Status(e.t.Context(), sub)
	got.Result, without.Result = nil, nil
	if err != nil || without != got {
		e.t.Errorf("status without the result: %+v, %v; want %+v", without, err, got)
	}
	got, _ = e.Store.ClaimStatus(e.t.Context(), sub)
	return got
}

func testClaim(t *testing.T, e *env) {
	e.both(t, func(t *testing.T, sub token.Subject) {
		e.t = t
		if sub.Kind == token.OfKey {
			e.claimStatus(sub, token.StateUnknown)
		}
		first := e.claimed(claiming(sub, "a"))
		if first.Handle.Fence != 1 || first.Takeover || first.Committed || first.Replayed || first.LeaseExpiresAt.IsZero() {
			t.Errorf("claimed: %+v", first)
		}
		again := e.claimed(claiming(sub, "a"))
		want := first
		want.Replayed = true
		if diff := cmp.Diff(want, again); diff != "" {
			t.Errorf("the same attempt again (-want +got):\n%s", diff)
		}
		no := e.notClaimed(claiming(sub, "b"), token.ErrInProgress)
		if !no.LeaseExpiresAt.Equal(first.LeaseExpiresAt) || no.RetryAfter <= 0 || no.RetryAfter > lease || no.UsedBy != token.Attempt("a").Hash().Ref() {
			t.Errorf("in progress: %+v", no)
		}
		if st := e.claimStatus(sub, token.StateClaimed); !st.LeaseExpiresAt.Equal(first.LeaseExpiresAt) || st.Fence != 1 || st.Committed {
			t.Errorf("status: %+v", st)
		}
		if sub.Kind == token.OfToken {
			e.refused(sub.Token, "a", "", token.ErrInProgress) // the same attempt's consume is another kind of call
		}
		r := &token.Result{Status: 201, Headers: map[string]string{"Location": "/orders/7"}, Body: []byte("\x00\xff{}\n")}
		done := e.completed(first.Handle, r)
		if done.At.IsZero() || done.Replayed {
			t.Errorf("completed: %+v", done)
		}
		if again := e.completed(first.Handle, &token.Result{Status: 500}); !again.At.Equal(done.At) || !again.Replayed {
			t.Errorf("completed twice: %+v, want %+v, replayed", again, done)
		}
		for _, a := range []token.Attempt{"a", "b"} {
			e.replay(claiming(sub, a), r)
		}
		e.refusesSteps(first.Handle, token.ErrClaimEnded, "complete")
		st := e.claimStatus(sub, token.StateCompleted)
		if !st.CompletedAt.Equal(done.At) || st.UsedBy != token.Attempt("a").Hash().Ref() || !cmp.Equal(st.Result, r) {
			t.Errorf("status: %+v", st)
		}
		if sub.Kind == token.OfToken {
			for _, a := range []token.Attempt{"a", "b"} {
				if no := e.refused(sub.Token, a, "", token.ErrUsed); !no.UsedAt.Equal(done.At) || no.UsedBy != token.Attempt("a").Hash().Ref() {
					t.Errorf("consume of what is completed: %+v", no)
				}
			}
			if got, err := e.Store.Revoke(t.Context(), sub); err != nil || got.State != token.StateCompleted {
				t.Errorf("revoke of what is completed: %+v, %v", got, err)
			}
		}
	})
}

// testResults keeps results of all kinds byte for byte.
func testResults(t *testing.T, e *env) {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	results := []*token.Result{
		nil,
		{Status: 204},
		{Status: 302, Headers: map[string]string{"Location": "/", "X": "", "x-y": "a\u2028b\"'\\"}},
		{Status: 200, Body: all},
		{Status: 599, Body: []byte(`{"id":15947634569000323,"e":[],"z":1.0,"n":null}`)},
		{Status: 100, BodyOmitted: true},
		{Status: 200, Headers: map[string]string{"Content-Type": "text/csv"}, Body: bytes.Repeat(all, 1024)}, // 256 KiB
	}
	for _, r := range results {
		for _, sub := range []token.Subject{e.key(), e.subject(e.issue(e.svc, time.Minute))} {
			for _, digest := range []token.Digest{"", "d"} {
				if digest != "" && sub.Kind == token.OfToken {
					sub = e.subject(e.issue(e.svc, time.Minute))
				} else if digest != "" {
					sub = e.key()
				}
				c := claiming(sub, "a")
				c.Digest = digest
				e.completed(e.claimed(c).Handle, r)
				want := r
				if r != nil {
					with := *r
					if with.Headers == nil {
						with.Headers = map[string]string{}
					}
					if with.Body == nil {
						with.Body = []byte{}
					}
					want = &with
				}
				e.replay(claiming(sub, "b"), want)
				if st := e.claimStatus(sub, token.StateCompleted); !cmp.Equal(st.Result, want) {
					t.Errorf("status: another result than what was stored")
				}
				c.Digest = "other"
				if digest != "" {
					e.notClaimed(c, token.ErrDigestMismatch)
				}
			}
		}
	}
}

func testClaimDigest(t *testing.T, e *env) {
	e.both(t, func(t *testing.T, sub token.Subject) {
		e.t = t
		with := func(a token.Attempt, d token.Digest) token.Claiming {
			c := claiming(sub, a)
			c.Digest = d
			return c
		}
		h := e.claimed(with("a", "d1")).Handle
		for _, a := range []token.Attempt{"a", "b"} { // the same attempt too, and at once
			if no := e.notClaimed(with(a, "d2"), token.ErrDigestMismatch); no.RetryAfter != 0 || no.UsedBy != token.Attempt("a").Hash().Ref() {
				t.Errorf("another digest: %+v", no)
			}
		}
		e.notClaimed(with("b", "d1"), token.ErrInProgress)
		e.notClaimed(with("b", ""), token.ErrInProgress) // only where both sides have one
		if got := e.claimed(with("a", "")); !got.Replayed || got.Handle != h {
			t.Errorf("the same attempt without the digest: %+v", got)
		}
		if sub.Kind == token.OfToken {
			e.refused(sub.Token, "c", "d2", token.ErrDigestMismatch)
		}
		e.released(h) // which forgets the digest
		h = e.claimed(with("b", "d2")).Handle
		e.completed(h, nil)
		e.notClaimed(with("b", "d1"), token.ErrDigestMismatch)
		e.replay(with("b", "d2"), nil)
		e.replay(with("c", ""), nil)
		if sub.Kind == token.OfToken {
			e.refused(sub.Token, "c", "d1", token.ErrDigestMismatch)
			e.refused(sub.Token, "c", "d2", token.ErrUsed)
		}
	})
}

func testTakeover(t *testing.T, e *env) {
	e.both(t, func(t *testing.T, sub token.Subject) {
		e.t = t
		short := claiming(sub, "a")
		short.Lease, short.Digest = time.Second, "d"
		first := e.claimed(short)
		e.Advance(1100 * time.Millisecond)
		other := claiming(sub, "b")
		other.Digest = "other"
		e.notClaimed(other, token.ErrDigestMismatch)
		second := e.claimed(claiming(sub, "b"))
		if second.Handle.Fence != 2 || !second.Takeover || second.Committed || second.Replayed {
			t.Errorf("taken over: %+v", second)
		}
		if again := e.claimed(claiming(sub, "b")); !again.Takeover || !again.Replayed || again.Handle != second.Handle {
			t.Errorf("the same attempt again: %+v", again)
		}
		e.notClaimed(other, token.ErrDigestMismatch) // a takeover without a digest keeps the stored one
		e.refusesSteps(first.Handle, token.ErrSuperseded)
		e.notClaimed(claiming(sub, "a"), token.ErrInProgress)
		r := &token.Result{Status: 200, Headers: map[string]string{}, Body: []byte("second")}
		e.completed(second.Handle, r)
		e.refusesSteps(first.Handle, token.ErrSuperseded)
		e.replay(claiming(sub, "a"), r)
	})
}

// testTakeoverByConsume has a consume take a claim over.
func testTakeoverByConsume(t *testing.T, e *env) {
	tok := e.issue(e.svc, time.Minute)
	c := claiming(e.subject(tok), "a")
	c.Lease, c.Digest = time.Second, "d"
	h := e.claimed(c).Handle
	e.refused(tok, "b", "", token.ErrInProgress)
	e.Advance(1100 * time.Millisecond)
	e.refused(tok, "b", "other", token.ErrDigestMismatch)
	got := e.consumed(tok, "b", "")
	if !got.Takeover || got.Replayed || got.Fence != 2 {
		t.Errorf("consumed: %+v", got)
	}
	again := e.consumed(tok, "b", "d")
	if want := (token.Consumed{UsedAt: got.UsedAt, Replayed: true, Takeover: true, Fence: 2}); again != want {
		t.Errorf("the same attempt again: %+v, want %+v", again, want)
	}
	e.refused(tok, "c", "other", token.ErrDigestMismatch) // the stored one is kept
	e.refusesSteps(h, token.ErrSuperseded)
	for _, a := range []token.Attempt{"a", "b"} {
		e.notClaimed(claiming(e.subject(tok), a), token.ErrUsed)
	}
	// A claim that was released, and a consume after that.
	tok = e.issue(e.svc, time.Minute)
	h = e.claimed(claiming(e.subject(tok), "a")).Handle
	e.released(h)
	if got := e.consumed(tok, "a", ""); got.Takeover || got.Replayed {
		t.Errorf("consume of what was released: %+v", got)
	}
	e.refusesSteps(h, token.ErrClaimEnded, "release") // twice is once, until it is claimed anew
	e.notClaimed(claiming(e.subject(tok), "a"), token.ErrUsed)
}

// testLeaseOver has the holder come back after its lease, while nobody took over.
func testLeaseOver(t *testing.T, e *env) {
	e.both(t, func(t *testing.T, sub token.Subject) {
		e.t = t
		short := claiming(sub, "a")
		short.Lease = time.Second
		first := e.claimed(short)
		e.Advance(1100 * time.Millisecond)
		anew := e.claimed(short)
		if anew.Handle != first.Handle || !anew.Replayed || anew.Takeover || !anew.LeaseExpiresAt.After(first.LeaseExpiresAt) {
			t.Errorf("the same attempt after its lease: %+v, want the same handle and a new lease", anew)
		}
		e.notClaimed(claiming(sub, "b"), token.ErrInProgress)
		e.Advance(1100 * time.Millisecond)
		held, err := e.Store.Renew(t.Context(), first.Handle, lease)
		if err != nil || !held.LeaseExpiresAt.After(anew.LeaseExpiresAt) {
			t.Errorf("renew after the lease's end: %+v, %v", held, err)
		}
		e.notClaimed(claiming(sub, "b"), token.ErrInProgress)
		if shorter, err := e.Store.Renew(t.Context(), first.Handle, time.Second); err != nil || shorter != held {
			t.Errorf("renew for less: %+v, %v; want %+v", shorter, err, held)
		}
	})
	e.t = t
	for step, take := range map[string]func(token.Handle){
		"complete": func(h token.Handle) { e.completed(h, nil) },
		"commit":   func(h token.Handle) { e.committed(h) },
		"release":  e.released,
	} {
		short := claiming(e.key(), token.Attempt(step))
		short.Lease = time.Second
		h := e.claimed(short).Handle
		e.Advance(1100 * time.Millisecond)
		take(h)
	}
}

func testCommit(t *testing.T, e *env) {
	e.both(t, func(t *testing.T, sub token.Subject) {
		e.t = t
		short := claiming(sub, "a")
		short.Lease = time.Second
		first := e.claimed(short)
		held := e.committed(first.Handle)
		if want := (token.Held{Committed: true, LeaseExpiresAt: first.LeaseExpiresAt}); held != want || e.committed(first.Handle) != want {
			t.Errorf("committed: %+v, want %+v both times", held, want)
		}
		if st := e.claimStatus(sub, token.StateClaimed); !st.Committed {
			t.Errorf("status: %+v", st)
		}
		e.notClaimed(short, token.ErrInProgress) // it had its reply: who sends it again is another
		if err := e.Store.Release(t.Context(), first.Handle); !errors.Is(err, token.ErrClaimCommitted) {
			t.Errorf("release: %v, want %v", err, token.ErrClaimCommitted)
		}
		if sub.Kind == token.OfToken {
			if got, err := e.Store.Revoke(t.Context(), sub); err != nil || got.State != token.StateClaimed {
				t.Errorf("revoke of what is committed: %+v, %v", got, err)
			}
		}
		e.Advance(1100 * time.Millisecond)
		for _, a := range []token.Attempt{"a", "b"} {
			if no := e.notClaimed(claiming(sub, a), token.ErrUnfinished); no.UsedBy != token.Attempt("a").Hash().Ref() {
				t.Errorf("unfinished: %+v", no)
			}
		}
		if sub.Kind == token.OfToken {
			e.refused(sub.Token, "b", "", token.ErrUnfinished)
		}
		e.completed(first.Handle, nil)
		e.replay(claiming(sub, "b"), nil)
	})
}

func testCommitByClaim(t *testing.T, e *env) {
	e.both(t, func(t *testing.T, sub token.Subject) {
		e.t = t
		c := claiming(sub, "a")
		c.Commit, c.Lease = true, 2*time.Second
		first := e.claimed(c)
		again := e.claimed(c)
		if !first.Committed || !again.Committed || !again.Replayed || again.Handle != first.Handle {
			t.Errorf("claimed and committed: %+v, and again: %+v", first, again)
		}
		e.committed(first.Handle) // which leaves it as it is
		if again := e.claimed(c); again.Handle != first.Handle {
			t.Errorf("after a commit that came late: %+v", again)
		}
		if err := e.Store.Release(t.Context(), first.Handle); !errors.Is(err, token.ErrClaimCommitted) {
			t.Errorf("release: %v, want %v", err, token.ErrClaimCommitted)
		}
		e.Advance(2100 * time.Millisecond)
		e.notClaimed(c, token.ErrUnfinished)
	})
}

func testResolve(t *testing.T, e *env) {
	e.both(t, func(t *testing.T, sub token.Subject) {
		e.t = t
		c := claiming(sub, "a")
		c.Commit, c.Lease = true, time.Second
		first := e.claimed(c)
		resolve := claiming(sub, "r")
		resolve.Resolve = true
		e.notClaimed(resolve, token.ErrInProgress)
		e.Advance(1100 * time.Millisecond)
		got := e.claimed(resolve)
		if got.Handle.Fence != 2 || !got.Committed || !got.Takeover || got.Replayed {
			t.Errorf("resolved: %+v", got)
		}
		if again := e.claimed(resolve); again.Handle != got.Handle || !again.Replayed || !again.Takeover {
			t.Errorf("the same attempt again: %+v", again)
		}
		other := claiming(sub, "s")
		other.Resolve = true
		e.notClaimed(other, token.ErrInProgress)
		e.refusesSteps(first.Handle, token.ErrSuperseded)
		if held := e.committed(got.Handle); !held.Committed {
			t.Errorf("commit of what is resolved: %+v", held)
		}
		e.released(got.Handle)
		e.released(got.Handle)
		if next := e.claimed(claiming(sub, "n")); next.Handle.Fence != 3 || next.Takeover || next.Committed {
			t.Errorf("after that: %+v", next)
		}
	})
	e.t = t
	// One that resolves and goes silent is unfinished again, and resolved again.
	c := claiming(e.key(), "a")
	c.Commit, c.Lease = true, time.Second
	e.claimed(c)
	for fence := range uint32(3) {
		e.Advance(1100 * time.Millisecond)
		e.notClaimed(claiming(c.Subject, "b"), token.ErrUnfinished)
		c.Attempt, c.Resolve, c.Commit = token.NewAttempt(), true, false
		if got := e.claimed(c); got.Handle.Fence != fence+2 {
			t.Errorf("resolved again: %+v", got)
		}
	}
	// Of what is not committed it is a claim like others.
	plain := claiming(e.key(), "a")
	plain.Resolve = true
	if got := e.claimed(plain); got.Committed || got.Takeover {
		t.Errorf("a first claim that resolves: %+v", got)
	}
}

// testRenewCommitted renews what is committed, which stays so: the lease goes on, and nobody
// takes over when it ends.
func testRenewCommitted(t *testing.T, e *env) {
	e.both(t, func(t *testing.T, sub token.Subject) {
		e.t = t
		short := claiming(sub, "a")
		short.Lease = time.Second
		h := e.claimed(short).Handle
		e.committed(h)
		held, err := e.Store.Renew(t.Context(), h, 2*time.Second)
		if err != nil || !held.Committed {
			t.Fatalf("renew: %+v, %v; want it committed", held, err)
		}
		e.notClaimed(claiming(sub, "b"), token.ErrInProgress)
		e.Advance(2100 * time.Millisecond)
		e.notClaimed(claiming(sub, "b"), token.ErrUnfinished)
		if err := e.Store.Release(t.Context(), h); !errors.Is(err, token.ErrClaimCommitted) {
			t.Errorf("release: %v, want %v", err, token.ErrClaimCommitted)
		}
		if held, err = e.Store.Renew(t.Context(), h, lease); err != nil || !held.Committed { // after its end, too
			t.Errorf("renew: %+v, %v; want it committed", held, err)
		}
	})
}

func testRelease(t *testing.T, e *env) {
	e.both(t, func(t *testing.T, sub token.Subject) {
		e.t = t
		first := e.claimed(claiming(sub, "a"))
		e.released(first.Handle)
		state := token.StateIssued
		if sub.Kind == token.OfKey {
			state = token.StateUnknown
		}
		e.claimStatus(sub, state)
		e.refusesSteps(first.Handle, token.ErrClaimEnded, "release")
		second := e.claimed(claiming(sub, "a")) // the same attempt: a new claim
		if second.Handle.Fence != 2 || second.Replayed || second.Takeover {
			t.Errorf("claimed after a release: %+v", second)
		}
		e.refusesSteps(first.Handle, token.ErrSuperseded)
		if st := e.claimStatus(sub, token.StateClaimed); st.Fence != 2 {
			t.Errorf("the first holder's steps changed the second's claim: %+v", st)
		}
	})
}

func testReleasedExpires(t *testing.T, e *env) {
	tok := e.issue(e.svc, time.Second)
	h := e.claimed(claiming(e.subject(tok), "a")).Handle
	e.Advance(1100 * time.Millisecond)
	e.notClaimed(claiming(e.subject(tok), "b"), token.ErrInProgress) // claimed in time
	e.refused(tok, "b", "", token.ErrInProgress)
	e.released(h)
	e.notClaimed(claiming(e.subject(tok), "b"), token.ErrExpired)
	e.refused(tok, "b", "", token.ErrExpired)
	e.released(h)
	e.status(tok, token.StateExpired)
}

// testClaimedInTime lets a token's life, and then its retention, pass while it is claimed.
func testClaimedInTime(t *testing.T, e *env) {
	if !e.Movable {
		t.Skip("takes hours of a clock that cannot be moved")
	}
	svc := e.service(token.Options{Settings: token.Settings{Retention: time.Minute}})
	claim := func() (token.Subject, token.Handle) {
		sub := e.subject(e.issue(svc, time.Second))
		return sub, e.claimed(claiming(sub, "a")).Handle
	}
	taken, h := claim()
	kept, k := claim()
	e.Advance(40 * time.Second) // both are past their expiry and lease
	second := e.claimed(claiming(taken, "b"))
	if !second.Takeover || second.Handle.Fence != 2 {
		t.Errorf("takeover past the expiry: %+v", second)
	}
	e.refusesSteps(h, token.ErrSuperseded)
	if _, err := e.Store.Renew(t.Context(), k, time.Hour); err != nil {
		t.Errorf("renew past the expiry: %v", err)
	}
	e.Advance(30 * time.Second) // past expiry and retention
	e.completed(second.Handle, nil)
	e.completed(k, nil)
	for _, sub := range []token.Subject{taken, kept} {
		e.replay(claiming(sub, "c"), nil)
	}
	e.Advance(59 * time.Second) // a result is kept for the retention from its completion on
	for _, sub := range []token.Subject{taken, kept} {
		e.replay(claiming(sub, "c"), nil)
	}
	e.Advance(time.Second + time.Millisecond)
	e.notClaimed(claiming(taken, "c"), token.ErrStale)
	e.Advance(time.Hour)
	e.notClaimed(claiming(kept, "c"), token.ErrStale) // the renewed lease had kept it longer
	e.refusesSteps(k, token.ErrClaimEnded)

	// A consume that takes over is remembered for the retention from then on, and one of what
	// was released for as long as the claim would have been.
	over, _ := claim()
	long := claiming(e.subject(e.issue(svc, time.Second)), "a")
	long.Lease = time.Hour
	e.released(e.claimed(long).Handle)
	e.consumed(long.Token, "b", "")
	e.Advance(50 * time.Second)
	e.consumed(over.Token, "b", "")
	e.Advance(50 * time.Second) // past expiry and retention
	for _, tok := range []*token.Token{over.Token, long.Token} {
		e.refused(tok, "c", "", token.ErrUsed)
	}
}

// testTakeoverRemembered has a holder that took over go silent in its turn: the token is
// remembered for the whole retention from the takeover on.
func testTakeoverRemembered(t *testing.T, e *env) {
	if !e.Movable {
		t.Skip("takes minutes of a clock that cannot be moved")
	}
	svc := e.service(token.Options{Settings: token.Settings{Retention: time.Minute}})
	sub := e.subject(e.issue(svc, time.Second))
	e.claimed(claiming(sub, "a"))
	e.Advance(40 * time.Second)
	e.claimed(claiming(sub, "b"))
	e.Advance(59 * time.Second) // past expiry and retention, and past both leases
	if got := e.claimed(claiming(sub, "c")); got.Handle.Fence != 3 || !got.Takeover {
		t.Errorf("taken over once more: %+v", got)
	}
}

func testRevokeClaimed(t *testing.T, e *env) {
	sub := e.subject(e.issue(e.svc, time.Minute))
	h := e.claimed(claiming(sub, "a")).Handle
	if got, err := e.Store.Revoke(t.Context(), sub); err != nil || got.State != token.StateRevoked {
		t.Fatalf("revoke of what is claimed: %+v, %v", got, err)
	}
	e.refusesSteps(h, token.ErrClaimEnded)
	e.notClaimed(claiming(sub, "a"), token.ErrRevoked)
	e.refused(sub.Token, "a", "", token.ErrRevoked)

	sub = e.subject(e.issue(e.svc, time.Minute))
	h = e.claimed(claiming(sub, "a")).Handle
	e.released(h)
	if got, err := e.Store.Revoke(t.Context(), e.byRef(sub.Token)); err != nil || got.State != token.StateRevoked {
		t.Fatalf("revoke of what was released: %+v, %v", got, err)
	}
	e.refusesSteps(h, token.ErrClaimEnded, "release") // it had been released
}

// testNotClaimable asks for tokens that are not good any more.
func testNotClaimable(t *testing.T, e *env) {
	expired := e.subject(e.issue(e.svc, time.Second))
	stale := e.subject(e.issue(e.service(token.Options{Settings: token.Settings{Retention: time.Second}}), time.Second))
	used, revoked := e.subject(e.issue(e.svc, time.Minute)), e.subject(e.issue(e.svc, time.Minute))
	got := e.consumed(used.Token, "a", "d")
	if _, err := e.Store.Revoke(t.Context(), revoked); err != nil {
		t.Fatal(err)
	}
	missing := *used.Token
	missing.ID = token.NewID()
	e.Advance(2100 * time.Millisecond)
	for why, sub := range map[*token.Reason]token.Subject{
		token.ErrExpired: expired, token.ErrStale: stale, token.ErrUsed: used, token.ErrRevoked: revoked,
		token.ErrLost: e.subject(&missing),
	} {
		for _, resolve := range []bool{false, true} {
			c := claiming(sub, "a") // used by the same attempt, too: by another kind of call
			c.Resolve = resolve
			if no := e.notClaimed(c, why); !no.ExpiresAt.Equal(sub.Token.ExpiresAt) {
				t.Errorf("%v: expires at %v", why, no.ExpiresAt)
			} else if why == token.ErrUsed && !no.UsedAt.Equal(got.UsedAt) {
				t.Errorf("used: %+v", no)
			}
		}
	}
	c := claiming(used, "a")
	c.Digest = "other"
	e.notClaimed(c, token.ErrDigestMismatch)
}

// testKeyScope tells keys apart that a concatenation of their parts would not.
func testKeyScope(t *testing.T, e *env) {
	u := e.user
	for _, s := range []struct {
		user    token.User
		purpose token.Purpose
		key     token.IdempotencyKey
	}{
		{u, "p", "k"}, {u, "p", "K"}, {u, "q", "k"}, {u + "p", "p", "k"},
		{u + ":a", "p", "b"}, {u, "p", "a:b"}, {u + ":", "p", ":"}, {u + "{x", "p", "y"}, {u, "p", "{x}y"}, {u, "px", "k"}, {u, "p", "xk"},
	} {
		e.user = s.user
		got := e.claimed(claiming(token.KeySubject(s.user, s.purpose, s.key), "a"))
		if got.Handle.Fence != 1 || got.Replayed {
			t.Errorf("%+v was claimed before: %+v", s, got)
		}
	}
	// Named by its ref a key is the same, and one without a record is gone.
	sub := token.KeySubject(u, "p", "k")
	byRef := token.Subject{Kind: token.OfKey, User: u, ID: sub.ID}
	if a, b := e.claimStatus(sub, token.StateClaimed), e.claimStatus(byRef, token.StateClaimed); a != b {
		t.Errorf("by ref %+v, want %+v", b, a)
	}
	byRef.ID = token.NewID()
	e.claimStatus(byRef, token.StateGone)
}

func testKeyRetention(t *testing.T, e *env) {
	if !e.Movable {
		t.Skip("takes hours of a clock that cannot be moved")
	}
	// It lives from its latest claim, commit or completion: each comes before the last life ends.
	sub := e.key()
	c := claiming(sub, "a")
	h := e.claimed(c).Handle
	e.Advance(59 * time.Minute)
	e.committed(h)
	e.Advance(59 * time.Minute)
	e.notClaimed(claiming(sub, "b"), token.ErrUnfinished)
	e.completed(h, nil)
	e.Advance(59 * time.Minute)
	e.replay(claiming(sub, "b"), nil)
	e.Advance(time.Minute + time.Millisecond)
	e.claimStatus(sub, token.StateUnknown)
	e.refusesSteps(h, token.ErrClaimEnded)
	if got := e.claimed(claiming(sub, "b")); got.Handle.Fence != 1 || got.Takeover {
		t.Errorf("a key that was forgotten: %+v", got)
	}
	// A lease is never outlived by what it is of.
	long := claiming(e.key(), "a")
	long.Retention, long.Lease = time.Second, time.Hour
	h = e.claimed(long).Handle
	e.Advance(59 * time.Minute)
	e.notClaimed(claiming(long.Subject, "b"), token.ErrInProgress)
	e.completed(h, nil)
	// Nor does a shorter one bring its end, and with it the fence, back.
	long.Subject = e.key()
	e.released(e.claimed(long).Handle)
	short := claiming(long.Subject, "b")
	short.Retention, short.Lease = time.Second, time.Second
	e.claimed(short)
	e.Advance(59 * time.Minute)
	if got := e.claimed(claiming(long.Subject, "c")); got.Handle.Fence != 3 {
		t.Errorf("after a short claim that followed a long one: %+v", got)
	}
}

// testKeyRemembered has a key live from its latest claim, though that was released and is not
// the first.
func testKeyRemembered(t *testing.T, e *env) {
	if !e.Movable {
		t.Skip("takes hours of a clock that cannot be moved")
	}
	sub := e.key()
	e.released(e.claimed(claiming(sub, "a")).Handle)
	e.Advance(59 * time.Minute)
	e.claimed(claiming(sub, "b"))
	e.Advance(59 * time.Minute)
	if got := e.claimed(claiming(sub, "c")); got.Handle.Fence != 3 || !got.Takeover {
		t.Errorf("claimed again: %+v, want a takeover of fence 2", got)
	}
}

// testKeyForgotten has a holder come back when its key was forgotten, and is claimed anew by
// another under the same fence: it is not the other's claim that it has.
func testKeyForgotten(t *testing.T, e *env) {
	if !e.Movable {
		t.Skip("takes hours of a clock that cannot be moved")
	}
	sub := e.key()
	old := e.claimed(claiming(sub, "a")).Handle
	e.Advance(61 * time.Minute)
	now := e.claimed(claiming(sub, "b"))
	if now.Handle.Fence != old.Fence {
		t.Fatalf("claimed anew: %+v, want fence %d", now, old.Fence)
	}
	e.refusesSteps(old, token.ErrClaimEnded)
	if st := e.claimStatus(sub, token.StateClaimed); !st.LeaseExpiresAt.Equal(now.LeaseExpiresAt) || st.Committed {
		t.Errorf("the first holder's steps changed the second's claim: %+v", st)
	}
	e.completed(now.Handle, nil)
	e.refusesSteps(old, token.ErrClaimEnded)
	e.replay(claiming(sub, "a"), nil)
}

// testClaimHangUp has callers hang up before they are heard: what they ask for is carried
// out.
func testClaimHangUp(t *testing.T, e *env) {
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	e.both(t, func(t *testing.T, sub token.Subject) {
		e.t = t
		got, err := e.Store.Claim(gone, claiming(sub, "a"))
		if err != nil {
			t.Fatalf("claim: %v", err)
		}
		steps := e.steps(gone, got.Handle)
		for _, name := range []string{"commit", "renew", "complete"} {
			if steps[name] != nil {
				t.Errorf("%s: %v", name, steps[name])
			}
		}
		e.claimStatus(sub, token.StateCompleted)
		other := e.claimed(claiming(e.key(), "a")).Handle
		if err := e.Store.Release(gone, other); err != nil {
			t.Errorf("release: %v", err)
		}
	})
}
