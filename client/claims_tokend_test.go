package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/tokend/client"
	"example.com/tokend/client/clienttest"
	"example.com/tokend/httpapi/wire"
)

// These tests hold the client's claims and the real server to each other, over HTTP.

// key returns a subject of its own for each name.
func key(name string) client.Subject { return client.Key("alice", "payment", name) }

// page is a result with all that one can hold.
var page = client.Result{
	Status: 201,
	Header: map[string]string{"Content-Type": "text/csv", "Location": "/orders/7", "x-odd": "ä, b"},
	Body:   []byte("a,b\r\n\x00\xff\n"),
}

// claimed claims s, which must be free.
func claimed(t *testing.T, c *client.Client, s client.Subject, opts ...client.ClaimOption) *client.Claim {
	t.Helper()
	cl, done, err := c.Claim(t.Context(), s, opts...)
	if err != nil || done != nil {
		t.Fatalf("claim: %v, %v", done, err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// claimErr claims s, which must be refused.
func claimErr(t *testing.T, c *client.Client, s client.Subject, opts ...client.ClaimOption) error {
	t.Helper()
	cl, done, err := c.Claim(t.Context(), s, opts...)
	if err == nil {
		t.Errorf("claimed: %v, %v", cl, done)
	}
	return err
}

// returns is a fn that does its work.
func returns(r client.Result) func(context.Context, *client.Claim) (client.Result, error) {
	return func(context.Context, *client.Claim) (client.Result, error) { return r, nil }
}

// never is a fn that must not run.
func never(t *testing.T) func(context.Context, *client.Claim) (client.Result, error) {
	return func(context.Context, *client.Claim) (client.Result, error) {
		t.Error("the work was done again")
		return client.Result{}, errors.New("again")
	}
}

// A result is replayed byte for byte, of tokens as of keys.
func TestReplay(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t)
	c := s.Client()
	empty := client.Result{Status: 204, Header: map[string]string{}}
	for name, r := range map[string]client.Result{"all": page, "empty": empty, "none": {}} {
		tok := issue(t, c)
		for _, sub := range []client.Subject{key(name), client.TokenOf("alice", "default", tok.Value)} {
			first, err := c.Do(t.Context(), sub, returns(r))
			if err != nil || first.Replayed {
				t.Fatalf("%s: %+v, %v", name, first, err)
			}
			again, err := c.Do(t.Context(), sub, never(t))
			if err != nil {
				t.Fatal(err)
			}
			want := client.Completed{Result: r, Ref: first.Ref, Replayed: true}
			if diff := cmp.Diff(want, again); diff != "" {
				t.Errorf("%s: %s", name, diff)
			}
		}
	}
}

// A step whose reply was lost is done, and told again.
func TestClaimRepliesLost(t *testing.T) {
	lose := map[string]func(*clienttest.Server, int){
		"to the client":    (*clienttest.Server).LoseReplies,
		"from the store":   (*clienttest.Server).LoseStoreReplies,
		"not even carried": (*clienttest.Server).BadGateway,
	}
	for name, lose := range lose {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := clienttest.New(t)
			c := s.Client()
			for _, n := range []int{1, 4} {
				sub := key(fmt.Sprint(n))
				lose(s, n)
				cl := claimed(t, c, sub)
				if cl.Replayed != (name != "not even carried") || cl.Fence != 1 {
					t.Errorf("claimed %+v", cl)
				}
				lose(s, n)
				if err := cl.Renew(t.Context(), time.Minute); err != nil {
					t.Error(err)
				}
				lose(s, n)
				if err := cl.Release(t.Context()); err != nil {
					t.Error(err)
				}
				cl = claimed(t, c, sub)
				lose(s, n)
				if err := cl.Commit(t.Context()); err != nil || !cl.Committed() {
					t.Error(err)
				}
				lose(s, n)
				if err := cl.Complete(t.Context(), page); err != nil {
					t.Error(err)
				}
				lose(s, n)
				again, err := c.Do(t.Context(), sub, never(t))
				if err != nil || !cmp.Equal(again.Result, page) {
					t.Errorf("%+v, %v", again, err)
				}
				lose(s, n)
				if _, err := c.Do(t.Context(), key("do"+fmt.Sprint(n)), returns(page), client.CommitFirst()); err != nil {
					t.Error(err)
				}
			}

			// All tries of a claim are lost. Whoever knows its attempt can go on with it.
			lose(s, 5)
			err := claimErr(t, c, key("lost"), client.Attempt("a1"))
			code := client.Code("")
			if name == "from the store" {
				code = wire.CodeStoreUnavailable
			}
			wantFault(t, err, client.Fault{Op: "claim", MaybeDone: true, Tries: 5, Code: code})
			if name != "not even carried" {
				if err := claimErr(t, c, key("lost")); !errors.Is(err, client.ErrInProgress) {
					t.Errorf("another attempt: %v", err)
				}
			}
			s.Advance(20 * time.Second)
			cl := claimed(t, c, key("lost"), client.Attempt("a1"))
			if cl.Fence != 1 {
				t.Errorf("claimed %+v", cl)
			}
			s.Advance(20 * time.Second) // its lease was renewed, and not only found to be running
			if err := claimErr(t, c, key("lost")); !errors.Is(err, client.ErrInProgress) {
				t.Errorf("another attempt: %v", err)
			}
		})
	}
}

