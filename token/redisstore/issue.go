package redisstore

import (
	"context"
	_ "embed"
	"encoding/binary"
	"strconv"
	"time"

	"example.com/tokend/token"
)

//go:embed issue.lua
var issueSource string

var issueScript = newSharedScript("issue", true, issueSource)

// Issue makes the records of new tokens. A call whose caller hangs up is carried out all
// the same.
func (s *Store) Issue(ctx context.Context, n token.NewRecords) (token.Issued, error) {
	r, err := s.run(ctx, s.issuing(n))
	if err != nil {
		return token.Issued{}, err
	}
	switch r.status {
	case "issued":
		at := r.now
		if r.record != "" {
			rec, err := parseRecord(r.record)
			if err != nil {
				return token.Issued{}, fault("issue", err)
			}
			at = rec.issuedAt
		}
		return token.Issued{IssuedAt: at, ExpiresAt: at.Add(n.TTL)}, nil
	case "limited":
		us, err := strconv.ParseInt(r.record, 10, 64)
		if err != nil {
			return token.Issued{}, fault("issue", err)
		}
		return token.Issued{}, &token.Refusal{
			Reason:     token.ErrRateLimited,
			RetryAfter: time.Duration(us) * time.Microsecond,
		}
	}
	return token.Issued{}, unlisted("issue", r)
}

// issuing returns the call that makes n.
func (s *Store) issuing(n token.NewRecords) *call {
	user := n.User.Hash()
	keys := make([]string, 0, len(n.IDs)+1)
	for _, id := range n.IDs {
		keys = append(keys, TokenKey(s.opts.Prefix, user, id))
	}
	c := &call{script: issueScript, once: n.Mode == token.Delete}
	same := issueArgs{count: len(n.IDs), mode: n.Mode, ttl: n.TTL, retention: n.Retention}
	if n.Rate.PerMinute > 0 {
		keys, same.rate = append(keys, RateKey(s.opts.Prefix, user)), n.Rate
	}
	c.keys, c.same = keys, same
	return c
}

// issueArgs are what issue.lua is told.
type issueArgs struct {
	count          int
	mode           token.Mode
	ttl, retention time.Duration
	rate           token.Rate // the zero Rate does not limit
}

func (a issueArgs) args() []any {
	life := int64(a.ttl / time.Second)
	state := []byte{recordVersion, stateIssued}
	if a.mode == token.Delete {
		state[1] |= flagDelete
	}
	var spans [8]byte
	binary.BigEndian.PutUint32(spans[:4], uint32(life))
	binary.BigEndian.PutUint32(spans[4:], uint32(a.retention/time.Second))
	args := []any{a.count, life + 1, state, spans[:], "", ""}
	if a.rate.PerMinute > 0 {
		args[4], args[5] = float64(time.Minute/time.Microsecond)/float64(a.rate.PerMinute), a.rate.Burst
	}
	return args
}
