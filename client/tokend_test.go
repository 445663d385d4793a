package client_test

import (
	"errors"
	"fmt"
	"slices"
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

// These tests hold the client and the real server to each other, over HTTP.

// issue issues a token for alice.
func issue(t *testing.T, c *client.Client, opts ...client.IssueOption) client.Token {
	t.Helper()
	tok, err := c.Issue(t.Context(), "alice", opts...)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// consume consumes alice's token.
func consume(t *testing.T, c *client.Client, tok client.Token, opts ...client.ConsumeOption) client.Consumed {
	t.Helper()
	got, err := c.Consume(t.Context(), "alice", tok.Value, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func consumeErr(t *testing.T, c *client.Client, tok client.Token, opts ...client.ConsumeOption) error {
	_, err := c.Consume(t.Context(), "alice", tok.Value, opts...)
	return err
}

// wantFault holds err to be a fault like want, whatever its cause and request.
func wantFault(t *testing.T, err error, want client.Fault) {
	t.Helper()
	down, ok := errors.AsType[*client.Fault](err)
	if !ok {
		t.Fatalf("got %v, want a fault", err)
	}
	got := *down
	got.Err, got.RequestID, got.Attempt = nil, "", ""
	if got != want {
		t.Errorf("got %+v, want %+v (%v)", got, want, err)
	}
}

// Each code that the client can be answered, with all that belongs to it.
func TestEachCode(t *testing.T) {
	const ttl, retention = time.Minute, time.Hour
	tests := map[client.Code]func(*testing.T, *clienttest.Server, *client.Client) error{
		wire.CodeTokenUsed: func(t *testing.T, _ *clienttest.Server, c *client.Client) error {
			tok := issue(t, c)
			consume(t, c, tok)
			return consumeErr(t, c, tok)
		},
		wire.CodeIdempotencyKeyReused: func(t *testing.T, _ *clienttest.Server, c *client.Client) error {
			tok := issue(t, c)
			consume(t, c, tok, client.Digest("d1"))
			return consumeErr(t, c, tok, client.Digest("d2"))
		},
		wire.CodeTokenExpired: func(t *testing.T, s *clienttest.Server, c *client.Client) error {
			tok := issue(t, c)
			s.Advance(ttl)
			return consumeErr(t, c, tok)
		},
		wire.CodeTokenStale: func(t *testing.T, s *clienttest.Server, c *client.Client) error {
			tok := issue(t, c)
			consume(t, c, tok)
			s.Advance(ttl + retention + time.Minute)
			return consumeErr(t, c, tok)
		},
		wire.CodeTokenLost: func(t *testing.T, s *clienttest.Server, c *client.Client) error {
			tok := issue(t, c)
			s.LoseData()
			return consumeErr(t, c, tok)
		},
		wire.CodeTokenGone: func(t *testing.T, _ *clienttest.Server, _ *client.Client) error {
			s := clienttest.New(t, clienttest.DeleteMode())
			tok := issue(t, s.Client())
			s.Advance(tok.TTL)
			return consumeErr(t, s.Client(), tok)
		},
		wire.CodeTokenRevoked: func(t *testing.T, _ *clienttest.Server, c *client.Client) error {
			tok := issue(t, c)
			if _, err := c.Revoke(t.Context(), "alice", tok.Value); err != nil {
				t.Fatal(err)
			}
			return consumeErr(t, c, tok)
		},
		wire.CodeWrongUser: func(t *testing.T, _ *clienttest.Server, c *client.Client) error {
			_, err := c.Consume(t.Context(), "bob", issue(t, c).Value)
			return err
		},
		wire.CodeWrongPurpose: func(t *testing.T, _ *clienttest.Server, c *client.Client) error {
			_, err := c.Purpose("order.create").Consume(t.Context(), "alice", issue(t, c).Value)
			return err
		},
		wire.CodeTokenInvalid: func(t *testing.T, _ *clienttest.Server, c *client.Client) error {
			return consumeErr(t, c, issue(t, clienttest.New(t).Client())) // another tokend's
		},
		wire.CodeModeUnsupported: func(t *testing.T, _ *clienttest.Server, _ *client.Client) error {
			c := clienttest.New(t, clienttest.DeleteMode()).Client()
			_, err := c.Revoke(t.Context(), "alice", issue(t, c).Value)
			return err
		},
		wire.CodeStoreUnavailable: func(t *testing.T, s *clienttest.Server, c *client.Client) error {
			s.Down(true)
			_, err := c.Issue(t.Context(), "alice")
			return err
		},
		wire.CodeOutcomeUnknown: func(t *testing.T, _ *clienttest.Server, _ *client.Client) error {
			s := clienttest.New(t, clienttest.DeleteMode())
			tok := issue(t, s.Client())
			s.LoseStoreReplies(1)
			return consumeErr(t, s.Client(), tok)
		},
		wire.CodeInvalidRequest: func(t *testing.T, _ *clienttest.Server, c *client.Client) error {
			_, err := c.Issue(t.Context(), "")
			return err
		},
		wire.CodeUnauthenticated: func(t *testing.T, s *clienttest.Server, _ *client.Client) error {
			c, err := client.New(s.URL, client.ServiceKey("tsk_of-somebody-else"))
			if err != nil {
				t.Fatal(err)
			}
			defer c.CloseIdleConnections()
			_, err = c.Issue(t.Context(), "alice")
			return err
		},
		wire.CodeForbidden: func(t *testing.T, s *clienttest.Server, c *client.Client) error {
			return consumeErr(t, s.UserClient("alice"), issue(t, c))
		},
		wire.CodeNotFound: func(t *testing.T, s *clienttest.Server, _ *client.Client) error {
			c, err := client.New(s.URL+"/elsewhere", client.ServiceKey(s.ServiceKey))
			if err != nil {
				t.Fatal(err)
			}
			defer c.CloseIdleConnections()
			_, err = c.Issue(t.Context(), "alice")
			return err
		},
		wire.CodeBodyTooLarge: func(t *testing.T, _ *clienttest.Server, c *client.Client) error {
			_, err := c.ConsumeBatch(t.Context(), slices.Repeat([]client.Item{{
				User: strings.Repeat("u", 256), Token: strings.Repeat("t", 128),
				Digest: strings.Repeat("d", 128), Attempt: strings.Repeat("a", 255),
			}}, client.BatchMax))
			return err
		},
		wire.CodeRequestInProgress: func(t *testing.T, _ *clienttest.Server, c *client.Client) error {
			tok := issue(t, c)
			claimed(t, c, client.TokenOf("alice", "default", tok.Value))
			return consumeErr(t, c, tok)
		},
		wire.CodeClaimUnfinished: func(t *testing.T, s *clienttest.Server, c *client.Client) error {
			tok := issue(t, c)
			claimed(t, c, client.TokenOf("alice", "default", tok.Value), client.CommitFirst())
			s.Advance(31 * time.Second)
			return consumeErr(t, c, tok)
		},
		wire.CodeClaimSuperseded: func(t *testing.T, s *clienttest.Server, c *client.Client) error {
			cl := claimed(t, c, key("k"))
			s.Advance(30 * time.Second)
			claimed(t, c, key("k"))
			return cl.Commit(t.Context())
		},
		wire.CodeClaimEnded: func(t *testing.T, s *clienttest.Server, c *client.Client) error {
			cl := claimed(t, c, key("k"))
			s.LoseData()
			return cl.Commit(t.Context())
		},
		wire.CodeClaimCommitted: func(t *testing.T, _ *clienttest.Server, c *client.Client) error {
			return claimed(t, c, key("k"), client.CommitFirst()).Release(t.Context())
		},
		wire.CodeRateLimited: func(t *testing.T, s *clienttest.Server, _ *client.Client) error {
			c := s.UserClient("alice")
			issue(t, c)
			issue(t, c)
			_, err := c.Issue(t.Context(), "")
			return err
		},
	}
	never := []client.Code{
		wire.CodeMethodNotAllowed,     // the client uses each endpoint's own
		wire.CodeUnsupportedMediaType, // and JSON
		wire.CodeTokenMissing,         // and a token, which gateways may lack
		wire.CodeInternal,             // a bug of the server's
	}
	for _, kind := range wire.Kinds() {
		provoke := tests[kind.Code]
		if (provoke == nil) != slices.Contains(never, kind.Code) {
			t.Errorf("%s is provoked %t", kind.Code, provoke != nil)
		}
		if provoke == nil {
			continue
		}
		t.Run(string(kind.Code), func(t *testing.T) {
			t.Parallel()
			s := clienttest.New(t, clienttest.TTL(ttl), clienttest.Retention(retention), clienttest.Rate(60, 2))
			err := provoke(t, s, s.Client())
			if kind.Fault {
				if down, ok := errors.AsType[*client.Fault](err); !ok || down.Code != kind.Code || down.RequestID == "" {
					t.Fatalf("got %v", err)
				}
				return
			}
			no, ok := errors.AsType[*client.Refusal](err)
			if !ok {
				t.Fatalf("not a refusal: %v", err)
			}
			if no.Code != kind.Code || no.Next != kind.Next || no.Status != kind.Status || no.Detail == "" || no.RequestID == "" {
				t.Errorf("got %+v, want %+v", no, kind)
			}
			aboutToken := strings.HasPrefix(string(kind.Code), "token_") && kind.Code != wire.CodeTokenInvalid
			if aboutToken && (no.Ref == "" || no.ExpiresAt.IsZero()) {
				t.Errorf("which token is not told: %+v", no)
			}
		})
	}
}

// What only some refusals say.
func TestRefusalDetails(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t, clienttest.Rate(60, 1))
	c, alice := s.Client(), s.UserClient("alice")

	tok := issue(t, c)
	s.Advance(time.Second)
	got := consume(t, c, tok, client.Attempt("a1"))
	no, _ := errors.AsType[*client.Refusal](consumeErr(t, c, tok))
	if !no.UsedAt.Equal(got.UsedAt) || !got.UsedAt.Equal(s.Now()) || no.Ref != tok.Ref || !no.ExpiresAt.Equal(tok.ExpiresAt) {
		t.Errorf("got %+v of a token used at %v", no, got.UsedAt)
	}
	if no.UsedBy != "f55ff16f" { // what printf a1 | sha256sum begins with
		t.Errorf("used by %s", no.UsedBy)
	}

	tok = issue(t, alice)
	if _, err := alice.Revoke(t.Context(), "", tok.Value); err != nil {
		t.Fatal(err)
	}
	no, _ = errors.AsType[*client.Refusal](consumeErr(t, c, tok))
	if !no.RevokedAt.Equal(s.Now()) {
		t.Errorf("revoked at %v, want %v", no.RevokedAt, s.Now())
	}

	_, err := alice.Issue(t.Context(), "")
	if no, _ = errors.AsType[*client.Refusal](err); no == nil || no.RetryAfter != time.Second {
		t.Fatalf("got %v", err)
	}
	s.Advance(no.RetryAfter)
	issue(t, alice)

	_, err = c.Issue(t.Context(), "alice", client.TTL(25*time.Hour))
	if no, _ = errors.AsType[*client.Refusal](err); no == nil || no.Field != "ttl" {
		t.Errorf("got %v", err)
	}
	s = clienttest.New(t, clienttest.Purposes("order.create"))
	_, err = s.Client().Issue(t.Context(), "alice")
	if no, _ = errors.AsType[*client.Refusal](err); no == nil || no.Field != "purpose" {
		t.Errorf("got %v", err)
	}
}

// A try whose reply was lost is answered again, wherever it was lost.
func TestConsumeRepliesLost(t *testing.T) {
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
			carriedOut := name != "not even carried"

			tok := issue(t, c)
			lose(s, 4)
			if got := consume(t, c, tok); got.Replayed != carriedOut {
				t.Errorf("replayed: %t", got.Replayed)
			}
			if err := consumeErr(t, c, tok); !errors.Is(err, client.ErrUsed) {
				t.Errorf("the next call: %v", err)
			}

			// All tries are lost. Whoever knows the attempt can go on with it.
			tok = issue(t, c)
			lose(s, 5)
			err := consumeErr(t, c, tok, client.Attempt("a1"))
			code := client.Code("")
			if name == "from the store" {
				code = wire.CodeStoreUnavailable
			}
			wantFault(t, err, client.Fault{Op: "consume", MaybeDone: true, Tries: 5, Code: code})
			if got := consume(t, c, tok, client.Attempt("a1")); got.Replayed != carriedOut {
				t.Errorf("replayed: %t", got.Replayed)
			}
		})
	}
}

