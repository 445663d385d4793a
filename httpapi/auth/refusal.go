package auth

import (
	"fmt"

	"example.com/tokend/httpapi/wire"
)

// Reason is why a caller is not let in: one of the Err values below, to be compared with
// errors.Is. Its text names the rule that was broken, is the same each time, and says
// nothing of what the caller sent.
type Reason struct {
	code wire.Code
	text string
}

func (r *Reason) Error() string { return "auth: " + r.text }

// Code is the problem's code: wire.CodeUnauthenticated or wire.CodeForbidden.
func (r *Reason) Code() wire.Code { return r.code }

// Detail is the problem's detail.
func (r *Reason) Detail() string { return r.text }

// What is wrong with the header.
var (
	ErrNoHeader   = unauthenticated("there is no Authorization header")
	ErrTwoHeaders = unauthenticated("there is more than one Authorization header")
	ErrNotBearer  = unauthenticated("the Authorization header's scheme must be Bearer")
	ErrNoBearer   = unauthenticated("the Authorization header holds nothing behind Bearer")
	ErrTooLong    = unauthenticated("the bearer must be at most 8192 bytes long")
)

// What is wrong with the bearer.
var (
	ErrUnknownServiceKey = unauthenticated("the bearer is neither a JWT nor a known service key")
	ErrNoJWTs            = unauthenticated("JWTs are not accepted here, only service keys")
	ErrMalformed         = unauthenticated("the JWT is malformed: it must be three parts in unpadded base64url, the first two JSON")
	ErrHeader            = unauthenticated("the JWT's header must name no member twice, and its kid must be a string")
	ErrCritical          = unauthenticated("the JWT's header must not hold crit")
	ErrAlgorithm         = unauthenticated("the JWT's algorithm is not accepted")
	ErrUnknownKey        = unauthenticated("the JWT's kid names an unknown key")
	ErrSignature         = unauthenticated("the JWT's signature does not match")
)

// What is wrong with the claims of a JWT whose signature matches.
var (
	ErrClaims       = unauthenticated("the JWT's claims must be one JSON object that names no member twice")
	ErrExpiry       = unauthenticated("the JWT's exp must be present, and a number of seconds")
	ErrExpired      = unauthenticated("the JWT has expired")
	ErrNotBefore    = unauthenticated("the JWT's nbf must be a number of seconds")
	ErrNotYet       = unauthenticated("the JWT is not valid yet")
	ErrIssuedAt     = unauthenticated("the JWT's iat must be a number of seconds")
	ErrIssuer       = unauthenticated("the JWT's iss must be the issuer that is accepted here")
	ErrAudience     = unauthenticated("the JWT's aud must name an audience that is accepted here")
	ErrUserClaim    = unauthenticated("the JWT's user claim must be a string of 1 to 256 bytes without control characters")
	ErrScopeClaim   = unauthenticated("the JWT's scope claim must be a string or a list of strings")
	ErrServiceClaim = &Reason{wire.CodeForbidden, "the JWT holds a tokend scope but not the claim that marks a service's JWT"}
)

// Reasons lists every Reason, for tables that must be complete.
func Reasons() []*Reason {
	return []*Reason{
		ErrNoHeader, ErrTwoHeaders, ErrNotBearer, ErrNoBearer, ErrTooLong,
		ErrUnknownServiceKey, ErrNoJWTs, ErrMalformed, ErrHeader, ErrCritical, ErrAlgorithm,
		ErrUnknownKey, ErrSignature, ErrClaims, ErrExpiry, ErrExpired, ErrNotBefore,
		ErrNotYet, ErrIssuedAt, ErrIssuer, ErrAudience, ErrUserClaim, ErrScopeClaim,
		ErrServiceClaim,
	}
}

func unauthenticated(text string) *Reason { return &Reason{wire.CodeUnauthenticated, text} }

// Refusal is a Reason and its cause.
type Refusal struct {
	Reason *Reason
	// Cause is for the log, never for the wire: it may quote a few bytes of what the
	// caller's header or claims say. It never holds the bearer. Nil where the reason
	// says all.
	Cause error
}

func (r *Refusal) Error() string {
	if r.Cause == nil {
		return r.Reason.Error()
	}
	return r.Reason.Error() + ": " + r.Cause.Error()
}

func (r *Refusal) Unwrap() error { return r.Reason }

// Challenge returns the WWW-Authenticate header that goes with r (RFC 6750, section 3). A
// caller that sent no bearer is told no error, only what is wanted.
func (r *Refusal) Challenge() string {
	const want = `Bearer realm="tokend"`
	switch r.Reason {
	case ErrNoHeader, ErrTwoHeaders, ErrNotBearer, ErrNoBearer:
		return want
	case ErrServiceClaim:
		return want + `, error="insufficient_scope", error_description="` + r.Reason.text + `"`
	}
	return want + `, error="invalid_token", error_description="` + r.Reason.text + `"`
}

func refuse(why *Reason) error { return &Refusal{Reason: why} }

// refuseFor refuses with a cause that quotes the value of the member name, cut short.
func refuseFor(why *Reason, name string, value string) error {
	const most = 100
	if len(value) > most {
		value = value[:most] + "…"
	}
	return &Refusal{Reason: why, Cause: fmt.Errorf("%s is %+q", name, value)}
}

// Fault is the lack of an answer: the keys that verify JWTs could not be fetched. Nothing
// is known of the caller, and the same request may be sent again.
type Fault struct {
	Err error // the cause, for logs; never for the wire
}

func (f *Fault) Error() string { return "auth: keys unavailable: " + f.Err.Error() }

func (f *Fault) Unwrap() error { return f.Err }
