package main

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
)

// gate stands between the service and tokend, tells of claims, and holds results back.
type gate struct {
	url string

	mu     sync.Mutex
	claims int           // that were answered
	held   *hold         // nil: results are let through
	at     chan struct{} // told when a result is held
}

type hold struct {
	opened  chan struct{} // closed then
	through bool
}

func newGate(t *testing.T, tokend string) *gate {
	t.Helper()
	target, err := url.Parse(tokend)
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{at: make(chan struct{}, 100)}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/result") && !g.pass() {
			panic(http.ErrAbortHandler)
		}
		proxy.ServeHTTP(w, r)
		if r.Method == http.MethodPost && r.URL.Path == "/v1/claims" {
			g.mu.Lock()
			g.claims++
			g.mu.Unlock()
		}
	}))
	t.Cleanup(srv.Close)
	g.url = srv.URL
	return g
}

// pass waits for the gate to open, and tells whether r is let through.
func (g *gate) pass() bool {
	g.mu.Lock()
	held := g.held
	g.mu.Unlock()
	if held == nil {
		return true
	}
	g.at <- struct{}{}
	<-held.opened
	return held.through
}

// hold holds results back until end is called, with whether those that were held are let
// through then.
func (g *gate) hold(t *testing.T) (end func(through bool)) {
	h := &hold{opened: make(chan struct{})}
	g.mu.Lock()
	g.held = h
	g.mu.Unlock()
	var once sync.Once
	end = func(through bool) {
		once.Do(func() {
			g.mu.Lock()
			g.held = nil
			g.mu.Unlock()
			h.through = through
			close(h.opened)
		})
	}
	t.Cleanup(func() { end(false) })
	return end
}

// answered returns how many claims were answered.
func (g *gate) answered() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.claims
}
