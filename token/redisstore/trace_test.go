package redisstore_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"example.com/tokend/internal/redistest"
	"example.com/tokend/token"
	"example.com/tokend/token/redisstore"
)

// spans keeps spans in memory, and makes the one that a call is below.
type spans struct {
	*tracetest.SpanRecorder
	trace.Tracer
}

func newSpans() *spans {
	r := tracetest.NewSpanRecorder()
	return &spans{r, sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(r)).Tracer("test")}
}

// below runs f below a span, and returns the spans that it made.
func (s *spans) below(t *testing.T, f func(context.Context)) (made []sdktrace.ReadOnlySpan) {
	t.Helper()
	s.Reset()
	ctx, span := s.Start(t.Context(), "request")
	f(ctx)
	for _, got := range s.Ended() {
		if got.Parent().SpanID() != span.SpanContext().SpanID() || got.Parent().TraceID() != span.SpanContext().TraceID() || got.SpanKind() != trace.SpanKindClient {
			t.Errorf("%s: a %v below %v, want one of the client below %v", got.Name(), got.SpanKind(), got.Parent(), span.SpanContext())
		}
	}
	made = s.Ended()
	span.End()
	return made
}

func attributes(span sdktrace.ReadOnlySpan) map[string]any {
	m := map[string]any{}
	for _, kv := range span.Attributes() {
		m[string(kv.Key)] = kv.Value.AsInterface()
	}
	return m
}

// TestSpans holds each call to one span, with what may be known of it.
func TestSpans(t *testing.T) {
	s, server := newSpans(), miniredis.RunT(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { rdb.Close() })
	store := redisstore.New(rdb, redisstore.Options{Tracer: s})
	svc := newService(t, store)

	if _, tok := issue(t, svc); len(s.Ended()) != 0 {
		t.Errorf("spans of their own, of %v: %v", tok.Ref(), s.Ended())
	}
	if err := store.Ping(t.Context()); err != nil || len(s.Ended()) != 0 {
		t.Errorf("a ping: %v, %v", err, s.Ended())
	}

	want := func(op string, more ...attribute.KeyValue) map[string]any {
		m := map[string]any{
			"db.system.name": "redis", "db.operation.name": "EVALSHA", "db.stored_procedure.name": op,
			"server.address": "127.0.0.1", "server.port": int64(server.Server().Addr().Port), "tokend.redis.shared": int64(1),
		}
		for _, kv := range more {
			m[string(kv.Key)] = kv.Value.AsInterface()
		}
		return m
	}
	_, tok := issue(t, svc)
	consumption := token.Consumption{User: "alice", Token: tok, Attempt: "a"}
	var made []sdktrace.ReadOnlySpan
	for range 2 { // consumed, and then refused
		made = s.below(t, func(ctx context.Context) {
			store.Consume(ctx, consumption)
			consumption.Attempt = "b"
		})
		if len(made) != 1 || made[0].Name() != "EVALSHA consume" || made[0].Status().Code != codes.Unset {
			t.Fatalf("%+v", made)
		}
		if diff := cmp.Diff(want("consume"), attributes(made[0])); diff != "" {
			t.Error(diff)
		}
	}

	made = s.below(t, func(ctx context.Context) {
		store.ConsumeBatch(ctx, []token.Consumption{consumption, consumption})
	})
	if len(made) != 1 || attributes(made[0])["db.operation.batch.size"] != int64(2) {
		t.Errorf("a batch: %+v", made)
	}

	server.SetError("OOM command not allowed, alice")
	made = s.below(t, func(ctx context.Context) { store.Consume(ctx, consumption) })
	if len(made) != 1 || made[0].Status().Code != codes.Error || made[0].Status().Description != "" || len(made[0].Events()) != 0 {
		t.Fatalf("%+v", made)
	}
	got := attributes(made[0])
	if got["error.type"] != "OOM" || got["db.response.status_code"] != "OOM" {
		t.Errorf("a fault: %v", got)
	}
	server.Close()
	made = s.below(t, func(ctx context.Context) { store.Consume(ctx, consumption) })
	if len(made) != 1 || made[0].Status().Code != codes.Error || attributes(made[0])["error.type"] == nil {
		t.Errorf("Redis down: %+v", made)
	}
}

