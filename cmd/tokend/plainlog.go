package main

import (
	"context"
	"io"
	"log/slog"
	"strconv"
	"sync"
	"time"
)

// plainJSON is a slog.JSONHandler with a shorter way for records that hold only plain values,
// as outcome lines do: those were an eighth of what a request costs. It writes the very same
// bytes, and leaves everything else to the JSONHandler: named groups, errors, values of other
// kinds, and texts with anything but visible ASCII and spaces. Its writer must be safe for
// concurrent use, since both ways lead there.
type plainJSON struct {
	*slog.JSONHandler
	w io.Writer
}

func newPlainJSON(w io.Writer, opts *slog.HandlerOptions) slog.Handler {
	if opts != nil && (opts.AddSource || opts.ReplaceAttr != nil) {
		return slog.NewJSONHandler(w, opts)
	}
	return plainJSON{slog.NewJSONHandler(w, opts), w}
}

var lines = sync.Pool{New: func() any { b := make([]byte, 0, 1024); return &b }}

func (h plainJSON) Handle(ctx context.Context, r slog.Record) error {
	line := lines.Get().(*[]byte)
	defer lines.Put(line)
	b := append((*line)[:0], `{"time":"`...)
	b = r.Time.Round(0).AppendFormat(b, time.RFC3339Nano)
	b = append(b, `","level":"`...)
	b = append(b, r.Level.String()...)
	b, plain := appendPlain(append(b, `","msg":`...), slog.StringValue(r.Message))
	r.Attrs(func(a slog.Attr) bool {
		if plain {
			b, plain = appendPlainAttr(b, &a)
		}
		return plain
	})
	if !plain || r.Time.IsZero() || r.Time.Year() > 9999 {
		return h.JSONHandler.Handle(ctx, r)
	}
	*line = append(b, "}\n"...)
	_, err := h.w.Write(*line)
	return err
}

// appendPlainAttr appends a, and tells whether it could. A group without a name is as good as
// its members.
func appendPlainAttr(b []byte, a *slog.Attr) ([]byte, bool) {
	plain := isPlain(a.Key)
	if a.Key == "" && a.Value.Kind() == slog.KindGroup {
		members := a.Value.Group()
		for i := range members {
			if b, plain = appendPlainAttr(b, &members[i]); !plain {
				break
			}
		}
		return b, plain
	}
	if !plain {
		return b, false
	}
	return appendPlain(append(append(append(b, `,"`...), a.Key...), `":`...), a.Value)
}

// appendPlain appends v, and tells whether it could.
func appendPlain(b []byte, v slog.Value) ([]byte, bool) {
	switch v.Kind() {
	case slog.KindString:
		s := v.String()
		return append(append(append(b, '"'), s...), '"'), isPlain(s)
	case slog.KindInt64:
		return strconv.AppendInt(b, v.Int64(), 10), true
	case slog.KindBool:
		return strconv.AppendBool(b, v.Bool()), true
	case slog.KindFloat64:
		f := v.Float64()
		return strconv.AppendFloat(b, f, 'f', -1, 64), f == 0 || f >= 1e-6 && f < 1e21
	}
	return b, false
}

// isPlain tells whether s stands in JSON as it is.
func isPlain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}