// At most one of many callers is granted a token, whichever replies are lost.
func TestConsumeRepliesLostToMany(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t)
	c := s.Client()
	for range 10 {
		tok := issue(t, c)
		s.LoseReplies(20)
		var granted atomic.Int64
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				switch err := consumeErr(t, c, tok); {
				case err == nil:
					granted.Add(1)
				case !errors.Is(err, client.ErrUsed):
					// Five lost replies in a row end in a fault: whether this was the one
					// is then unknown.
					if down, ok := errors.AsType[*client.Fault](err); !ok || !down.MaybeDone {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if granted.Load() > 1 {
			t.Fatalf("%d were granted one token", granted.Load())
		}
		s.LoseReplies(0)
	}
}

func TestIssueRepliesLost(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t)
	c := s.Client()
	s.LoseReplies(2)
	s.LoseStoreReplies(1)
	consume(t, c, issue(t, c))
	s.LoseReplies(2)
	toks, err := c.IssueBatch(t.Context(), "alice", 3)
	if err != nil {
		t.Fatal(err)
	}
	for _, tok := range toks {
		consume(t, c, tok)
	}
}

// An outage changes nothing, and what was begun before it goes on after it.
func TestStoreDownThenUp(t *testing.T) {
	for _, mode := range [][]clienttest.Option{nil, {clienttest.DeleteMode()}} {
		s := clienttest.New(t, mode...)
		c := s.Client()
		tok, used := issue(t, c), issue(t, c)
		consume(t, c, used)

		s.Down(true)
		down := client.Fault{MaybeDone: true, Tries: 5, Code: wire.CodeStoreUnavailable}
		down.Op = "consume"
		wantFault(t, consumeErr(t, c, tok), down)
		wantFault(t, consumeErr(t, c, used), down) // no stale refusal
		_, err := c.Issue(t.Context(), "alice")
		down.Op = "issue"
		wantFault(t, err, down)
		_, err = c.Status(t.Context(), "alice", tok.Value)
		wantFault(t, err, client.Fault{Op: "status", Tries: 5, Code: wire.CodeStoreUnavailable})
		// What needs no store is told without it.
		if _, err := c.Consume(t.Context(), "bob", tok.Value); !errors.Is(err, client.ErrWrongUser) {
			t.Errorf("got %v", err)
		}

		s.Down(false)
		if got := consume(t, c, tok); got.Replayed {
			t.Error("consumed while the store was down")
		}
		if err := consumeErr(t, c, used); !errors.Is(err, client.ErrUsed) {
			t.Errorf("got %v", err)
		}
	}
}

