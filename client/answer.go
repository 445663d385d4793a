package client

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"time"

	"example.com/tokend/httpapi/wire"
)

// answer is what came back for one try, from tokend or from whoever answered instead.
type answer struct {
	status     int
	mediaType  string // without parameters; empty if unreadable
	retryAfter time.Duration
	requestID  string
	body       []byte
}

// judge tells what a is: a success that take took (nil, nil), a refusal, or none of
// tokend's answers.
func (a *answer) judge(e endpoint, take func(*answer) *miss) (*Refusal, *miss) {
	if e.succeeds(a.status) {
		// Where there is no content, the request id alone speaks for tokend.
		if a.mediaType != wire.TypeJSON && !(a.status == http.StatusNoContent && a.requestID != "") {
			return nil, a.unreadable(e)
		}
		return nil, take(a)
	}
	p, ok := a.problem()
	if !ok && e.bulky && a.status == http.StatusRequestEntityTooLarge {
		return refuse(wire.CodeBodyTooLarge, "", "what stands between refuses a body of this length"), nil
	}
	if !ok {
		return nil, a.miss(fmt.Errorf("not tokend's answer (HTTP %d, content type %.64q)", a.status, a.mediaType))
	}
	return a.weigh(p)
}

// weigh tells what p is, which is a or an item of it: a refusal, or the lack of an
// answer. Its next decides, and not its status.
func (a *answer) weigh(p *wire.Problem) (*Refusal, *miss) {
	requestID := cmp.Or(p.RequestID, a.requestID)
	retryAfter := cmp.Or(a.retryAfter, seconds(uint64(max(p.RetryAfter, 0))))
	if isFault(p) {
		return nil, &miss{
			err: problemError(p), sent: true, code: p.Code, final: p.Next != wire.NextRetry,
			retryAfter: retryAfter, requestID: requestID,
		}
	}
	return &Refusal{
		Code:       p.Code,
		Next:       p.Next,
		Status:     p.Status,
		Detail:     p.Detail,
		Field:      p.Field,
		Ref:        p.Ref,
		ExpiresAt:  p.ExpiresAt.Time(),
		UsedAt:     p.UsedAt.Time(),
		UsedBy:     p.UsedBy,
		RevokedAt:  p.RevokedAt.Time(),
		RetryAfter: retryAfter,
		RequestID:  requestID,

		LeaseExpiresAt: p.LeaseExpiresAt.Time(),
	}, nil
}

// problem returns the problem that a is. It is tokend's only if it says so in every
// place: gateways have problem documents of their own.
func (a *answer) problem() (*wire.Problem, bool) {
	if a.mediaType != wire.TypeProblem {
		return nil, false
	}
	p := new(wire.Problem)
	err := json.Unmarshal(a.body, p)
	return p, err == nil && p.Code != "" && p.Status == a.status
}

// isFault tells whether p is the lack of an answer. Codes and nexts that are newer
// than this package are told by what else is known: a 5xx that does not say what to do,
// or that nobody can tell, is no refusal.
func isFault(p *wire.Problem) bool {
	if kind, _ := wire.KindOf(p.Code); kind.Fault {
		return true
	}
	switch p.Next {
	case wire.NextRetry:
		return true
	case wire.NextStop, wire.NextReissue, wire.NextWait, wire.NextFix:
		return false
	}
	return p.Status >= http.StatusInternalServerError
}

func problemError(p *wire.Problem) error {
	if p.Detail == "" {
		return errors.New(string(p.Code))
	}
	return fmt.Errorf("%s: %s", p.Code, p.Detail)
}

// unreadable returns the try that a, a success by its status, does not answer. Not even
// the decoder's error is passed on: it may quote what it read.
func (a *answer) unreadable(e endpoint) *miss {
	return a.miss(fmt.Errorf("the answer to %s cannot be read (HTTP %d)", e.op, a.status))
}

// miss returns the try that a is no answer to. Whoever it was that spoke, the request
// may have gone further.
func (a *answer) miss(err error) *miss {
	return &miss{err: err, sent: true, retryAfter: a.retryAfter, requestID: a.requestID}
}

func mediaType(h http.Header) string {
	t, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil {
		return ""
	}
	return t
}

// retryAfter returns what Retry-After asks for, or 0. A date is compared with the
// sender's own clock where that is told.
func retryAfter(h http.Header) time.Duration {
	v := h.Get("Retry-After")
	if secs, err := strconv.ParseUint(v, 10, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		return seconds(secs)
	}
	at, err := http.ParseTime(v)
	if err != nil {
		return 0
	}
	now, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		now = time.Now()
	}
	return min(max(at.Sub(now), 0), longest)
}

// longest is longer than any deadline, and leaves a Duration room to add to it.
const longest = 1 << 31 * time.Second

func seconds(n uint64) time.Duration {
	return time.Duration(min(n, uint64(longest/time.Second))) * time.Second
}
