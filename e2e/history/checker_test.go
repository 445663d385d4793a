package history_test

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"math/rand/v2"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/tokend/e2e/history"
	"example.com/tokend/httpapi"
	"example.com/tokend/httpapi/auth"
	"example.com/tokend/internal/mutants"
	"example.com/tokend/internal/redistest"
	"example.com/tokend/token"
	"example.com/tokend/token/redisstore"
)

// breaker is between a store and its Redis, and has scripts be wrong: Redis never gets to know
// the right ones.
type breaker struct {
	mutants.Mutant
	mu    sync.Mutex
	known map[string]string // SHA-1 of a wrong script, by the right one's
	found bool              // one of the scripts is wrong
}

func (b *breaker) DialHook(next redis.DialHook) redis.DialHook { return next }

func (b *breaker) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		b.rewrite(cmd)
		return next(ctx, cmd)
	}
}

func (b *breaker) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			b.rewrite(cmd)
		}
		return next(ctx, cmds)
	}
}

func (b *breaker) rewrite(cmd redis.Cmder) {
	args := cmd.Args()
	b.mu.Lock()
	defer b.mu.Unlock()
	switch args[0] {
	case "eval":
		right := args[1].(string)
		wrong, found := b.Apply(right)
		if b.Old == "" {
			wrong, found = right, true
		}
		b.found = b.found || found
		args[1], b.known[sha(right)] = wrong, sha(wrong)
	case "evalsha":
		wrong, there := b.known[args[1].(string)]
		if !there {
			wrong = sha("a script that nobody has")
		}
		args[1] = wrong
	}
}

func sha(source string) string {
	sum := sha1.Sum([]byte(source))
	return hex.EncodeToString(sum[:])
}

// broken starts a tokend in this process whose scripts are m's, and returns its callers.
func broken(t *testing.T, r *redistest.Server, m mutants.Mutant) (*history.Load, *breaker) {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: r.Addr, ContextTimeoutEnabled: true, PipelinePoolSize: -1})
	t.Cleanup(func() { rdb.Close() })
	b := &breaker{Mutant: m, known: map[string]string{}}
	rdb.AddHook(b)
	key := token.Key{ID: "k"}
	ring, err := token.NewRing(key)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	callers, err := auth.New(auth.Config{Logger: log, Leeway: auth.DefaultLeeway, ServiceKeys: []auth.ServiceKey{{
		Name: "form", SHA256: sha256.Sum256([]byte(serviceKey)), Scopes: auth.ScopeIssue | auth.ScopeConsume,
	}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(callers.Close)
	metrics := httpapi.NewMetrics("history", "", ring.KeyIDs(), func() httpapi.Pool { return httpapi.Pool{} })
	store := redisstore.New(rdb, redisstore.Options{Prefix: string(token.NewAttempt()), Timeout: 30 * time.Second, Observe: metrics.ObserveRedis})
	set := token.Settings{TTL: time.Minute, MaxTTL: time.Hour, Retention: time.Hour, KeysRetention: time.Hour}
	api := httpapi.New(httpapi.Options{
		Tokens:  token.NewService(ring, store, token.Options{Mode: token.Record, Settings: set}),
		Callers: callers, Ping: store.Ping, Metrics: metrics, Log: log, ResultBytes: 1 << 18,
	})
	web := httptest.NewServer(api)
	t.Cleanup(web.Close)
	t.Cleanup(api.Drain)
	l := &history.Load{
		URLs: []string{web.URL}, ServiceKey: serviceKey, Keys: []token.Key{key}, Seed: rand.Uint64(), Subjects: 60,
		Timeout: patience, Briefly: 60,
	}
	if err := l.Start(); err != nil {
		t.Fatal(err)
	}
	return l, b
}

// watch makes calls until a history is wrong, or most were made.
func watch(t *testing.T, l *history.Load, most int64) []*history.Wrong {
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	over := make(chan struct{})
	go func() { // those who wait for a lease to end are not waited for
		defer close(over)
		for ctx.Err() == nil {
			if found, _ := l.Wrong(); len(found) > 0 {
				cancel()
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	l.Run(ctx, func() bool { _, n, _ := l.Made(); return n >= most })
	cancel()
	<-over
	found, unchecked := l.Wrong()
	if len(unchecked) > 0 {
		t.Errorf("%d histories were too much to be searched, the first:\n%v", len(unchecked), unchecked[0])
	}
	return found
}

// TestCheckerNoticesMutants has the recorder and the checker look at a tokend whose scripts are
// broken, each time in one place; and at one that is whole.
func TestCheckerNoticesMutants(t *testing.T) {
	r := redistest.Start(t)
	var wg sync.WaitGroup
	defer wg.Wait()
	slots := make(chan struct{}, 8) // they mostly wait for leases to end
	run := func(name string, test func(t *testing.T)) {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			t.Run(strings.ReplaceAll(name, " ", "-"), test)
		})
	}
	run("whole", func(t *testing.T) {
		l, _ := broken(t, r, mutants.Mutant{})
		if found := watch(t, l, 2000); len(found) > 0 {
			t.Errorf("%d wrong histories, the first:\n%v", len(found), found[0])
		}
	})
	n := 0
	for _, m := range mutants.All {
		if !m.Checked {
			continue
		}
		n++
		run(m.Name, func(t *testing.T) {
			l, b := broken(t, r, m)
			found := watch(t, l, 100_000)
			calls, _, _ := l.Made()
			switch {
			case !b.found:
				t.Error("what it replaces stands in no script that was run")
			case len(found) == 0:
				t.Errorf("the checker does not notice it in %d calls", calls)
			default:
				t.Logf("%s: noticed within %d calls: %s", m.Name, calls, strings.Join(found[0].Why, "; "))
			}
		})
	}
	if n < 15 {
		t.Errorf("%d mutants, want 15 at least", n)
	}
}
