package redisstore

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/tokend/token"
)

//go:embed prelude.lua
var prelude string

// script is one call's Lua.
type script struct {
	op  string // the call's name in faults and metrics
	lua *redis.Script
}

func newScript(op, source string) script {
	return script{op, redis.NewScript(prelude + source)}
}

// reply is what every script answers.
type reply struct {
	status string
	now    time.Time
	record string
}

// run runs s in one round trip, within the store's timeout. Every failure is a
// *token.Fault: a script's refusals are replies.
func (s *Store) run(ctx context.Context, sc script, keys []string, args ...any) (reply, error) {
	ctx, cancel := context.WithTimeout(ctx, s.opts.Timeout)
	defer cancel()
	began := time.Now()
	vals, err := sc.lua.Run(ctx, s.rdb, keys, args...).Slice()
	s.opts.Observe(sc.op, time.Since(began))
	if err != nil {
		return reply{}, fault(sc.op, err)
	}
	if len(vals) == 3 {
		status, ok1 := vals[0].(string)
		now, ok2 := vals[1].(int64)
		rec, ok3 := vals[2].(string)
		if ok1 && ok2 && ok3 {
			return reply{status, time.UnixMilli(now).UTC(), rec}, nil
		}
	}
	return reply{}, fault(sc.op, fmt.Errorf("script answered %d values of the wrong types", len(vals)))
}

// fault says that the store gave no answer to op. Scripts are re-sent by go-redis, so
// even a last error that says "nothing was sent" leaves an earlier try in doubt.
func fault(op string, err error) error {
	return &token.Fault{Op: op, MaybeDone: true, Err: err}
}

// unlisted says that a script gave a status that its caller does not list.
func unlisted(op string, r reply) error {
	return fault(op, fmt.Errorf("script answered %q, which its caller does not know", r.status))
}
