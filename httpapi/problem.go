package httpapi

import (
	"errors"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"example.com/tokend/httpapi/auth"
	"example.com/tokend/httpapi/wire"
	"example.com/tokend/token"
)

// problemError is a refusal or fault of the API itself.
type problemError struct {
	code   wire.Code
	detail string // for the wire
	field  string
	retry  int64 // seconds to wait, where asking again may help
	cause  error // for the log, never for the wire
}

func (e *problemError) Error() string {
	if e.cause != nil {
		return string(e.code) + ": " + e.cause.Error()
	}
	return string(e.code) + ": " + e.detail
}

func (e *problemError) Unwrap() error { return e.cause }

// said is what a token's refusal is on the wire.
type said struct {
	code   wire.Code
	detail string
}

// refusals maps the token package's refusals, every one of them.
var refusals = map[*token.Reason]said{
	token.ErrMalformed:       {wire.CodeTokenInvalid, "the token is not one: it has the wrong shape or spelling"},
	token.ErrForged:          {wire.CodeTokenInvalid, "the token's signature does not match"},
	token.ErrUnknownKey:      {wire.CodeTokenInvalid, "the token was signed by a key that this service does not know"},
	token.ErrWrongUser:       {wire.CodeWrongUser, "the token was issued to another user; it is untouched"},
	token.ErrWrongPurpose:    {wire.CodeWrongPurpose, "the token was issued for another purpose; it is untouched"},
	token.ErrDigestMismatch:  {wire.CodeIdempotencyKeyReused, "the token or key stands for a request with another digest"},
	token.ErrUsed:            {wire.CodeTokenUsed, "another attempt was granted the token; look for its result"},
	token.ErrExpired:         {wire.CodeTokenExpired, "the token expired and was never used: fetch a new one and submit again"},
	token.ErrStale:           {wire.CodeTokenStale, "the token expired so long ago that whether it was used is forgotten"},
	token.ErrLost:            {wire.CodeTokenLost, "the token has not expired, but the store has lost what became of it"},
	token.ErrGone:            {wire.CodeTokenGone, "the token was used or has expired; in delete mode this cannot be told"},
	token.ErrRevoked:         {wire.CodeTokenRevoked, "the token was revoked"},
	token.ErrModeUnsupported: {wire.CodeModeUnsupported, "delete mode, in which the token was issued or the service runs, cannot do this"},
	token.ErrRateLimited:     {wire.CodeRateLimited, "the user has fetched too many tokens; wait as long as Retry-After says"},
	token.ErrInProgress:      {wire.CodeRequestInProgress, "another attempt has claimed it and its lease is running: send the same request again when Retry-After has passed"},
	token.ErrUnfinished:      {wire.CodeClaimUnfinished, "an earlier claim was committed and never completed: look for the business record, then resolve the claim"},
	token.ErrSuperseded:      {wire.CodeClaimSuperseded, "a later claim is known: this one's lease ended, or it was released"},
	token.ErrClaimEnded:      {wire.CodeClaimEnded, "the claim was completed, released or revoked, or its record is gone"},
	token.ErrClaimCommitted:  {wire.CodeClaimCommitted, "the claim is committed, and what may have been done is not released: complete it"},
}

// askAgainAfter is how long a caller is asked to wait at most for what is in progress: it
// may be completed long before its lease ends.
const askAgainAfter = 5

// retrySoon is how long a caller is asked to wait after a fault.
const retrySoon = 1

// problemOf turns err into the problem that is answered: the only place that does. An error
// that it does not know is internal, and nothing of it is shown.
func problemOf(err error) *wire.Problem {
	if no, ok := errors.AsType[*token.Refusal](err); ok {
		if s, ok := refusals[no.Reason]; ok {
			p := newProblem(s.code, s.detail)
			p.Ref = string(no.Ref)
			p.ExpiresAt, p.UsedAt, p.RevokedAt = wire.TimeOf(no.ExpiresAt), wire.TimeOf(no.UsedAt), wire.TimeOf(no.RevokedAt)
			p.UsedBy = no.UsedBy
			p.LeaseExpiresAt, p.RetryAfter = wire.TimeOf(no.LeaseExpiresAt), ceilSeconds(no.RetryAfter)
			if no.Reason == token.ErrInProgress {
				p.RetryAfter = min(max(p.RetryAfter, 1), askAgainAfter)
			}
			return p
		}
	}
	if e, ok := errors.AsType[*token.InvalidError](err); ok {
		p := newProblem(wire.CodeInvalidRequest, e.Error())
		p.Field = e.Field
		return p
	}
	if f, ok := errors.AsType[*token.Fault](err); ok {
		if f.Unknown {
			return newProblem(wire.CodeOutcomeUnknown, "the store's answer was lost: the token may have been used by this call; look for the business record")
		}
		detail := "the store cannot be asked at the moment: send the same request again, with the same attempt if it has one"
		if errors.Is(err, token.ErrBusy) {
			detail = tooMany
		}
		p := newProblem(wire.CodeStoreUnavailable, detail)
		p.RetryAfter = retrySoon
		return p
	}
	if no, ok := errors.AsType[*auth.Refusal](err); ok {
		return newProblem(no.Reason.Code(), no.Reason.Detail())
	}
	if _, ok := errors.AsType[*auth.Fault](err); ok {
		p := newProblem(wire.CodeStoreUnavailable, "the keys that verify JWTs cannot be fetched at the moment: send the same request again")
		p.RetryAfter = retrySoon
		return p
	}
	if e, ok := errors.AsType[*problemError](err); ok {
		p := newProblem(e.code, e.detail)
		p.Field, p.RetryAfter = e.field, e.retry
		return p
	}
	if e, ok := errors.AsType[*echo.HTTPError](err); ok {
		switch e.Code {
		case http.StatusNotFound:
			return newProblem(wire.CodeNotFound, "there is no such endpoint")
		case http.StatusMethodNotAllowed:
			return newProblem(wire.CodeMethodNotAllowed, "the endpoint does not take this method; Allow names those that it does")
		}
	}
	return newProblem(wire.CodeInternal, "something went wrong inside; the request id leads to it in the log")
}

func newProblem(code wire.Code, detail string) *wire.Problem {
	kind, ok := wire.KindOf(code)
	if !ok {
		panic("httpapi: no such code: " + code)
	}
	return &wire.Problem{
		Type: wire.ProblemTypePrefix + string(code), Title: kind.Title, Status: kind.Status,
		Detail: detail, Code: code, Next: kind.Next,
	}
}

// ceilSeconds rounds d up: a caller that waits so long has waited long enough.
func ceilSeconds(d time.Duration) int64 { return int64(math.Ceil(d.Seconds())) }

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
