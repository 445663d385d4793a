package client

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/tokend/httpapi/wire"
)

func TestConsume(t *testing.T) {
	inBubble(t, []step{grantedWith(map[string]any{"purpose": "order.create", "takeover": true, "replayed": true})},
		func(t *testing.T, c *Client, f *fake) {
			got, err := c.Purpose("order.create").Consume(t.Context(), testUser, testToken, Digest("d1"), Attempt("a1"))
			if err != nil {
				t.Fatal(err)
			}
			want := Consumed{Ref: testRef, User: testUser, Purpose: "order.create", UsedAt: issuedAt, Takeover: true, Replayed: true}
			if got != want {
				t.Error(cmp.Diff(want, got))
			}
			body := `{"token":"` + testToken + `","user":"alice","purpose":"order.create","digest":"d1","attempt":"a1"}`
			if diff := cmp.Diff(body, f.made()[0].body); diff != "" {
				t.Error(diff)
			}
		})
}

// The attempt is the same in each try of a call, and another in the next call.
func TestAttempt(t *testing.T) {
	steps := []step{dropped, problemOf(wire.CodeStoreUnavailable), granted, answerWith(502, "text/html", ""), granted}
	inBubble(t, steps, func(t *testing.T, c *Client, f *fake) {
		for range 2 {
			if err := consumeOnce(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}
		as := f.attempts()
		if as[0] != as[1] || as[1] != as[2] || as[3] != as[4] || as[0] == as[3] || len(as[0]) < 26 {
			t.Errorf("attempts %q", as)
		}
	})
}

// A call that was given up says what it was made for, and a later one goes on with it.
func TestFaultSaysItsAttempt(t *testing.T) {
	steps := []step{dropped, dropped, dropped, dropped, dropped, granted}
	inBubble(t, steps, func(t *testing.T, c *Client, f *fake) {
		fault, ok := errors.AsType[*Fault](consumeOnce(t.Context(), c))
		if !ok || fault.Attempt == "" {
			t.Fatalf("%+v, want a Fault that says its attempt", fault)
		}
		if _, err := c.Consume(t.Context(), testUser, testToken, Attempt(fault.Attempt)); err != nil {
			t.Fatal(err)
		}
		for _, a := range f.attempts() {
			if a != fault.Attempt {
				t.Errorf("attempts %q, want all to be %q", f.attempts(), fault.Attempt)
			}
		}
	})
}

// A refusal that comes after a try without an answer may be that try's echo, or may not
// have looked at the token at all. Then nobody can tell, and it is a fault.
func TestConsumeRefusedAfterFault(t *testing.T) {
	used := wire.Problem{Code: wire.CodeTokenUsed, UsedBy: "01234567"}
	tests := []struct {
		name    string
		problem wire.Problem
		want    error // nil is a fault
	}{
		{"used by another attempt", used, ErrUsed},
		{"used by who knows (delete mode)", wire.Problem{Code: wire.CodeTokenUsed}, nil},
		{"gone", wire.Problem{Code: wire.CodeTokenGone}, ErrGone},
		{"lost", wire.Problem{Code: wire.CodeTokenLost}, ErrLost},
		{"stale", wire.Problem{Code: wire.CodeTokenStale}, ErrStale},
		{"expired", wire.Problem{Code: wire.CodeTokenExpired}, ErrExpired},
		{"revoked", wire.Problem{Code: wire.CodeTokenRevoked}, ErrRevoked},
		{"another digest", wire.Problem{Code: wire.CodeIdempotencyKeyReused}, ErrReused},
		{"wrong user", wire.Problem{Code: wire.CodeWrongUser}, ErrWrongUser},
		{"wrong purpose", wire.Problem{Code: wire.CodeWrongPurpose}, ErrWrongPurpose},
		{"an instance without the key", wire.Problem{Code: wire.CodeTokenInvalid}, nil},
		{"the credential has expired", wire.Problem{Code: wire.CodeUnauthenticated}, nil},
		{"the scope was taken away", wire.Problem{Code: wire.CodeForbidden}, nil},
		{"too many requests", wire.Problem{Code: wire.CodeRateLimited}, nil},
		{"no such endpoint", wire.Problem{Code: wire.CodeNotFound}, nil},
		{"an unknown code, stop", wire.Problem{Code: "new", Status: 409, Next: wire.NextStop}, nil},
		{"an unknown code, verify", wire.Problem{Code: "new", Status: 409, Next: wire.NextVerify}, refusalCode("new")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.problem.RequestID = "r1"
			steps := []step{problemOf(wire.CodeStoreUnavailable), problemWith(tt.problem)}
			inBubble(t, steps, func(t *testing.T, c *Client, f *fake) {
				err := consumeOnce(t.Context(), c)
				if tt.want == nil {
					down := wantFault(t, err, Fault{Op: "consume", MaybeDone: true, Tries: 2, RequestID: "r1"})
					if down.Code != "" {
						t.Errorf("the last try has the first one's code %s", down.Code)
					}
					if !strings.Contains(err.Error(), string(tt.problem.Code)) {
						t.Errorf("does not tell why: %v", err)
					}
				} else if !errors.Is(err, tt.want) {
					t.Errorf("got %v, want %v", err, tt.want)
				}
			})
		})
	}
}

func TestConsumeCannotBeSent(t *testing.T) {
	long := strings.Repeat("a", maxToken+1)
	inBubble(t, nil, func(t *testing.T, c *Client, f *fake) {
		_, err := c.Consume(t.Context(), "a\xff", testToken)
		wantSentNothing(t, err, ErrInvalidRequest, "user")
		_, err = c.Consume(t.Context(), testUser, long)
		wantSentNothing(t, err, ErrInvalidToken, "")
		_, err = c.Status(t.Context(), "a\xff", testToken)
		wantSentNothing(t, err, ErrInvalidRequest, "user")
		_, err = c.Status(t.Context(), testUser, long)
		wantSentNothing(t, err, ErrInvalidToken, "")
	})
}

// What the user sent may be anything; an empty option is not the same as none.
func TestConsumeSendsWhatTokendRefuses(t *testing.T) {
	inBubble(t, []step{problemOf(wire.CodeInvalidRequest)}, func(t *testing.T, c *Client, f *fake) {
		_, err := c.Consume(context.Background(), "", "\xff\x00", Digest(""), Attempt(""))
		if !errors.Is(err, ErrInvalidRequest) {
			t.Errorf("got %v", err)
		}
		want := `{"token":"\ufffd\u0000","purpose":"default","digest":"","attempt":""}`
		if got := f.made()[0].body; got != want {
			t.Errorf("sent %s, want %s", got, want)
		}
	})
}
