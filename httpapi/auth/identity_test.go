package auth

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"example.com/tokend/httpapi/wire"
)

func TestIdentity(t *testing.T) {
	tests := []struct {
		id             Identity
		caller         string
		user, service  bool
		issue, consume bool
	}{
		{Identity{}, "nobody", false, false, false, false},
		{Identity{Scopes: ScopeIssue}, "nobody", false, false, false, false},
		{Identity{Kind: User, User: "alice"}, "user", true, false, false, false},
		{Identity{Kind: User, User: "alice", Scopes: ScopeConsume}, "user", true, false, false, false},
		{Identity{Kind: Service, Name: "orders", Scopes: ScopeIssue}, "jwt:orders", false, true, true, false},
		{Identity{Kind: KeyService, Name: "orders", Scopes: ScopeConsume}, "key:orders", false, true, false, true},
		{Identity{Kind: KeyService, Name: "o", Scopes: ScopeIssue | ScopeConsume}, "key:o", false, true, true, true},
	}
	for _, tt := range tests {
		t.Run(tt.caller, func(t *testing.T) {
			if got := tt.id.Caller(); got != tt.caller {
				t.Errorf("caller is %q", got)
			}
			if tt.id.IsUser() != tt.user || tt.id.IsService() != tt.service {
				t.Errorf("user %t, service %t", tt.id.IsUser(), tt.id.IsService())
			}
			if tt.id.Has(wire.ScopeIssue) != tt.issue || tt.id.Has(wire.ScopeConsume) != tt.consume {
				t.Errorf("issue %t, consume %t", tt.id.Has(wire.ScopeIssue), tt.id.Has(wire.ScopeConsume))
			}
			if tt.id.Has("") || tt.id.Has("tokend") || tt.id.Has("TOKEND.ISSUE") {
				t.Error("holds a scope that is none")
			}
		})
	}
}

// TestIdentityHidesTheUser: whether a user may be logged is for the configuration to say.
func TestIdentityHidesTheUser(t *testing.T) {
	id := Identity{Kind: User, User: "alice"}
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("called", "caller", id)
	if got := log.String() + fmt.Sprint(id) + fmt.Sprintf("%v %s", id, id); strings.Contains(got, "alice") {
		t.Error(got)
	}
}

func TestScopes(t *testing.T) {
	for s, want := range map[Scopes]string{
		0: "", ScopeIssue: "tokend.issue", ScopeConsume: "tokend.consume",
		ScopeIssue | ScopeConsume: "tokend.issue tokend.consume",
	} {
		if s.String() != want {
			t.Errorf("%d is %q, want %q", s, s, want)
		}
	}
}
