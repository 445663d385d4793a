package client

import (
	"errors"
	"fmt"
	"strings"
)

// Fault is the lack of an answer: no try of a call came to one.
type Fault struct {
	Op string // as in tokend's log: "issue", "consume", "claim", "complete" …
	// MaybeDone says that a try may have reached Redis and changed something. It is
	// false only where nothing can have been done: in no try was any of the request's
	// body sent, or the call never changes anything. (A release has no body, so one that
	// was tried may be done.)
	MaybeDone bool
	// Attempt is what a consume or claim was made for. The same call again with
	// client.Attempt(f.Attempt), before its caller has given up on the work, goes on with
	// the same execution: if this one was granted the token after all, so is that. Kept
	// beside the business row it also tells whether a used_by is one's own.
	Attempt   string
	Tries     int    // how many were made; 0 where the call ended before the first
	Code      Code   // what tokend said of itself in the last try: "store_unavailable" …; else empty
	RequestID string // of the last try that was answered, as in tokend's log
	Err       error  // the last try's error; and the context's, where that ended the call
}

// Error says what was done and why it ended. It never quotes a token.
func (f *Fault) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "tokend: %s: no answer", f.Op)
	if f.Tries > 1 {
		fmt.Fprintf(&b, " in %d tries", f.Tries)
	}
	if f.MaybeDone {
		b.WriteString(", but it may be done")
	}
	if f.RequestID != "" {
		b.WriteString(", request " + f.RequestID)
	}
	fmt.Fprintf(&b, ": %v", f.Err)
	return b.String()
}

// Unwrap returns f.Err.
func (f *Fault) Unwrap() error { return f.Err }

// madeFor returns err; a Fault knows then what it was made for.
func madeFor(attempt *string, err error) error {
	if f, ok := errors.AsType[*Fault](err); ok && attempt != nil {
		f.Attempt = *attempt
	}
	return err
}

// noRefusal returns err, or its text alone where a Refusal is in it: one that a
// TokenSource returned or a context ended with must not make the Fault read as one.
func noRefusal(err error) error {
	if _, ok := errors.AsType[*Refusal](err); ok {
		return errors.New(err.Error())
	}
	return err
}
