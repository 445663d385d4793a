package httpapi_test

import (
	"context"
	"net/http"
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
