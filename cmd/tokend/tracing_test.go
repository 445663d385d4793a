package main

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"example.com/tokend/httpapi/wire"
)

// collector takes traces by OTLP over HTTP, as they come.
type collector struct {
	*httptest.Server
	mu  sync.Mutex
	got bytes.Buffer
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	c := new(collector)
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.got.WriteString(r.URL.Path + "\n")
		c.got.Write(body)
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *collector) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.got.String()
}

// setenv sets the process's own variables, which OpenTelemetry reads, and returns them.
func setenv(t *testing.T, environ ...string) []string {
	t.Helper()
	for _, e := range environ {
		name, value, _ := strings.Cut(e, "=")
		t.Setenv(name, value)
	}
	return environ
}

const (
	callersTrace = "0af7651916cd43dd8448eb211c80319c"
	callersSpan  = "b7ad6b7169203331"
)

// callTraced calls r as the service form, in its caller's trace.
func callTraced(t *testing.T, r *running, path, body, flags string) string {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, r.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+bearer(t, "form", "tokend.issue tokend.consume"))
	req.Header.Set("Content-Type", wire.TypeJSON)
	req.Header.Set("Traceparent", "00-"+callersTrace+"-"+callersSpan+"-"+flags)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusCreated {
		t.Fatalf("%s %s, %v", resp.Status, b, err)
	}
	return string(b)
}

// TestTracesAreDelivered has a served call's spans reach a collector before the program ends.
func TestTracesAreDelivered(t *testing.T) {
	c := newCollector(t)
	environ := append(serveEnviron(testStore(t).URL()), setenv(t,
		"OTEL_EXPORTER_OTLP_ENDPOINT="+c.URL,
		"OTEL_RESOURCE_ATTRIBUTES=deployment.environment.name=test",
		"OTEL_BSP_SCHEDULE_DELAY=3600000", // so that the end delivers them
	)...)
	r := startCommand(t, environ, "serve")
	said := callTraced(t, r, wire.PathTokens, `{"user":"`+canary+`"}`, "01")
	if strings.Contains(c.text(), "/v1/traces") {
		t.Error("delivered before the end")
	}
	if status := r.stop(); status != exitOK {
		t.Fatalf("status %d: %s", status, r.stderr)
	}
	got := c.text()
	id, err := hex.DecodeString(callersTrace)
	if err != nil {
		t.Fatal(err)
	}
	parent, err := hex.DecodeString(callersSpan)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"/v1/traces\n", string(id), string(parent), "POST " + wire.PathTokens, "EVALSHA issue", "tokend", "deployment.environment.name", "service.version",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not among what was delivered", want)
		}
	}
	if n := strings.Count(got, string(id)); n != 2 {
		t.Errorf("%d spans of the caller's trace, want 2", n)
	}
	_, rest, _ := strings.Cut(said, `"token":"`)
	token, _, _ := strings.Cut(rest, `"`)
	for _, secret := range []string{canary, token} {
		if secret == "" || strings.Contains(got, secret) {
			t.Errorf("delivered: %q", secret)
		}
	}
	if !strings.Contains(r.stderr.String(), `"trace_id":"`+callersTrace+`"`) {
		t.Errorf("the line does not name the trace: %s", r.stderr)
	}
}

