package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestPlainJSON holds the short way to the very bytes of slog's own handler.
func TestPlainJSON(t *testing.T) {
	values := rapid.Custom(func(t *rapid.T) slog.Value {
		return rapid.OneOf(
			rapid.Map(rapid.String(), slog.StringValue),
			rapid.Map(rapid.StringMatching(`[ -~]*`), slog.StringValue),
			rapid.Map(rapid.Int64(), slog.Int64Value),
			rapid.Map(rapid.Bool(), slog.BoolValue),
			rapid.Map(rapid.Float64(), slog.Float64Value),
			rapid.Map(rapid.Float64Range(0, 1000), slog.Float64Value),
			rapid.Map(rapid.SampledFrom([]float64{0, math.Copysign(0, -1), 1e-6, 1e-7, 1e20, 1e21}), slog.Float64Value),
			rapid.Just(slog.AnyValue(errors.New("an error"))),
			rapid.Just(slog.DurationValue(time.Second)),
			rapid.SampledFrom([]slog.Value{
				slog.GroupValue(), slog.GroupValue(slog.String("in", "a group")),
				slog.GroupValue(slog.Int("", 1), slog.Group("", "a", "b"), slog.Group("named", "a", true)),
			}),
		).Draw(t, "value")
	})
	rapid.Check(t, func(t *rapid.T) {
		at := time.Unix(rapid.Int64Range(0, 1<<38).Draw(t, "seconds"), rapid.Int64Range(0, 1e9).Draw(t, "nanoseconds"))
		if rapid.Bool().Draw(t, "UTC") {
			at = at.UTC()
		}
		level := slog.Level(rapid.IntRange(-5, 9).Draw(t, "level"))
		r := slog.NewRecord(at, level, rapid.OneOf(rapid.String(), rapid.Just("outcome")).Draw(t, "message"), 0)
		for range rapid.IntRange(0, 20).Draw(t, "attributes") {
			key := rapid.OneOf(rapid.StringMatching(`[a-z_]+`), rapid.String(), rapid.Just("")).Draw(t, "key")
			r.AddAttrs(slog.Attr{Key: key, Value: values.Draw(t, "value")})
		}
		var want, got bytes.Buffer
		slog.NewJSONHandler(&want, nil).Handle(context.Background(), r.Clone())
		newPlainJSON(&got, nil).Handle(context.Background(), r)
		if got.String() != want.String() {
			t.Errorf("got  %s\nwant %s", got.String(), want.String())
		}
	})
}

func TestPlainJSONWith(t *testing.T) {
	var want, got bytes.Buffer
	drop := func(_ []string, a slog.Attr) slog.Attr { // the time differs
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}
	opts := &slog.HandlerOptions{Level: slog.LevelWarn, ReplaceAttr: drop}
	for _, l := range []*slog.Logger{slog.New(slog.NewJSONHandler(&want, opts)), slog.New(newPlainJSON(&got, opts))} {
		l.With("a", 1).WithGroup("g").Warn("said", "b", 2)
		l.Info("not said")
	}
	if got.String() != want.String() || got.Len() == 0 {
		t.Errorf("got  %s\nwant %s", got.String(), want.String())
	}
}

func BenchmarkOutcomeLine(b *testing.B) {
	line := []slog.Attr{
		slog.String("op", "consume"), slog.String("code", "consumed"), slog.String("next", ""), slog.Int("status", 200),
		slog.String("request_id", "KVXT3LQKTWHW6PPCYUYSRX4RBC"), slog.String("trace_id", ""), slog.String("caller", "key:form-service"),
		slog.String("purpose", "order.create"), slog.String("ref", "t_94dbf76342681ae591d146f74ca55c74"),
		slog.String("user_ref", "4-QMxXiW3NrGcx9gyxdIvQ"), slog.String("attempt_ref", "5f87a4da"), slog.String("used_by", ""),
		slog.Bool("takeover", false), slog.Int("fence", 0), slog.String("expires_at", "2026-11-29T17:36:25.995Z"), slog.Float64("ms", 1.437),
	}
	for name, h := range map[string]slog.Handler{"slog": slog.NewJSONHandler(io.Discard, nil), "plain": newPlainJSON(io.Discard, nil)} {
		b.Run(name, func(b *testing.B) {
			l := slog.New(h)
			for b.Loop() {
				l.LogAttrs(context.Background(), slog.LevelInfo, "outcome", slog.Attr{Value: slog.GroupValue(line...)})
			}
		})
	}
}
