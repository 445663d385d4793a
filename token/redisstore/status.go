package redisstore

import (
	"context"
	_ "embed"
	"time"

	"example.com/tokend/token"
)

//go:embed status.lua
var statusSource string

var statusScript = newScript("status", false, getex, read, statusSource)

// Status tells a state and changes nothing.
func (s *Store) Status(ctx context.Context, sub token.Subject) (token.Status, error) {
	return s.tell(ctx, sub, "")
}

// ClaimStatus tells what Status does, and the result of what is completed.
func (s *Store) ClaimStatus(ctx context.Context, sub token.Subject) (token.Status, error) {
	return s.tell(ctx, sub, "1")
}

func (s *Store) tell(ctx context.Context, sub token.Subject, whole string) (token.Status, error) {
	r, err := s.run(ctx, &call{script: statusScript, keys: []string{s.subjectKey(sub)}, args: []any{whole}})
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
	st := token.Status{State: state(sub, rec, r.now)}
	if sub.Token != nil {
		st.ExpiresAt = sub.Token.ExpiresAt
	}
	if rec == nil {
		return st, nil
	}
	if sub.Kind == token.OfToken {
		st.IssuedAt, st.ExpiresAt = rec.issuedAt, rec.expiresAt()
	}
	switch rec.state {
	case stateUsed:
		st.UsedAt, st.UsedBy = rec.at, rec.attempt.Ref()
	case stateRevoked:
		st.RevokedAt = rec.at
	case stateClaimed:
		st.LeaseExpiresAt, st.Fence, st.Committed = rec.at, rec.fence, rec.commit != notCommitted
	case stateCompleted:
		st.CompletedAt, st.UsedBy = rec.at, rec.attempt.Ref()
		var err error
		if st.Result, err = parseResult(rec.result); err != nil {
			return token.Status{}, fault(op, err)
		}
	}
	return st, nil
}

// state tells what has become of sub, of which rec is nil where there is no record.
func state(sub token.Subject, rec *record, now time.Time) token.State {
	t := sub.Token
	switch {
	case rec != nil && rec.state != stateIssued:
		return states[rec.state]
	case sub.Kind == token.OfKey && (rec != nil || sub.Named):
		return token.StateUnknown
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

// states are what records say.
var states = map[byte]token.State{
	stateUsed: token.StateUsed, stateRevoked: token.StateRevoked,
	stateClaimed: token.StateClaimed, stateCompleted: token.StateCompleted,
}

// times returns a token's expiry and when its retention is over: as t says, which is
// signed, or r, which is not nil where t is.
func (r *record) times(t *token.Token) (expires, lasts time.Time) {
	if t != nil {
		return t.ExpiresAt, last(t)
	}
	return r.expiresAt(), r.expiresAt().Add(r.retention)
}
