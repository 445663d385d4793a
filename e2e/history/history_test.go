package history_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	ops      = flag.Int64("ops", 10_000, "how many answered calls to make at least")
	lasting  = flag.Duration("for", 0, "how long to go on at least")
	seed     = flag.Uint64("seed", 0, "what the calls and faults are drawn from; 0 draws one")
	subjects = flag.Int("subjects", 150, "how many tokens and keys there are at a time")
	progress = flag.Duration("progress", 15*time.Second, "how often to say how far it is")
)

// TestHistory has many callers of two instances, breaks all that they stand on, and checks
// what they heard. Its seed draws the calls and the faults, not how they meet.
//
//	go test ./history -run TestHistory -v -args -ops 1000000 -seed 42
func TestHistory(t *testing.T) {
	drawn := *seed
	if drawn == 0 {
		drawn = rand.Uint64()
	}
	t.Logf("the seed is %d", drawn)
	w := newWorld(t, drawn)
	w.load.Subjects, w.hurry = *subjects, *ops < 100_000
	if err := w.load.Start(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), *lasting+20*patience+time.Duration(*ops)*10*time.Millisecond)
	defer cancel()
	if err := w.load.Await(ctx); err != nil {
		t.Fatal(err)
	}

	began := time.Now()
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		w.load.Run(ctx, func() bool {
			select {
			case <-stop:
				return true
			default:
				return false
			}
		})
	}()
	answered := func() int64 { _, n, _ := w.load.Made(); return n }
	// In its last quarter no instance is ended, so that what they take can be compared.
	part := func(of int64) bool {
		return answered() >= *ops*of/4 && time.Since(began) >= *lasting*time.Duration(of)/4
	}
	said := time.Now()
	say := func() {
		if time.Since(said) < *progress {
			return
		}
		said = time.Now()
		calls, answered, subjects := w.load.Made()
		fmt.Printf("%v: %d calls, %d answered, %d histories checked, %d faults, seed %d\n",
			time.Since(began).Round(time.Second), calls, answered, subjects, total(w.begun), drawn)
	}
	right := func() bool { found, _ := w.load.Wrong(); return len(found) == 0 && !t.Failed() && ctx.Err() == nil }
	round := func(enough func() bool, once bool) {
		for once || !enough() {
			for _, fs := range w.plan() {
				if !right() || !once && enough() {
					return
				}
				w.breaks(ctx, fs...)
				say()
			}
			once = false
		}
	}
	round(func() bool { return part(3) && len(w.unheard()) == 0 }, true)
	w.calm = true
	var warm, end [2]size
	if right() {
		wait(ctx, time.Second) // those that were started last get warm
		for n, i := range w.instances {
			warm[n] = i.measure()
		}
		round(func() bool { return part(4) }, false)
	}
	close(stop)
	<-ended
	if ctx.Err() != nil {
		t.Error("calls were not answered in a long time")
	}

	w.report(t, time.Since(began))
	w.expiries(t)
	if t.Failed() {
		return
	}
	// Connections that half-open networks have left are given up in time.
	for n, i := range w.instances {
		until(t, i.name+" has given up what it does not need", func() bool {
			end[n] = i.measure()
			return end[n].goroutines <= warm[n].goroutines+50 && end[n].fds <= warm[n].fds+50
		})
		const grown = 24 << 20
		if end[n].heap > warm[n].heap+grown {
			t.Errorf("%s: the heap has grown from %.0f to %.0f bytes", i.name, warm[n].heap, end[n].heap)
		}
		t.Logf("%s: in the last quarter from %+v to %+v", i.name, warm[n], end[n])
		for line := range strings.Lines(i.log()) {
			if strings.Contains(line, "panic") || strings.Contains(line, `"code":"internal"`) || strings.Contains(line, "DATA RACE") {
				t.Errorf("%s: an error that nobody expected: %s", i.name, line)
			}
		}
	}
}

func total(m map[string]int) (n int) {
	for v := range maps.Values(m) {
		n += v
	}
	return n
}

