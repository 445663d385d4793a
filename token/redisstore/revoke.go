package redisstore

import (
	"context"
	_ "embed"

	"example.com/tokend/token"
)

//go:embed revoke.lua
var revokeSource string

var revokeScript = newScript("revoke", true, getex, read, functions, revokeSource)

// Revoke makes a token unusable, unless it is used, completed, committed or past its life. A
// call whose caller hangs up is carried out all the same.
func (s *Store) Revoke(ctx context.Context, sub token.Subject) (token.Status, error) {
	var expires, lasts any = "", ""
	if t := sub.Token; t != nil {
		expires, lasts = t.ExpiresAt.UnixMilli(), last(t).UnixMilli()
	}
	c := &call{script: revokeScript, keys: []string{s.key(sub.User, sub.ID)}, args: []any{expires, lasts}}
	r, err := s.run(ctx, c)
	if err != nil {
		return token.Status{}, err
	}
	switch r.status {
	case "revoked", "used", "completed", "claimed", "stale", "expired", "lost", "gone":
		return status("revoke", sub, r)
	case "delete":
		return token.Status{}, &token.Refusal{Reason: token.ErrModeUnsupported, Ref: sub.ID.Ref()}
	}
	return token.Status{}, unlisted("revoke", r)
}
