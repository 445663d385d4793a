package redisstore

import (
	"context"
	_ "embed"
	"time"

	"example.com/tokend/token"
)

var (
	//go:embed consume.lua
	consumeSource string
	//go:embed consume_claimed.lua
	consumeClaimedSource string
)

var consumeScript = newSharedScript("consume", true, several, read, consumeSource, functions, consumeClaimedSource, severalEnd)

// Consume uses a token up, in the mode that it was issued in. A call whose caller hangs up
// is carried out all the same.
func (s *Store) Consume(ctx context.Context, c token.Consumption) (token.Consumed, error) {
	if c.Token.Mode == token.Delete {
		done, errs := s.ConsumeBatch(ctx, []token.Consumption{c})
		return done[0], errs[0]
	}
	sent := s.consumption(c)
	r, err := s.run(ctx, sent)
	if err != nil {
		return token.Consumed{}, err
	}
	return consumed(r, c.Token)
}

// consumeBatch is ConsumeBatch without its span.
func (s *Store) consumeBatch(ctx context.Context, cs []token.Consumption) ([]token.Consumed, []error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.opts.Timeout)
	defer cancel()
	began := time.Now()
	defer func() { s.opts.Observe(consumeScript.op, time.Since(began)) }()

	done, errs := make([]token.Consumed, len(cs)), make([]error, len(cs))
	s.eachNode(ctx, len(cs),
		func(i int) string { return s.key(cs[i].User, cs[i].Token.ID) },
		func(nd node, members []int) {
			var calls []*call
			var recorded, deleted []int // members, by mode
			var dels []token.Consumption
			for _, i := range members {
				if cs[i].Token.Mode == token.Delete {
					deleted, dels = append(deleted, i), append(dels, cs[i])
				} else {
					recorded, calls = append(recorded, i), append(calls, s.consumption(cs[i]))
				}
			}
			if len(calls) > 0 {
				s.runOn(ctx, nd, calls)
			}
			for j, i := range recorded {
				if errs[i] = calls[j].err; errs[i] == nil {
					done[i], errs[i] = consumed(calls[j].reply, cs[i].Token)
				}
			}
			if len(dels) > 0 {
				got, err := s.deleteOn(ctx, nd, dels)
				for j, i := range deleted {
					done[i], errs[i] = got[j], err[j]
				}
			}
		},
		func(i int, err error) { errs[i] = fault("consume", err) })
	return done, errs
}

// consumption returns the call that consumes c, which is of record mode.
func (s *Store) consumption(c token.Consumption) *call {
	attempt := c.Attempt.Hash()
	hashes := attempt[:]
	if c.Digest != "" {
		digest := c.Digest.Hash()
		hashes = append(hashes, digest[:]...)
	}
	ends := last(c.Token).UnixMilli()
	return &call{
		script: consumeScript,
		keys:   []string{s.key(c.User, c.Token.ID)},
		args:   []any{hashes, c.Token.ExpiresAt.UnixMilli(), bytes48(ends), ends + keptOn.Milliseconds()},
	}
}

// last returns when t's retention is over.
func last(t *token.Token) time.Time { return t.ExpiresAt.Add(t.Retention) }

// consumed reads what consume.lua said of t.
func consumed(r reply, t *token.Token) (token.Consumed, error) {
	switch r.status {
	case "consumed", "replayed":
		if r.record == "" {
			return token.Consumed{UsedAt: r.now}, nil
		}
		rec, err := parseRecord(r.record)
		if err != nil {
			return token.Consumed{}, fault("consume", err)
		}
		return token.Consumed{UsedAt: rec.at, Replayed: r.status == "replayed", Takeover: rec.takeover, Fence: rec.fence}, nil
	}
	return token.Consumed{}, refusal("consume", r, token.Subject{ID: t.ID, Token: t})
}
