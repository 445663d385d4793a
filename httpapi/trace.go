package httpapi

import (
	"net/http"
	"slices"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"example.com/tokend/httpapi/wire"
)

// Tracing has each call be a span, in the trace that its caller names. No token, key, claim
// or user is in one: the path is the route's, which has parameters in place of claims, and
// what stands below wire.PathGateway is another service's.
type Tracing struct {
	Tracer     trace.Tracer
	Propagator propagation.TextMapPropagator // reads the caller's trace
}

// methods are those that a span may name: a caller can make up any number of others.
var methods = []string{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch,
	http.MethodDelete, http.MethodConnect, http.MethodOptions, http.MethodTrace,
}

// beginSpan begins c's span, if there is to be one: probes and pages have none.
func (c *call) beginSpan() {
	t := c.srv.opts.Tracing
	if t == nil || c.op == opNone {
		return
	}
	r := c.echo.Request()
	route, scheme, name := c.echo.Path(), "http", r.Method
	if r.TLS != nil {
		scheme = "https"
	}
	method := semconv.HTTPRequestMethodKey.String(r.Method)
	if !slices.Contains(methods, r.Method) {
		method, name = semconv.HTTPRequestMethodOther, "HTTP"
	}
	path := route
	if c.op == opGateway {
		path = wire.PathGateway
	}
	ctx := t.Propagator.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	ctx, c.span = t.Tracer.Start(ctx, name+" "+route, trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(c.began),
		trace.WithAttributes(method, semconv.HTTPRoute(route), semconv.URLPath(path), semconv.URLScheme(scheme)))
	c.echo.SetRequest(r.WithContext(ctx))
}

// endSpan ends c's span. A fault is an error of the service's, a refusal is none.
func (c *call) endSpan() {
	if c.span == nil {
		return
	}
	if c.span.IsRecording() && c.status != 0 {
		c.span.SetAttributes(semconv.HTTPResponseStatusCode(c.status))
		for o := range c.outcomes {
			if o.fault {
				c.span.SetStatus(codes.Error, "")
				c.span.SetAttributes(semconv.ErrorTypeKey.String(o.code))
			}
		}
	}
	c.span.End()
}

// traceID returns the ID of the trace that c belongs to, or nothing where there is none.
func (c *call) traceID() string {
	if c.span != nil {
		if id := c.span.SpanContext().TraceID(); id.IsValid() {
			return id.String()
		}
	}
	return traceparent(c.echo.Request().Header)
}
