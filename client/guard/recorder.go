package guard

import (
	"bufio"
	"bytes"
	"errors"
	"maps"
	"net"
	"net/http"
)

// recorder holds an answer back until it is known what becomes of it. Where it cannot be
// held, because it is flushed, hijacked or too long, commit is called first, and it is
// handed on from there.
type recorder struct {
	under  http.ResponseWriter
	commit func(status int) error
	begin  func(http.Header) // before the header leaves
	limit  int

	header   http.Header // until it is handed on
	status   int         // 0 until it is set
	head     http.Header // as it was when the status was set
	body     bytes.Buffer
	omitted  bool  // the body is longer than body
	passing  bool  // it is handed on as it is written
	hijacked bool  // it is not an answer any more
	broken   error // commit failed, so it was not handed on
	cut      bool  // it may be less than the handler would have written
}

func newRecorder(w http.ResponseWriter, limit int, begin func(http.Header), commit func(status int) error) (*recorder, http.ResponseWriter) {
	rec := &recorder{under: w, limit: limit, begin: begin, commit: commit, header: w.Header().Clone()}
	if rec.header == nil {
		rec.header = http.Header{}
	}
	if canFlush(w) {
		return rec, recorderFlusher{rec}
	}
	return rec, rec
}

func (rec *recorder) Header() http.Header {
	if rec.passing {
		return rec.under.Header()
	}
	return rec.header
}

func (rec *recorder) WriteHeader(status int) {
	if rec.status != 0 || status < 200 || rec.hijacked { // a 1xx is no answer, and would precede the commit
		return
	}
	rec.status, rec.head = status, rec.header.Clone()
}

// hasBody tells whether an answer of status has one.
func hasBody(status int) bool {
	return status != http.StatusNoContent && status != http.StatusNotModified
}

func (rec *recorder) Write(b []byte) (int, error) {
	if rec.hijacked {
		return 0, http.ErrHijacked
	}
	rec.WriteHeader(http.StatusOK)
	if !hasBody(rec.status) {
		return 0, http.ErrBodyNotAllowed
	}
	rec.typed(b)
	if !rec.omitted && rec.body.Len()+len(b) > rec.limit {
		if err := rec.pass(); err != nil {
			return 0, err
		}
		rec.omit()
	}
	if !rec.omitted {
		rec.body.Write(b)
	}
	if rec.passing {
		n, err := rec.under.Write(b)
		if err != nil {
			rec.omit()
		}
		return n, err
	}
	return len(b), nil
}

// typed names the content type that net/http would find when it sends b first, so that a
// replay has it too.
func (rec *recorder) typed(b []byte) {
	if rec.passing || rec.body.Len() > 0 || len(b) == 0 || rec.head.Get("Content-Encoding") != "" {
		return
	}
	if _, named := rec.head["Content-Type"]; !named {
		rec.head.Set("Content-Type", http.DetectContentType(b))
	}
}

// pass commits, and hands on what was held back and all that comes.
func (rec *recorder) pass() error {
	if rec.passing || rec.hijacked {
		return nil
	}
	if rec.broken != nil {
		return rec.broken
	}
	rec.WriteHeader(http.StatusOK)
	if rec.broken = rec.commit(rec.status); rec.broken != nil {
		return rec.broken
	}
	rec.passing = true
	err := rec.send()
	if err != nil || rec.cut {
		rec.omit()
	}
	return err
}

// omit has the body not kept. It does so too where what is below took no more of it: the
// handler stops there, and what it has written is not the whole.
func (rec *recorder) omit() { rec.omitted, rec.body = true, bytes.Buffer{} }

// send writes what was held back.
func (rec *recorder) send() error {
	to := rec.under.Header()
	clear(to)
	maps.Copy(to, rec.head)
	rec.begin(to)
	rec.under.WriteHeader(rec.status)
	if rec.body.Len() == 0 {
		return nil
	}
	_, err := rec.under.Write(rec.body.Bytes())
	return err
}

func (rec *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if !rec.passing && canHijack(rec.under) { // else it fails, and that is nothing to commit for
		if rec.broken == nil {
			rec.broken = rec.commit(http.StatusSwitchingProtocols)
		}
		if rec.broken != nil {
			return nil, nil, rec.broken
		}
	}
	c, rw, err := http.NewResponseController(rec.under).Hijack()
	rec.hijacked = rec.hijacked || err == nil
	return c, rw, err
}

// Unwrap lets http.ResponseController reach deadlines and the like. Flush and Hijack are the
// recorder's own.
func (rec *recorder) Unwrap() http.ResponseWriter { return rec.under }

// FlushError has an answer that is flushed handed on, also where what is below cannot flush:
// http.ResponseController must not find its way around the recorder.
func (rec *recorder) FlushError() error {
	if err := rec.pass(); err != nil {
		return err
	}
	err := http.NewResponseController(rec.under).Flush()
	if err != nil && !errors.Is(err, http.ErrNotSupported) {
		rec.omit()
	}
	return err
}

// recorderFlusher is a recorder over what can flush.
type recorderFlusher struct{ *recorder }

func (rec recorderFlusher) Flush() { rec.FlushError() }
