package guard

import (
	"bufio"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"example.com/tokend/client"
	"example.com/tokend/httpapi/wire"
)

// CodeTokenMissing is the code of a request that came without its token: 400, reissue.
const CodeTokenMissing = wire.CodeTokenMissing

// Refused is why a request was not served, as its sender is told. As an error it is what
// [Consume] returns.
type Refused struct {
	Code       client.Code
	Next       client.Next // what the sender can do; never tokend's retry
	Status     int         // of HTTP
	Title      string      // the same for each Code
	Detail     string      // what to do about it, for people: a sentence
	Field      string      // what of the request is wrong, where one thing is
	Ref        string      // of a token that could be read; no secret
	UsedAt     time.Time   // token_used: when the first submission was granted it
	ExpiresAt  time.Time   // the token's, by Redis's clock
	RetryAfter time.Duration
	// RequestID is as in tokend's log where tokend refused; else the one that the answer or the
	// request has as its X-Request-Id, or a new one.
	RequestID string
	Err       error // what brought it about, for logs: a *client.Refusal or *client.Fault, or nil
}

// Error says which refusal it is. It never quotes a token.
func (no *Refused) Error() string {
	if no.Err != nil {
		return "guard: " + string(no.Code) + ": " + no.Err.Error()
	}
	return "guard: " + string(no.Code) + ": " + strings.TrimSuffix(no.Detail, ".")
}

// Unwrap returns no.Err.
func (no *Refused) Unwrap() error { return no.Err }

// details are what problems say to people who have sent a form, or to the authors of their
// pages: in sentences, as they may stand on a page.
var details = map[client.Code]string{
	CodeTokenMissing:              "The form was sent without its token: load the page again and send it from there.",
	wire.CodeTokenUsed:            "This form was sent before: look at what the first submission did; to do it once more, load the page again.",
	wire.CodeTokenExpired:         "The page has expired and nothing was done: load it again and send the form from there.",
	wire.CodeTokenStale:           "The page is too old to tell whether the form was sent: look for what it may have done; if there is nothing, load the page again.",
	wire.CodeTokenLost:            "The form's token is lost: look for what the form may have done; if there is nothing, load the page again.",
	wire.CodeTokenGone:            "The form was sent before, or the page has expired: look for what it may have done; if there is nothing, load the page again.",
	wire.CodeTokenRevoked:         "The form was withdrawn and nothing was done: load the page again.",
	wire.CodeWrongUser:            "The page was loaded by another user and nothing was done: load it again.",
	wire.CodeWrongPurpose:         "The token is another form's and nothing was done: load the page again.",
	wire.CodeTokenInvalid:         "The form's token is none of this service and nothing was done: load the page again.",
	wire.CodeRequestInProgress:    "The first submission of this form is still at work: send the same again in a moment to see its result.",
	wire.CodeClaimUnfinished:      "The first submission of this form was cut off: look for what it did before sending another.",
	wire.CodeIdempotencyKeyReused: "This form or key was used before to send something else: start over with a new one.",
	wire.CodeStoreUnavailable:     "This cannot be taken at the moment and nothing was done: send the same again later.",
	wire.CodeOutcomeUnknown:       "It is not known whether this was taken: look for what it may have done before sending it again.",
	wire.CodeRateLimited:          "Too many forms were asked for: wait a moment.",
	wire.CodeUnauthenticated:      "Nobody is logged in.",
	wire.CodeForbidden:            "A token is given to pages of this site alone.",
	wire.CodeMethodNotAllowed:     "A token is fetched with POST.",
	wire.CodeInternal:             "This cannot be taken because of a fault of this service; nothing was done.",
}

// titles are those of the codes that are not in tokend's table, or mean something else here.
var titles = map[client.Code]string{
	wire.CodeOutcomeUnknown:    "The outcome is not known",
	wire.CodeStoreUnavailable:  "Not possible at the moment",
	wire.CodeForbidden:         "Not from this site",
	wire.CodeUnauthenticated:   "Nobody is logged in",
	wire.CodeRateLimited:       "Too many forms",
	wire.CodeInvalidRequest:    "The request is invalid",
	wire.CodeBodyTooLarge:      "The body is too large",
	wire.CodeRequestInProgress: "The first submission is in progress",
}

// newRefused returns what belongs to code.
func newRefused(code client.Code, err error) *Refused {
	kind, _ := wire.KindOf(code)
	no := &Refused{Code: code, Next: kind.Next, Status: kind.Status, Title: kind.Title, Detail: details[code], Err: err}
	if t, ok := titles[code]; ok {
		no.Title = t
	}
	switch {
	case code == CodeTokenMissing:
		no.Field = FieldToken
	case no.Next == wire.NextRetry:
		no.Next, no.RetryAfter = client.NextWait, retryLater
	}
	return no
}

// retryLater is when to ask again that has had no answer.
const retryLater = 5 * time.Second

// invalid refuses r for what it holds in field.
func invalid(field, detail string) *Refused {
	no := newRefused(wire.CodeInvalidRequest, nil)
	no.Field, no.Detail = field, detail
	return no
}

func tooLarge() *Refused {
	no := newRefused(wire.CodeBodyTooLarge, nil)
	no.Detail = "The request is larger than this service takes; nothing was done."
	return no
}

