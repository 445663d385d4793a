package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"example.com/tokend/httpapi/wire"
	"example.com/tokend/token"
)

// Outcomes says which outcomes are logged. Faults and panics always are.
type Outcomes uint8

// The values of log.outcomes.
const (
	LogAll      Outcomes = iota // every outcome
	LogRefusals                 // refusals and faults
	LogNone                     // faults
)

// ParseOutcomes returns the value named s: all, refusals or none.
func ParseOutcomes(s string) (Outcomes, error) {
	switch s {
	case "all":
		return LogAll, nil
	case "refusals":
		return LogRefusals, nil
	case "none":
		return LogNone, nil
	}
	return 0, fmt.Errorf("must be all, refusals or none")
}

// LogUser says how a user stands in outcome lines.
type LogUser uint8

// The values of log.user.
const (
	UserHash  LogUser = iota // user_ref, the hash in the Redis key
	UserPlain                // user beside user_ref
	UserNone                 // neither
)

// ParseLogUser returns the value named s: hash, plain or none.
func ParseLogUser(s string) (LogUser, error) {
	switch s {
	case "hash":
		return UserHash, nil
	case "plain":
		return UserPlain, nil
	case "none":
		return UserNone, nil
	}
	return 0, fmt.Errorf("must be hash, plain or none")
}

// outcome is what came of a call: what its log line and metrics say.
type outcome struct {
	code      string // a problem's code, or what the success is called
	status    int
	next      wire.Next
	fault     bool
	reason    string // of token_invalid
	user      token.User
	purpose   token.Purpose
	ref       string
	attempt   token.Attempt
	handle    *token.Handle // of a claim's later steps: stands for user and attempt
	usedBy    string
	takeover  bool
	replayed  bool
	fence     uint32
	expiresAt time.Time
	err       error // a fault's private cause
}

// Why a token is invalid.
const (
	reasonMalformed  = "malformed"
	reasonForged     = "forged"
	reasonUnknownKey = "unknown_key"
)

var invalidReasons = []string{reasonMalformed, reasonForged, reasonUnknownKey}

// refused takes p, which answers err.
func (o *outcome) refused(p *wire.Problem, err error) {
	kind, _ := wire.KindOf(p.Code)
	o.code, o.status, o.next, o.fault = string(p.Code), p.Status, p.Next, kind.Fault
	o.usedBy = p.UsedBy
	if o.ref == "" && p.Ref != "" {
		o.ref, o.expiresAt = p.Ref, p.ExpiresAt.Time()
	}
	switch {
	case errors.Is(err, token.ErrMalformed):
		o.reason = reasonMalformed
	case errors.Is(err, token.ErrForged):
		o.reason = reasonForged
	case errors.Is(err, token.ErrUnknownKey):
		o.reason = reasonUnknownKey
	}
	if kind.Fault {
		o.err = err
	}
}

// log writes the line of o, an outcome of c.
func (s *Server) log(c *call, o *outcome, took time.Duration) {
	refused := o.next != ""
	if o.code == codePassed {
		return
	}
	if !o.fault && (s.opts.Outcomes == LogNone || s.opts.Outcomes == LogRefusals && !refused) {
		return
	}
	level := slog.LevelInfo
	if o.fault {
		level = slog.LevelError
	}
	ctx, h := context.Background(), s.opts.Log.Handler()
	if !h.Enabled(ctx, level) {
		return
	}
	var userRef, attemptRef, expiresAt, caller string
	if o.attempt != "" {
		attemptRef = o.attempt.Hash().Ref()
	}
	switch {
	case o.handle != nil:
		userRef, attemptRef = o.handle.User.String(), o.handle.Attempt.Ref()
	case o.user != "":
		userRef = o.user.Hash().String()
	}
	if s.opts.LogUser == UserNone {
		userRef = ""
	}
	if !o.expiresAt.IsZero() {
		expiresAt = wire.TimeOf(o.expiresAt).String()
	}
	if c.caller.Kind != 0 {
		caller = c.caller.Caller()
	}
	kept := lineAttrs.Get().(*[]slog.Attr)
	attrs := append((*kept)[:0],
		slog.String("op", c.op),
		slog.String("code", o.code),
		slog.String("next", string(o.next)),
		slog.Int("status", o.status),
		slog.String("request_id", c.requestID),
		slog.String("trace_id", c.traceID()),
		slog.String("caller", caller),
		slog.String("purpose", string(o.purpose)),
		slog.String("ref", o.ref),
		slog.String("user_ref", userRef),
		slog.String("attempt_ref", attemptRef),
		slog.String("used_by", o.usedBy),
		slog.Bool("takeover", o.takeover),
		slog.Int64("fence", int64(o.fence)),
		slog.String("expires_at", expiresAt),
		slog.Float64("ms", float64(took.Microseconds())/1000),
	)
	if s.opts.LogUser == UserPlain && o.user != "" {
		attrs = append(attrs, slog.String("user", string(o.user)))
	}
	if o.reason != "" {
		attrs = append(attrs, slog.String("reason", o.reason))
	}
	if o.err != nil {
		attrs = append(attrs, slog.String("error", o.err.Error()))
	}
	// Not by the Logger's own methods: they look up who calls them, which costs more than
	// to write the line.
	r := slog.NewRecord(c.began.Add(took), level, "outcome", 0)
	r.AddAttrs(slog.Attr{Value: slog.GroupValue(attrs...)}) // a group without a name: it is not copied
	h.Handle(ctx, r)                                        // an error has nowhere to go but to the log
	clear(attrs)
	*kept = attrs
	lineAttrs.Put(kept)
}

// lineAttrs holds room for a line's attributes, which were a seventh of all that a request
// allocates.
var lineAttrs = sync.Pool{New: func() any { attrs := make([]slog.Attr, 0, 20); return &attrs }}

// traceparent returns the trace id of h's traceparent (W3C Trace Context, version 00), or
// nothing where there is no valid one.
func traceparent(h map[string][]string) string {
	tp := h["Traceparent"]
	if len(tp) != 1 || len(tp[0]) != 55 || tp[0][:3] != "00-" || tp[0][35] != '-' || tp[0][52] != '-' {
		return ""
	}
	id := tp[0][3:35]
	zero := true
	for i := range len(id) {
		c := id[i]
		if !('0' <= c && c <= '9' || 'a' <= c && c <= 'f') {
			return ""
		}
		zero = zero && c == '0'
	}
	if zero {
		return ""
	}
	return id
}
