package program_test

import (
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"example.com/tokend/httpapi/wire"
	"example.com/tokend/internal/redistest"
)

const redisTimeout = 500 * time.Millisecond

var timeoutSetting = "REDIS_TIMEOUT=" + redisTimeout.String()

// Redis loses nothing that it has acknowledged, crashes and comes back: one winner a token,
// a success stays one, nothing used reads as expired, and while Redis is away the answer is
// a fault, given in time.
func TestRedisKilledUnderLoad(t *testing.T) {
	t.Parallel()
	r := durable(t)
	a, b := startReady(t, redisURL(r.Addr), timeoutSetting), startReady(t, redisURL(r.Addr), timeoutSetting)
	spare := a.issue("alice")
	l := startLoad(t, a, b).begin()
	const kills = 4
	var longest time.Duration
	for range kills {
		l.served(25)
		r.Kill()
		longest = max(longest, storeUnavailable(t, spare, a, b))
		r.Restart()
		a.untilReady()
		b.untilReady()
	}
	l.end()
	l.exactlyOneWinner()
	if s := a.state("alice", spare); s != "issued" {
		t.Errorf("calls that were faults all have left the token %s", s)
	}
	t.Logf("%d kills of redis-server; the longest answer without it took %v, redis.timeout is %v; %d keys, each with an expiry",
		kills, longest, redisTimeout, everyKeyExpires(t, r))
}

