package redisstore

import (
	"context"
	_ "embed"

	"example.com/tokend/token"
)

//go:embed status.lua
var statusSource string

var statusScript = newScript("status", statusSource)

// Status tells t's state and changes nothing.
func (s *Store) Status(ctx context.Context, u token.User, t *token.Token) (token.Status, error) {
	r, err := s.run(ctx, statusScript, s.key(u, t.ID))
	if err != nil {
		return token.Status{}, err
	}
	st := token.Status{ExpiresAt: t.ExpiresAt}
	switch r.status {
	default:
		return token.Status{}, unlisted("status", r)
	case "absent":
	case "found":
		rec, err := parseRecord(r.record)
		if err != nil {
			return token.Status{}, fault("status", err)
		}
		st.IssuedAt = rec.issuedAt
		switch rec.state {
		case stateUsed:
			st.State, st.UsedAt, st.UsedBy = token.StateUsed, rec.at, rec.attempt.Ref()
			return st, nil
		case stateRevoked:
			st.State, st.RevokedAt = token.StateRevoked, rec.at
			return st, nil
		}
	}
	switch {
	case !r.now.Before(t.ExpiresAt.Add(t.Retention)):
		st.State = token.StateStale
	case !r.now.Before(t.ExpiresAt):
		st.State = token.StateExpired
	case r.status == "absent":
		st.State = token.StateLost
	default:
		st.State = token.StateIssued
	}
	return st, nil
}
