package client

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"example.com/tokend/httpapi/wire"
)

// Code names a refusal or a fault on the wire. Codes are stable, details are not.
type Code = wire.Code

// Next is what to do about a refusal, in one word. It speaks to the service that
// called, and is never relayed to its users.
type Next = wire.Next

// The values of [Next]. tokend may say others one day.
const (
	NextStop    = wire.NextStop    // never send this token again; but for ErrUsed, this submission did nothing
	NextReissue = wire.NextReissue // nothing was done: fetch a new token and submit again
	NextWait    = wire.NextWait    // the same request later, RetryAfter from now
	NextVerify  = wire.NextVerify  // nobody can tell: look for the business record first
	NextFix     = wire.NextFix     // the request itself is wrong
)

// Refusal is tokend's answer that a call was not granted. The zero value of a field
// means that it is not known or does not apply. errors.Is tells which refusal it is.
type Refusal struct {
	Code       Code
	Next       Next
	Status     int           // of HTTP
	Detail     string        // the rule that was broken, for people
	Field      string        // ErrInvalidRequest: the member or header at fault
	Ref        string        // of a token or key that could be read; no secret
	ExpiresAt  time.Time     // the token's, by Redis's clock
	UsedAt     time.Time     // when the winner was granted the token
	UsedBy     string        // the winner, or whose claim it is: 8 hex digits of its attempt's hash, as in tokend's log
	RevokedAt  time.Time     // ErrRevoked
	RetryAfter time.Duration // NextWait
	// LeaseExpiresAt is when the lease of whoever has claimed it ends, or ended, by Redis's
	// clock, which is not this machine's.
	LeaseExpiresAt time.Time
	RequestID      string // as in tokend's log; empty where this package refused what cannot be sent
}

// Error says which refusal it is and where to look it up. It never quotes a token.
func (r *Refusal) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "tokend: %s", r.Code)
	for _, part := range []struct{ label, value string }{
		{": ", r.Detail}, {", ref ", r.Ref}, {", used by ", r.UsedBy}, {", request ", r.RequestID},
	} {
		if part.value != "" {
			b.WriteString(part.label + part.value)
		}
	}
	return b.String()
}

// Is tells whether target is the Err value of r.Code.
func (r *Refusal) Is(target error) bool {
	why, ok := target.(refusalCode)
	return ok && Code(why) == r.Code
}

// refusalCode is the type of the Err values.
type refusalCode Code

func (c refusalCode) Error() string { return "tokend: " + string(c) }

// The refusals, to be compared with errors.Is; what each says of one call is in the
// [*Refusal].
var (
	ErrUsed            error = refusalCode(wire.CodeTokenUsed)            // by another attempt, which need not have succeeded
	ErrReused          error = refusalCode(wire.CodeIdempotencyKeyReused) // used with another digest
	ErrExpired         error = refusalCode(wire.CodeTokenExpired)         // and never used
	ErrStale           error = refusalCode(wire.CodeTokenStale)           // too old to tell
	ErrLost            error = refusalCode(wire.CodeTokenLost)            // unexpired, but the store lost it
	ErrGone            error = refusalCode(wire.CodeTokenGone)            // used or expired: delete mode cannot tell
	ErrRevoked         error = refusalCode(wire.CodeTokenRevoked)
	ErrWrongUser       error = refusalCode(wire.CodeWrongUser)    // another user's token, which stays as it was
	ErrWrongPurpose    error = refusalCode(wire.CodeWrongPurpose) // another purpose's, which stays as it was
	ErrInvalidToken    error = refusalCode(wire.CodeTokenInvalid) // malformed, forged or signed by an unknown key
	ErrTokenMissing    error = refusalCode(wire.CodeTokenMissing) // a form without its token, at a gateway or guard
	ErrModeUnsupported error = refusalCode(wire.CodeModeUnsupported)
	ErrRateLimited     error = refusalCode(wire.CodeRateLimited)

	ErrInProgress     error = refusalCode(wire.CodeRequestInProgress) // claimed by another attempt, which is at work
	ErrUnfinished     error = refusalCode(wire.CodeClaimUnfinished)   // claimed and committed, never completed
	ErrSuperseded     error = refusalCode(wire.CodeClaimSuperseded)   // a later claim is known
	ErrClaimEnded     error = refusalCode(wire.CodeClaimEnded)        // completed, released or revoked, or its record is gone
	ErrClaimCommitted error = refusalCode(wire.CodeClaimCommitted)    // past its point of no return

	ErrInvalidRequest       error = refusalCode(wire.CodeInvalidRequest) // Field names what is wrong
	ErrUnauthenticated      error = refusalCode(wire.CodeUnauthenticated)
	ErrForbidden            error = refusalCode(wire.CodeForbidden) // the scope, or the user, is not the caller's
	ErrNotFound             error = refusalCode(wire.CodeNotFound)  // no such endpoint: an older tokend
	ErrMethodNotAllowed     error = refusalCode(wire.CodeMethodNotAllowed)
	ErrBodyTooLarge         error = refusalCode(wire.CodeBodyTooLarge)
	ErrUnsupportedMediaType error = refusalCode(wire.CodeUnsupportedMediaType)
)

// settles tells whether r, coming after a try of the same consume, claim or release that
// ended without an answer, answers for that one too. It does where tokend looked at the
// record and found that the attempt was not and will not be granted it (nor a claim
// released that is committed), or says itself that nobody can tell. It does not where a check before that failed (the credential may
// have expired meanwhile), nor where the winner is not named and may be the earlier
// try: delete mode remembers no attempts.
func (r *Refusal) settles() bool {
	switch r.Code {
	case wire.CodeTokenUsed:
		return r.UsedBy != ""
	case wire.CodeIdempotencyKeyReused, wire.CodeTokenExpired, wire.CodeTokenRevoked,
		wire.CodeWrongUser, wire.CodeWrongPurpose, wire.CodeRequestInProgress, wire.CodeClaimCommitted:
		return true
	}
	return r.Next == NextVerify
}

// refuse returns what tokend would answer to a request that cannot be sent as it is.
func refuse(code Code, field, detail string) *Refusal {
	kind, _ := wire.KindOf(code)
	return &Refusal{Code: code, Next: kind.Next, Status: kind.Status, Field: field, Detail: detail}
}

// checkUser refuses a user that JSON cannot carry: encoding/json turns each invalid
// byte into U+FFFD, and so one user into another. All else is tokend's to judge.
func checkUser(user string) *Refusal {
	if !utf8.ValidString(user) {
		return refuse(wire.CodeInvalidRequest, "user", "user must be valid UTF-8")
	}
	return nil
}
