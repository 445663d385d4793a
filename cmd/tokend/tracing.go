package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

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
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("traces", "error", err.Error()) }))
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
		propagator: autoprop.NewTextMapPropagator(),
	}, nil
}

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

// close delivers what is left, as long as ctx lasts.
func (t *tracing) close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	if err := t.provider.Shutdown(ctx); err != nil {
		return fmt.Errorf("the last traces were not delivered: %w", err)
	}
	return nil
}
