package client

import (
	"fmt"
	"io"
	"log/slog"

	"example.com/tokend/httpapi/wire"
)

// Subject is what is claimed: a key or a token, of one user, for one purpose. [Key] and
// [TokenOf] make one. Printed or logged it shows nothing, since a token is a secret until it
// is used.
type Subject struct{ user, purpose, key, token *string }

// Key is an idempotency key that the caller's own client made: 1 to 255 visible ASCII
// characters, good for user and purpose alone. It is never issued. For a callback without a
// logged-in user, user is whoever owns the key: "stripe:acct_1".
func Key(user, purpose, key string) Subject {
	return Subject{user: userMember(user), purpose: &purpose, key: &key}
}

// TokenOf is a token that was issued to user for purpose. token is its text, [Token.Value].
func TokenOf(user, purpose, token string) Subject {
	return Subject{user: userMember(user), purpose: &purpose, token: &token}
}

// Format writes the type's name, whatever the verb.
func (Subject) Format(f fmt.State, _ rune) { io.WriteString(f, "client.Subject") }

// LogValue returns the type's name.
func (Subject) LogValue() slog.Value { return slog.StringValue("client.Subject") }

// check refuses what cannot be sent.
func (s Subject) check() *Refusal {
	switch {
	case s.key == nil && s.token == nil:
		return refuse(wire.CodeInvalidRequest, "token", "token or key must stand: Key and TokenOf make a Subject")
	case s.token != nil:
		if no := checkToken(*s.token); no != nil {
			return no
		}
	}
	if s.user == nil {
		return nil // which is tokend's to judge
	}
	return checkUser(*s.user)
}