// The store that comes back between two tries is as good as one that was never away.
func TestStoreUpBetweenTries(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t)
	var waits []time.Duration
	c := s.Client(client.Backoff(func(_ int, retryAfter time.Duration) time.Duration {
		waits = append(waits, retryAfter)
		s.Down(len(waits) < 3)
		return 0
	}))
	tok := issue(t, c)
	s.Down(true)
	consume(t, c, tok)
	if !slices.Equal(waits, []time.Duration{time.Second, time.Second, time.Second}) {
		t.Errorf("asked to wait %v", waits)
	}
}

func TestExpiry(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t, clienttest.Retention(time.Hour))
	c := s.Client()
	short, long, unused := issue(t, c, client.TTL(time.Minute)), issue(t, c, client.TTL(time.Hour)), issue(t, c, client.TTL(time.Minute))

	s.Advance(time.Minute - time.Millisecond)
	consume(t, c, short)
	s.Advance(time.Millisecond)
	if err := consumeErr(t, c, unused); !errors.Is(err, client.ErrExpired) {
		t.Errorf("at its expiry: %v", err)
	}
	if err := consumeErr(t, c, short); !errors.Is(err, client.ErrUsed) {
		t.Errorf("used, then expired: %v", err)
	}
	consume(t, c, long)
	s.Advance(time.Hour - time.Millisecond)
	if err := consumeErr(t, c, unused); !errors.Is(err, client.ErrExpired) {
		t.Errorf("within its retention: %v", err)
	}
	s.Advance(time.Millisecond)
	if err := consumeErr(t, c, unused); !errors.Is(err, client.ErrStale) {
		t.Errorf("past its retention: %v", err)
	}
}

