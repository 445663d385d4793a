package guard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"example.com/tokend/client"
	"example.com/tokend/httpapi/wire"
)

// What carries a token from the page to the service.
const (
	HeaderToken = wire.HeaderToken // of a script's request; it goes before the field
	FieldToken  = wire.FieldToken  // in a form, or at the top of a JSON object; never in a URL
)

// Guard holds what the handlers for one purpose have in common. It is safe for concurrent
// use.
type Guard struct{ set settings }

// New returns a Guard for the forms of p. It panics, with all that is wrong, where the
// options make no sense, and so do the methods, also where nothing says whose a request is:
// that is found when the service starts.
func New(p client.Purpose, opts ...Option) *Guard {
	g := &Guard{set: defaults(p)}
	g.set = g.with(opts)
	return g
}

// with returns g's settings with opts, which hold for one handler.
func (g *Guard) with(opts []Option) settings {
	set := g.set
	var errs []error
	for _, o := range opts {
		errs = append(errs, o(&set))
	}
	if err := errors.Join(errs...); err != nil {
		panic(fmt.Sprintf("guard: %v", err))
	}
	return set
}

// forUsers is with for handlers of users who are logged in, or have a session.
func (g *Guard) forUsers(opts []Option) settings {
	set := g.with(opts)
	if set.user == nil {
		panic("guard: User is required")
	}
	return set
}

// passes tells whether r submits nothing.
func passes(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}

// leash returns a context of base that ends with caller too until it is let go, and at the
// latest with end. letGo tells whether it was in time: if not, caller has ended it.
func leash(base, caller context.Context) (ctx context.Context, letGo func() bool, end func()) {
	ctx, cancel := context.WithCancelCause(base)
	stop := context.AfterFunc(caller, func() { cancel(context.Cause(caller)) })
	letGo = sync.OnceValue(func() bool {
		if stop() {
			return true
		}
		<-ctx.Done() // which is about to be
		return false
	})
	return ctx, letGo, func() { letGo(); cancel(nil) }
}

// noCaller stands for one who cannot hang up: of work that is past its point of no return.
var noCaller = context.Background()

// hungUp returns what Consume and Commit say of r, whose caller is gone before anything was
// done. Where it is a deadline that has ended r's context, it is heard.
func hungUp(r *http.Request) *Refused {
	return newRefused(wire.CodeStoreUnavailable, context.Cause(r.Context()))
}

// serve calls h with a copy of r, and removes the files of a form that h has parsed:
// net/http looks for them in r alone.
func serve(h http.Handler, w http.ResponseWriter, r, with *http.Request) {
	defer func() {
		if with.MultipartForm != nil && r.MultipartForm == nil {
			with.MultipartForm.RemoveAll()
		}
	}()
	h.ServeHTTP(w, with)
}
