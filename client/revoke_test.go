package client

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/tokend/httpapi/wire"
)

func TestRevoke(t *testing.T) {
	tests := []struct {
		name  string
		call  func(context.Context, *Client) (Revoked, error)
		state State
		body  string
	}{
		{"a service's", func(ctx context.Context, c *Client) (Revoked, error) { return c.Revoke(ctx, "alice", testToken) },
			StateRevoked, `{"token":"ott_TOKEN-TEXT","user":"alice","purpose":"default"}`},
		{"a user's own", func(ctx context.Context, c *Client) (Revoked, error) {
			return c.Purpose("p").Revoke(ctx, "", testToken)
		},
			StateUsed, `{"token":"ott_TOKEN-TEXT","purpose":"p"}`},
		{"by ref", func(ctx context.Context, c *Client) (Revoked, error) { return c.RevokeByRef(ctx, "alice", testRef) },
			StateGone, `{"ref":"` + testRef + `","user":"alice"}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			answer := answerWith(http.StatusOK, wire.TypeJSON, `{"state":"`+string(tt.state)+`","ref":"`+testRef+`"}`)
			inBubble(t, []step{dropped, answer}, func(t *testing.T, c *Client, f *fake) {
				got, err := tt.call(t.Context(), c)
				if want := (Revoked{State: tt.state, Ref: testRef}); err != nil || got != want {
					t.Errorf("got %+v, %v, want %+v", got, err, want)
				}
				if diff := cmp.Diff(tt.body, f.made()[1].body); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

// Revoking can be done anew, so a refusal stands whatever went before it.
func TestRevokeRefusedAfterFault(t *testing.T) {
	inBubble(t, []step{dropped, problemOf(wire.CodeModeUnsupported)}, func(t *testing.T, c *Client, f *fake) {
		if _, err := c.Revoke(t.Context(), testUser, testToken); !errors.Is(err, ErrModeUnsupported) {
			t.Errorf("got %v", err)
		}
	})
}

func TestRevokeAnswerIsChecked(t *testing.T) {
	other := strings.Replace(testRef, "0", "f", 1)
	for _, body := range []string{`{}`, `null`, `{"state":"revoked"}`, `{"ref":"` + testRef + `"}`, `{"state":"revoked","ref":"` + other + `"}`} {
		inBubble(t, []step{answerWith(http.StatusOK, wire.TypeJSON, body)}, func(t *testing.T, c *Client, f *fake) {
			_, err := c.RevokeByRef(t.Context(), testUser, testRef)
			wantFault(t, err, Fault{Op: "revoke", MaybeDone: true, Tries: 1})
		}, MaxTries(1))
	}
}

func TestRevokeCannotBeSent(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *Client, f *fake) {
		_, err := c.Revoke(t.Context(), "a\xff", testToken)
		wantSentNothing(t, err, ErrInvalidRequest, "user")
		_, err = c.Revoke(t.Context(), testUser, strings.Repeat("a", maxToken+1))
		wantSentNothing(t, err, ErrInvalidToken, "")
		_, err = c.RevokeByRef(t.Context(), "a\xff", testRef)
		wantSentNothing(t, err, ErrInvalidRequest, "user")
		_, err = c.StatusByRef(t.Context(), "a\xff", testRef)
		wantSentNothing(t, err, ErrInvalidRequest, "user")
	})
}