// Every state, as Status and Revoke tell it by the token and by its ref, and what becomes
// of it when it is revoked.
func TestEachState(t *testing.T) {
	const ttl, retention = time.Minute, time.Hour
	tests := []struct {
		state   client.State
		byRef   client.State // as far as a ref tells
		revoked error        // what a consume hears then
		make    func(*testing.T, *clienttest.Server, client.Token)
	}{
		{client.StateIssued, client.StateIssued, client.ErrRevoked,
			func(*testing.T, *clienttest.Server, client.Token) {}},
		{client.StateUsed, client.StateUsed, client.ErrUsed,
			func(t *testing.T, s *clienttest.Server, tok client.Token) { consume(t, s.Client(), tok) }},
		{client.StateRevoked, client.StateRevoked, client.ErrRevoked,
			func(t *testing.T, s *clienttest.Server, tok client.Token) {
				if _, err := s.Client().Revoke(t.Context(), "alice", tok.Value); err != nil {
					t.Fatal(err)
				}
			}},
		{client.StateExpired, client.StateGone, client.ErrExpired,
			func(_ *testing.T, s *clienttest.Server, _ client.Token) { s.Advance(ttl + time.Minute) }},
		{client.StateStale, client.StateGone, client.ErrStale,
			func(_ *testing.T, s *clienttest.Server, _ client.Token) { s.Advance(ttl + retention) }},
		{client.StateLost, client.StateGone, client.ErrLost,
			func(_ *testing.T, s *clienttest.Server, _ client.Token) { s.LoseData() }},
	}
	for _, tt := range tests {
		for _, byRef := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, by ref %t", tt.state, byRef), func(t *testing.T) {
				t.Parallel()
				s := clienttest.New(t, clienttest.TTL(ttl), clienttest.Retention(retention))
				c, ctx := s.Client(), t.Context()
				tok := issue(t, c)
				tt.make(t, s, tok)

				st, err := c.Status(ctx, "alice", tok.Value)
				if err != nil || st.State != tt.state || st.Ref != tok.Ref || !st.ExpiresAt.Equal(tok.ExpiresAt) {
					t.Errorf("status %+v, %v", st, err)
				}
				ref, err := c.StatusByRef(ctx, "alice", tok.Ref)
				if err != nil || ref.State != tt.byRef || ref.Ref != tok.Ref {
					t.Errorf("status by ref %+v, %v", ref, err)
				}
				if tt.byRef == tt.state && st != ref {
					t.Error(cmp.Diff(st, ref))
				}

				want, revoke := tt.state, func() (client.Revoked, error) { return c.Revoke(ctx, "alice", tok.Value) }
				if byRef {
					want, revoke = tt.byRef, func() (client.Revoked, error) { return c.RevokeByRef(ctx, "alice", tok.Ref) }
				}
				if want == client.StateIssued {
					want = client.StateRevoked
				}
				s.LoseReplies(1)
				for range 2 { // twice is the same as once
					if got, err := revoke(); err != nil || got != (client.Revoked{State: want, Ref: tok.Ref}) {
						t.Errorf("revoked %+v, %v, want %s", got, err, want)
					}
				}
				if err := consumeErr(t, c, tok); !errors.Is(err, tt.revoked) {
					t.Errorf("consume: %v", err)
				}
			})
		}
	}
}

