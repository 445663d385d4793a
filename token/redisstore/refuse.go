package redisstore

import "example.com/tokend/token"

// refusals are the statuses by which scripts refuse to consume or claim.
var refusals = map[string]*token.Reason{
	"used":       token.ErrUsed,
	"mismatch":   token.ErrDigestMismatch,
	"progress":   token.ErrInProgress,
	"unfinished": token.ErrUnfinished,
	"revoked":    token.ErrRevoked,
	"stale":      token.ErrStale,
	"expired":    token.ErrExpired,
	"lost":       token.ErrLost,
}

// refusal returns what r refuses to op, a consume or claim of sub: a status that is not
// listed is a fault.
func refusal(op string, r reply, sub token.Subject) error {
	why, ok := refusals[r.status]
	if !ok {
		return unlisted(op, r)
	}
	no := sub.Refuse(why)
	if r.record == "" {
		return no
	}
	rec, err := parseRecord(r.record)
	if err != nil {
		return fault(op, err)
	}
	switch rec.state {
	case stateUsed, stateCompleted:
		no.UsedAt, no.UsedBy = rec.at, rec.attempt.Ref()
	case stateClaimed:
		no.UsedBy = rec.attempt.Ref()
		if why != token.ErrDigestMismatch { // which is refused whatever becomes of the claim
			no.LeaseExpiresAt, no.RetryAfter = rec.at, max(rec.at.Sub(r.now), 0)
		}
	case stateRevoked:
		no.RevokedAt = rec.at
	}
	return no
}

// stepRefusals are the statuses by which scripts refuse a claim's later steps.
var stepRefusals = map[string]*token.Reason{
	"superseded": token.ErrSuperseded,
	"committed":  token.ErrClaimCommitted,
	"ended":      token.ErrClaimEnded,
	"released":   token.ErrClaimEnded,
	"completed":  token.ErrClaimEnded,
}

// stepRefusal returns what r refuses to op, a later step of h's claim: a status that is not
// listed is a fault.
func stepRefusal(op string, r reply, h token.Handle) error {
	if why, ok := stepRefusals[r.status]; ok {
		return h.Refuse(why)
	}
	return unlisted(op, r)
}
