package redisstore

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/tokend/token"
)

// Delete mode consumes by DEL. It is never sent again by go-redis: a second one would find
// nothing, and the rightful caller would read its own as another's. Nor is the issue, as a
// late second SET would bring a deleted token back.

// onceInt is an integer command that go-redis never sends again, and that knows whether it
// may have been sent at all: to be sent, its arguments must be read.
type onceInt struct {
	*redis.IntCmd
	read bool
}

func (*onceInt) NoRetry() bool { return true }

func (c *onceInt) Args() []any {
	c.read = true
	return c.IntCmd.Args()
}

// surelyNotDone tells whether the command, which failed with err, was not carried out:
// Redis said so, or it was never sent.
func (c *onceInt) surelyNotDone(err error) bool {
	var said redis.Error
	return !c.read || errors.As(err, &said)
}

// deleteOn consumes cs, all of delete mode and on node, in one pipeline behind TIME; what node
// does not hold any more, where it says that it is.
func (s *Store) deleteOn(ctx context.Context, node node, cs []token.Consumption) ([]token.Consumed, []error) {
	done, errs := s.deleteAt(ctx, node, false, cs)
	for i, err := range errs {
		var f *token.Fault
		if !errors.As(err, &f) || !moved(f.Err) {
			continue
		}
		there, asking, why := s.redirected(node, f.Err)
		if why != nil {
			continue
		}
		got, err := s.deleteAt(ctx, there, asking, cs[i:i+1])
		done[i], errs[i] = got[0], err[0]
		there.Close()
	}
	return done, errs
}

// deleteAt is deleteOn without redirections. asking is for keys in a slot that is on its way
// to node.
func (s *Store) deleteAt(ctx context.Context, node node, asking bool, cs []token.Consumption) ([]token.Consumed, []error) {
	var clock *redis.TimeCmd
	dels := make([]*onceInt, len(cs))
	waited, why := s.pipeline(ctx, node, true, func(p redis.Pipeliner) {
		clock = p.Time(ctx)
		for i, c := range cs {
			ask(ctx, p, asking)
			dels[i] = &onceInt{IntCmd: redis.NewIntCmd(ctx, "del", s.key(c.User, c.Token.ID))}
			p.Process(ctx, dels[i])
		}
	})
	done, errs := make([]token.Consumed, len(cs)), make([]error, len(cs))
	for i, c := range cs {
		deleted, err := dels[i].Result()
		now := clock.Val().UTC().Truncate(time.Millisecond)
		switch {
		case err != nil:
			errs[i] = &token.Fault{Op: "consume", Unknown: !dels[i].surelyNotDone(err), Err: err}
		case clock.Err() != nil:
			errs[i] = &token.Fault{Op: "consume", Unknown: deleted > 0, Err: clock.Err()}
		case deleted > 0 && !waited:
			errs[i] = &token.Fault{Op: "consume", Unknown: true, Err: why}
		case !now.Before(c.Token.ExpiresAt):
			errs[i] = c.Token.Refuse(token.ErrGone)
		case deleted == 0:
			errs[i] = c.Token.Refuse(token.ErrUsed)
		default:
			done[i] = token.Consumed{UsedAt: now}
		}
	}
	return done, errs
}

// deleteStatus is the state of a token of delete mode, of which present says whether its
// key still stands.
func deleteStatus(t *token.Token, present bool, now time.Time) token.State {
	switch {
	case !now.Before(t.ExpiresAt):
		return token.StateGone
	case present:
		return token.StateIssued
	}
	return token.StateUsed
}
