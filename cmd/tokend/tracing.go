package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/contrib/exporters/autoexport"
	"go.opentelemetry.io/contrib/propagators/autoprop"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"example.com/tokend/httpapi"
)

// tracing is where spans go. A nil one is off, and costs nothing.
type tracing struct {
	provider   *sdktrace.TracerProvider
	propagator propagation.TextMapPropagator
}

// askForTraces are the variables of which one asks for traces. The libraries' own default is
// to send them to a collector on this machine, where most often there is none.
var askForTraces = []string{"OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"}

// tracesWanted tells whether the standard variables ask for traces.
func tracesWanted(getenv func(string) string) bool {
	if strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true") || getenv("OTEL_TRACES_EXPORTER") == "none" {
		return false
	}
	for _, name := range askForTraces {
		if getenv(name) != "" {
			return true
		}
	}
	return false
}

// newTracing returns what the standard OTEL_ variables ask for, of which getenv tells whether
// they ask for any; the libraries read the rest of the process's own. It is nil where they do
// not. It asks nobody over the network.
func newTracing(ctx context.Context, getenv func(string) string, log *slog.Logger) (*tracing, error) {
	if !tracesWanted(getenv) {
		return nil, nil
	}
	// Spans that cannot be delivered are lost; the service goes on without.
	otel.SetLogger(logr.FromSlogHandler(log.Handler()))
	otel.SetErrorHandler(&traceFaults{log: log})
	exporter, err := autoexport.NewSpanExporter(ctx)
	if err != nil {
		return nil, usagef("OTEL_ variables: %v", err)
	}
	from, err := resource.New(ctx,
		resource.WithTelemetrySDK(),
		resource.WithAttributes(semconv.ServiceName("tokend"), semconv.ServiceVersion(buildVersion())),
		resource.WithFromEnv(), // goes before what stands above
	)
	if err != nil {
		return nil, usagef("OTEL_ variables: %v", err)
	}
	return &tracing{
		provider:   sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(from)),
		propagator: traceOfCaller{autoprop.NewTextMapPropagator()},
	}, nil
}

// traceFaults logs what is wrong with the traces: once a minute, or a collector that is down
// has a line for each batch.
type traceFaults struct {
	log *slog.Logger

	mu    sync.Mutex
	last  time.Time // of the latest line
	since int       // faults after it
}

const traceFaultsEvery = time.Minute

// Handle is called by the libraries.
func (f *traceFaults) Handle(err error) {
	f.mu.Lock()
	now, n := time.Now(), f.since
	if !f.last.IsZero() && now.Sub(f.last) < traceFaultsEvery {
		f.since++
		f.mu.Unlock()
		return
	}
	f.last, f.since = now, 0
	f.mu.Unlock()
	f.log.Warn("traces", "error", err.Error(), "more_before", n)
}

// traceOfCaller reads which trace a caller is in, and nothing more of what it sends: a span
// keeps the trace state until it is delivered, and nobody here reads baggage, of which the
// libraries' complaints quote a piece.
type traceOfCaller struct{ propagation.TextMapPropagator }

func (p traceOfCaller) Extract(ctx context.Context, from propagation.TextMapCarrier) context.Context {
	return p.TextMapPropagator.Extract(ctx, briefCarrier{from})
}

// maxTraceHeader is as much of a header about traces as is to be passed on (W3C Trace Context,
// 3.3.1.5); there is none that is longer.
const maxTraceHeader = 512

// briefCarrier has no baggage, under whatever name, and no long headers.
type briefCarrier struct{ propagation.TextMapCarrier }

func (c briefCarrier) Get(name string) string {
	value := c.TextMapCarrier.Get(name)
	if strings.EqualFold(name, "baggage") || len(value) > maxTraceHeader {
		return ""
	}
	return value
}

// Keys returns none: what is known by the beginning of its name is baggage.
func (briefCarrier) Keys() []string { return nil }

// tracer returns what makes spans, or nil.
func (t *tracing) tracer() trace.Tracer {
	if t == nil {
		return nil
	}
	return t.provider.Tracer("example.com/tokend", trace.WithInstrumentationVersion(buildVersion()))
}

// ofCalls returns what makes a span of each call of the API, or nil.
func (t *tracing) ofCalls() *httpapi.Tracing {
	if t == nil {
		return nil
	}
	return &httpapi.Tracing{Tracer: t.tracer(), Propagator: t.propagator}
}

// deliverWithin bounds the last delivery: a collector that hangs is not to hold up the end.
const deliverWithin = 5 * time.Second

// close delivers what is left, the first time, for some seconds and no longer than ctx lasts.
func (t *tracing) close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, deliverWithin)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		return fmt.Errorf("the last traces were not delivered: %w", err)
	}
	return nil
}
