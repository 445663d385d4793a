// Package demo is the demo page of tokend dev: an order form on a real little form service,
// which guards it with package guard against the tokend that it is told, over HTTP. One can
// see what the thing is for: send the form, send it twice, let it expire, kill the service
// in the middle, and look at each request's outcome and at the orders that really came of it.
//
// Each browser has a session of its own, in memory, so any number of people can play at the
// same time. It works without scripts too: the form then carries its token in the field
// that the service has rendered, as any form can.
//
// The service dies on demand: see [crash].
package demo

import (
	"embed"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"example.com/tokend/client"
	"example.com/tokend/client/guard"
)

// Path is where the page is. It loads tokend's script from /tokend.js, so it is served
// beside it.
const Path = "/demo/"

// Options are a Demo's.
type Options struct {
	URL        string            // tokend's
	Credential client.Credential // of a service with both of tokend's scopes
	Transport  http.RoundTripper // to tokend; http.DefaultTransport where nil
	Purpose    string            // of the form
	MaxTTL     time.Duration     // the longest life that tokend gives a token of that purpose
	Claims     bool              // tokend can claim: it is in record mode
	Log        *slog.Logger
}

// Demo serves the page and its form. It is safe for concurrent use.
type Demo struct {
	opts     Options
	client   *client.Client
	guards   map[time.Duration]*guard.Guard // by how long their tokens live
	lives    []time.Duration
	sessions sessions
	mux      http.Handler
}

// The lease is short, so that one can watch it end. It is kept up while the service lives.
const lease = 5 * time.Second

// New returns a Demo. It asks tokend nothing yet.
func New(opts Options) (*Demo, error) {
	if opts.Transport == nil {
		opts.Transport = http.DefaultTransport
	}
	c, err := client.New(opts.URL, opts.Credential, client.HTTPClient(&http.Client{Transport: mortal{opts.Transport}}))
	if err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	d := &Demo{opts: opts, client: c, guards: map[time.Duration]*guard.Guard{}}
	for _, life := range []time.Duration{5 * time.Second, 30 * time.Second, 5 * time.Minute} {
		if life <= opts.MaxTTL {
			d.lives = append(d.lives, life)
		}
	}
	if d.lives == nil {
		d.lives = []time.Duration{opts.MaxTTL}
	}
	for _, life := range d.lives {
		d.guards[life] = guard.New(c.Purpose(opts.Purpose),
			guard.User(func(r *http.Request) string { return visitOf(r).user() }),
			guard.IssueWith(client.TTL(life)),
			guard.Lease(lease),
			guard.Page(d.refused),
			guard.Observe(func(e guard.Event) { visitOf(e.Request).observe(e) }),
			guard.Logger(opts.Log),
		)
	}
	d.mux = d.routes()
	return d, nil
}

// Close ends what is idle. The server that serves d has shut down before.
func (d *Demo) Close() { d.client.CloseIdleConnections() }

//go:embed demo.css demo.js icon.svg
var files embed.FS

func (d *Demo) routes() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET "+Path+"{$}", d.guarded(func(g *guard.Guard, _ protection) http.Handler { return g.Issue(http.HandlerFunc(d.home)) }))
	mux.Handle("POST "+Path+"orders", d.guarded(d.orders))
	mux.Handle("POST "+Path+"token", d.guarded(func(g *guard.Guard, _ protection) http.Handler { return g.IssueHandler() }))
	mux.HandleFunc("GET "+Path+"board", d.board)
	mux.HandleFunc("POST "+Path+"settings", d.settings)
	mux.HandleFunc("POST "+Path+"crash", d.crash)
	mux.HandleFunc("POST "+Path+"clear", d.clear)
	for name, contentType := range map[string]string{"demo.css": "text/css", "demo.js": "text/javascript", "icon.svg": "image/svg+xml"} {
		body, err := files.ReadFile(name)
		if err != nil {
			panic(err) // it is embedded
		}
		mux.HandleFunc("GET "+Path+name, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", contentType+"; charset=utf-8")
			w.Write(body)
		})
	}
	return http.NewCrossOriginProtection().Handler(mux)
}

// policy lets the page have what this origin serves, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// maxBody bounds what is read of a request. All that the page sends is far smaller, and what is
// smaller than this is parsed in memory: a file that is uploaded is written nowhere.
const maxBody = 64 << 10