// A ref without its user, or of another kind of caller, names nothing.
func TestByRefIsForServices(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t)
	c, ctx := s.Client(), t.Context()
	tok := issue(t, c)
	if st, err := c.StatusByRef(ctx, "bob", tok.Ref); err != nil || st != (client.Status{State: client.StateGone, Ref: tok.Ref}) {
		t.Errorf("another user's: %+v, %v", st, err)
	}
	if got, err := c.RevokeByRef(ctx, "bob", tok.Ref); err != nil || got.State != client.StateGone {
		t.Errorf("another user's: %+v, %v", got, err)
	}
	if _, err := c.StatusByRef(ctx, "", tok.Ref); !errors.Is(err, client.ErrInvalidRequest) {
		t.Errorf("nobody's: %v", err)
	}
	if _, err := c.RevokeByRef(ctx, "alice", tok.Value); !errors.Is(err, client.ErrInvalidRequest) {
		t.Errorf("a token's text: %v", err)
	}
	if _, err := s.UserClient("alice").RevokeByRef(ctx, "alice", tok.Ref); !errors.Is(err, client.ErrForbidden) {
		t.Errorf("a user's call: %v", err)
	}
	if got, err := s.UserClient("alice").Revoke(ctx, "", tok.Value); err != nil || got.State != client.StateRevoked {
		t.Errorf("a user's own: %+v, %v", got, err)
	}
}

