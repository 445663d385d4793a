// Package redisstore remembers tokens and claims in Redis 6.2 or newer, or Valkey: one short
// record a token or key, one Lua script and one round trip a call, which calls that are under
// way together share.
//
// Redis's clock is the only clock. Every change of record mode is one script in which all
// checks precede the first write, and which finds its own attempt in the record, so
// go-redis's re-sends after a lost reply change nothing. Whatever Redis answers that is not
// a script's own status is a [token.Fault]; no error path gives a refusal.
//
// Redis holds a token's ID but never its signature: what it holds is not enough to use
// a token. Every key has an expiry.
package redisstore

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/trace"

	"example.com/tokend/token"
)

var _ token.Store = (*Store)(nil)

// Store is a [token.Store] on Redis. It is safe for concurrent use.
type Store struct {
	rdb      redis.UniversalClient
	opts     Options
	batchers sync.Map // of node to *batcher
	watches  watches
	slotted  atomic.Bool // the server has said that keys of several slots are too many
}

// Options are a Store's.
type Options struct {
	Prefix  string        // of every key; "tokend" where empty
	Timeout time.Duration // of one call with all its re-sends; 1s where 0
	// WaitReplicas is how many replicas must have a change before it is acknowledged; 0
	// waits for none. Where fewer have it after WaitTimeout (100ms where 0), the call is a
	// fault, although the master has the change.
	WaitReplicas int
	WaitTimeout  time.Duration
	NoBatching   bool                                // calls share no round trips; to measure against
	Observe      func(op string, took time.Duration) // told of each call to Redis; may be nil
	Tracer       trace.Tracer                        // of each call to Redis; nil: none
}

// New returns a store on rdb, which stays the caller's to close. For the timeout to
// bind, rdb must have ContextTimeoutEnabled.
func New(rdb redis.UniversalClient, opts Options) *Store {
	if opts.Prefix == "" {
		opts.Prefix = "tokend"
	}
	if opts.Timeout == 0 {
		opts.Timeout = time.Second
	}
	if opts.WaitTimeout == 0 {
		opts.WaitTimeout = 100 * time.Millisecond
	}
	if opts.Observe == nil {
		opts.Observe = func(string, time.Duration) {}
	}
	return &Store{rdb: rdb, opts: opts, watches: watches{subscribe: rdb.Subscribe, timeout: opts.Timeout}}
}

// Ping asks Redis whether it would take a write, within the store's timeout.
func (s *Store) Ping(ctx context.Context) error {
	_, err := s.run(ctx, &call{script: statusScript, keys: []string{s.opts.Prefix + ":ping"}})
	return err
}

// key returns the key of u's token id.
func (s *Store) key(u token.User, id token.ID) string {
	return TokenKey(s.opts.Prefix, u.Hash(), id)
}

// subjectKey returns the key of sub's record.
func (s *Store) subjectKey(sub token.Subject) string {
	return RecordKey(s.opts.Prefix, sub.Kind, sub.User.Hash(), sub.ID)
}
