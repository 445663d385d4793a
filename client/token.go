package client

import (
	"fmt"
	"io"
	"log/slog"
	"time"

	"example.com/tokend/httpapi/wire"
)

// Token is a token that was just issued. Its times are by Redis's clock, to the
// millisecond, in UTC: show them, but do not compare them with the host's clock.
//
// Value is a secret until it is used. Printed by fmt or logged by slog a Token shows
// its Ref alone, and in JSON it has no Value. (fmt asks no one about an unexported
// field: a struct that keeps a Token in one must not be printed.)
type Token struct {
	Value     string `json:"-"` // what the user's form carries: at most 128 of [A-Za-z0-9_-]
	Ref       string // names the token where Value must not stand; no secret
	User      string // whom it was issued to
	Purpose   string // what for
	IssuedAt  time.Time
	ExpiresAt time.Time
	TTL       time.Duration // ExpiresAt less IssuedAt, whole seconds
}

// maxToken is the longest that a token can be.
const maxToken = 128

// String returns t.Ref.
func (t Token) String() string { return t.Ref }

// GoString returns t.Ref.
func (t Token) GoString() string { return t.Ref }

// Format writes t.Ref, whatever the verb.
func (t Token) Format(f fmt.State, _ rune) { io.WriteString(f, t.Ref) }

// LogValue returns t.Ref.
func (t Token) LogValue() slog.Value { return slog.StringValue(t.Ref) }

// checkToken refuses what is too long to be a token. Anything else is tokend's to
// judge, but megabytes in a form's field would meet its body limit, which tells the
// service that its request is wrong, and not that the user's token is.
func checkToken(token string) *Refusal {
	if len(token) > maxToken {
		return refuse(wire.CodeTokenInvalid, "", "a token has at most 128 characters")
	}
	return nil
}
