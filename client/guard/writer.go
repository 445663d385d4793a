package guard

import (
	"bufio"
	"io"
	"net"
	"net/http"
)

// writer hands an answer on as it is written, and notes what it is.
type writer struct {
	under    http.ResponseWriter
	begin    func(http.Header) // before the header leaves
	status   int               // 0 while nothing has left
	hijacked bool
}

// newWriter returns a writer to w, as w can be used: with Flush if w has it. Hijack is
// always there, and fails where w has none.
func newWriter(w http.ResponseWriter, begin func(http.Header)) (*writer, http.ResponseWriter) {
	own := &writer{under: w, begin: begin}
	if canFlush(w) {
		return own, flusher{own}
	}
	return own, own
}

// canFlush tells whether w, or what it wraps, has Flush.
func canFlush(w http.ResponseWriter) bool {
	for {
		switch v := w.(type) {
		case http.Flusher, interface{ FlushError() error }:
			return true
		case interface{ Unwrap() http.ResponseWriter }:
			w = v.Unwrap()
		default:
			return false
		}
	}
}

// canHijack tells whether w, or what it wraps, has Hijack. A Hijack that wraps another, as the
// guards' own and Echo's do, works no better than that: HTTP/2 has none.
func canHijack(w http.ResponseWriter) bool {
	for {
		v, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			_, ok := w.(http.Hijacker)
			return ok
		}
		w = v.Unwrap()
	}
}

func (w *writer) Header() http.Header { return w.under.Header() }

func (w *writer) WriteHeader(status int) {
	// A 1xx but 101 is not the answer yet.
	if w.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		w.status = status
		w.begin(w.under.Header())
	}
	w.under.WriteHeader(status)
}

func (w *writer) implicit() {
	if w.status == 0 {
		w.status = http.StatusOK
		w.begin(w.under.Header())
	}
}

func (w *writer) Write(b []byte) (int, error) {
	w.implicit()
	return w.under.Write(b)
}

// ReadFrom lets net/http send files by sendfile, as it would without a guard.
func (w *writer) ReadFrom(r io.Reader) (int64, error) {
	w.implicit()
	if to, ok := w.under.(io.ReaderFrom); ok {
		return to.ReadFrom(r)
	}
	return io.Copy(struct{ io.Writer }{w.under}, r)
}

func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := http.NewResponseController(w.under).Hijack()
	w.hijacked = w.hijacked || err == nil
	return c, rw, err
}

// Unwrap lets http.ResponseController reach what is not here.
func (w *writer) Unwrap() http.ResponseWriter { return w.under }

// flusher is a writer that can flush.
type flusher struct{ *writer }

func (w flusher) Flush() { w.FlushError() }

func (w flusher) FlushError() error {
	w.implicit()
	return http.NewResponseController(w.under).Flush()
}

// began tells whether anything has left, or will without the guard.
func (w *writer) began() bool { return w.status != 0 || w.hijacked }
