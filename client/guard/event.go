package guard

import (
	"errors"
	"log/slog"
	"net/http"
)

// Event is something to be counted.
type Event struct {
	Kind    Kind
	Request *http.Request // not to be changed, nor read from
	Ref     string        // of the token or key, where known
	Err     error         // what brought it about: a *Refused, *client.Refusal, *client.Fault …
}

// Kind tells events apart.
type Kind string

// The kinds of [Event].
const (
	EventRefused    Kind = "refused"    // a request was answered with a problem or page; Err is a *Refused
	EventUnconsumed Kind = "unconsumed" // a handler of Once answered 2xx or 3xx without Consume
	EventOpen       Kind = "open"       // FailOpen let a request through
	EventNoToken    Kind = "no_token"   // Field found no token for a form that is shown

	EventReplayed    Kind = "replayed"     // a repeat got the first answer
	EventNotKept     Kind = "not_kept"     // the work is done and its result not kept, which is tried on
	EventKeptLate    Kind = "kept_late"    // and then it was
	EventLost        Kind = "lost"         // or never will be: a repeat may run the handler again, or be told to look
	EventNotReleased Kind = "not_released" // nothing was done, and a repeat has to wait for the lease's end
)

// report counts what happened to r, and logs it where it should not have.
func (s *settings) report(level slog.Level, e Event, text string) {
	s.observe(e)
	if text == "" {
		return
	}
	attrs := []slog.Attr{
		slog.String("event", string(e.Kind)), slog.String("method", e.Request.Method), slog.String("path", e.Request.URL.EscapedPath()),
	}
	if e.Ref != "" {
		attrs = append(attrs, slog.String("ref", e.Ref))
	}
	if no, ok := errors.AsType[*Refused](e.Err); ok && no.RequestID != "" {
		attrs = append(attrs, slog.String("request_id", no.RequestID))
	}
	if e.Err != nil {
		attrs = append(attrs, slog.String("error", e.Err.Error()))
	}
	s.log.LogAttrs(e.Request.Context(), level, "guard: "+text, attrs...)
}
