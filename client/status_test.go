package client

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/tokend/httpapi/wire"
)

func TestStatus(t *testing.T) {
	at := wire.TimeOf(issuedAt)
	tests := []struct {
		name, user string
		answer     map[string]any
		want       Status
		body       string
	}{
		{"issued", "alice", nil, Status{State: StateIssued, IssuedAt: issuedAt},
			`{"token":"ott_TOKEN-TEXT","user":"alice","purpose":"default"}`},
		{"a user's own", "", nil, Status{State: StateIssued, IssuedAt: issuedAt},
			`{"token":"ott_TOKEN-TEXT","purpose":"default"}`},
		{"used", "alice", map[string]any{"state": "used", "used_at": at, "used_by": "01234567"},
			Status{State: StateUsed, IssuedAt: issuedAt, UsedAt: issuedAt, UsedBy: "01234567"}, ""},
		{"revoked", "alice", map[string]any{"state": "revoked", "revoked_at": at},
			Status{State: StateRevoked, IssuedAt: issuedAt, RevokedAt: issuedAt}, ""},
		{"expired", "alice", map[string]any{"state": "expired", "issued_at": nil}, Status{State: StateExpired}, ""},
		{"a newer state", "alice", map[string]any{"state": "new", "issued_at": nil}, Status{State: "new"}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, []step{dropped, grantedWith(tt.answer)}, func(t *testing.T, c *Client, f *fake) {
				got, err := c.Status(t.Context(), tt.user, testToken)
				if err != nil {
					t.Fatal(err)
				}
				tt.want.Ref, tt.want.ExpiresAt = testRef, expiresAt
				if got != tt.want {
					t.Error(cmp.Diff(tt.want, got))
				}
				if body := f.made()[1].body; tt.body != "" && body != tt.body {
					t.Errorf("sent %s, want %s", body, tt.body)
				}
			})
		})
	}
}

func TestStatusByRef(t *testing.T) {
	gone := map[string]any{"state": "gone", "issued_at": nil, "expires_at": nil}
	tests := []struct {
		name   string
		change map[string]any
		want   Status
	}{
		{"issued", nil, Status{State: StateIssued, Ref: testRef, IssuedAt: issuedAt, ExpiresAt: expiresAt}},
		{"gone", gone, Status{State: StateGone, Ref: testRef}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, []step{dropped, grantedWith(tt.change)}, func(t *testing.T, c *Client, f *fake) {
				got, err := c.StatusByRef(t.Context(), testUser, testRef)
				if err != nil || got != tt.want {
					t.Errorf("got %+v, %v, want %+v", got, err, tt.want)
				}
				if got, want := f.made()[1].body, `{"ref":"`+testRef+`","user":"alice"}`; got != want {
					t.Errorf("sent %s, want %s", got, want)
				}
			})
		})
	}
	// A token by its text always has an expiry.
	inBubble(t, []step{grantedWith(gone)}, func(t *testing.T, c *Client, f *fake) {
		_, err := c.Status(t.Context(), testUser, testToken)
		wantFault(t, err, Fault{Op: "status", Tries: 1})
	}, MaxTries(1))
	inBubble(t, []step{grantedWith(map[string]any{"ref": "t_"})}, func(t *testing.T, c *Client, f *fake) {
		_, err := c.StatusByRef(t.Context(), testUser, testRef)
		wantFault(t, err, Fault{Op: "status", Tries: 1})
	}, MaxTries(1))
}

func TestStatusAnswerIsChecked(t *testing.T) {
	for _, change := range []map[string]any{{"state": nil}, {"state": 1}, {"ref": nil}, {"expires_at": nil}} {
		inBubble(t, []step{grantedWith(change)}, func(t *testing.T, c *Client, f *fake) {
			_, err := c.Status(t.Context(), testUser, testToken)
			wantFault(t, err, Fault{Op: "status", Tries: 1})
		}, MaxTries(1))
	}
}
