package wire

import "net/http"

// Code names an outcome that is not a success. Codes are stable; details are for people.
type Code string

// The codes.
const (
	CodeTokenUsed            Code = "token_used"
	CodeIdempotencyKeyReused Code = "idempotency_key_reused"
	CodeTokenExpired         Code = "token_expired"
	CodeTokenStale           Code = "token_stale"
	CodeTokenLost            Code = "token_lost"
	CodeTokenGone            Code = "token_gone"
	CodeTokenRevoked         Code = "token_revoked"
	CodeWrongUser            Code = "wrong_user"
	CodeWrongPurpose         Code = "wrong_purpose"
	CodeTokenInvalid         Code = "token_invalid"
	CodeModeUnsupported      Code = "mode_unsupported"
	CodeStoreUnavailable     Code = "store_unavailable"
	CodeOutcomeUnknown       Code = "outcome_unknown"
	CodeInvalidRequest       Code = "invalid_request"
	CodeUnauthenticated      Code = "unauthenticated"
	CodeForbidden            Code = "forbidden"
	CodeNotFound             Code = "not_found"
	CodeMethodNotAllowed     Code = "method_not_allowed"
	CodeBodyTooLarge         Code = "body_too_large"
	CodeUnsupportedMediaType Code = "unsupported_media_type"
	CodeRateLimited          Code = "rate_limited"
	CodeTokenMissing         Code = "token_missing"
	CodeRequestInProgress    Code = "request_in_progress"
	CodeClaimUnfinished      Code = "claim_unfinished"
	CodeClaimSuperseded      Code = "claim_superseded"
	CodeClaimEnded           Code = "claim_ended"
	CodeClaimCommitted       Code = "claim_committed"
	CodeInternal             Code = "internal"
)

// Next tells tokend's caller what to do about a code. It is never relayed to a browser.
type Next string

// The values of next.
const (
	NextStop    Next = "stop"    // never send this token again
	NextReissue Next = "reissue" // nothing was done: fetch a new token and submit again
	NextWait    Next = "wait"    // the same request later
	NextRetry   Next = "retry"   // the same request with the same attempt
	NextVerify  Next = "verify"  // nobody can tell: look for the business record first
	NextFix     Next = "fix"     // the request itself is wrong
)

// Kind is what belongs to a code, always.
type Kind struct {
	Code   Code
	Status int    // HTTP status
	Next   Next   // what the caller does about it
	Title  string // short, the same each time
	Fault  bool   // the lack of an answer: no refusal
}

// kinds is the one table of codes.
var kinds = []Kind{
	{CodeTokenUsed, http.StatusConflict, NextStop, "The token was used", false},
	{CodeIdempotencyKeyReused, http.StatusUnprocessableEntity, NextFix, "The token or key stands for another request", false},
	{CodeRequestInProgress, http.StatusConflict, NextWait, "The first request is in progress", false},
	{CodeClaimUnfinished, http.StatusConflict, NextVerify, "The first request was left unfinished", false},
	{CodeClaimSuperseded, http.StatusConflict, NextStop, "The claim was taken over", false},
	{CodeClaimEnded, http.StatusConflict, NextStop, "The claim has ended", false},
	{CodeClaimCommitted, http.StatusConflict, NextStop, "The claim is committed", false},
	{CodeTokenExpired, http.StatusGone, NextReissue, "The token expired unused", false},
	{CodeTokenStale, http.StatusGone, NextVerify, "The token is too old to tell", false},
	{CodeTokenLost, http.StatusGone, NextVerify, "The store has lost the token", false},
	{CodeTokenGone, http.StatusGone, NextVerify, "The token was used or has expired", false},
	{CodeTokenRevoked, http.StatusGone, NextStop, "The token was revoked", false},
	{CodeWrongUser, http.StatusForbidden, NextStop, "The token is another user's", false},
	{CodeWrongPurpose, http.StatusForbidden, NextStop, "The token is for another purpose", false},
	{CodeTokenInvalid, http.StatusBadRequest, NextStop, "Not a token of this service", false},
	{CodeTokenMissing, http.StatusBadRequest, NextReissue, "No token was sent", false},
	{CodeModeUnsupported, http.StatusConflict, NextFix, "Not possible in delete mode", false},
	{CodeStoreUnavailable, http.StatusServiceUnavailable, NextRetry, "The store cannot be asked", true},
	{CodeOutcomeUnknown, http.StatusServiceUnavailable, NextVerify, "The store's answer was lost", true},
	{CodeInvalidRequest, http.StatusBadRequest, NextFix, "The request is invalid", false},
	{CodeUnauthenticated, http.StatusUnauthorized, NextFix, "The caller is not known", false},
	{CodeForbidden, http.StatusForbidden, NextFix, "The caller may not do this", false},
	{CodeNotFound, http.StatusNotFound, NextFix, "No such endpoint", false},
	{CodeMethodNotAllowed, http.StatusMethodNotAllowed, NextFix, "Method not allowed", false},
	{CodeBodyTooLarge, http.StatusRequestEntityTooLarge, NextFix, "The body is too large", false},
	{CodeUnsupportedMediaType, http.StatusUnsupportedMediaType, NextFix, "The body is not JSON", false},
	{CodeRateLimited, http.StatusTooManyRequests, NextWait, "Too many tokens", false},
	{CodeInternal, http.StatusInternalServerError, NextRetry, "Internal error", true},
}

var kindOf = func() map[Code]*Kind {
	m := make(map[Code]*Kind, len(kinds))
	for i := range kinds {
		m[kinds[i].Code] = &kinds[i]
	}
	return m
}()

// KindOf returns what belongs to c, and whether c is a code.
func KindOf(c Code) (Kind, bool) {
	k, ok := kindOf[c]
	if !ok {
		return Kind{}, false
	}
	return *k, true
}

// Kinds returns a copy of the table.
func Kinds() []Kind { return append([]Kind(nil), kinds...) }