// TestSpansOfShared has calls of several traces share round trips: each has its span in its own
// trace, and those that shared say so.
func TestSpansOfShared(t *testing.T) {
	s := newSpans()
	server := redistest.Start(t)
	rdb := server.Client()
	store := redisstore.New(rdb, redisstore.Options{Tracer: s})
	svc := newService(t, store)
	const n = 80
	toks := make([]*token.Token, n)
	for i := range toks {
		_, toks[i] = issue(t, svc)
	}
	s.Reset()
	var wg sync.WaitGroup
	traces := make([]trace.SpanID, n)
	for i := range n {
		wg.Go(func() {
			ctx, span := s.Start(t.Context(), "request")
			traces[i] = span.SpanContext().SpanID()
			if _, err := store.Consume(ctx, token.Consumption{User: "alice", Token: toks[i], Attempt: "a"}); err != nil {
				t.Error(err)
			}
			span.End()
		})
	}
	wg.Wait()
	parents := map[trace.SpanID]int{}
	for _, span := range s.Ended() {
		if span.Name() == "request" {
			continue
		}
		parents[span.Parent().SpanID()]++
		if shared, ok := attributes(span)["tokend.redis.shared"].(int64); !ok || shared < 1 {
			t.Errorf("%v", span.Attributes())
		}
	}
	for _, parent := range traces {
		if parents[parent] != 1 {
			t.Errorf("%d spans below one request", parents[parent])
		}
	}
}

// TestSpansHoldNoSecret looks for what identifies a user or opens a token in all that a span
// says.
func TestSpansHoldNoSecret(t *testing.T) {
	s, server := newSpans(), miniredis.RunT(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	t.Cleanup(func() { rdb.Close() })
	store := redisstore.New(rdb, redisstore.Options{Tracer: s, Prefix: "prefix"})
	svc := newService(t, store)
	ctx, parent := s.Start(t.Context(), "request")
	text, err := svc.Issue(ctx, token.IssueRequest{User: "alice", Purpose: "default"})
	if err != nil {
		t.Fatal(err)
	}
	tok, err := svc.Open(token.Use{Text: text.Text, User: "alice", Purpose: "default"})
	if err != nil {
		t.Fatal(err)
	}
	sub := token.TokenSubject("alice", tok)
	_, err1 := svc.Status(ctx, sub)
	got, err2 := svc.Claim(ctx, token.ClaimRequest{Subject: sub, Attempt: "attempt-of-alice", Digest: "digest-of-alice", Lease: 1e9})
	_, err3 := svc.Complete(ctx, got.Handle, &token.Result{Status: 200, Body: []byte("body-of-alice")})
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	parent.End()
	if n := len(s.Ended()); n != 5 {
		t.Errorf("%d spans, want 5", n)
	}
	for _, span := range s.Ended() {
		said := span.Name()
		for _, kv := range span.Attributes() {
			said += " " + string(kv.Key) + "=" + kv.Value.String()
		}
		for _, secret := range []string{"alice", text.Text, string(text.ID.Ref()), sub.User.Hash().String(), "prefix"} {
			if strings.Contains(said, secret) {
				t.Errorf("%s shows %s", said, secret)
			}
		}
	}
}

// TestUntracedCostsNothing holds that without a tracer, or without a span to be below, a call
// allocates what it did.
func TestUntracedCostsNothing(t *testing.T) {
	server := miniredis.RunT(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	t.Cleanup(func() { rdb.Close() })
	for name, opts := range map[string]redisstore.Options{"no tracer": {}, "no span": {Tracer: newSpans()}} {
		store := redisstore.New(rdb, opts)
		if n := testing.AllocsPerRun(100, func() { store.Traced(t.Context()) }); n != 0 {
			t.Errorf("%s: asking whether a call is traced makes %v allocations", name, n)
		}
		if store.Traced(t.Context()) {
			t.Errorf("%s: a call is traced", name)
		}
	}
}