// A claim whose lease is over is taken over, and its holder can do nothing to the new one.
func TestTakeover(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t)
	c := s.Client()
	tok := issue(t, c)
	for _, sub := range []client.Subject{key("k"), client.TokenOf("alice", "default", tok.Value)} {
		stalled := claimed(t, c, sub)
		err := claimErr(t, c, sub)
		no, _ := errors.AsType[*client.Refusal](err)
		if no == nil || !errors.Is(err, client.ErrInProgress) || no.RetryAfter != 5*time.Second ||
			!no.LeaseExpiresAt.Equal(s.Now().Add(30*time.Second)) || no.Ref != stalled.Ref {
			t.Errorf("in progress: %+v", no)
		}
		s.Advance(30 * time.Second)
		next := claimed(t, c, sub)
		if !next.Takeover || next.Fence != stalled.Fence+1 || next.Ref != stalled.Ref {
			t.Errorf("took over: %+v", next)
		}
		for name, err := range map[string]error{
			"complete": stalled.Complete(t.Context(), page), "release": stalled.Release(t.Context()),
			"commit": stalled.Commit(t.Context()), "renew": stalled.Renew(t.Context(), time.Minute),
		} {
			if !errors.Is(err, client.ErrSuperseded) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if cause := context.Cause(stalled.Context()); !errors.Is(cause, client.ErrSuperseded) {
			t.Errorf("cause %v", cause)
		}
		if err := next.Complete(t.Context(), page); err != nil {
			t.Error(err)
		}
	}
}

// The renewal of a stalled claim hears of the takeover by itself, and fn's context ends.
func TestTakeoverEndsContext(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t)
	c := s.Client()
	_, err := c.Do(t.Context(), key("k"), func(ctx context.Context, _ *client.Claim) (client.Result, error) {
		for taken := false; !taken; { // a renewal may come in between
			s.Advance(time.Second) // as if this process had stood still
			cl, _, err := c.Claim(t.Context(), key("k"))
			if taken = err == nil; taken {
				defer cl.Close()
			}
		}
		<-ctx.Done() // a third of a second: the lease is as short as it can be
		return client.Result{}, ctx.Err()
	}, client.Lease(time.Second))
	if !errors.Is(err, client.ErrSuperseded) || !errors.Is(err, context.Canceled) || errors.Is(err, client.ErrNotKept) {
		t.Errorf("got %v", err)
	}
}