// storeUnavailable fails the test unless every call to every one of instances says that the
// store cannot be asked, within redis.timeout. It returns what the longest took.
func storeUnavailable(t *testing.T, token string, instances ...*instance) (longest time.Duration) {
	t.Helper()
	use := consumption("alice", token, "a1")
	calls := map[string]members{
		wire.PathTokens:       {"user": "alice"},
		wire.PathBatch:        {"user": "alice", "count": 5},
		wire.PathConsume:      use,
		wire.PathConsumeBatch: {"items": []members{use}},
		wire.PathStatus:       consumption("alice", token, ""),
		wire.PathRevoke:       consumption("alice", token, ""),
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, i := range instances {
		for path, body := range calls {
			for range 3 {
				wg.Go(func() {
					a, err := i.request("POST", path, serviceKey, object(body))
					if err != nil {
						t.Errorf("POST %s without Redis: %v", path, err)
						return
					}
					status, said := a.status, a.said
					if path == wire.PathConsumeBatch && status == http.StatusOK && len(a.Results) == 1 {
						status, said = http.StatusServiceUnavailable, a.Results[0]
					} else if a.header.Get("Retry-After") == "" {
						t.Errorf("POST %s without Redis: no Retry-After: %v", path, a)
					}
					if status != http.StatusServiceUnavailable || said.Code != string(wire.CodeStoreUnavailable) || said.Next != string(wire.NextRetry) {
						t.Errorf("POST %s without Redis: %v", path, a)
					}
					mu.Lock()
					defer mu.Unlock()
					longest = max(longest, a.took)
				})
			}
		}
		wg.Go(func() {
			i.untilUnready()
			if a, err := i.request("GET", wire.PathLivez, "", ""); err != nil || a.status != http.StatusOK {
				t.Errorf("livez without Redis: %v, %v", a, err)
			}
		})
	}
	wg.Wait()
	if longest > redisTimeout+slack {
		t.Errorf("an answer without Redis took %v", longest)
	}
	return longest
}

// Whatever breaks under load, no token has two winners, and no winner is refused.
func TestOneWinnerWhileThingsBreak(t *testing.T) {
	t.Parallel()
	type world struct {
		redis *redistest.Server
		proxy *redistest.Proxy // between a and redis
		a, b  *instance
		load  *load
	}
	tests := []struct {
		name   string
		rounds int
		breaks func(*testing.T, *world, int)
	}{
		{"an instance is killed", 6, func(t *testing.T, w *world, n int) {
			victim := []*instance{w.a, w.b}[n%2]
			victim.kill()
			w.load.served(10)
			victim.launch()
			victim.untilReady()
		}},
		{"all instances are killed", 4, func(t *testing.T, w *world, _ int) {
			w.a.kill()
			w.b.kill()
			w.a.launch()
			w.b.launch()
		}},
		{"instances are restarted in good order with other settings", 6, func(t *testing.T, w *world, n int) {
			i := []*instance{w.a, w.b}[n%2]
			i.terminate()
			if status := i.status(); status != 0 {
				t.Errorf("exit status %d:\n%s", status, tail(i.log()))
			}
			i.environ["SIGNING_KEYS"] = []string{"k1:" + signingKey + ",k2:" + otherKey, "k2:" + otherKey + ",k1:" + signingKey}[n/2%2]
			i.environ["TOKENS_RETENTION"] = []string{"1h", "48h"}[n%2]
			i.environ["REDIS_POOL_SIZE"] = []string{"1", "20"}[n%2]
			i.launch()
			i.untilReady()
		}},
		{"an instance stands still", 3, func(t *testing.T, w *world, n int) {
			victim := []*instance{w.a, w.b}[n%2]
			victim.send(syscall.SIGSTOP)
			time.Sleep(time.Second)
			victim.send(syscall.SIGCONT)
		}},
		{"Redis stands still", 4, func(t *testing.T, w *world, _ int) {
			w.redis.Pause() // what was sent before and meanwhile is carried out after it
			time.Sleep(redisTimeout * 3 / 2)
			w.redis.Resume()
		}},
		{"replies are lost", 4, func(t *testing.T, w *world, _ int) {
			for want := w.proxy.Dropped() + 10; w.proxy.Dropped() < want; time.Sleep(15 * time.Millisecond) {
				w.proxy.DropReply("evalsha", "eval\r\n", "fcall")
			}
		}},
		{"connections are cut and scripts forgotten", 60, func(t *testing.T, w *world, _ int) {
			c := w.redis.Client()
			if err := forget(t.Context(), c); err != nil {
				t.Error(err)
			}
			c.ClientKillByFilter(t.Context(), "TYPE", "normal", "SKIPME", "yes")
			time.Sleep(30 * time.Millisecond)
		}},
	}
	for _, tt := range tests {
		t.Run(strings.ReplaceAll(tt.name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			w := &world{redis: durable(t)}
			w.proxy = redistest.NewProxy(t, w.redis.Addr)
			w.a = startReady(t, redisURL(w.proxy.Addr), timeoutSetting)
			w.b = startReady(t, redisURL(w.redis.Addr), timeoutSetting)
			w.load = startLoad(t, w.a, w.b).begin()
			for n := range tt.rounds {
				if tt.rounds < 10 {
					w.load.served(15)
				}
				tt.breaks(t, w, n)
			}
			w.load.end()
			w.load.exactlyOneWinner()
			t.Logf("%s: %d times, %d replies lost, %d keys", tt.name, tt.rounds, w.proxy.Dropped(), everyKeyExpires(t, w.redis))
		})
	}
}

// Delete mode cannot replay a success. It grants no token twice all the same, and says
// outcome_unknown where it cannot tell, rather than refuse a winner.
func TestDeleteModeNeverTwoWinnersWhileThingsBreak(t *testing.T) {
	t.Parallel()
	r := durable(t)
	proxy := redistest.NewProxy(t, r.Addr)
	a := startReady(t, redisURL(proxy.Addr), timeoutSetting, "TOKENS_MODE=delete")
	b := startReady(t, redisURL(r.Addr), timeoutSetting, "TOKENS_MODE=delete")
	l := startLoad(t, a, b)
	l.once = true
	l.begin()
	for n := range 3 {
		l.served(20)
		for range 20 {
			proxy.DropReply("\r\ndel\r\n", "evalsha", "fcall")
			time.Sleep(10 * time.Millisecond)
		}
		switch n {
		case 0:
			r.Kill()
			time.Sleep(100 * time.Millisecond)
			r.Restart()
		case 1:
			r.Pause()
			time.Sleep(redisTimeout * 3 / 2)
			r.Resume()
		case 2:
			b.kill()
			b.launch()
		}
	}
	l.end()
	l.atMostOneWinner()
	t.Logf("%d replies lost, %d keys", proxy.Dropped(), everyKeyExpires(t, r))
}
