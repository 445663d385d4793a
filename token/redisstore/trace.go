package redisstore

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"example.com/tokend/token"
)

// A call is a span, from when it was asked for to its answer, below the span that its context
// holds. What goes over the wire belongs to no one trace: calls of many requests share a round
// trip, and go-redis sends some again. So the span is the call's, with the time that it waited
// for the round trip before its own; how many shared the one that carried it is in shared.
// Hooks of go-redis would see the round trips, each in the trace of whoever led it.
//
// Keys, arguments and answers are in no span: they hold hashes of users and tokens. Where
// there is no span to be below (a probe's ping), there is none.

// sharedKey says how many calls the call's round trip carried.
const sharedKey = attribute.Key("tokend.redis.shared")

// run runs c in one round trip, within the store's timeout. A change is carried out even if
// its caller hangs up.
func (s *Store) run(ctx context.Context, c *call) (reply, error) {
	if !s.traced(ctx) {
		return s.untraced(ctx, c)
	}
	ctx, span := s.opts.Tracer.Start(ctx, "EVALSHA "+c.script.op, trace.WithSpanKind(trace.SpanKindClient))
	defer span.End() // where it panics, too
	r, err := s.untraced(ctx, c)
	if span.IsRecording() {
		s.describe(span, "EVALSHA", c.script.op, s.serverOf(ctx, c.keys[0]))
		if err == nil && c.shared > 0 {
			span.SetAttributes(sharedKey.Int(c.shared))
		}
		failed(span, err)
	}
	return r, err
}

// ConsumeBatch consumes each of cs by itself.
func (s *Store) ConsumeBatch(ctx context.Context, cs []token.Consumption) ([]token.Consumed, []error) {
	if !s.traced(ctx) {
		return s.consumeBatch(ctx, cs)
	}
	command := "EVALSHA"
	if len(cs) > 0 && cs[0].Token.Mode == token.Delete {
		command = "DEL"
	}
	ctx, span := s.opts.Tracer.Start(ctx, command+" "+consumeScript.op, trace.WithSpanKind(trace.SpanKindClient))
	defer span.End()
	done, errs := s.consumeBatch(ctx, cs)
	if span.IsRecording() {
		s.describe(span, command, consumeScript.op, "")
		if len(cs) > 1 {
			span.SetAttributes(semconv.DBOperationBatchSize(len(cs)))
		}
		for _, err := range errs {
			failed(span, err)
		}
	}
	return done, errs
}

// traced tells whether a call is a span: there is one for it to be below.
func (s *Store) traced(ctx context.Context) bool {
	return s.opts.Tracer != nil && trace.SpanContextFromContext(ctx).IsValid()
}

func (s *Store) describe(span trace.Span, command, op, server string) {
	span.SetAttributes(semconv.DBSystemNameRedis, semconv.DBOperationName(command))
	if command == "EVALSHA" {
		span.SetAttributes(semconv.DBStoredProcedureName(op))
	}
	if host, port, err := net.SplitHostPort(server); err == nil {
		span.SetAttributes(semconv.ServerAddress(host))
		if n, err := strconv.Atoi(port); err == nil {
			span.SetAttributes(semconv.ServerPort(n))
		}
	}
}

// serverOf returns the address of the server that holds key, or "" where it is not told.
func (s *Store) serverOf(ctx context.Context, key string) string {
	nd, err := s.nodeOf(ctx, key)
	if client, ok := nd.(*redis.Client); ok && err == nil {
		return client.Options().Addr
	}
	return ""
}

// failed notes a fault in span; a refusal is an answer as good as any. What Redis said may
// quote what it was sent, so only its first word is noted.
func failed(span trace.Span, err error) {
	f, ok := errors.AsType[*token.Fault](err)
	if !ok {
		return
	}
	span.SetStatus(codes.Error, "")
	var said redis.Error
	switch {
	case errors.As(f.Err, &said):
		word, _, _ := strings.Cut(said.Error(), " ")
		span.SetAttributes(semconv.ErrorTypeKey.String(word), semconv.DBResponseStatusCode(word))
	case errors.Is(f.Err, context.DeadlineExceeded), errors.Is(f.Err, errGivenUp):
		span.SetAttributes(semconv.ErrorTypeKey.String("timeout"))
	default:
		span.SetAttributes(semconv.ErrorTypeOther)
	}
}