// However many call at once, fn runs once, and all that wait hear its result.
func TestDoAtOnce(t *testing.T) {
	for _, wait := range []bool{false, true} {
		t.Run(fmt.Sprint(wait), func(t *testing.T) {
			t.Parallel()
			const callers = 50
			s := clienttest.New(t)
			c := s.Client()
			var opts []client.ClaimOption
			if wait {
				opts = append(opts, client.Wait(30*time.Second))
			}
			for _, lost := range []int{0, 40} {
				var runs, replays, busy atomic.Int64
				sub := key(fmt.Sprint(lost))
				s.LoseReplies(lost)
				var wg sync.WaitGroup
				for range callers {
					wg.Go(func() {
						got, err := c.Do(t.Context(), sub, func(context.Context, *client.Claim) (client.Result, error) {
							runs.Add(1)
							return page, nil
						}, opts...)
						down, _ := errors.AsType[*client.Fault](err)
						switch {
						case err == nil && !cmp.Equal(got.Result, page):
							t.Errorf("got %+v", got)
						case err == nil && got.Replayed:
							replays.Add(1)
						case errors.Is(err, client.ErrInProgress):
							busy.Add(1)
						case err != nil && (lost == 0 || down == nil):
							t.Error(err)
						}
					})
				}
				wg.Wait()
				s.LoseReplies(0)
				if n := runs.Load(); n > 1 || lost == 0 && n != 1 {
					t.Errorf("%d runs", n)
				}
				if wait && lost == 0 && replays.Load() != callers-1 || !wait && lost == 0 && replays.Load()+busy.Load() != callers-1 {
					t.Errorf("%d replays, %d in progress", replays.Load(), busy.Load())
				}
			}
		})
	}
}

// Who waits hears of the completion, or has the claim when it is released.
func TestWait(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t)
	c := s.Client()
	for _, complete := range []bool{true, false} {
		sub := key(fmt.Sprint(complete))
		first := claimed(t, c, sub)
		type answer struct {
			done client.Completed
			err  error
		}
		answers := make(chan answer)
		ran := make(chan struct{}, 1)
		go func() {
			done, err := c.Do(t.Context(), sub, func(context.Context, *client.Claim) (client.Result, error) {
				ran <- struct{}{}
				return client.Result{Status: 202}, nil
			}, client.Wait(30*time.Second))
			answers <- answer{done, err}
		}()
		if complete {
			if err := first.Complete(t.Context(), page); err != nil {
				t.Fatal(err)
			}
		} else if err := first.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := <-answers
		if got.err != nil || got.done.Replayed != complete || len(ran) > 0 == complete {
			t.Errorf("completed %t: %+v, %v", complete, got.done, got.err)
		}
	}
	// Its caller hangs up.
	claimed(t, c, key("held"))
	ctx, cancel := context.WithCancel(t.Context())
	hungUp := make(chan error)
	go func() {
		_, _, err := c.Claim(ctx, key("held"), client.Wait(30*time.Second))
		hungUp <- err
	}()
	cancel()
	if err := <-hungUp; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	// The server ends: it does not wait for those who wait.
	go func() {
		_, _, err := c.Claim(t.Context(), key("held"), client.Wait(30*time.Second))
		hungUp <- err
	}()
	s.Close()
	if err := <-hungUp; err == nil {
		t.Error("claimed")
	}
}