// report says what was heard, and fails the test where a history is wrong, or shows nothing.
func (w *world) report(t *testing.T, took time.Duration) {
	t.Helper()
	calls, answered, subjects := w.load.Made()
	found, unchecked := w.load.Wrong()
	for n, wrong := range found {
		if n == 3 {
			break
		}
		t.Errorf("with the seed %d:\n%v", w.load.Seed, wrong)
	}
	if len(found) > 0 {
		t.Errorf("%d of %d histories are wrong", len(found), subjects)
	}
	if int64(len(unchecked))*100 > subjects {
		t.Errorf("%d of %d histories were too much to be searched", len(unchecked), subjects)
	}
	if len(unchecked) > 0 {
		t.Logf("one that was too much to be searched:\n%v", unchecked[0])
	}
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	t.Logf("seed %d: %d calls in %v, %d answered, %d histories of which %d were given up, %d faults; the recorder's heap is %d MiB",
		w.load.Seed, calls, took.Round(time.Second), answered, subjects, len(unchecked), total(w.begun), mem.HeapAlloc>>20)
	for _, name := range slices.Sorted(maps.Keys(w.begun)) {
		t.Logf("%6d times %s", w.begun[name], name)
	}
	for _, f := range faults() {
		if w.begun[f.name] == 0 {
			t.Errorf("it never came about that %s", f.name)
		}
	}
	figures := w.load.Figures()
	for _, name := range slices.Sorted(maps.Keys(figures)) {
		t.Logf("%8d %s", figures[name], name)
	}
	for _, what := range w.unheard() {
		t.Errorf("nobody heard: %s", what)
	}
}

// unheard returns what must come up for the check to have shown anything, and has not.
func (w *world) unheard() (missing []string) {
	figures := w.load.Figures()
	for _, name := range []string{
		"issue ok", "consume ok", "consume replayed", "consume takeover", "consume token_used", "consume token_expired",
		"consume request_in_progress", "consume claim_unfinished", "consume idempotency_key_reused", "consume token_revoked",
		"consume wrong_user", "consume wrong_purpose", "consume unknown (store_unavailable)", "consume unknown (no answer)",
		"claim ok", "claim replay", "claim replayed", "claim takeover", "claim resolved", "claim claim_unfinished", "claim request_in_progress",
		"claim token_used", "claim mode_unsupported", "commit ok", "commit claim_superseded", "renew ok", "complete ok", "complete replayed",
		"release ok", "release claim_committed", "release claim_ended", "revoke ok revoked", "status ok claimed", "status ok completed",
	} {
		if figures[name] == 0 {
			missing = append(missing, name)
		}
	}
	return missing
}

// expiries fails the test where a key in Redis has no expiry.
func (w *world) expiries(t *testing.T) {
	t.Helper()
	ctx := context.Background()
	keys := 0
	for cursor := uint64(0); ; {
		page, next, err := w.admin.Scan(ctx, cursor, "*", 1000).Result()
		if err != nil {
			t.Fatal(err)
		}
		pipe := w.admin.Pipeline()
		left := make([]*redis.DurationCmd, len(page))
		for n, key := range page {
			left[n] = pipe.PTTL(ctx, key)
		}
		if _, err := pipe.Exec(ctx); err != nil {
			t.Fatal(err)
		}
		for n, cmd := range left {
			if cmd.Val() == -1 { // Redis's own, as a number of nanoseconds
				t.Errorf("the key %q has no expiry", page[n])
			}
		}
		keys += len(page)
		if cursor = next; cursor == 0 {
			break
		}
	}
	if keys == 0 {
		t.Error("Redis holds no keys")
	}
	memory, _ := w.admin.Info(ctx, "memory").Result()
	used := ""
	for line := range strings.Lines(memory) {
		if strings.HasPrefix(line, "used_memory_human:") {
			used = strings.TrimSpace(line)
		}
	}
	t.Logf("Redis holds %d keys, each with an expiry; %s", keys, used)
}
