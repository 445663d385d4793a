package main

import (
	"io"
	"log/slog"

	"example.com/tokend/config"
)

func newLogger(w io.Writer, c config.Log) *slog.Logger {
	opts := &slog.HandlerOptions{Level: c.Level}
	if c.Format == config.LogText {
		return slog.New(slog.NewTextHandler(w, opts))
	}
	return slog.New(newPlainJSON(w, opts))
}
