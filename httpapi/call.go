package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/labstack/echo/v4"
	"go.opentelemetry.io/otel/trace"

	"example.com/tokend/httpapi/auth"
	"example.com/tokend/httpapi/wire"
)

// call is one request while it is answered, and what its outcome line will say.
type call struct {
	srv       *Server
	echo      echo.Context
	op        string
	began     time.Time
	requestID string
	caller    auth.Identity
	outcome   outcome
	items     []outcome  // a batch's, each of which is an outcome of its own; then outcome is none
	span      trace.Span // nil: none
	status    int        // of the answer; 0 until there is one
	success   int        // the status of a success
}

func (s *Server) begin(ec echo.Context, op string) *call {
	c := calls.Get().(*call)
	*c = call{srv: s, echo: ec, op: op, began: time.Now(), success: http.StatusOK}
	c.requestID = wire.RequestID(ec.Request().Header)
	setCommon(ec.Response().Header(), c.requestID)
	c.beginSpan()
	return c
}

// calls holds calls that have ended: nobody knows of one any more by then.
var calls = sync.Pool{New: func() any { return new(call) }}

func (c *call) letGo() {
	*c = call{}
	calls.Put(c)
}

// setCommon sets the headers that every answer has.
func setCommon(h http.Header, requestID string) {
	h["Cache-Control"] = noStore
	h["X-Content-Type-Options"] = noSniff
	h[wire.HeaderRequestID] = []string{requestID}
}

// end answers a panic, then counts and logs the outcome. It is deferred.
func (c *call) end() {
	defer c.letGo()
	defer c.endSpan()
	if p := recover(); p != nil {
		if p == http.ErrAbortHandler {
			panic(p)
		}
		c.fail(fmt.Errorf("panic: %v\n%s", p, debug.Stack()))
	}
	took := time.Since(c.began)
	c.srv.opts.Metrics.request(c, took)
	for o := range c.outcomes {
		c.srv.opts.Metrics.outcome(c.op, o)
		c.srv.log(c, o, took)
	}
}

// outcomes is the sequence of what is to be counted and logged: a batch's items, unless the
// batch was refused whole.
func (c *call) outcomes(yield func(*outcome) bool) {
	if c.status >= http.StatusBadRequest || c.items == nil {
		if c.outcome.status == 0 {
			c.outcome.status = c.status
		}
		yield(&c.outcome)
		return
	}
	for i := range c.items {
		if !yield(&c.items[i]) {
			return
		}
	}
}

// ctx returns the request's context: it ends when the caller hangs up.
func (c *call) ctx() context.Context { return c.echo.Request().Context() }

// succeed answers with body, or without one where the status says so.
func (c *call) succeed(body any) error {
	if c.success == http.StatusNoContent {
		c.write(c.success, nil, nil)
		return nil
	}
	buf := newBody()
	defer recycle(buf)
	if err := json.MarshalWrite(buf, body); err != nil {
		return c.fail(fmt.Errorf("encode the answer: %w", err))
	}
	c.write(c.success, typeJSON, buf.Bytes())
	return nil
}

// fail answers with the problem that err is. It returns nil, as the answer is given.
func (c *call) fail(err error) error {
	p := c.problem(&c.outcome, err)
	status := p.Status
	if c.op == opGateway {
		status = c.deny(p)
	}
	h := c.echo.Response().Header()
	if p.RetryAfter > 0 {
		h["Retry-After"] = []string{fmt.Sprint(p.RetryAfter)}
	}
	var no *auth.Refusal
	if errors.As(err, &no) {
		h["Www-Authenticate"] = []string{no.Challenge()}
	}
	b, merr := json.Marshal(p)
	if merr != nil {
		b = []byte(`{"code":"internal","next":"retry","status":500}`)
	}
	c.write(status, typeProblem, b)
	return nil
}

// problem returns the problem that err is, and notes it in o.
func (c *call) problem(o *outcome, err error) *wire.Problem {
	p := problemOf(err)
	p.RequestID = c.requestID
	if p.Ref == "" {
		p.Ref = o.ref // a fault, or a panic, about a token that was read before
	}
	o.refused(p, err)
	return p
}

func (c *call) write(status int, contentType []string, body []byte) {
	c.status = status
	if c.echo.Response().Committed {
		return // a panic after the answer: there is nothing left to say
	}
	if status == http.StatusNoContent {
		c.echo.Response().WriteHeader(status)
		return
	}
	c.echo.Response().Header()["Content-Type"] = contentType
	c.echo.Response().WriteHeader(status)
	c.echo.Response().Write(body) // an error means that the caller has gone
}