// tokend is away when the work is done: its result is told, and what a repeat hears depends
// on whether fn has committed.
func TestOutageAtTheEnd(t *testing.T) {
	for _, commit := range []bool{false, true} {
		t.Run(fmt.Sprint(commit), func(t *testing.T) {
			t.Parallel()
			s := clienttest.New(t)
			c, sub := s.Client(), key("k")
			got, err := c.Do(t.Context(), sub, func(ctx context.Context, cl *client.Claim) (client.Result, error) {
				if commit {
					if err := cl.Commit(ctx); err != nil {
						t.Error(err)
					}
				}
				s.Down(true)
				return page, nil
			})
			if !errors.Is(err, client.ErrNotKept) || !cmp.Equal(got.Result, page) || got.Replayed {
				t.Errorf("got %+v, %v", got, err)
			}
			down, _ := errors.AsType[*client.Fault](err)
			if down == nil || down.Op != "complete" || !down.MaybeDone {
				t.Errorf("got %v", err)
			}
			s.Down(false)
			if _, err := c.Do(t.Context(), sub, never(t)); !errors.Is(err, client.ErrInProgress) {
				t.Errorf("while the lease runs: %v", err)
			}
			s.Advance(30 * time.Second)
			if !commit {
				again, err := c.Do(t.Context(), sub, returns(client.Result{Status: 202}))
				if err != nil || again.Replayed {
					t.Errorf("got %+v, %v", again, err)
				}
				return
			}
			_, err = c.Do(t.Context(), sub, never(t))
			no, _ := errors.AsType[*client.Refusal](err)
			if !errors.Is(err, client.ErrUnfinished) || no.Next != client.NextVerify || !no.LeaseExpiresAt.Equal(s.Now()) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// What was left unfinished is resolved by whoever has looked, and by nothing else.
func TestResolve(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t)
	c := s.Client()
	unfinished := func(name string) client.Subject {
		sub := key(name)
		crashed := claimed(t, c, sub, client.CommitFirst())
		if !crashed.Committed() {
			t.Error("not committed")
		}
		if err := crashed.Release(t.Context()); !errors.Is(err, client.ErrClaimCommitted) {
			t.Errorf("release: %v", err)
		}
		crashed.Close()
		if _, _, err := c.Resolve(t.Context(), sub); !errors.Is(err, client.ErrInProgress) {
			t.Errorf("while the lease runs: %v", err)
		}
		s.Advance(30 * time.Second)
		if err := claimErr(t, c, sub); !errors.Is(err, client.ErrUnfinished) {
			t.Errorf("got %v", err)
		}
		t.Cleanup(func() {
			if err := crashed.Complete(context.Background(), page); err == nil {
				t.Error("the crashed one has completed")
			}
		})
		return sub
	}
	resolve := func(sub client.Subject) *client.Claim {
		cl, done, err := c.Resolve(t.Context(), sub)
		if err != nil || done != nil {
			t.Fatalf("%v, %v", done, err)
		}
		t.Cleanup(cl.Close)
		if !cl.Committed() || !cl.Takeover || cl.Fence != 2 {
			t.Errorf("resolved %+v", cl)
		}
		return cl
	}

	found := unfinished("found")
	if err := resolve(found).Complete(t.Context(), page); err != nil {
		t.Fatal(err)
	}
	if got, err := c.Do(t.Context(), found, never(t)); err != nil || !got.Replayed {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, done, err := c.Resolve(t.Context(), found); err != nil || done == nil || !cmp.Equal(done.Result, page) {
		t.Errorf("resolve what is completed: %v, %v", done, err)
	}

	none := unfinished("none")
	if err := resolve(none).Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := c.Do(t.Context(), none, returns(page)); err != nil || got.Replayed {
		t.Errorf("got %+v, %v", got, err)
	}

	// Of anything else it is a claim like any.
	cl, _, err := c.Resolve(t.Context(), key("new"))
	if err != nil || cl.Committed() {
		t.Fatalf("%+v, %v", cl, err)
	}
	cl.Close()
}

// What the claimed token's other callers hear, and what ends its claim from outside.
func TestClaimedToken(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t)
	c := s.Client()
	tok := issue(t, c)
	sub := c.Purpose("default").Token("alice", tok.Value)
	cl := claimed(t, c, sub, client.Digest("d1"))
	if cl.Ref != tok.Ref {
		t.Errorf("ref %s", cl.Ref)
	}
	if err := claimErr(t, c, sub, client.Digest("d2"), client.Wait(30*time.Second)); !errors.Is(err, client.ErrReused) {
		t.Errorf("another request: %v", err)
	}
	if err := cl.Complete(t.Context(), page); err != nil {
		t.Fatal(err)
	}
	if err := consumeErr(t, c, tok); !errors.Is(err, client.ErrUsed) {
		t.Errorf("consume: %v", err)
	}

	tok = issue(t, c)
	cl = claimed(t, c, client.TokenOf("alice", "default", tok.Value))
	if _, err := c.Revoke(t.Context(), "alice", tok.Value); err != nil {
		t.Fatal(err)
	}
	if err := cl.Commit(cl.Context()); !errors.Is(err, client.ErrClaimEnded) {
		t.Errorf("commit: %v", err)
	}
	if cause := context.Cause(cl.Context()); !errors.Is(cause, client.ErrClaimEnded) {
		t.Errorf("cause %v", cause)
	}

	tok = issue(t, c)
	if err := claimErr(t, c, client.TokenOf("bob", "default", tok.Value)); !errors.Is(err, client.ErrWrongUser) {
		t.Errorf("another user: %v", err)
	}
	if err := claimErr(t, c, client.TokenOf("alice", "other", tok.Value)); !errors.Is(err, client.ErrWrongPurpose) {
		t.Errorf("another purpose: %v", err)
	}
	if err := claimErr(t, s.UserClient("alice"), client.TokenOf("alice", "default", tok.Value)); !errors.Is(err, client.ErrForbidden) {
		t.Errorf("a user: %v", err)
	}
	if err := claimErr(t, clienttest.New(t, clienttest.DeleteMode()).Client(), key("k")); !errors.Is(err, client.ErrModeUnsupported) {
		t.Errorf("delete mode: %v", err)
	}
	for field, opt := range map[string]client.ClaimOption{
		"lease": client.Lease(2 * time.Hour), "wait": client.Wait(time.Minute), "digest": client.Digest("ä"), "attempt": client.Attempt(""),
	} {
		no, _ := errors.AsType[*client.Refusal](claimErr(t, c, key("k"), opt))
		if no == nil || no.Code != wire.CodeInvalidRequest || no.Field != field {
			t.Errorf("%s: %v", field, no)
		}
	}
}

// A Purpose spells itself once for all that is claimed.
func TestPurposeSubjects(t *testing.T) {
	t.Parallel()
	c := clienttest.New(t).Client()
	payments := c.Purpose("payment")
	if payments.Client() != c || payments.Name() != "payment" {
		t.Error("another purpose")
	}
	cl := claimed(t, c, payments.Key("alice", "k"))
	if err := claimErr(t, c, key("k")); !errors.Is(err, client.ErrInProgress) {
		t.Errorf("the same key: %v", err)
	}
	tok, err := payments.Issue(t.Context(), "alice")
	if err != nil {
		t.Fatal(err)
	}
	if of := claimed(t, c, payments.Token("alice", tok.Value)); of.Ref != tok.Ref || of.Ref == cl.Ref {
		t.Errorf("claimed %s", of.Ref)
	}
}

// A key is its user's and its purpose's, and lives for the keys' retention.
func TestKeyIsScoped(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t, clienttest.KeysRetention(time.Hour))
	c := s.Client()
	subs := []client.Subject{
		client.Key("alice", "payment", "k"), client.Key("bob", "payment", "k"), client.Key("alice", "refund", "k"), client.Key("alice", "payment", "K"),
	}
	for i, sub := range subs {
		got, err := c.Do(t.Context(), sub, returns(client.Result{Status: 200 + i}))
		if err != nil || got.Replayed {
			t.Errorf("%d: %+v, %v", i, got, err)
		}
	}
	s.Advance(time.Hour - time.Second)
	for i, sub := range subs {
		got, err := c.Do(t.Context(), sub, never(t))
		if err != nil || got.Status != 200+i {
			t.Errorf("%d: %+v, %v", i, got, err)
		}
	}
	s.Advance(time.Second + time.Millisecond)
	if got, err := c.Do(t.Context(), subs[0], returns(page)); err != nil || got.Replayed {
		t.Errorf("%+v, %v", got, err)
	}
}

// A result that is too big to be kept is known to have been, and the work is not done again.
func TestResultTooBigForTokend(t *testing.T) {
	t.Parallel()
	const limit = 1000
	s := clienttest.New(t, clienttest.ResultBytes(limit))
	c := s.Client()
	header := map[string]string{"Content-Type": "text/plain"}
	for _, n := range []int{limit, limit + 1, 4 << 20} {
		r := client.Result{Status: 200, Header: header, Body: bytes.Repeat([]byte{'x'}, n)}
		got, err := c.Do(t.Context(), key(fmt.Sprint(n)), returns(r))
		if err != nil || !reflect.DeepEqual(got.Result, r) {
			t.Errorf("%d bytes: %v", n, err)
		}
		want := r
		if n > limit {
			want.Body, want.BodyOmitted = nil, true
		}
		got, err = c.Do(t.Context(), key(fmt.Sprint(n)), never(t))
		if err != nil || !reflect.DeepEqual(got.Result, want) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	// Nor does a header get lost on the way to being refused.
	long := client.Result{Status: 200, Header: map[string]string{"A": strings.Repeat("b", 100<<10)}}
	if _, err := c.Do(t.Context(), key("header"), returns(long)); err != nil {
		t.Fatal(err)
	}
	got, err := c.Do(t.Context(), key("header"), never(t))
	if err != nil || got.Status != 200 || !got.BodyOmitted || len(got.Header) > 0 {
		t.Errorf("got %+v, %v", got, err)
	}
	for name, r := range map[string]client.Result{
		"status": {Status: 99}, "none": {Body: []byte("x")}, "name": {Status: 200, Header: map[string]string{"a b": "c"}},
		"value": {Status: 200, Header: map[string]string{"a": "b\r\nc"}}, "case": {Status: 200, Header: map[string]string{"a": "b", "A": "c"}},
		"UTF-8": {Status: 200, Header: map[string]string{"a": "\xe4"}},
	} {
		got, err := c.Do(t.Context(), key(name), returns(r))
		if !errors.Is(err, client.ErrNotKept) || !errors.Is(err, client.ErrInvalidRequest) || !reflect.DeepEqual(got.Result, r) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if got, err := c.Do(t.Context(), key(name), never(t)); err != nil || !got.BodyOmitted {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestClaimStatus(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t)
	c, ctx := s.Client(), t.Context()
	status := func(sub client.Subject) client.ClaimStatus {
		t.Helper()
		s.LoseReplies(1)
		st, err := c.ClaimStatus(ctx, sub)
		if err != nil {
			t.Fatal(err)
		}
		if byRef, err := c.StatusByRef(ctx, "alice", st.Ref); err != nil || byRef != st.Status && byRef.State != client.StateGone {
			t.Errorf("by ref: %+v, %v, want %+v", byRef, err, st.Status)
		}
		return st
	}
	tok := issue(t, c)
	began := s.Now()
	for _, sub := range []client.Subject{key("k"), client.TokenOf("alice", "default", tok.Value)} {
		st := status(sub)
		if st.State != client.StateUnknown && st.State != client.StateIssued || st.Result != nil {
			t.Errorf("%+v", st)
		}
		cl := claimed(t, c, sub, client.Attempt("a1"))
		st = status(sub)
		want := st.Status
		want.State, want.Ref, want.UsedBy, want.Fence, want.LeaseExpiresAt = client.StateClaimed, cl.Ref, "", 1, s.Now().Add(30*time.Second)
		if st.Status != want || st.Committed || st.Result != nil {
			t.Errorf("%+v", st)
		}
		if err := cl.Commit(ctx); err != nil {
			t.Fatal(err)
		}
		if st = status(sub); !st.Committed {
			t.Errorf("%+v", st)
		}
		s.Advance(time.Second)
		if err := cl.Complete(ctx, page); err != nil {
			t.Fatal(err)
		}
		st = status(sub)
		if st.State != client.StateCompleted || st.UsedBy != "f55ff16f" || !st.CompletedAt.Equal(s.Now()) || st.Result == nil || !cmp.Equal(*st.Result, page) {
			t.Errorf("%+v", st)
		}
	}
	if st := status(client.TokenOf("alice", "default", tok.Value)); !st.ExpiresAt.Equal(tok.ExpiresAt) || !st.IssuedAt.Equal(began) {
		t.Errorf("%+v", st)
	}
	if _, err := c.Do(ctx, key("none"), returns(client.Result{})); err != nil {
		t.Fatal(err)
	}
	if st := status(key("none")); st.State != client.StateCompleted || st.Result != nil {
		t.Errorf("%+v", st)
	}
	if st, err := c.Status(ctx, "alice", tok.Value); err != nil || st.State != client.StateCompleted {
		t.Errorf("%+v, %v", st, err)
	}
	if _, err := c.ClaimStatus(ctx, client.TokenOf("bob", "default", tok.Value)); !errors.Is(err, client.ErrWrongUser) {
		t.Errorf("got %v", err)
	}
	if _, err := c.ClaimStatus(ctx, client.Subject{}); !errors.Is(err, client.ErrInvalidRequest) {
		t.Errorf("got %v", err)
	}
	if _, err := clienttest.New(t, clienttest.DeleteMode()).Client().ClaimStatus(ctx, key("k")); !errors.Is(err, client.ErrModeUnsupported) {
		t.Errorf("got %v", err)
	}
	s.Down(true)
	_, err := c.ClaimStatus(ctx, key("k"))
	wantFault(t, err, client.Fault{Op: "claim_status", Tries: 5, Code: wire.CodeStoreUnavailable})
}