// words tells outcomes apart.
func words(outcomes []client.Outcome) []string {
	var ws []string
	for _, o := range outcomes {
		no, _ := errors.AsType[*client.Refusal](o.Err)
		down, _ := errors.AsType[*client.Fault](o.Err)
		switch {
		case o.Err == nil && o.Replayed:
			ws = append(ws, "replayed")
		case o.Err == nil:
			ws = append(ws, "consumed")
		case no != nil:
			ws = append(ws, string(no.Code))
		default:
			ws = append(ws, fmt.Sprintf("fault %s after %d, maybe done %t", down.Code, down.Tries, down.MaybeDone))
		}
	}
	return ws
}

func wantOutcomes(t *testing.T, c *client.Client, items []client.Item, want ...string) []client.Outcome {
	t.Helper()
	got, err := c.ConsumeBatch(t.Context(), items)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, words(got)); diff != "" {
		t.Error(diff)
	}
	return got
}

// itemsOf returns items for n new tokens of alice's.
func itemsOf(t *testing.T, c *client.Client, n int) []client.Item {
	t.Helper()
	toks, err := c.IssueBatch(t.Context(), "alice", n)
	if err != nil {
		t.Fatal(err)
	}
	items := make([]client.Item, n)
	for i, tok := range toks {
		items[i] = client.Item{User: "alice", Token: tok.Value}
	}
	return items
}

func TestBatchMixed(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t)
	c := s.Client()
	item := func(user string, tok client.Token) client.Item { return client.Item{User: user, Token: tok.Value} }

	live, twice, used, revoked, expired := issue(t, c), issue(t, c), issue(t, c), issue(t, c), issue(t, c, client.TTL(time.Second))
	other, err := c.Purpose("order.create").Issue(t.Context(), "alice")
	if err != nil {
		t.Fatal(err)
	}
	bobs, err := c.Issue(t.Context(), "bob")
	if err != nil {
		t.Fatal(err)
	}
	consume(t, c, used, client.Digest("d1"))
	if _, err := c.Revoke(t.Context(), "alice", revoked.Value); err != nil {
		t.Fatal(err)
	}
	s.Advance(time.Second)

	reused := item("alice", used)
	reused.Digest = "d2"
	badAttempt := item("alice", live)
	badAttempt.Attempt = "not visible: \x00"
	s.LoseReplies(1)
	got := wantOutcomes(t, c, []client.Item{
		item("alice", twice), item("alice", used), reused, item("alice", expired), item("alice", revoked), item("bob", live),
		item("alice", other), item("alice", client.Token{Value: "x"}), item("a\xff", live), badAttempt,
		item("bob", bobs), item("alice", twice),
	}, "replayed", "token_used", "idempotency_key_reused", "token_expired", "token_revoked", "wrong_user",
		"wrong_purpose", "fault  after 2, maybe done true", "invalid_request", "fault  after 2, maybe done true",
		"replayed", "token_used")
	if got[0].Ref != twice.Ref || got[10].Ref != bobs.Ref || got[10].User != "bob" {
		t.Errorf("out of order: %+v", got)
	}
	consume(t, c, live) // which three of the items were about, and none touched
}

// Without a lost try before it, each refusal is one.
func TestBatchRefusals(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t)
	items := itemsOf(t, s.Client(), 3)
	items[0].Token = "x"
	items[1].Attempt = "not visible: \x00"
	wantOutcomes(t, s.Client(), items, "token_invalid", "invalid_request", "consumed")
	wantOutcomes(t, s.Client(), items[:2], "token_invalid", "invalid_request")
}

// Items that the store did not answer are sent again, and the others are not.
func TestBatchPartlyWithoutAnswer(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t)
	c := s.Client()

	items := itemsOf(t, c, 4)
	s.LoseStoreReplies(2)
	wantOutcomes(t, c, items, "consumed", "consumed", "replayed", "replayed")
	wantOutcomes(t, c, items, "token_used", "token_used", "token_used", "token_used")

	// All three are without an answer in the first try, and one in the last.
	items = itemsOf(t, c, 3)
	s.LoseStoreReplies(3 + 1)
	wantOutcomes(t, s.Client(client.MaxTries(2)), items,
		"replayed", "replayed", "fault store_unavailable after 2, maybe done true")

	// An outage leaves those with an answer that needs no store.
	items = itemsOf(t, c, 2)
	items[0].User = "bob"
	s.Down(true)
	wantOutcomes(t, c, items, "wrong_user", "fault store_unavailable after 5, maybe done true")
	s.Down(false)
	wantOutcomes(t, c, items, "wrong_user", "consumed")
}

