package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"example.com/tokend/client/guard"
)

// visit is one request while it is answered.
type visit struct {
	session *session // nil: the browser has none
	writer  http.ResponseWriter
	entry   *entry
	dead    atomic.Bool // the service died in it
}

type visitKey struct{}

func (v *visit) in(r *http.Request) *http.Request {
	return r.WithContext(mortalIn(context.WithValue(r.Context(), visitKey{}, v), &v.dead))
}

func visitOf(r *http.Request) *visit { return r.Context().Value(visitKey{}).(*visit) }

// user is whose the request is, as tokend is told: the session's, and nothing that the request
// says.
func (v *visit) user() string {
	if v.session == nil {
		return ""
	}
	return "demo:" + v.session.id + ":" + v.session.chosen().user
}

// headerStep says what the page is about with a request: one of [steps].
const headerStep = "Demo-Step"

// begin puts the request on the time line.
func (v *visit) begin(r *http.Request, c choices) {
	if v.session == nil {
		return
	}
	v.entry = &entry{kind: ofOrder, at: time.Now(), user: c.user}
	switch r.URL.Path {
	case Path:
		v.entry.kind = ofPage
	case Path + "token":
		v.entry.kind = ofToken
	}
	if step := r.Header.Get(headerStep); slices.Contains(steps, step) {
		v.entry.step = step
	}
	v.session.add(v.entry)
}

// note changes the entry.
func (v *visit) note(f func(*entry)) {
	if v.entry != nil {
		v.session.change(func() { f(v.entry) })
	}
}

// observe notes what the guard says.
func (v *visit) observe(e guard.Event) {
	v.note(func(on *entry) {
		if e.Ref != "" {
			on.ref = e.Ref
		}
		if no, ok := errors.AsType[*guard.Refused](e.Err); ok && e.Kind == guard.EventRefused {
			on.code, on.next = string(no.Code), string(no.Next)
		}
	})
}

// end notes how the request was answered.
func (v *visit) end(out *watcher, now time.Time) {
	if v.entry == nil {
		return
	}
	issued := ""
	if v.entry.kind == ofToken && out.status == http.StatusCreated {
		var body struct{ Token, Ref string }
		if json.Unmarshal(out.head.Bytes(), &body) == nil {
			issued = v.session.letter(body.Token)
			v.note(func(e *entry) { e.ref = body.Ref })
		}
	}
	v.note(func(e *entry) {
		e.took, e.ended = now.Sub(e.at), true
		if e.token == "" {
			e.token = issued
		}
		if !v.dead.Load() {
			e.status = out.status
			e.replayed = out.Header().Get("Idempotent-Replayed") == "true"
		}
	})
}

// watcher notes how a request is answered.
type watcher struct {
	http.ResponseWriter
	status int
	head   bytes.Buffer // of the body: enough for a token
}

func (w *watcher) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *watcher) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	w.head.Write(b[:min(len(b), max(0, 1024-w.head.Len()))])
	return w.ResponseWriter.Write(b)
}

func (w *watcher) Unwrap() http.ResponseWriter { return w.ResponseWriter }
