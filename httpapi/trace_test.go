package httpapi_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"example.com/tokend/httpapi"
	"example.com/tokend/httpapi/wire"
	"example.com/tokend/token"
)

// traced has the harness keep its spans in memory.
func traced(spans *tracetest.SpanRecorder) func(*httpapi.Options, *token.Options) {
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	return func(o *httpapi.Options, _ *token.Options) {
		o.Tracing = &httpapi.Tracing{Tracer: provider.Tracer("test"), Propagator: propagation.TraceContext{}}
	}
}

const (
	callersTrace = "0af7651916cd43dd8448eb211c80319c"
	callersSpan  = "b7ad6b7169203331"
)

func traceparent(flags string) http.Header {
	return headers("Traceparent", "00-"+callersTrace+"-"+callersSpan+"-"+flags)
}

func attributes(span sdktrace.ReadOnlySpan) map[string]any {
	m := map[string]any{}
	for _, kv := range span.Attributes() {
		m[string(kv.Key)] = kv.Value.AsInterface()
	}
	return m
}

// TestSpans holds each call to a span in its caller's trace, that says what it may.
func TestSpans(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	h := newHarness(t, traced(spans), func(_ *httpapi.Options, o *token.Options) { o.Rate.PerMinute = 0 })
	tok := h.issue("{}")
	claimed := h.issue("{}")
	var claim struct{ Claim string }
	c := h.do(request{path: wire.PathClaims, body: body("token", claimed.Token, "user", "alice")})
	if c.status != http.StatusCreated {
		t.Fatal(c.body)
	}
	_, rest, _ := strings.Cut(c.body, `"claim":"`)
	claim.Claim, _, _ = strings.Cut(rest, `"`)

	consume := request{path: wire.PathConsume, body: body("token", tok.Token, "user", "alice"), header: traceparent("01")}
	for _, tt := range []struct {
		name string
		ask  func() answer
		span string
		want map[string]any
		code codes.Code
	}{
		{"consumed", func() answer { return h.do(consume) }, "POST /v1/tokens/consume",
			map[string]any{"http.request.method": "POST", "http.route": "/v1/tokens/consume", "url.path": "/v1/tokens/consume", "url.scheme": "http", "http.response.status_code": int64(200)}, codes.Unset},
		{"used: no error", func() answer { return h.do(consume) }, "POST /v1/tokens/consume",
			map[string]any{"http.request.method": "POST", "http.route": "/v1/tokens/consume", "url.path": "/v1/tokens/consume", "url.scheme": "http", "http.response.status_code": int64(409)}, codes.Unset},
		{"a claim in the path", func() answer {
			return h.do(request{method: "DELETE", path: wire.PathClaim(claim.Claim), header: traceparent("01")})
		}, "DELETE /v1/claims/:claim",
			map[string]any{"http.request.method": "DELETE", "http.route": "/v1/claims/:claim", "url.path": "/v1/claims/:claim", "url.scheme": "http", "http.response.status_code": int64(204)}, codes.Unset},
		{"a gateway", func() answer {
			return h.ask("BREW", wire.PathGateway+"/of/another?secret=1", with(h.asking(tok.Token), traceparent("01")))
		}, "HTTP /v1/gateway/consume/*",
			map[string]any{"http.request.method": "_OTHER", "http.route": "/v1/gateway/consume/*", "url.path": "/v1/gateway/consume", "url.scheme": "http", "http.response.status_code": int64(403)}, codes.Unset},
		{"a fault", func() answer { h.redis.SetError("OOM alice"); return h.do(consume) }, "POST /v1/tokens/consume",
			map[string]any{"http.request.method": "POST", "http.route": "/v1/tokens/consume", "url.path": "/v1/tokens/consume", "url.scheme": "http", "http.response.status_code": int64(503), "error.type": "store_unavailable"}, codes.Error},
	} {
		spans.Reset()
		before := len(h.log.lines(t))
		tt.ask()
		got := spans.Ended()
		if len(got) != 1 {
			t.Fatalf("%s: %d spans", tt.name, len(got))
		}
		span := got[0]
		if span.Name() != tt.span || span.SpanKind() != trace.SpanKindServer || span.Status().Code != tt.code || span.Status().Description != "" || len(span.Events()) != 0 {
			t.Errorf("%s: %s, %v, %v, %v", tt.name, span.Name(), span.SpanKind(), span.Status(), span.Events())
		}
		if span.Parent().SpanID().String() != callersSpan || span.SpanContext().TraceID().String() != callersTrace || !span.Parent().IsRemote() {
			t.Errorf("%s: below %v", tt.name, span.Parent())
		}
		if diff := cmp.Diff(tt.want, attributes(span)); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
		if lines := h.log.lines(t)[before:]; len(lines) != 1 || lines[0]["trace_id"] != callersTrace {
			t.Errorf("%s: logged as %v", tt.name, lines)
		}
	}

	spans.Reset()
	h.redis.SetError("")
	h.do(request{method: "GET", path: wire.PathReadyz, auth: "-"})
	h.do(request{method: "GET", path: wire.PathOpenAPI, auth: "-"})
	h.do(request{path: "/nowhere"})
	if got := spans.Ended(); len(got) != 0 {
		t.Errorf("spans of what is no call: %v", got)
	}
}

// TestTraceOfLine holds the line's trace to the span's, whoever began it.
func TestTraceOfLine(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	h := newHarness(t, traced(spans))
	h.issue("{}")
	lines := h.log.lines(t)
	if id := spans.Ended()[0].SpanContext().TraceID().String(); lines[len(lines)-1]["trace_id"] != id {
		t.Errorf("the line says %v, the span %s", lines[len(lines)-1]["trace_id"], id)
	}

	// What its caller does not sample is not recorded, and belongs to its trace all the same.
	spans.Reset()
	h.do(request{path: wire.PathTokens, auth: userJWT(t, "alice"), header: traceparent("00")})
	lines = h.log.lines(t)
	if n := len(spans.Ended()); n != 0 || lines[len(lines)-1]["trace_id"] != callersTrace {
		t.Errorf("%d spans, and the line says %v", n, lines[len(lines)-1]["trace_id"])
	}
}

// TestSpanOfPanic holds that what panics has a span that ends, as a fault.
func TestSpanOfPanic(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	h := newHarness(t, traced(spans), func(o *httpapi.Options, _ *token.Options) { o.Tokens = struct{ httpapi.Tokens }{} })
	h.do(request{path: wire.PathTokens, auth: userJWT(t, "alice")})
	got := spans.Ended()
	if len(got) != 1 || got[0].Status().Code != codes.Error || attributes(got[0])["error.type"] != "internal" {
		t.Errorf("%+v", got)
	}
}
