package httpapi

import (
	"time"

	"example.com/tokend/httpapi/wire"
	"example.com/tokend/token"
)

// What successes are called in log lines and metrics; a status's is its state.
const (
	codeIssued   = "issued"
	codeConsumed = "consumed"
)

// required reads the member named field, which must be there.
func required[T any](field string, value *string, parse func(string) (T, error)) (T, error) {
	if value == nil {
		var none T
		return none, &token.InvalidError{Field: field, Rule: "is required"}
	}
	return parse(*value)
}

// optional reads a member that may be left out.
func optional[T any](value *string, parse func(string) (T, error)) (T, error) {
	if value == nil {
		var none T
		return none, nil
	}
	return parse(*value)
}

// ownUser reads whom a call is about: a service names its user, a user is its own.
func (c *call) ownUser(value *string) (token.User, error) {
	user, err := c.callersUser(value)
	c.outcome.user = user
	return user, err
}

func (c *call) callersUser(value *string) (token.User, error) {
	if !c.caller.IsUser() {
		return required("user", value, token.ParseUser)
	}
	user, err := optional(value, token.ParseUser)
	if err == nil && value != nil && user != c.caller.User {
		err = &problemError{code: wire.CodeForbidden, detail: "a user may name no other user than its own", field: "user"}
	}
	return c.caller.User, err
}

func (c *call) purpose(value *string) (token.Purpose, error) {
	p, err := purposeOf(value)
	c.outcome.purpose = p
	return p, err
}

func purposeOf(value *string) (token.Purpose, error) {
	if value == nil {
		return token.DefaultPurpose, nil
	}
	return token.ParsePurpose(*value)
}

// attempt reads the attempt, or makes one up: that makes the server's own re-sends safe.
// It is noted in o.
func attempt(o *outcome, value *string) (a token.Attempt, err error) {
	if value == nil {
		a = token.NewAttempt()
	} else if a, err = token.ParseAttempt(*value); err != nil {
		return "", err
	}
	o.attempt = a
	return a, nil
}

// use reads which token a call is about, and whom and what it must be good for. They are
// noted in o.
func (c *call) use(o *outcome, text, user, purpose *string) (use token.Use, err error) {
	if use.Text, err = required("token", text, func(s string) (string, error) { return s, nil }); err != nil {
		return use, err
	}
	if use.User, err = c.callersUser(user); err != nil {
		return use, err
	}
	use.Purpose, err = purposeOf(purpose)
	o.user, o.purpose = use.User, use.Purpose
	return use, err
}

// open opens the token of use, and notes it in o.
func (c *call) open(o *outcome, use token.Use) (*token.Token, error) {
	t, err := c.srv.opts.Tokens.Open(use)
	if t != nil {
		c.srv.opts.Metrics.keyUsed(t.KeyID)
		o.ref, o.expiresAt = string(t.Ref()), t.ExpiresAt
	}
	return t, err
}

// flag reads a member that is false where it is left out.
func flag(value *bool) bool { return value != nil && *value }

// secondsIn reads a span of whole seconds, which is missing where it is left out.
func secondsIn(field string, value *int64, least, most, missing int64) (time.Duration, error) {
	if value == nil {
		value = &missing
	}
	if *value < least || *value > most {
		return 0, &token.InvalidError{Field: field, Rule: "must be a whole number of seconds from " + itoa(least) + " to " + itoa(most)}
	}
	return time.Duration(*value) * time.Second, nil
}

// refuseBrowsersKey refuses a request with an Idempotency-Key: that is a form's client's
// own, and whoever relays it as the attempt runs a double click twice.
func (c *call) refuseBrowsersKey() error {
	if len(c.echo.Request().Header[wire.HeaderIdempotencyKey]) > 0 {
		return &token.InvalidError{
			Field: wire.HeaderIdempotencyKey,
			Rule:  "must not be sent: a browser's key is not an attempt; make one up for each request that you serve, as the member attempt",
		}
	}
	return nil
}
