package redisstore

import (
	"context"
	_ "embed"

	"example.com/tokend/token"
)

//go:embed consume.lua
var consumeSource string

var consumeScript = newScript("consume", consumeSource)

// Consume uses t up. Sending the same attempt again gives the same answer, so
// go-redis's own re-send after a lost reply cannot read as a second consume. A call
// whose caller hangs up is carried out all the same.
func (s *Store) Consume(ctx context.Context, u token.User, t *token.Token, a token.Attempt, d token.Digest) (token.Consumed, error) {
	attempt := a.Hash()
	var digest []byte
	if d != "" {
		h := d.Hash()
		digest = h[:]
	}
	r, err := s.run(context.WithoutCancel(ctx), consumeScript, s.key(u, t.ID),
		attempt[:], digest, t.ExpiresAt.UnixMilli(), t.ExpiresAt.Add(t.Retention).UnixMilli())
	if err != nil {
		return token.Consumed{}, err
	}
	switch r.status {
	case "consumed":
		return token.Consumed{UsedAt: r.now}, nil
	case "expired":
		return token.Consumed{}, t.Refuse(token.ErrExpired)
	case "stale":
		return token.Consumed{}, t.Refuse(token.ErrStale)
	case "lost":
		return token.Consumed{}, t.Refuse(token.ErrLost)
	case "replayed", "used", "mismatch", "revoked":
		rec, err := parseRecord(r.record)
		if err != nil {
			return token.Consumed{}, fault("consume", err)
		}
		return consumedBefore(r.status, rec, t)
	}
	return token.Consumed{}, unlisted("consume", r)
}

// consumedBefore is the answer where rec says what has become of t.
func consumedBefore(status string, rec record, t *token.Token) (token.Consumed, error) {
	if status == "replayed" {
		return token.Consumed{UsedAt: rec.at, Replayed: true}, nil
	}
	if status == "revoked" {
		no := t.Refuse(token.ErrRevoked)
		no.RevokedAt = rec.at
		return token.Consumed{}, no
	}
	no := t.Refuse(token.ErrUsed)
	if status == "mismatch" {
		no.Reason = token.ErrDigestMismatch
	}
	no.UsedAt, no.UsedBy = rec.at, rec.attempt.Ref()
	return token.Consumed{}, no
}
