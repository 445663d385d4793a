package auth

import (
	"crypto/sha256"
	"sync"
	"time"
)

// maxCached is the longest that a verified JWT is remembered.
const maxCached = time.Minute

// digest is the SHA-256 of a JWT's whole text.
type digest [sha256.Size]byte

// grant is what a verified JWT is good for: id, from (inclusive) until (exclusive).
type grant struct {
	id          Identity
	from, until time.Time
}

func (g grant) holds(now time.Time) bool { return !now.Before(g.from) && now.Before(g.until) }

// cache remembers the grants of verified JWTs, at most size of them, each for maxCached at
// most. It belongs to one set of keys and goes when that goes, so it never answers for a
// key that is no longer in force. It keeps digests, not JWTs: a memory dump is no bearer.
type cache struct {
	shards [16]shard // by the digest's first byte, against contention
	size   int       // of each shard
}

type shard struct {
	mu     sync.RWMutex
	grants map[digest]grant
}

func newCache(size int) *cache {
	c := new(cache)
	c.size = max(1, size/len(c.shards))
	for i := range c.shards {
		c.shards[i].grants = make(map[digest]grant)
	}
	return c
}

func (c *cache) shard(d digest) *shard { return &c.shards[int(d[0])%len(c.shards)] }

// get returns the identity that was verified for d, if it holds now.
func (c *cache) get(d digest, now time.Time) (Identity, bool) {
	s := c.shard(d)
	s.mu.RLock()
	g, ok := s.grants[d]
	s.mu.RUnlock()
	if !ok || !g.holds(now) {
		return Identity{}, false
	}
	return g.id, true
}

// put remembers g for d. Where the shard is full it forgets a few others first: those of a
// small sample that hold no longer, and one in any case.
func (c *cache) put(d digest, g grant, now time.Time) {
	if limit := now.Add(maxCached); limit.Before(g.until) {
		g.until = limit
	}
	const sample = 8
	s := c.shard(d)
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.grants[d]; !known && len(s.grants) >= c.size {
		seen := 0
		for old, g := range s.grants { // in random order
			if seen == 0 || !g.holds(now) {
				delete(s.grants, old)
			}
			if seen++; seen == sample {
				break
			}
		}
	}
	s.grants[d] = g
}
