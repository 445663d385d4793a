package clienttest

import (
	"context"
	"log/slog"
)

// lasting hands on records that are its handler's to keep: tokend uses the attributes of an
// outcome line for the next one, and tests like to look at lines when all is over.
type lasting struct{ slog.Handler }

func (h lasting) Handle(ctx context.Context, r slog.Record) error {
	kept := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "" && a.Value.Kind() == slog.KindGroup {
			kept.AddAttrs(a.Value.Group()...)
		} else {
			kept.AddAttrs(a)
		}
		return true
	})
	return h.Handler.Handle(ctx, kept)
}

func (h lasting) WithAttrs(attrs []slog.Attr) slog.Handler {
	return lasting{h.Handler.WithAttrs(attrs)}
}

func (h lasting) WithGroup(name string) slog.Handler { return lasting{h.Handler.WithGroup(name)} }
