package auth

import (
	"log/slog"

	"example.com/tokend/token"
)

// Kind is what a caller is, and how it showed that.
type Kind uint8

// The kinds of callers.
const (
	User       Kind = iota + 1 // a user, by JWT
	Service                    // a service, by JWT
	KeyService                 // a service, by service key
)

// Identity is a caller. The zero Identity is nobody, and has no scope.
type Identity struct {
	Kind   Kind
	User   token.User // a user's; empty for a service
	Name   string     // a service's: 1 to 64 visible ASCII characters; empty for a user
	Scopes Scopes     // a service's; a user has none
}

// IsUser tells whether the caller is a user.
func (id Identity) IsUser() bool { return id.Kind == User }

// IsService tells whether the caller is a service.
func (id Identity) IsService() bool { return id.Kind == Service || id.Kind == KeyService }

// Has tells whether the caller is a service that holds scope: wire.ScopeIssue, say. No
// caller holds a scope that is none of tokend's.
func (id Identity) Has(scope string) bool { return id.IsService() && id.Scopes&scopeOf(scope) != 0 }

// Caller names the caller in log lines: user, jwt:NAME or key:NAME. What the name of a
// service's JWT says was the issuer's to choose, so it never passes for a service key. It
// does not tell which user: whether that may be logged is not for this package to say.
func (id Identity) Caller() string {
	switch id.Kind {
	case User:
		return "user"
	case Service:
		return "jwt:" + id.Name
	case KeyService:
		return "key:" + id.Name
	}
	return "nobody"
}

// String returns the caller's name in log lines.
func (id Identity) String() string { return id.Caller() }

// LogValue returns the caller's name in log lines.
func (id Identity) LogValue() slog.Value { return slog.StringValue(id.Caller()) }

// maxName bounds a service's name.
const maxName = 64

// loggable returns s fit for a log line: cut to 64 bytes, each that is not visible ASCII
// replaced.
func loggable(s string) string {
	b := []byte(s[:min(len(s), maxName)])
	for i, c := range b {
		if c < '!' || c > '~' {
			b[i] = '_'
		}
	}
	return string(b)
}
