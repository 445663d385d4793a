package program_test

import (
	"sync"
	"testing"
	"time"

	"example.com/tokend/httpapi/wire"
	"example.com/tokend/internal/redistest"
)

// Each call is given up within redis.timeout of its own, whoever else is waiting.
func TestRedisPausedForCallersOneAfterAnother(t *testing.T) {
	t.Parallel()
	const timeout = 3 * time.Second
	r := redistest.Start(t)
	i := startReady(t, redisURL(r.Addr), "REDIS_TIMEOUT="+timeout.String())
	token := i.issue("alice")
	r.Pause()
	var mu sync.Mutex
	var longest time.Duration
	var wg sync.WaitGroup
	for n := range 20 {
		time.Sleep(100 * time.Millisecond)
		wg.Go(func() {
			path, body := wire.PathTokens, members{"user": "alice"}
			if n%2 == 0 {
				path, body = wire.PathConsume, consumption("alice", token, "a1")
			}
			a := i.post(path, serviceKey, body)
			if a.Code != string(wire.CodeStoreUnavailable) {
				t.Errorf("%v", a)
			}
			mu.Lock()
			defer mu.Unlock()
			longest = max(longest, a.took)
		})
	}
	wg.Wait()
	r.Resume()
	if longest > timeout+timeout/2 {
		t.Errorf("an answer took %v, redis.timeout is %v", longest, timeout)
	}
	t.Logf("the longest answer took %v, redis.timeout is %v", longest, timeout)
	i.untilReady()
	i.usable()
}
