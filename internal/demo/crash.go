package demo

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
)

// crash is where in an order the service dies: it says nothing any more, neither to the
// browser nor to tokend, which has to find out by the end of the lease. A panic would not do:
// the guard sees it, and releases. What dies is one request's part of the service, so that
// the page and everybody else's orders live on.
type crash string

const (
	before crash = "before" // the order is made
	after  crash = "after"  // it is made, and before that is answered
)

type mortalKey struct{}

// mortalIn returns a context whose calls of tokend end when dead says so.
func mortalIn(ctx context.Context, dead *atomic.Bool) context.Context {
	return context.WithValue(ctx, mortalKey{}, dead)
}

// die ends the request's part of the service. It does not return.
func (v *visit) die() {
	v.dead.Store(true)
	if conn, _, err := http.NewResponseController(v.writer).Hijack(); err == nil {
		// A browser sends by itself again what ends before the first byte of its answer, on a
		// connection that it has used before. Here the page, or its user, is to do that.
		io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n")
		conn.Close()
	}
	panic(http.ErrAbortHandler) // which cuts HTTP/2 off, too
}

// mortal carries the calls of those who live to tokend. Whoever is dead is told that its claim
// is over: it stops without another word, and tokend has heard none.
type mortal struct{ http.RoundTripper }

func (m mortal) RoundTrip(r *http.Request) (*http.Response, error) {
	dead, _ := r.Context().Value(mortalKey{}).(*atomic.Bool)
	if dead == nil || !dead.Load() {
		return m.RoundTripper.RoundTrip(r)
	}
	if r.Body != nil {
		r.Body.Close()
	}
	const over = `{"type":"/problems/claim_ended","title":"dead","status":409,"detail":"dead","code":"claim_ended","next":"stop","request_id":"dead"}`
	return &http.Response{
		Status: "409 Conflict", StatusCode: http.StatusConflict, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Content-Type": {"application/problem+json"}}, ContentLength: int64(len(over)),
		Body: io.NopCloser(strings.NewReader(over)),
	}, nil
}
