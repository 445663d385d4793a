package client

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/tokend/httpapi/wire"
)

func TestIssue(t *testing.T) {
	tests := []struct {
		name, user, purpose string
		opts                []IssueOption
		answer              map[string]any
		want                string // body
	}{
		{"a service's", "alice", "default", nil, nil, `{"purpose":"default","user":"alice"}`},
		{"a user's own", "", "default", nil, nil, `{"purpose":"default"}`},
		{"purpose and ttl", "alice", "order.create", []IssueOption{TTL(time.Hour)},
			map[string]any{"purpose": "order.create", "ttl": 3600}, `{"purpose":"order.create","ttl":3600,"user":"alice"}`},
		{"a user in JSON's own characters", "a\"\\<\u2028", "default", nil,
			map[string]any{"user": "a\"\\<\u2028"}, `{"purpose":"default","user":"a\"\\\u003c\u2028"}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, []step{grantedWith(tt.answer)}, func(t *testing.T, c *Client, f *fake) {
				got, err := c.Purpose(tt.purpose).Issue(t.Context(), tt.user, tt.opts...)
				if err != nil {
					t.Fatal(err)
				}
				user := tt.user
				if user == "" {
					user = testUser // whom the JWT names
				}
				ttl := 300 * time.Second
				if tt.opts != nil {
					ttl = time.Hour
				}
				want := Token{
					Value: testToken, Ref: testRef, User: user, Purpose: tt.purpose,
					IssuedAt: issuedAt, ExpiresAt: expiresAt, TTL: ttl,
				}
				if got != want {
					t.Error(cmp.Diff(want, got))
				}
				if diff := cmp.Diff(tt.want, f.made()[0].body); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

func TestIssueIsTriedAgain(t *testing.T) {
	inBubble(t, []step{dropped, granted}, func(t *testing.T, c *Client, f *fake) {
		if _, err := c.Issue(t.Context(), testUser); err != nil {
			t.Error(err)
		}
	})
}

// An extra token harms nobody, so a refusal stands whatever went before it.
func TestIssueRefusedAfterFault(t *testing.T) {
	inBubble(t, []step{dropped, problemOf(wire.CodeRateLimited)}, func(t *testing.T, c *Client, f *fake) {
		if _, err := c.Issue(t.Context(), testUser); !errors.Is(err, ErrRateLimited) {
			t.Errorf("got %v", err)
		}
	})
}

func TestIssueAnswerIsChecked(t *testing.T) {
	for _, change := range []map[string]any{
		{"token": nil}, {"token": ""}, {"ref": nil}, {"issued_at": nil}, {"expires_at": nil},
		{"user": "bob"}, {"purpose": "p"}, {"ttl": "300"},
	} {
		inBubble(t, []step{grantedWith(change)}, func(t *testing.T, c *Client, f *fake) {
			got, err := c.Issue(t.Context(), testUser)
			wantFault(t, err, Fault{Op: "issue", MaybeDone: true, Tries: 1})
			if got != (Token{}) {
				t.Errorf("%v: a token beside the error", change)
			}
		}, MaxTries(1))
	}
}

// What cannot be sent as it is, is refused as tokend would, and not sent.
func TestIssueCannotBeSent(t *testing.T) {
	tests := []struct {
		name, user string
		opts       []IssueOption
		field      string
	}{
		{"user of invalid UTF-8", "a\xff", nil, "user"},
		{"user with a lone surrogate", "a\xed\xa0\x80", nil, "user"},
		{"ttl with a fraction", "alice", []IssueOption{TTL(1500 * time.Millisecond)}, "ttl"},
		{"ttl below a second", "alice", []IssueOption{TTL(time.Nanosecond)}, "ttl"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, nil, func(t *testing.T, c *Client, f *fake) {
				_, err := c.Issue(t.Context(), tt.user, tt.opts...)
				wantSentNothing(t, err, ErrInvalidRequest, tt.field)
			})
		})
	}
}

func wantSentNothing(t *testing.T, err, want error, field string) {
	t.Helper()
	no, ok := errors.AsType[*Refusal](err)
	if !ok || !errors.Is(err, want) {
		t.Fatalf("got %v, want %v", err, want)
	}
	kind, _ := wire.KindOf(no.Code)
	if no.Field != field || no.Status != kind.Status || no.Next != kind.Next || no.Detail == "" {
		t.Errorf("got %+v", no)
	}
}

// All else is tokend's to judge: it is sent as it is.
func TestIssueSendsWhatTokendRefuses(t *testing.T) {
	inBubble(t, []step{problemWith(wire.Problem{Code: wire.CodeInvalidRequest, Field: "ttl"})}, func(t *testing.T, c *Client, f *fake) {
		_, err := c.Purpose("").Issue(t.Context(), "a\nb", TTL(0))
		if no, ok := errors.AsType[*Refusal](err); !ok || no.Field != "ttl" {
			t.Errorf("got %v", err)
		}
		if got, want := f.made()[0].body, `{"purpose":"","ttl":0,"user":"a\nb"}`; got != want {
			t.Errorf("sent %s, want %s", got, want)
		}
	})
}
