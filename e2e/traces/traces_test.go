package traces_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"example.com/tokend/client"
	"example.com/tokend/client/guard"
	"example.com/tokend/e2e/internal/topology"
	"example.com/tokend/httpapi"
	"example.com/tokend/httpapi/auth"
	"example.com/tokend/internal/redistest"
	"example.com/tokend/token"
	"example.com/tokend/token/redisstore"
)

const serviceKey = "tsk_a-service-key-of-these-tests-alone-0001"

// system is a tokend on a real Redis, and the tracing that it shares with its callers.
type system struct {
	t        *testing.T
	url      string
	spans    *tracetest.InMemoryExporter
	provider *sdktrace.TracerProvider
	log      *lines
}

func newSystem(t *testing.T) *system {
	t.Helper()
	s := &system{t: t, spans: tracetest.NewInMemoryExporter(), log: new(lines)}
	s.provider = sdktrace.NewTracerProvider(sdktrace.WithSyncer(s.spans))
	t.Cleanup(func() { s.provider.Shutdown(context.Background()) })
	tracer := s.provider.Tracer("example.com/tokend")

	rdb := redis.NewClient(&redis.Options{Addr: redistest.Start(t).Addr, ContextTimeoutEnabled: true})
	t.Cleanup(func() { rdb.Close() })
	ring, err := token.NewRing(token.Key{ID: "k1", Secret: [32]byte{1}})
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(serviceKey))
	keys, err := auth.ParseServiceKeys("form:" + hex.EncodeToString(sum[:]) + ":tokend.issue+tokend.consume")
	if err != nil {
		t.Fatal(err)
	}
	callers, err := auth.New(auth.Config{ServiceKeys: keys})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(callers.Close)
	store := redisstore.New(rdb, redisstore.Options{Tracer: tracer, Timeout: topology.Patience})
	tokend := httptest.NewServer(httpapi.New(httpapi.Options{
		Tokens: token.NewService(ring, store, token.Options{
			Mode:     token.Record,
			Settings: token.Settings{TTL: time.Hour, MaxTTL: time.Hour, Retention: time.Hour, KeysRetention: time.Hour},
		}),
		Callers: callers, Ping: store.Ping, Log: slog.New(slog.NewJSONHandler(s.log, nil)),
		Metrics: httpapi.NewMetrics("test", "go", ring.KeyIDs(), func() httpapi.Pool { return httpapi.Pool{} }),
		Tracing: &httpapi.Tracing{Tracer: tracer, Propagator: propagation.TraceContext{}},
	}))
	t.Cleanup(tokend.Close)
	s.url = tokend.URL
	return s
}

// options are otelhttp's.
func (s *system) options() []otelhttp.Option {
	return []otelhttp.Option{otelhttp.WithTracerProvider(s.provider), otelhttp.WithPropagators(propagation.TraceContext{})}
}