// ServeHTTP serves what is under [Path].
func (d *Demo) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", policy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	v := &visit{session: d.sessions.of(r), writer: w}
	if v.session == nil && r.Method == http.MethodGet && r.URL.Path == Path {
		v.session = d.sessions.begin(w, r, d.first())
	}
	d.mux.ServeHTTP(w, v.in(r))
}

// first is what a session begins with.
func (d *Demo) first() choices {
	c := choices{protection: once, life: d.lives[len(d.lives)-1], user: users[0]}
	if d.opts.Claims {
		c.protection = replay
	}
	return c
}

// guarded returns a handler that make makes for the session's guard and protection, and puts
// each of its requests on the time line.
func (d *Demo) guarded(make func(*guard.Guard, protection) http.Handler) http.Handler {
	type key struct {
		life time.Duration
		protection
	}
	handlers := map[key]http.Handler{}
	for _, life := range d.lives {
		for _, p := range []protection{off, once, replay} {
			handlers[key{life, p}] = make(d.guards[life], p)
		}
	}
	first := d.first()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v, c := visitOf(r), first
		if v.session != nil {
			c = v.session.chosen()
		}
		v.begin(r, c)
		out := &watcher{ResponseWriter: w}
		defer func() { v.end(out, time.Now()) }() // also where the service dies
		handlers[key{c.life, c.protection}].ServeHTTP(out, r)
	})
}

// board answers with the time line and the orders, or with 204 where the page has them.
func (d *Demo) board(w http.ResponseWriter, r *http.Request) {
	v := visitOf(r)
	if v.session == nil {
		http.Error(w, "there is no such session", http.StatusUnauthorized)
		return
	}
	b := v.session.board(languageOf(r, v.session.chosen()))
	if r.URL.Query().Get("version") == fmt.Sprint(b.Version) {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	d.render(w, http.StatusOK, "board", b)
}

// settings changes what the session has chosen.
func (d *Demo) settings(w http.ResponseWriter, r *http.Request) {
	d.change(w, r, func(s *session) error {
		c, err := d.choose(s.chosen(), r)
		if err == nil {
			s.choose(c)
		}
		return err
	})
}

var errChoice = errors.New("there is no such choice")

// choose returns c with what r's form says.
func (d *Demo) choose(c choices, r *http.Request) (choices, error) {
	if p := protection(r.PostFormValue("protection")); p != "" {
		if p != off && p != once && (p != replay || !d.opts.Claims) {
			return c, errChoice
		}
		c.protection = p
	}
	if text := r.PostFormValue("life"); text != "" {
		life, err := time.ParseDuration(text + "s")
		if err != nil || d.guards[life] == nil {
			return c, errChoice
		}
		c.life = life
	}
	if u := r.PostFormValue("user"); u != "" {
		if u != users[0] && u != users[1] {
			return c, errChoice
		}
		c.user = u
	}
	if l := r.PostFormValue("lang"); l != "" {
		if languages[l] == nil {
			return c, errChoice
		}
		c.lang = l
	}
	return c, nil
}

// crash has the service die in the middle of the next order.
func (d *Demo) crash(w http.ResponseWriter, r *http.Request) {
	d.change(w, r, func(s *session) error {
		switch when := crash(r.PostFormValue("when")); when {
		case before, after:
			s.arm(when)
			return nil
		}
		return errChoice
	})
}

// clear forgets the orders and the time line.
func (d *Demo) clear(w http.ResponseWriter, r *http.Request) {
	d.change(w, r, func(s *session) error { s.clear(); return nil })
}

// change changes the session and goes back to the page, where its script is not there already.
func (d *Demo) change(w http.ResponseWriter, r *http.Request, f func(*session) error) {
	if err := r.ParseMultipartForm(maxBody); err != nil && !errors.Is(err, http.ErrNotMultipart) {
		status := http.StatusBadRequest
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			status = http.StatusRequestEntityTooLarge
		}
		http.Error(w, "that is no form of this page", status)
		return
	}
	if s := visitOf(r).session; s != nil {
		if err := f(s); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}
	if !takesHTML(r) {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	http.Redirect(w, r, Path, http.StatusSeeOther)
}