// refusedFor returns what the sender is told of err, which ended a call of client.
func refusedFor(err error) *Refused {
	if no, ok := errors.AsType[*Refused](err); ok {
		return no
	}
	if down, ok := errors.AsType[*client.Fault](err); ok {
		code := wire.CodeStoreUnavailable
		if down.MaybeDone {
			code = wire.CodeOutcomeUnknown
		}
		no := newRefused(code, err)
		no.RequestID = down.RequestID
		return no
	}
	from, ok := errors.AsType[*client.Refusal](err)
	if !ok {
		return newRefused(wire.CodeInternal, err)
	}
	no := newRefused(from.Code, err)
	switch {
	case details[from.Code] == "", from.Code == wire.CodeUnauthenticated, from.Code == wire.CodeForbidden,
		from.Code == wire.CodeMethodNotAllowed:
		no = newRefused(wire.CodeInternal, err) // tokend refuses the service, not the form
	}
	no.Ref, no.UsedAt, no.ExpiresAt, no.RequestID = from.Ref, from.UsedAt, from.ExpiresAt, from.RequestID
	if no.Next == client.NextWait {
		no.RetryAfter = max(from.RetryAfter, no.RetryAfter, time.Second)
	}
	return no
}

// refuse answers r with err.
func (s *settings) refuse(w http.ResponseWriter, r *http.Request, err error) {
	told := *refusedFor(err) // a copy: the handler may hold the other, and name another request
	no := &told
	h := w.Header()
	if no.RequestID == "" {
		if no.RequestID = h.Get(wire.HeaderRequestID); no.RequestID == "" {
			no.RequestID = wire.RequestID(r.Header)
		}
	}
	if h.Get(wire.HeaderRequestID) == "" { // else what stands around the guard has named it
		h.Set(wire.HeaderRequestID, no.RequestID)
	}
	level, text := slog.LevelError, ""
	switch no.Code {
	case wire.CodeInternal:
		text = "a fault of this service or its configuration"
	case wire.CodeStoreUnavailable, wire.CodeOutcomeUnknown:
		level, text = slog.LevelWarn, "tokend gave no answer"
	}
	if no.Code != wire.CodeInternal && r.Context().Err() != nil {
		text = "" // the caller has hung up, and nobody asks
	}
	s.report(level, Event{Kind: EventRefused, Request: r, Ref: no.Ref, Err: no}, text)

	for _, name := range []string{"Content-Encoding", "Content-Disposition", "Location", "Etag", "Last-Modified", "Content-Length"} {
		h.Del(name) // of an answer that is not given
	}
	h.Set("Cache-Control", "no-store")
	if no.RetryAfter > 0 {
		h.Set("Retry-After", strconv.FormatInt(retrySeconds(no.RetryAfter), 10))
	}
	own := s.problem
	if s.page != nil && takesHTML(r) {
		own = s.page
	}
	if own != nil {
		status, out := newStatusWriter(w, no.Status)
		own(out, r, no)
		status.implicit() // where it has nothing to say, it is a refusal all the same
		return
	}
	body, err := json.Marshal(wire.Problem{
		Type: wire.ProblemTypePrefix + string(no.Code), Title: no.Title, Status: no.Status, Detail: no.Detail,
		Code: no.Code, Next: no.Next, RequestID: no.RequestID, Ref: no.Ref, Field: no.Field,
		ExpiresAt: wire.TimeOf(no.ExpiresAt), UsedAt: wire.TimeOf(no.UsedAt), RetryAfter: retrySeconds(no.RetryAfter),
	})
	if err != nil {
		body = nil // not with strings and numbers
	}
	h.Set("Content-Type", wire.TypeProblem)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(no.Status)
	w.Write(body)
}

// retrySeconds rounds up: earlier would be too early.
func retrySeconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// takesHTML tells whether r's sender shows what it gets: fetch and other programs send
// "*/*" where they say nothing.
func takesHTML(r *http.Request) bool {
	for _, v := range r.Header.Values("Accept") {
		if strings.Contains(strings.ToLower(v), "text/html") {
			return true
		}
	}
	return false
}

// statusWriter answers with status where its user writes, or flushes, without one.
type statusWriter struct {
	http.ResponseWriter
	status int
	wrote  bool // or hijacked
}

// newStatusWriter returns a writer to w, as w can be used: see [newWriter].
func newStatusWriter(w http.ResponseWriter, status int) (*statusWriter, http.ResponseWriter) {
	own := &statusWriter{ResponseWriter: w, status: status}
	if canFlush(w) {
		return own, statusFlusher{own}
	}
	return own, own
}

func (w *statusWriter) WriteHeader(status int) {
	// A 1xx but 101 is not the answer yet.
	w.wrote = w.wrote || status >= 200 || status == http.StatusSwitchingProtocols
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) implicit() {
	if !w.wrote {
		w.WriteHeader(w.status)
	}
}

func (w *statusWriter) Write(b []byte) (int, error) {
	w.implicit()
	return w.ResponseWriter.Write(b)
}

// FlushError is there also where what is below cannot flush: http.ResponseController must not
// find its way around the status.
func (w *statusWriter) FlushError() error {
	w.implicit()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

func (w *statusWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	w.wrote = w.wrote || err == nil
	return c, rw, err
}

// statusFlusher is a statusWriter that can flush.
type statusFlusher struct{ *statusWriter }

func (w statusFlusher) Flush() { w.FlushError() }

func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