// TestUnsampledTraces delivers nothing of a trace that its caller does not sample.
func TestUnsampledTraces(t *testing.T) {
	c := newCollector(t)
	r := startCommand(t, append(serveEnviron(testStore(t).URL()), setenv(t, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT="+c.URL+"/own")...), "serve")
	callTraced(t, r, wire.PathTokens, `{"user":"alice"}`, "00")
	callTraced(t, r, wire.PathTokens, `{"user":"alice"}`, "00")
	if status := r.stop(); status != exitOK || c.text() != "" {
		t.Errorf("status %d, delivered %q", status, c.text())
	}
	if !strings.Contains(r.stderr.String(), `"trace_id":"`+callersTrace+`"`) {
		t.Errorf("the line does not name the trace: %s", r.stderr)
	}
}

// TestTracesWanted tells which variables ask for traces.
func TestTracesWanted(t *testing.T) {
	for _, tt := range []struct {
		environ []string
		want    bool
	}{
		{nil, false},
		{[]string{"OTEL_SERVICE_NAME=x", "OTEL_TRACES_SAMPLER=always_on", "OTEL_METRICS_EXPORTER=otlp", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=http://x"}, false},
		{[]string{"OTEL_TRACES_EXPORTER=otlp"}, true},
		{[]string{"OTEL_TRACES_EXPORTER=console"}, true},
		{[]string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://x"}, true},
		{[]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://x"}, true},
		{[]string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://x", "OTEL_TRACES_EXPORTER=none"}, false},
		{[]string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://x", "OTEL_SDK_DISABLED=true"}, false},
		{[]string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://x", "OTEL_SDK_DISABLED=True"}, false},
		{[]string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://x", "OTEL_SDK_DISABLED=no"}, true},
	} {
		p := &program{environ: tt.environ}
		if got := tracesWanted(p.getenv); got != tt.want {
			t.Errorf("%v: %t", tt.environ, got)
		}
		if tt.want {
			continue
		}
		tr, err := newTracing(t.Context(), p.getenv, nil)
		if tr != nil || err != nil || tr.tracer() != nil || tr.ofCalls() != nil || tr.close(t.Context()) != nil {
			t.Errorf("%v: %v, %v", tt.environ, tr, err)
		}
	}
}

// TestWrongTraces has the program say what it cannot do, and end.
func TestWrongTraces(t *testing.T) {
	for _, e := range []string{"OTEL_TRACES_EXPORTER=nowhere", "OTEL_EXPORTER_OTLP_PROTOCOL=smoke"} {
		environ := append(serveEnviron(testStore(t).URL()), setenv(t, "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", e)...)
		if got := runCommand(t, environ, "", "serve", "--listen=127.0.0.1:0", "--admin-listen="); got.status != exitUsage || !strings.Contains(got.stderr, "OTEL_ variables: ") {
			t.Errorf("%s: %+v", e, got)
		}
	}
}

// TestNoCollector serves, and ends, although nobody takes its traces.
func TestNoCollector(t *testing.T) {
	environ := append(serveEnviron(testStore(t).URL(), "TOKEND_SHUTDOWN_TIMEOUT=10s"), setenv(t, "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1")...)
	r := startCommand(t, environ, "serve")
	callTraced(t, r, wire.PathTokens, `{"user":"alice"}`, "01")
	if status := r.stop(); status != exitOK || !strings.Contains(r.stderr.String(), `"msg":"traces"`) {
		t.Errorf("status %d: %s", status, r.stderr)
	}
	for line := range strings.Lines(r.stderr.String()) {
		if !strings.HasPrefix(line, "{") {
			t.Errorf("a line of another's: %s", line)
		}
	}
}

// TestHangingCollector ends in good time, although what takes the traces never answers.
func TestHangingCollector(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() // it connects, and nobody accepts
	environ := append(serveEnviron(testStore(t).URL(), "TOKEND_SHUTDOWN_TIMEOUT=10m"), setenv(t,
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://"+l.Addr().String(), "OTEL_EXPORTER_OTLP_TIMEOUT=600000", "OTEL_BSP_EXPORT_TIMEOUT=600000")...)
	r := startCommand(t, environ, "serve")
	callTraced(t, r, wire.PathTokens, `{"user":"alice"}`, "01")
	if status := r.stop(); status != exitOK || !strings.Contains(r.stderr.String(), "the last traces were not delivered") {
		t.Errorf("status %d: %s", status, r.stderr)
	}
}

// tracingTo returns what the variables ask for, and its log.
func tracingTo(t *testing.T, environ ...string) (*tracing, *output) {
	t.Helper()
	out := new(output)
	p := &program{environ: setenv(t, environ...)}
	tr, err := newTracing(t.Context(), p.getenv, slog.New(slog.NewJSONHandler(out, nil)))
	if err != nil {
		t.Fatal(err)
	}
	return tr, out
}

// TestCallersTrace takes the trace that a caller names, whatever else it sends, and says
// nothing of that.
func TestCallersTrace(t *testing.T) {
	tr, out := tracingTo(t, "OTEL_TRACES_EXPORTER=otlp", "OTEL_PROPAGATORS=tracecontext,baggage,b3,b3multi,jaeger,ottrace,xray")
	t.Cleanup(func() { tr.close(t.Context()) })
	short := "vendor=" + strings.Repeat("s", 100)
	long := "k0=" + strings.Repeat("s", 250) + ",k1=" + strings.Repeat("s", 250) + ",k2=" + strings.Repeat("s", 250)
	bad := "k=v;=" + canary
	for name, tt := range map[string]struct {
		header http.Header
		state  string
	}{
		"a state":           {http.Header{"Tracestate": {short}}, short},
		"a long state":      {http.Header{"Tracestate": {long}}, ""},
		"baggage":           {http.Header{"Baggage": {"k=" + canary}}, ""},
		"bad baggage":       {http.Header{"Baggage": {bad}}, ""},
		"more bad baggage":  {http.Header{"Baggage": {bad, strings.Repeat(",", 9000)}}, ""},
		"others' baggage":   {http.Header{"Ot-Baggage-" + canary: {"\x00" + canary}, "Uberctx-" + canary: {canary}, "Jaeger-Baggage": {"k=" + canary}}, ""},
		"others' that last": {http.Header{"Uber-Trace-Id": {strings.Repeat(canary, 9000)}, "B3": {strings.Repeat(canary, 9000)}, "X-Amzn-Trace-Id": {strings.Repeat(canary, 9000)}}, ""},
	} {
		tt.header.Set("Traceparent", "00-"+callersTrace+"-"+callersSpan+"-01")
		ctx := tr.ofCalls().Propagator.Extract(t.Context(), propagation.HeaderCarrier(tt.header))
		got := trace.SpanContextFromContext(ctx)
		if got.TraceID().String() != callersTrace || got.TraceState().String() != tt.state {
			t.Errorf("%s: the trace %s with the state %q", name, got.TraceID(), got.TraceState())
		}
		if bag := baggage.FromContext(ctx); bag.Len() != 0 {
			t.Errorf("%s: %d pieces of baggage", name, bag.Len())
		}
	}
	// The libraries have one place for complaints: another test's export may end here.
	if text := out.String(); strings.Contains(text, canary) || strings.Contains(text, "baggage") {
		t.Errorf("it says %s", text)
	}
}

// TestTraceFaults logs what is wrong once a minute, and how often it was.
func TestTraceFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out output
		faults := &traceFaults{log: slog.New(slog.NewJSONHandler(&out, nil))}
		for range 1000 {
			faults.Handle(errors.New("refused"))
			time.Sleep(100 * time.Millisecond)
		}
		text := out.String()
		if n := strings.Count(text, `"msg":"traces","error":"refused"`); n != 2 || !strings.Contains(text, `"more_before":599`) {
			t.Errorf("%d lines:\n%s", n, text)
		}
	})
}
