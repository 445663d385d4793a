package redisstore

import (
	"context"
	_ "embed"
	"encoding/binary"
	"time"

	"example.com/tokend/token"
)

var (
	//go:embed claims.lua
	claims string
	//go:embed standing.lua
	standing string
	//go:embed claim.lua
	claimSource string
	//go:embed commit.lua
	commitSource string
	//go:embed renew.lua
	renewSource string
	//go:embed complete.lua
	completeSource string
	//go:embed release.lua
	releaseSource string

	claimScript    = newScript("claim", true, getex, read, functions, claims, claimSource)
	claimKeyScript = newScript("claim", true, get, read, functions, claims, claimSource)
	commitScript   = newScript("commit", true, getex, read, functions, claims, standing, commitSource)
	renewScript    = newScript("renew", true, getex, read, functions, claims, standing, renewSource)
	completeScript = newScript("complete", true, getex, read, functions, claims, standing, completeSource)
	releaseScript  = newScript("release", true, getex, read, functions, claims, standing, releaseSource)
)

// Claim takes a token or key for the length of a lease, or finds that it is completed. A
// call whose caller hangs up is carried out all the same, as are a claim's later steps.
func (s *Store) Claim(ctx context.Context, c token.Claiming) (token.Claimed, error) {
	r, err := s.run(ctx, s.claiming(c))
	if err != nil {
		return token.Claimed{}, err
	}
	switch r.status {
	case "claimed", "replayed":
		return claimed(r, c)
	case "completed":
		return claimCompleted(r)
	}
	return token.Claimed{}, refusal("claim", r, c.Subject)
}

// claiming returns the call that claims c.
func (s *Store) claiming(c token.Claiming) *call {
	attempt := c.Attempt.Hash()
	var digest, retention []byte
	if c.Digest != "" {
		h := c.Digest.Hash()
		digest = h[:]
	}
	script := claimScript
	var expires, ends any = "", ""
	if c.Kind == token.OfKey {
		script = claimKeyScript
		retention = binary.BigEndian.AppendUint32(nil, uint32(c.Retention/time.Second))
	} else {
		expires, ends = c.Token.ExpiresAt.UnixMilli(), last(c.Token).UnixMilli()
	}
	return &call{
		script: script,
		keys:   []string{s.subjectKey(c.Subject)},
		args:   []any{attempt[:], digest, expires, ends, retention, c.Lease.Milliseconds(), c.Commit, c.Resolve},
	}
}

// claimed reads what claim.lua said of a claim that it granted.
func claimed(r reply, c token.Claiming) (token.Claimed, error) {
	rec, err := parseRecord(r.record)
	if err != nil {
		return token.Claimed{}, fault("claim", err)
	}
	return token.Claimed{
		State: token.StateClaimed,
		Handle: token.Handle{
			Kind: c.Kind, User: c.User.Hash(), ID: c.ID, Fence: rec.fence, Attempt: rec.attempt,
		},
		Takeover: rec.takeover, Committed: rec.commit != notCommitted, LeaseExpiresAt: rec.at,
		Replayed: r.status == "replayed",
	}, nil
}

// claimCompleted reads what claim.lua said of what is completed.
func claimCompleted(r reply) (token.Claimed, error) {
	rec, err := parseRecord(r.record)
	if err != nil {
		return token.Claimed{}, fault("claim", err)
	}
	result, err := parseResult(rec.result)
	if err != nil {
		return token.Claimed{}, fault("claim", err)
	}
	return token.Claimed{State: token.StateCompleted, Result: result, Replayed: true}, nil
}

// step runs a later step of h's claim.
func (s *Store) step(ctx context.Context, sc *script, h token.Handle, more ...any) (reply, error) {
	return s.run(ctx, s.stepping(sc, h, more...))
}

// stepping returns the call that is a later step of h's claim.
func (s *Store) stepping(sc *script, h token.Handle, more ...any) *call {
	return &call{
		script: sc,
		keys:   []string{RecordKey(s.opts.Prefix, h.Kind, h.User, h.ID)},
		args:   append([]any{h.Fence, h.Attempt[:]}, more...),
	}
}

// Commit marks the point of no return of h's claim.
func (s *Store) Commit(ctx context.Context, h token.Handle) (token.Held, error) {
	r, err := s.step(ctx, commitScript, h)
	if err != nil {
		return token.Held{}, err
	}
	return held("commit", r, h)
}

// Renew has the lease of h's claim last from now on.
func (s *Store) Renew(ctx context.Context, h token.Handle, lease time.Duration) (token.Held, error) {
	r, err := s.step(ctx, renewScript, h, lease.Milliseconds())
	if err != nil {
		return token.Held{}, err
	}
	return held("renew", r, h)
}

// held reads what a script said of h's claim, which goes on if it is still h's.
func held(op string, r reply, h token.Handle) (token.Held, error) {
	if r.status != "held" {
		return token.Held{}, stepRefusal(op, r, h)
	}
	rec, err := parseRecord(r.record)
	if err != nil {
		return token.Held{}, fault(op, err)
	}
	return token.Held{Committed: rec.commit != notCommitted, LeaseExpiresAt: rec.at}, nil
}

// Complete ends h's claim and keeps res.
func (s *Store) Complete(ctx context.Context, h token.Handle, res *token.Result) (token.Completed, error) {
	r, err := s.step(ctx, completeScript, h, appendResult(nil, res))
	if err != nil {
		return token.Completed{}, err
	}
	if r.status != "completed" && r.status != "replayed" {
		return token.Completed{}, stepRefusal("complete", r, h)
	}
	rec, err := parseRecord(r.record)
	if err != nil {
		return token.Completed{}, fault("complete", err)
	}
	return token.Completed{At: rec.at, Replayed: r.status == "replayed"}, nil
}

// Release ends h's claim, of which nothing was done.
func (s *Store) Release(ctx context.Context, h token.Handle) error {
	r, err := s.step(ctx, releaseScript, h)
	if err != nil {
		return err
	}
	if r.status != "released" {
		return stepRefusal("release", r, h)
	}
	return nil
}