// No caller of two batches with the same tokens is granted one twice.
func TestBatchesAtOnce(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t)
	c := s.Client()
	items := itemsOf(t, c, client.BatchMax)
	s.LoseReplies(2)
	s.LoseStoreReplies(30)
	granted := make([]atomic.Int64, len(items))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			got, err := c.ConsumeBatch(t.Context(), items)
			if err != nil {
				t.Error(err)
			}
			for i, o := range got {
				switch {
				case o.Err == nil:
					granted[i].Add(1)
				case !errors.Is(o.Err, client.ErrUsed):
					t.Error(o.Err)
				}
			}
		})
	}
	wg.Wait()
	for i := range granted {
		if n := granted[i].Load(); n != 1 {
			t.Errorf("item %d was granted %d times", i, n)
		}
	}
}

func TestIssueBatchBounds(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t, clienttest.Rate(60, 3))
	alice, ctx := s.UserClient("alice"), t.Context()
	for _, tt := range []struct {
		c *client.Client
		n int
	}{{s.Client(), 0}, {s.Client(), -1}, {s.Client(), client.BatchMax + 1}, {alice, 4}} {
		_, err := tt.c.IssueBatch(ctx, "alice", tt.n)
		if no, _ := errors.AsType[*client.Refusal](err); no == nil || no.Code != wire.CodeInvalidRequest || no.Field != "count" {
			t.Errorf("%d tokens: %v", tt.n, err)
		}
	}
	if _, err := alice.IssueBatch(ctx, "", 2); err != nil {
		t.Fatal(err)
	}
	// All or none: the one that is left stays.
	if _, err := alice.IssueBatch(ctx, "", 2); !errors.Is(err, client.ErrRateLimited) {
		t.Errorf("got %v", err)
	}
	issue(t, alice)
	if toks, err := s.Client().IssueBatch(ctx, "alice", client.BatchMax, client.TTL(time.Hour)); err != nil || toks[99].TTL != time.Hour {
		t.Errorf("got %d tokens, %v", len(toks), err)
	}
}

// Delete mode remembers no attempts: where a reply was lost nobody can tell, and the client
// does not say that the token was another's.
func TestDeleteMode(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t, clienttest.DeleteMode())
	c, ctx := s.Client(), t.Context()
	state := func(tok client.Token) client.State {
		st, err := c.Status(ctx, "alice", tok.Value)
		if err != nil {
			t.Fatal(err)
		}
		return st.State
	}

	tok := issue(t, c)
	if got := state(tok); got != client.StateIssued {
		t.Errorf("issued: %s", got)
	}
	consume(t, c, tok)
	no, _ := errors.AsType[*client.Refusal](consumeErr(t, c, tok))
	if no == nil || no.Code != wire.CodeTokenUsed || no.UsedBy != "" {
		t.Errorf("used: %v", no)
	}
	if got := state(tok); got != client.StateUsed {
		t.Errorf("used: %s", got)
	}

	tok = issue(t, c)
	s.LoseReplies(1)
	wantFault(t, consumeErr(t, c, tok), client.Fault{Op: "consume", MaybeDone: true, Tries: 2})
	tok = issue(t, c)
	s.LoseStoreReplies(1)
	wantFault(t, consumeErr(t, c, tok), client.Fault{Op: "consume", MaybeDone: true, Tries: 1, Code: wire.CodeOutcomeUnknown})

	items := itemsOf(t, c, 3)
	s.LoseStoreReplies(1)
	wantOutcomes(t, c, items, "consumed", "consumed", "fault outcome_unknown after 1, maybe done true")
	items = itemsOf(t, c, 2)
	s.LoseReplies(1)
	wantOutcomes(t, c, items, "fault  after 2, maybe done true", "fault  after 2, maybe done true")

	if _, err := c.RevokeByRef(ctx, "alice", issue(t, c).Ref); !errors.Is(err, client.ErrModeUnsupported) {
		t.Errorf("revoke by ref: %v", err)
	}
	tok = issue(t, c)
	s.Advance(tok.TTL)
	if got := state(tok); got != client.StateGone {
		t.Errorf("expired: %s", got)
	}
}
