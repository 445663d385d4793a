package redisstore

import (
	"context"
	_ "embed"
	"time"

	"example.com/tokend/token"
)

//go:embed status.lua
var statusSource string

var statusScript = newScript("status", false, read, statusSource)

// Status tells a token's state and changes nothing.
func (s *Store) Status(ctx context.Context, sub token.Subject) (token.Status, error) {
	r, err := s.run(ctx, &call{script: statusScript, keys: []string{s.key(sub.User, sub.ID)}})
	if err != nil {
		return token.Status{}, err
	}
	if r.status != "found" && r.status != "absent" {
		return token.Status{}, unlisted("status", r)
	}
	return status("status", sub, r)
}

// status tells what r's record, if there is one, and the time say of sub.
func status(op string, sub token.Subject, r reply) (token.Status, error) {
	var rec *record
	if r.record != "" || r.status == "found" {
		parsed, err := parseRecord(r.record)
		if err != nil {
			return token.Status{}, fault(op, err)
		}
		rec = &parsed
	}
	st := token.Status{State: state(sub.Token, rec, r.now)}
	if sub.Token != nil {
		st.ExpiresAt = sub.Token.ExpiresAt
	}
	if rec != nil {
		st.IssuedAt, st.ExpiresAt = rec.issuedAt, rec.expiresAt()
	}
	switch st.State {
	case token.StateUsed:
		if rec != nil {
			st.UsedAt, st.UsedBy = rec.at, rec.attempt.Ref()
		}
	case token.StateRevoked:
		st.RevokedAt = rec.at
	}
	return st, nil
}

// state tells what has become of a token, of which t is nil where only the ID is known, and
// rec nil where there is no record.
func state(t *token.Token, rec *record, now time.Time) token.State {
	switch {
	case rec != nil && rec.state == stateUsed:
		return token.StateUsed
	case rec != nil && rec.state == stateRevoked:
		return token.StateRevoked
	case t == nil && rec == nil:
		return token.StateGone
	case t != nil && t.Mode == token.Delete:
		return deleteStatus(t, rec != nil, now)
	}
	expires, last := rec.times(t)
	switch {
	case !now.Before(last):
		return token.StateStale
	case !now.Before(expires):
		return token.StateExpired
	case rec == nil:
		return token.StateLost
	}
	return token.StateIssued
}

// times returns a token's expiry and when its retention is over: as t says, which is
// signed, or r, which is not nil where t is.
func (r *record) times(t *token.Token) (expires, lasts time.Time) {
	if t != nil {
		return t.ExpiresAt, last(t)
	}
	return r.expiresAt(), r.expiresAt().Add(r.retention)
}
