package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"example.com/tokend/httpapi/wire"
)

// endpoint is what all calls of one kind have in common.
type endpoint struct {
	op      string // as in Fault.Op
	path    string
	success int  // HTTP status
	changes bool // a try can change something
	once    bool // what a try changes can turn a later try into a refusal
}

// call makes one logical call: the same body in each try, until one is answered. ok
// tells an answer from other JSON with the right status; each try's is decoded anew.
func call[A any](ctx context.Context, c *Client, e endpoint, req any, ok func(*A) bool) (*A, error) {
	body, err := json.Marshal(req)
	if err != nil {
		return nil, &Fault{Op: e.op, Err: err}
	}
	var answer *A
	err = c.run(ctx, e, body, func(b []byte) bool {
		answer = new(A)
		return json.Unmarshal(b, answer) == nil && ok(answer)
	})
	if err != nil {
		return nil, err
	}
	return answer, nil
}

// run makes tries until one is answered or no other is due. Its error is a *Refusal
// or a *Fault.
func (c *Client) run(ctx context.Context, e endpoint, body []byte, accept func([]byte) bool) error {
	ctx, cancel := context.WithTimeout(ctx, c.budget)
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
		fault.Tries++
		no, miss := c.try(ctx, e, body, bearer, accept)
		switch {
		case miss != nil:
			fault.add(e, miss)
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
		wait := miss.retryAfter + c.jitter(backoff(fault.Tries))
		deadline, _ := ctx.Deadline()
		if miss.final || fault.Tries >= limit || time.Until(deadline) <= wait {
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
