package token

import (
	"errors"
	"time"
)

// Reason is why a call was refused: one of the Err values below, to be compared with
// errors.Is. What it says of one token is in the [Refusal] around it.
type Reason struct{ text string }

func (r *Reason) Error() string { return r.text }

// The refusals. Each is an answer, not the lack of one: asking again changes nothing
// (but for ErrRateLimited and ErrInProgress, which pass). The last three are of claims'
// later steps.
var (
	ErrMalformed       = &Reason{"token: not a token: wrong shape or spelling"}
	ErrForged          = &Reason{"token: the signature does not match"}
	ErrUnknownKey      = &Reason{"token: signed by a key that is not in the ring"}
	ErrWrongUser       = &Reason{"token: another user's"}
	ErrWrongPurpose    = &Reason{"token: for another purpose"}
	ErrDigestMismatch  = &Reason{"token: used with another digest"}
	ErrUsed            = &Reason{"token: used by another attempt"}
	ErrExpired         = &Reason{"token: expired, never used"}
	ErrStale           = &Reason{"token: past its expiry and retention, too old to tell"}
	ErrLost            = &Reason{"token: unexpired, but the store has no record of it"}
	ErrGone            = &Reason{"token: used or expired, and the store has no record of it"}
	ErrRevoked         = &Reason{"token: revoked"}
	ErrModeUnsupported = &Reason{"token: not possible in delete mode"}
	ErrRateLimited     = &Reason{"token: the user's issue rate is exceeded"}

	ErrInProgress     = &Reason{"token: claimed, and the lease is running"}
	ErrUnfinished     = &Reason{"token: claimed, committed and never completed"}
	ErrSuperseded     = &Reason{"token: the claim was taken over by a later one"}
	ErrClaimEnded     = &Reason{"token: the claim has ended"}
	ErrClaimCommitted = &Reason{"token: the claim is committed and cannot be released"}
)

// Refusals lists every Reason, for tables that must be complete.
func Refusals() []*Reason {
	return []*Reason{
		ErrMalformed, ErrForged, ErrUnknownKey, ErrWrongUser, ErrWrongPurpose,
		ErrDigestMismatch, ErrUsed, ErrExpired, ErrStale, ErrLost, ErrGone, ErrRevoked,
		ErrModeUnsupported, ErrRateLimited,
		ErrInProgress, ErrUnfinished, ErrSuperseded, ErrClaimEnded, ErrClaimCommitted,
	}
}

// Refusal is a Reason and what is known beside it. The zero value of a field means
// that it is not known or does not apply.
type Refusal struct {
	Reason         *Reason
	Ref            Ref       // of a token or key that could be read
	ExpiresAt      time.Time // a token's
	UsedAt         time.Time // when the winner used or completed it (ErrUsed, ErrDigestMismatch)
	UsedBy         string    // the winning attempt, or the one whose claim it is: see [Hash.Ref]
	RevokedAt      time.Time // ErrRevoked
	LeaseExpiresAt time.Time // ErrInProgress, ErrUnfinished
	// RetryAfter is, of ErrRateLimited, how long it is until a call like this one would
	// pass; of ErrInProgress, what is left of the lease.
	RetryAfter time.Duration
}

func (r *Refusal) Error() string {
	if r.Ref == "" {
		return r.Reason.text
	}
	return r.Reason.text + " (" + string(r.Ref) + ")"
}

func (r *Refusal) Unwrap() error { return r.Reason }

// ErrBusy is why a [Fault] is one where the store has more calls than it can answer in time:
// it was not asked.
var ErrBusy = errors.New("more calls than can be answered in time")

// Fault is the lack of an answer: the store could not be asked, or did not reply. Sending
// the same call again, with the same attempt, is safe and tells, unless Unknown is set.
type Fault struct {
	Op string // the call: "issue", "consume" …
	// Unknown says that the change may have been made, and that asking again cannot
	// tell whether it was: delete mode's consume, whose reply was lost.
	Unknown bool
	Err     error // the cause, for logs; never for the wire
}

func (f *Fault) Error() string { return "token: " + f.Op + ": store: " + f.Err.Error() }

func (f *Fault) Unwrap() error { return f.Err }
