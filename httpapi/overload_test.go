package httpapi_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"example.com/tokend/httpapi"
	"example.com/tokend/httpapi/wire"
	"example.com/tokend/token"
)

// heldTokens answers issues only when it is let go.
type heldTokens struct {
	httpapi.Tokens
	held chan struct{}
	free chan struct{}
}

func (h heldTokens) Issue(context.Context, token.IssueRequest) (token.IssuedToken, error) {
	h.held <- struct{}{}
	<-h.free
	return token.IssuedToken{}, nil
}

// TestOverload has as many calls in flight as are answered at a time: the next is told so
// at once, and when they are through all is as before.
func TestOverload(t *testing.T) {
	const most = 2048
	held := heldTokens{held: make(chan struct{}, most), free: make(chan struct{})}
	h := newHarness(t, func(o *httpapi.Options, _ *token.Options) { o.Tokens, o.Outcomes = held, httpapi.LogNone })
	issue := request{path: wire.PathTokens, auth: userJWT(t, "alice")}
	var wg sync.WaitGroup
	for range most {
		wg.Go(func() {
			if a := h.serve(issue); a != http.StatusCreated {
				t.Errorf("an accepted call: %d", a)
			}
		})
	}
	for range most {
		<-held.held
	}
	for range 3 {
		a := h.do(issue)
		if a.Code != wire.CodeStoreUnavailable || a.Next != wire.NextRetry || a.header.Get("Retry-After") != "1" {
			t.Errorf("one too many: %s, Retry-After %q", a.body, a.header.Get("Retry-After"))
		}
	}
	if a := h.do(request{method: "GET", path: wire.PathLivez, auth: "-"}); a.status != 200 {
		t.Errorf("livez under overload: %d", a.status)
	}
	close(held.free)
	wg.Wait()
	if a := h.do(issue); a.status != http.StatusCreated {
		t.Errorf("afterwards: %s", a.body)
	}
}

// TestSlowBodies has more callers than are answered at a time be slow with their bodies: they
// hold nobody else up.
func TestSlowBodies(t *testing.T) {
	h := newHarness(t)
	began := make(chan struct{})
	bodies := make([]slowBody, 2100)
	var wg sync.WaitGroup
	bearer := "Bearer " + userJWT(t, "mallory")
	for i := range bodies {
		bodies[i] = slowBody{began, make(chan struct{})}
		wg.Go(func() {
			r := httptest.NewRequest(http.MethodPost, wire.PathTokens, bodies[i])
			r.Header["Authorization"], r.Header["Content-Type"] = []string{bearer}, []string{"application/json"}
			w := httptest.NewRecorder()
			h.srv.ServeHTTP(w, r)
			if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), `"field":"body"`) {
				t.Errorf("a body that broke off: %d %s", w.Code, w.Body)
			}
		})
	}
	for range bodies {
		<-began
	}
	if a := h.do(request{path: wire.PathTokens, auth: userJWT(t, "alice")}); a.status != http.StatusCreated {
		t.Errorf("beside them: %s", a.body)
	}
	for _, b := range bodies {
		close(b.ends)
	}
	wg.Wait()
}

// slowBody says that it is read, and breaks off when it is told to.
type slowBody struct {
	began chan<- struct{}
	ends  chan struct{}
}

func (b slowBody) Read([]byte) (int, error) {
	b.began <- struct{}{}
	<-b.ends
	return 0, io.ErrUnexpectedEOF
}

// TestQueueIsFull has the store have more calls than it can answer in time: the answer says so,
// and does not speak of a store that is away.
func TestQueueIsFull(t *testing.T) {
	h := newHarness(t, func(o *httpapi.Options, _ *token.Options) { o.Tokens = busyTokens{} })
	a := h.do(request{path: wire.PathTokens, auth: userJWT(t, "alice")})
	if a.Code != wire.CodeStoreUnavailable || !strings.Contains(a.Detail, "more calls than it can answer") || a.header.Get("Retry-After") != "1" {
		t.Errorf("%s, Retry-After %q", a.body, a.header.Get("Retry-After"))
	}
}

type busyTokens struct{ httpapi.Tokens }

func (busyTokens) Issue(context.Context, token.IssueRequest) (token.IssuedToken, error) {
	return token.IssuedToken{}, &token.Fault{Op: "issue", Err: fmt.Errorf("%w: a queue is full", token.ErrBusy)}
}