// client is how a service has its calls of tokend traced: by its own http.Client.
func (s *system) client() *client.Client {
	s.t.Helper()
	traced := &http.Client{Transport: otelhttp.NewTransport(http.DefaultTransport, s.options()...)}
	c, err := client.New(s.url, client.ServiceKey(serviceKey), client.HTTPClient(traced), client.Budget(topology.Patience))
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

// lines is a log.
type lines struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// traceOf returns the trace that op's line names, of which there is one: it is written when the
// call has been answered.
func (s *system) traceOf(op string) (id string) {
	s.t.Helper()
	s.until("there is a line of "+op, func() bool {
		s.log.mu.Lock()
		defer s.log.mu.Unlock()
		found := 0
		for line := range strings.Lines(s.log.b.String()) {
			var l struct {
				Op      string
				TraceID string `json:"trace_id"`
			}
			if err := json.Unmarshal([]byte(line), &l); err != nil {
				s.t.Fatal(err)
			}
			if l.Op == op {
				id = l.TraceID
				found++
			}
		}
		return found == 1
	})
	return id
}

func (s *system) until(what string, ok func() bool) {
	s.t.Helper()
	if err := topology.Until(what, ok); err != nil {
		s.t.Fatalf("%v: %v", err, s.all())
	}
}

// branch returns the names of the spans of trace id from the root to the one called leaf, of
// which there is one; "client: " stands before a caller's. It waits for them: a server's span
// ends when it has answered.
func (s *system) branch(id trace.TraceID, leaf string) (names []string) {
	s.t.Helper()
	s.until("there is a branch to "+leaf, func() (whole bool) {
		byID := map[trace.SpanID]tracetest.SpanStub{}
		var at trace.SpanID
		for _, span := range s.spans.GetSpans() {
			if span.SpanContext.TraceID() != id {
				continue
			}
			byID[span.SpanContext.SpanID()] = span
			if span.Name == leaf {
				at = span.SpanContext.SpanID()
			}
		}
		names = nil
		for span, ok := byID[at]; ok; span, ok = byID[span.Parent.SpanID()] {
			name := span.Name
			if span.SpanKind == trace.SpanKindClient {
				name = "client: " + name
			}
			names = append([]string{name}, names...)
			whole = !span.Parent.IsValid()
		}
		return whole
	})
	return names
}

func (s *system) all() (all []string) {
	for _, span := range s.spans.GetSpans() {
		all = append(all, fmt.Sprintf("%s %s < %s", span.Name, span.SpanContext.SpanID(), span.Parent.SpanID()))
	}
	return all
}

// showNo fails the test where a span shows one of secrets.
func (s *system) showNo(secrets ...string) {
	s.t.Helper()
	for _, span := range s.spans.GetSpans() {
		said, err := json.Marshal(span)
		if err != nil {
			s.t.Fatal(err)
		}
		for _, secret := range secrets {
			if strings.Contains(string(said), secret) {
				s.t.Errorf("a span shows %s: %s", secret, said)
			}
		}
	}
}

func (s *system) want(got []string, want ...string) {
	s.t.Helper()
	if strings.Join(got, " > ") != strings.Join(want, " > ") {
		s.t.Errorf("got %q, want %q: %v", got, want, s.all())
	}
}

// TestOneTrace is a service whose own span leads to what Redis did for it.
func TestOneTrace(t *testing.T) {
	s := newSystem(t)
	orders := s.client().Purpose("order.create")
	tok, err := orders.Issue(t.Context(), "alice")
	if err != nil {
		t.Fatal(err)
	}
	s.spans.Reset()

	ctx, span := s.provider.Tracer("orders").Start(t.Context(), "take the order")
	if _, err := orders.Consume(ctx, "alice", tok.Value); err != nil {
		t.Fatal(err)
	}
	span.End()

	id := span.SpanContext().TraceID()
	s.want(s.branch(id, "EVALSHA consume"), "take the order", "client: HTTP POST", "POST /v1/tokens/consume", "client: EVALSHA consume")
	if got := s.traceOf("consume"); got != id.String() {
		t.Errorf("the line names the trace %s, want %s", got, id)
	}
	s.showNo(tok.Value, tok.Ref, "alice", serviceKey)
}

// TestOneTraceThroughGuard is a form service with guard, whose request comes from a browser in a
// trace: the calls that guard makes are in it, past the point from which its context does not
// end with its caller too.
func TestOneTraceThroughGuard(t *testing.T) {
	s := newSystem(t)
	g := guard.New(s.client().Purpose("order.create"), guard.User(func(*http.Request) string { return "alice" }))
	replayed := guard.New(s.client().Purpose("order.pay"), guard.User(func(*http.Request) string { return "alice" }))
	mux := http.NewServeMux()
	mux.Handle("GET /once", g.Issue(http.HandlerFunc(page)))
	mux.Handle("POST /once", g.Once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := guard.Consume(r.Context()); err != nil {
			t.Error(err)
		}
		w.WriteHeader(http.StatusCreated)
	})))
	mux.Handle("GET /replay", replayed.Issue(http.HandlerFunc(page)))
	mux.Handle("POST /replay", replayed.Replay(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := guard.Commit(r.Context()); err != nil {
			t.Error(err)
		}
		w.WriteHeader(http.StatusCreated)
	})))
	service := httptest.NewServer(otelhttp.NewHandler(mux, "form service", s.options()...))
	t.Cleanup(service.Close)
	browser := &http.Client{Transport: otelhttp.NewTransport(http.DefaultTransport, s.options()...)}

	send := func(method, path, tok string) (trace.TraceID, string) {
		t.Helper()
		ctx, span := s.provider.Tracer("browser").Start(t.Context(), "click")
		defer span.End()
		req, err := http.NewRequestWithContext(ctx, method, service.URL+path, strings.NewReader(url.Values{guard.FieldToken: {tok}}.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		resp, err := browser.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode >= 300 {
			t.Fatalf("%s %s: %s %s %v", method, path, resp.Status, body, err)
		}
		return span.SpanContext().TraceID(), string(body)
	}
	for path, calls := range map[string]map[string]string{
		"/once": {"EVALSHA status": "POST /v1/tokens/status", "EVALSHA consume": "POST /v1/tokens/consume"},
		"/replay": {
			"EVALSHA claim": "POST /v1/claims", "EVALSHA commit": "POST /v1/claims/:claim/commit", "EVALSHA complete": "PUT /v1/claims/:claim/result",
		},
	} {
		_, tok := send("GET", path, "")
		id, _ := send("POST", path, tok)
		for leaf, route := range calls {
			method, _, _ := strings.Cut(route, " ")
			s.want(s.branch(id, leaf), "click", "client: HTTP POST", "POST "+path, "client: HTTP "+method, route, "client: "+leaf)
		}
		s.showNo(tok, serviceKey)
	}
}

// page shows the token of a form.
func page(w http.ResponseWriter, r *http.Request) {
	_, rest, _ := strings.Cut(string(guard.Field(r.Context())), `value="`)
	tok, _, _ := strings.Cut(rest, `"`)
	io.WriteString(w, tok)
}
