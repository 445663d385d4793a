package history_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/tokend/e2e/history"
	"example.com/tokend/internal/redistest"
	"example.com/tokend/token"
)

// world is two instances, the Redis that they share, and the networks between them and
// between them and their callers.
type world struct {
	t         testing.TB
	rng       *rand.Rand // the faults' own
	redis     *redistest.Server
	admin     *redis.Client
	toRedis   [2]*proxy
	toCallers [2]*proxy
	instances [2]*instance
	load      *history.Load
	begun     map[string]int // faults, by kind

	keys     [2]token.Key
	keySteps int  // of a rotation, that were taken
	calm     bool // instances are not ended any more: they are measured
	hurry    bool // things are broken for a short time only

	mu   sync.Mutex
	late []window // when copies of commands may have been left behind, one after another
}

// window is a time, in Unix microseconds.
type window struct{ from, to int64 }

// trailing is how long after its fault a copy of a command that was left behind may come.
const trailing = 2 * time.Second

func newWorld(t testing.TB, seed uint64) *world {
	w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 1)), begun: map[string]int{}}
	w.redis = redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0")
	w.admin = w.redis.Client()
	for n := range w.keys {
		w.keys[n] = token.Key{ID: fmt.Sprint("k", n), Secret: [32]byte(randomBytes(32))}
	}
	var urls []string
	for n := range w.instances {
		name := string("ab"[n])
		w.toRedis[n] = newProxy(t, "from "+name+" to Redis", w.redis.Addr)
		w.instances[n] = start(t, name, w.toRedis[n].Listen, map[string]string{"SIGNING_KEYS": w.signingKeys(), "TOKENS_RETENTION": "1h"})
		w.toCallers[n] = newProxy(t, "from callers to "+name, w.instances[n].addr)
		urls = append(urls, "http://"+w.toCallers[n].Listen)
	}
	w.load = &history.Load{
		URLs: urls, ServiceKey: serviceKey, Keys: w.keys[:], Seed: seed, Timeout: 3 * time.Second, Again: w.again, Briefly: 40,
	}
	return w
}

// signingKeys returns the keys as the step of the rotation has them. There are two keys that
// take turns, as a third would be no different.
func (w *world) signingKeys() string {
	text := func(k token.Key) string { return k.ID + ":" + base64.StdEncoding.EncodeToString(k.Secret[:]) }
	now, next := w.keys[w.keySteps/3%2], w.keys[(w.keySteps/3+1)%2]
	switch w.keySteps % 3 {
	case 1: // the new one is known everywhere before it signs anywhere
		return text(now) + "," + text(next)
	case 2:
		return text(next) + "," + text(now)
	}
	return text(now)
}

// open opens a window, and close closes it.
func (w *world) open() (end func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.late = append(w.late, window{from: time.Now().UnixMicro()})
	n := len(w.late) - 1
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.late[n].to = time.Now().Add(trailing).UnixMicro()
	}
}

// again tells whether a window was open between two moments.
func (w *world) again(from, to int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range slices.Backward(w.late) {
		if l.from <= to && (l.to == 0 || from <= l.to) {
			return true
		}
		if l.to != 0 && l.to < from-time.Minute.Microseconds() {
			break // as did all before it
		}
	}
	return false
}

// fault is something that breaks.
type fault struct {
	name string
	// late tells that commands may be left behind by it, to reach Redis later.
	late bool
	// ends tells that it ends an instance, so that what it takes cannot be measured over a
	// long time.
	ends  bool
	begin func(w *world) (end func())
}

// network returns the four ways in which a network is bad.
func network(what string, late bool, of func(*world) *proxy) []fault {
	both := func(kind, attributes string, toxicity float64) []toxic {
		return []toxic{{kind, "upstream", attributes, toxicity}, {kind, "downstream", attributes, toxicity}}
	}
	return []fault{
		{what + " is slow", late, false, func(w *world) func() {
			return of(w).poison(both("latency", fmt.Sprintf(`{"latency": %d, "jitter": %d}`, 5+w.rng.IntN(300), w.rng.IntN(300)), 0.7)...)
		}},
		{what + " resets connections", late, false, func(w *world) func() {
			return of(w).poison(toxic{"reset_peer", "downstream", fmt.Sprintf(`{"timeout": %d}`, w.rng.IntN(30)), 0.7})
		}},
		{what + " drops answers", late, false, func(w *world) func() {
			return of(w).poison(toxic{"limit_data", "downstream", fmt.Sprintf(`{"bytes": %d}`, w.rng.IntN(3000)), 0.9})
		}},
		{what + " is half open", late, false, func(w *world) func() {
			return of(w).poison(both("timeout", `{"timeout": 0}`, 0.7)...)
		}},
	}
}

