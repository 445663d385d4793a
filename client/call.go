package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"example.com/tokend/httpapi/wire"
)

// endpoint is what all calls of one kind have in common.
type endpoint struct {
	op      string // as in Fault.Op
	method  string // POST where empty; a DELETE has no body
	path    string
	success int  // HTTP status
	other   int  // another status that is a success, too; 0 where there is none
	changes bool // a try can change something
	once    bool // what a try changes can turn a later try into a refusal
	bulky   bool // its body may be too large for whoever is in between: a 413 is an answer, whoever says it
	results bool // its answer may hold a result

	hold       time.Duration // that tokend may take before it answers, by the call's own wish
	tryTimeout time.Duration // shorter than the Client's; 0 where that holds
}

// succeeds tells whether status is a success's.
func (e *endpoint) succeeds(status int) bool {
	return status == e.success || e.other != 0 && status == e.other
}

// exchange is what one logical call says, and what it makes of what it hears.
type exchange interface {
	// request returns what the next try sends, to be encoded as JSON.
	request() any
	// take reads a success. A miss says that it is none, or that it leaves something
	// open, which the next try asks for. sofar is what the tries before this one came
	// to; only its Tries counts this one in.
	take(a *answer, sofar Fault) *miss
}

// call makes one logical call: the same body in each try, until one is answered. ok
// tells an answer from other JSON with the right status.
func call[A any](ctx context.Context, c *Client, e endpoint, req any, ok func(*A) bool) (*A, error) {
	x := &single[A]{endpoint: e, req: req, ok: ok}
	if err := c.run(ctx, e, x); err != nil {
		return nil, err
	}
	return x.got, nil
}

// single is the exchange of all calls but those whose items are answered one by one.
type single[A any] struct {
	endpoint endpoint
	req      any
	ok       func(*A) bool
	got      *A
}

func (x *single[A]) request() any { return x.req }

// take decodes each try's answer anew: what one that cannot be used held must not show
// in the next.
func (x *single[A]) take(a *answer, _ Fault) *miss {
	x.got = new(A)
	if json.Unmarshal(a.body, x.got) != nil || !x.ok(x.got) {
		return a.unreadable(x.endpoint)
	}
	return nil
}

// run makes tries until one is answered or no other is due. Its error is a *Refusal
// or a *Fault.
func (c *Client) run(ctx context.Context, e endpoint, x exchange) error {
	ctx, cancel := context.WithTimeout(ctx, c.budget+e.hold)
	defer cancel()

	fault := &Fault{Op: e.op}
	limit := c.maxTries
	var unknown *Refusal // the first 401 …
	var rejected string  // … and the bearer that it was for
	for {
		if ctx.Err() != nil {
			return fault.ended(ctx)
		}
		bearer, err := c.credential.bearer(ctx)
		if err != nil {
			fault.Err = noRefusal(fmt.Errorf("credential: %w", err))
			return fault
		}
		if unknown != nil && bearer == rejected {
			return fault.orRefusal(e, unknown)
		}
		var body []byte
		if e.method != http.MethodDelete {
			if body, err = json.Marshal(x.request()); err != nil {
				fault.Err = err
				return fault
			}
		}
		fault.Tries++
		no, m := c.try(ctx, e, body, bearer, func(a *answer) *miss { return x.take(a, *fault) })
		switch {
		case m != nil:
			fault.add(e, m)
		case no == nil:
			return nil
		case no.Code == wire.CodeUnauthenticated && unknown == nil:
			unknown, rejected = no, bearer
			limit++ // one more for the new bearer
			continue
		default:
			return fault.orRefusal(e, no)
		}
		if ctx.Err() != nil {
			return fault.ended(ctx)
		}
		wait := c.wait(fault.Tries, m.retryAfter)
		deadline, _ := ctx.Deadline()
		if m.final || fault.Tries >= limit || time.Until(deadline) <= wait {
			return fault
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return fault.ended(ctx)
		}
	}
}

// add puts a try that was not answered down in f.
func (f *Fault) add(e endpoint, m *miss) {
	f.MaybeDone = f.MaybeDone || m.sent && e.changes
	f.Code, f.Err = m.code, noRefusal(m.err)
	if m.requestID != "" {
		f.RequestID = m.requestID
	}
}

// ended returns f for a call whose context is over. That is named first, whatever the
// last try said of it: net/http reports a context's cause instead.
func (f *Fault) ended(ctx context.Context) *Fault {
	switch {
	case f.Err == nil:
		f.Err = ctx.Err()
	case !errors.Is(f.Err, ctx.Err()):
		f.Err = fmt.Errorf("%w; last try: %w", ctx.Err(), f.Err)
	}
	return f
}

// orRefusal returns no, or f where an earlier try may have been granted what the last
// one was refused.
func (f *Fault) orRefusal(e endpoint, no *Refusal) error {
	if !e.once || !f.MaybeDone || no.settles() {
		return no
	}
	f.Code, f.RequestID = "", no.RequestID
	f.Err = fmt.Errorf("refused (%s) after a try that may have been granted: %w", no.Code, f.Err)
	return f
}
