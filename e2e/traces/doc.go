// Package traces holds that one trace leads from a form's sender through the form's service and
// tokend to Redis. The SDK knows nothing of OpenTelemetry: it passes its context on to the
// caller's own http.Client, and a transport of otelhttp does the rest.
package traces