// faults are all that is broken.
func faults() []fault {
	all := slices.Concat(
		network("the network to Redis", true, func(w *world) *proxy { return w.toRedis[w.rng.IntN(2)] }),
		network("the callers' network", false, func(w *world) *proxy { return w.toCallers[w.rng.IntN(2)] }),
		[]fault{
			{"an instance is killed", false, true, func(w *world) func() {
				i := w.any()
				i.kill()
				return i.launch
			}},
			{"an instance stands still", false, false, func(w *world) func() {
				i := w.any()
				i.cmd.Process.Signal(syscall.SIGSTOP)
				return func() { i.cmd.Process.Signal(syscall.SIGCONT) }
			}},
			{"Redis is killed", true, false, func(w *world) func() {
				w.redis.Kill()
				return w.redis.Restart
			}},
			{"Redis stands still", true, false, func(w *world) func() {
				w.redis.Pause()
				return w.redis.Resume
			}},
			{"scripts are forgotten", false, false, func(w *world) func() {
				w.do("SCRIPT", "FLUSH")
				return func() { w.do("SCRIPT", "FLUSH") }
			}},
			{"Redis is full", false, false, func(w *world) func() {
				w.do("CONFIG", "SET", "maxmemory", "1")
				return func() { w.do("CONFIG", "SET", "maxmemory", "0") }
			}},
			{"the mode is changed", false, true, func(w *world) func() {
				i := w.any()
				i.environ["TOKENS_MODE"] = "delete"
				w.restart(i)
				return func() {
					delete(i.environ, "TOKENS_MODE")
					w.restart(i)
				}
			}},
			{"the retention is changed", false, true, func(w *world) func() {
				i := w.any()
				i.environ["TOKENS_RETENTION"] = []string{"1h", "48h", "2s"}[w.rng.IntN(3)]
				w.restart(i)
				return func() {}
			}},
			{"signing keys are rotated", false, true, func(w *world) func() {
				w.rotate()
				return func() {}
			}},
		})
	if clockMovable {
		all = append(all, fault{"a clock is ten minutes off", false, false, func(w *world) func() {
			i := w.any()
			off := []time.Duration{10 * time.Minute, -10 * time.Minute}[w.rng.IntN(2)]
			if err := moveClock(i.cmd.Process.Pid, off); err != nil {
				w.t.Errorf("the clock of %s: %v", i.name, err)
			}
			return func() {
				if got := time.Until(i.clock()); got.Abs() < 9*time.Minute {
					w.t.Errorf("the clock of %s is off by %v, want %v", i.name, got, off)
				}
				if err := moveClock(i.cmd.Process.Pid, 0); err != nil {
					w.t.Errorf("the clock of %s: %v", i.name, err)
				}
			}
		}})
	}
	return all
}

func (w *world) any() *instance { return w.instances[w.rng.IntN(2)] }

// do has Redis do something, as soon as it does anything.
func (w *world) do(args ...any) {
	until(w.t, fmt.Sprint("Redis does ", args), func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		return w.admin.Do(ctx, args...).Err() == nil
	})
}

// restart ends i, in good order or not, and starts it anew.
func (w *world) restart(i *instance) {
	if w.rng.IntN(2) == 0 {
		i.kill()
	} else {
		i.stop()
	}
	i.launch()
}

// rotate takes the next step of a rotation. The old key goes when nothing is about any more
// that it has signed.
func (w *world) rotate() {
	if w.keySteps%3 == 2 {
		w.load.Epoch()
	}
	w.keySteps++
	for _, i := range w.instances {
		i.environ["SIGNING_KEYS"] = w.signingKeys()
		w.restart(i)
	}
}

// breaks breaks one thing, or two at once, for a while.
func (w *world) breaks(ctx context.Context, fs ...fault) {
	var ends []func()
	for _, f := range fs {
		w.begun[f.name]++
		if f.late {
			ends = append(ends, w.open())
		}
		ends = append(ends, f.begin(w))
	}
	longest := 1000
	if w.hurry {
		longest = 400
	}
	wait(ctx, time.Duration(200+w.rng.IntN(longest))*time.Millisecond)
	for _, end := range slices.Backward(ends) {
		end()
	}
	wait(ctx, time.Duration(w.rng.IntN(longest/2))*time.Millisecond)
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// plan returns every fault, and the steps of a rotation until it has come round, in random
// order; some two at once.
func (w *world) plan() (plan [][]fault) {
	all := faults()
	if w.calm {
		all = slices.DeleteFunc(all, func(f fault) bool { return f.ends })
	}
	for _, f := range slices.Clone(all) {
		if strings.HasPrefix(f.name, "signing keys") {
			all = append(all, f, f)
		}
	}
	w.rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for len(all) > 0 {
		n := 1
		// Two faults that each end or stop a process might be of the same one.
		if len(all) > 1 && w.rng.IntN(2) == 0 && strings.Contains(all[0].name, "network") != strings.Contains(all[1].name, "network") {
			n = 2
		}
		plan, all = append(plan, all[:n]), all[n:]
	}
	return plan
}

// until waits until ok.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain until %s", what)
		}
	}
}
