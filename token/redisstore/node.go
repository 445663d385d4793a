package redisstore

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"
)

// node is the one server, of a cluster or alone, that holds a key.
type node = redis.UniversalClient

// nodeOf returns the server that holds key, as far as is known.
func (s *Store) nodeOf(ctx context.Context, key string) (node, error) {
	if cluster, ok := s.rdb.(*redis.ClusterClient); ok {
		ctx, cancel := context.WithTimeout(ctx, s.opts.Timeout)
		defer cancel()
		return cluster.MasterForKey(ctx, key)
	}
	return s.rdb, nil
}

// batcher returns nd's.
func (s *Store) batcher(nd node) *batcher {
	if b, ok := s.batchers.Load(nd); ok {
		return b.(*batcher)
	}
	b, known := s.batchers.LoadOrStore(nd, &batcher{send: func(ctx context.Context, calls []*call) { s.runSafely(ctx, nd, calls) }})
	if !known {
		s.forgetGone(nd)
	}
	return b.(*batcher)
}

// forgetGone lets go of the batchers of servers that have left: a cluster in which servers come
// and go would leave ever more behind. What has no connection and nothing under way is taken
// for gone; where that is wrong, the server's next call makes a new batcher.
func (s *Store) forgetGone(found node) {
	s.batchers.Range(func(nd, b any) bool {
		if nd != found && nd.(node).PoolStats().TotalConns == 0 && b.(*batcher).rests() {
			s.batchers.Delete(nd)
		}
		return true
	})
}

// eachNode parts n things by the servers that hold their keys and calls run for each
// server, at the same time; failed where the server of a thing is not known.
func (s *Store) eachNode(ctx context.Context, n int, key func(int) string, run func(node, []int), failed func(int, error)) {
	parts := make(map[node][]int)
	for i := range n {
		nd, err := s.nodeOf(ctx, key(i))
		if err != nil {
			failed(i, err)
			continue
		}
		parts[nd] = append(parts[nd], i)
	}
	var wg sync.WaitGroup
	for nd, members := range parts {
		if len(parts) == 1 {
			run(nd, members)
			return
		}
		wg.Go(func() { run(nd, members) })
	}
	wg.Wait()
}

// pipeline sends to node what add adds, in one round trip, and behind a change waits on the
// same connection for as many replicas as are asked for. It tells whether they have it, or
// why not; what became of the commands, these say themselves.
func (s *Store) pipeline(ctx context.Context, nd node, change bool, add func(redis.Pipeliner)) (waited bool, why error) {
	var wait *redis.IntCmd
	cmds, err := nd.Pipelined(ctx, func(p redis.Pipeliner) error {
		add(p)
		if change && s.opts.WaitReplicas > 0 {
			wait = redis.NewIntCmd(ctx, "wait", s.opts.WaitReplicas, s.opts.WaitTimeout.Milliseconds())
			return p.Process(ctx, wait)
		}
		return nil
	})
	s.reload(ctx, err)
	if err != nil && !slices.ContainsFunc(cmds, func(cmd redis.Cmder) bool { return cmd.Err() != nil }) {
		// The connection was refused, its database say, before anything was sent, and go-redis
		// leaves the commands as they were.
		for _, cmd := range cmds {
			cmd.SetErr(err)
		}
	}
	switch {
	case wait == nil:
		return true, nil
	case wait.Err() != nil:
		return false, wait.Err()
	case wait.Val() < int64(s.opts.WaitReplicas):
		return false, fmt.Errorf("%d replicas have the change after %v, %d are asked for", wait.Val(), s.opts.WaitTimeout, s.opts.WaitReplicas)
	}
	return true, nil
}
