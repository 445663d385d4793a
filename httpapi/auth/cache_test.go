package auth

import (
	"crypto/sha256"
	"fmt"
	"sync"
	"testing"
	"time"
)

func digestOf(n int) digest { return sha256.Sum256(fmt.Append(nil, n)) }

func (c *cache) len() (n int) {
	for i := range c.shards {
		n += len(c.shards[i].grants)
	}
	return n
}

func (c *cache) forget(text string) {
	d := digest(sha256.Sum256([]byte(text)))
	delete(c.shard(d).grants, d)
}

func TestCacheForgets(t *testing.T) {
	c := newCache(100)
	id := Identity{Kind: User, User: "alice"}
	c.put(digestOf(1), grant{id: id, until: now.Add(time.Hour)}, now)
	for _, tt := range []struct {
		after time.Duration
		want  bool
	}{{0, true}, {maxCached - 1, true}, {maxCached, false}} {
		if got, ok := c.get(digestOf(1), now.Add(tt.after)); ok != tt.want || ok && got != id {
			t.Errorf("after %v: %v, %t", tt.after, got, ok)
		}
	}
	if _, ok := c.get(digestOf(2), now); ok {
		t.Error("knows what it was not told")
	}
}

func TestCacheIsBounded(t *testing.T) {
	const size = 160
	c := newCache(size)
	for n := range 100 * size {
		c.put(digestOf(n), grant{until: now.Add(time.Hour)}, now)
		if _, ok := c.get(digestOf(n), now); !ok {
			t.Fatal("forgot the latest")
		}
	}
	if n := c.len(); n != size {
		t.Errorf("holds %d, want %d", n, size)
	}
}

// TestCacheForgetsTheOverFirst fills it with what is over, then with what is not.
func TestCacheForgetsTheOverFirst(t *testing.T) {
	const size = 1600
	c := newCache(size)
	for n := range 10 * size {
		c.put(digestOf(n), grant{until: now.Add(time.Second)}, now)
	}
	later := now.Add(2 * time.Second)
	for n := range size / 2 {
		c.put(digestOf(-n-1), grant{until: later.Add(time.Hour)}, later)
	}
	kept := 0
	for n := range size / 2 {
		if _, ok := c.get(digestOf(-n-1), later); ok {
			kept++
		}
	}
	if kept < size*9/20 {
		t.Errorf("kept %d of %d", kept, size/2)
	}
}

func TestCacheInParallel(t *testing.T) {
	c := newCache(32)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for n := range 1000 {
				c.put(digestOf(n%64), grant{until: now.Add(time.Hour)}, now)
				c.get(digestOf(n%64), now)
			}
		})
	}
	wg.Wait()
}

// TestRefusalsAreNotCached: what is refused once is looked at again.
func TestRefusalsAreNotCached(t *testing.T) {
	a := open(t, Config{Secrets: [][]byte{secret}})
	for _, text := range []string{hs256(`{}`), hs256(alice("")) + "A", "tsk_x", hs256(`{"sub":"a","exp":0}`)} {
		if _, err := ask(a, text); err == nil {
			t.Error("accepted")
		}
	}
	if n := a.keys.current().verified.len(); n != 0 {
		t.Errorf("%d are cached", n)
	}
}
