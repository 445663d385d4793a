package redisstore_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/tokend/internal/redistest"
	"example.com/tokend/token"
	"example.com/tokend/token/redisstore"
)

// What only a real server shows.

const alice token.User = "alice"

// newService returns a service on s.
func newService(t testing.TB, s token.Store) *token.Service {
	t.Helper()
	ring, err := token.NewRing(token.Key{ID: "k", Secret: [32]byte{7}})
	if err != nil {
		t.Fatal(err)
	}
	return token.NewService(ring, s, token.Options{
		Mode:     token.Record,
		Settings: token.Settings{TTL: time.Minute, MaxTTL: 24 * time.Hour, Retention: time.Hour},
		Rate:     token.Rate{PerMinute: 6000, Burst: 100},
	})
}

func issue(t testing.TB, svc *token.Service) (string, *token.Token) {
	t.Helper()
	got, err := svc.Issue(t.Context(), token.IssueRequest{User: alice, Purpose: "p", Limited: true})
	if err != nil {
		t.Fatal(err)
	}
	tok, err := svc.Open(token.Use{Text: got.Text, User: alice, Purpose: "p"})
	if err != nil {
		t.Fatal(err)
	}
	return got.Text, tok
}

// mustFault fails the test unless err is a fault, and no refusal.
func mustFault(t testing.TB, what string, err error) {
	t.Helper()
	var f *token.Fault
	var no *token.Refusal
	if !errors.As(err, &f) || errors.As(err, &no) {
		t.Errorf("%s: %v, want a fault", what, err)
	}
}

// TestWhatRedisHolds looks at everything that Redis holds after all kinds of calls.
func TestWhatRedisHolds(t *testing.T) {
	rdb := redistest.Start(t).Client()
	ctx := t.Context()
	s := redisstore.New(rdb, redisstore.Options{})
	svc := newService(t, s)
	var texts []string
	for i := range 4 {
		text, tok := issue(t, svc)
		texts = append(texts, text)
		if i == 3 {
			break // nobody uses it
		}
		if i > 0 {
			s.Consume(ctx, token.Consumption{User: alice, Token: tok, Attempt: "a", Digest: "d"})
		}
		s.Consume(ctx, token.Consumption{User: alice, Token: tok, Attempt: "a"})
		s.Status(ctx, token.Subject{User: alice, ID: tok.ID, Token: tok})
	}
	keys, err := rdb.Keys(ctx, "*").Result()
	if err != nil || len(keys) != 5 {
		t.Fatalf("%d keys, %v, want 4 records and a rate", len(keys), err)
	}
	var dump bytes.Buffer
	for _, key := range keys {
		if !strings.HasPrefix(key, "tokend:") {
			t.Errorf("key %q is outside the prefix", key)
		}
		left, err := rdb.PTTL(ctx, key).Result()
		if err != nil || left <= 0 {
			t.Errorf("key %q has no expiry: %v, %v", key, left, err)
		}
		dump.WriteString(key + rdb.Get(ctx, key).Val())
	}
	for _, text := range texts {
		raw, err := base64.RawURLEncoding.DecodeString(text[len(token.Prefix):])
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range [][]byte{[]byte(text), []byte(text[len(text)-16:]), raw[len(raw)-16:]} {
			if bytes.Contains(dump.Bytes(), part) {
				t.Error("Redis holds a token's signature")
			}
		}
	}
	if bytes.Contains(dump.Bytes(), []byte(alice)) {
		t.Error("Redis holds the user's name")
	}
}

// TestRecordOutlivesRetention holds promise 2: a used record's end is the expiry plus the
// whole retention, and a little more.
func TestRecordOutlivesRetention(t *testing.T) {
	rdb := redistest.Start(t).Client()
	s := redisstore.New(rdb, redisstore.Options{})
	_, tok := issue(t, newService(t, s))
	if _, err := s.Consume(t.Context(), token.Consumption{User: alice, Token: tok, Attempt: "a"}); err != nil {
		t.Fatal(err)
	}
	key := redisstore.TokenKey("tokend", alice.Hash(), tok.ID)
	at, err := rdb.PExpireTime(t.Context(), key).Result()
	want := time.Duration(tok.ExpiresAt.Add(tok.Retention+time.Minute).UnixMilli()) * time.Millisecond
	if err != nil || at != want {
		t.Errorf("Redis drops the record at %v, %v; want %v", at, err, want)
	}
}

// TestMemory holds the record to its size: what Redis uses for a token, its key included.
func TestMemory(t *testing.T) {
	rdb := redistest.Start(t).Client()
	s := redisstore.New(rdb, redisstore.Options{})
	svc := newService(t, s)
	const n = 2000
	used := func() int {
		info, err := rdb.Info(t.Context(), "memory").Result()
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(info) {
			if text, ok := strings.CutPrefix(line, "used_memory:"); ok {
				n, _ := strconv.Atoi(strings.TrimSpace(text))
				return n
			}
		}
		t.Fatal("no used_memory")
		return 0
	}
	fill := func(consume bool, d token.Digest) int {
		before := used()
		for range n {
			got, err := svc.Issue(t.Context(), token.IssueRequest{User: alice, Purpose: "p"})
			if err != nil {
				t.Fatal(err)
			}
			if consume {
				tok, err := svc.Open(token.Use{Text: got.Text, User: alice, Purpose: "p"})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := s.Consume(t.Context(), token.Consumption{User: alice, Token: tok, Attempt: "a", Digest: d}); err != nil {
					t.Fatal(err)
				}
			}
		}
		return (used() - before) / n
	}
	fill(true, "") // what the server allocates once
	live, spent, digested := fill(false, ""), fill(true, ""), fill(true, "d")
	t.Logf("bytes a token: live %d, used %d, used with a digest %d", live, spent, digested)
	if spent > 240 {
		t.Errorf("a used token takes %d bytes of Redis, at most 240 are promised", spent)
	}
}

// TestOneRoundTrip counts the commands that each call sends.
func TestOneRoundTrip(t *testing.T) {
	rdb := redistest.Start(t).Client()
	var hook countHook
	rdb.AddHook(&hook)
	s := redisstore.New(rdb, redisstore.Options{})
	svc := newService(t, s)
	_, tok := issue(t, svc)
	s.Consume(t.Context(), token.Consumption{User: alice, Token: tok, Attempt: "a"})
	s.Status(t.Context(), token.Subject{User: alice, ID: tok.ID, Token: tok}) // by now Redis knows every script
	calls := map[string]func(){
		"issue":   func() { _, tok = issue(t, svc) },
		"consume": func() { s.Consume(t.Context(), token.Consumption{User: alice, Token: tok, Attempt: "a"}) },
		"refusal": func() { s.Consume(t.Context(), token.Consumption{User: alice, Token: tok, Attempt: "b"}) },
		"status":  func() { s.Status(t.Context(), token.Subject{User: alice, ID: tok.ID, Token: tok}) },
	}
	for name, call := range calls {
		before := hook.n
		call()
		if got := hook.n - before; got != 1 {
			t.Errorf("%s sent %d commands, want 1", name, got)
		}
	}
}

// countHook counts commands.
type countHook struct{ n int }

func (h *countHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *countHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.n++
		return next(ctx, cmd)
	}
}

func (h *countHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		h.n++
		return next(ctx, cmds)
	}
}

// TestScriptFlush has Redis forget its scripts before each call.
func TestScriptFlush(t *testing.T) {
	rdb := redistest.Start(t).Client()
	s := redisstore.New(rdb, redisstore.Options{})
	svc := newService(t, s)
	for range 3 {
		rdb.ScriptFlush(t.Context())
		_, tok := issue(t, svc)
		rdb.ScriptFlush(t.Context())
		if _, err := s.Consume(t.Context(), token.Consumption{User: alice, Token: tok, Attempt: "a"}); err != nil {
			t.Errorf("consume after SCRIPT FLUSH: %v", err)
		}
		rdb.ScriptFlush(t.Context())
		if st, err := s.Status(t.Context(), token.Subject{User: alice, ID: tok.ID, Token: tok}); err != nil || st.State != token.StateUsed {
			t.Errorf("status after SCRIPT FLUSH: %v, %v", st, err)
		}
	}
}

// TestLostReply loses the reply of a call that Redis has carried out: go-redis sends it
// again, and the rightful caller must not read its own write as another's.
func TestLostReply(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr)
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr, ContextTimeoutEnabled: true})
	t.Cleanup(func() { rdb.Close() })
	s := redisstore.New(rdb, redisstore.Options{Timeout: 10 * time.Second})
	svc := newService(t, s)
	_, tok := issue(t, svc)
	s.Consume(t.Context(), token.Consumption{User: alice, Token: tok, Attempt: "a"}) // by now Redis knows the scripts
	for i := range 5 {
		proxy.DropReply("evalsha", "\r\neval\r\n")
		got, err := s.Issue(t.Context(), token.NewRecords{
			IDs: []token.ID{token.NewID()}, User: "bob", Mode: token.Record, TTL: time.Minute, Retention: time.Minute,
			Rate: token.Rate{PerMinute: 1, Burst: i + 1}, // with none to spare: a re-send that counts again is refused
		})
		if err != nil || got.IssuedAt.IsZero() {
			t.Errorf("issue whose reply was lost: %v, %v", got, err)
		}
		_, tok := issue(t, svc)
		proxy.DropReply("evalsha", "\r\neval\r\n")
		done, err := s.Consume(t.Context(), token.Consumption{User: alice, Token: tok, Attempt: "a"})
		if err != nil || !done.Replayed {
			t.Errorf("consume whose reply was lost: %+v, %v; want success, replayed", done, err)
		}
		if _, err := s.Consume(t.Context(), token.Consumption{User: alice, Token: tok, Attempt: "b"}); !errors.Is(err, token.ErrUsed) {
			t.Errorf("another attempt: %v", err)
		}
	}
	if got := proxy.Dropped(); got != 10 {
		t.Errorf("%d replies were dropped, want 10", got)
	}
}

// TestNoRefusalFromBelow asks servers that may not or cannot write. None may answer from
// what it holds: each call is a fault.
func TestNoRefusalFromBelow(t *testing.T) {
	tests := []struct {
		name  string
		stop  func(t *testing.T, rdb *redis.Client)
		start func(rdb *redis.Client)
	}{
		{"demoted",
			func(t *testing.T, rdb *redis.Client) {
				// Of a master that never answers: it keeps its records, and reads of
				// stale ones are allowed.
				rdb.ReplicaOf(t.Context(), "127.0.0.1", "1")
			},
			func(rdb *redis.Client) { rdb.ReplicaOf(context.Background(), "no", "one") }},
		{"cut off from its replicas",
			func(t *testing.T, rdb *redis.Client) { rdb.ConfigSet(t.Context(), "min-replicas-to-write", "1") },
			func(rdb *redis.Client) { rdb.ConfigSet(context.Background(), "min-replicas-to-write", "0") }},
		{"out of commands",
			func(t *testing.T, rdb *redis.Client) {
				rdb.Do(t.Context(), "ACL", "SETUSER", "default", "-evalsha", "-eval")
			},
			func(rdb *redis.Client) { rdb.Do(context.Background(), "ACL", "SETUSER", "default", "+@all") }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rdb := redistest.Start(t).Client()
			s := redisstore.New(rdb, redisstore.Options{})
			svc := newService(t, s)
			_, unused := issue(t, svc)
			_, used := issue(t, svc)
			s.Consume(t.Context(), token.Consumption{User: alice, Token: used, Attempt: "a"})
			absent := *unused
			absent.ID = token.NewID()

			tt.stop(t, rdb)
			for name, tok := range map[string]*token.Token{"unused": unused, "used": used, "absent": &absent} {
				_, err := s.Consume(t.Context(), token.Consumption{User: alice, Token: tok, Attempt: "b"})
				mustFault(t, "consume, "+name, err)
				_, err = s.Status(t.Context(), token.Subject{User: alice, ID: tok.ID, Token: tok})
				mustFault(t, "status, "+name, err)
			}
			cs := []token.Consumption{{User: alice, Token: used, Attempt: "b"}, {User: alice, Token: used, Attempt: "c"}}
			_, errs := s.ConsumeBatch(t.Context(), cs)
			for i, err := range errs {
				mustFault(t, fmt.Sprint("consume, batch, ", i), err)
			}
			_, err := svc.Issue(t.Context(), token.IssueRequest{User: alice, Purpose: "p", Limited: true})
			mustFault(t, "issue", err)
			mustFault(t, "ping", s.Ping(t.Context()))

			tt.start(rdb)
			if _, err := s.Consume(t.Context(), token.Consumption{User: alice, Token: unused, Attempt: "b"}); err != nil {
				t.Errorf("consume, when it may write again: %v", err)
			}
		})
	}
}

// TestRateRefusalFromBelow: a refusal by the rate comes from a writable master too.
func TestRateRefusalFromBelow(t *testing.T) {
	rdb := redistest.Start(t).Client()
	s := redisstore.New(rdb, redisstore.Options{})
	rec := token.NewRecords{User: alice, Mode: token.Record, TTL: time.Minute, Retention: time.Minute, Rate: token.Rate{PerMinute: 1, Burst: 1}}
	rec.IDs = []token.ID{token.NewID()}
	if _, err := s.Issue(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	rdb.ConfigSet(t.Context(), "min-replicas-to-write", "1")
	rec.IDs = []token.ID{token.NewID()}
	_, err := s.Issue(t.Context(), rec)
	mustFault(t, "issue above the rate on a cut-off master", err)
}

// TestFullMemory: issue, which adds memory, is a fault and leaves nothing; consume, which
// adds next to none, goes through.
func TestFullMemory(t *testing.T) {
	rdb := redistest.Start(t).Client()
	s := redisstore.New(rdb, redisstore.Options{})
	svc := newService(t, s)
	_, tok := issue(t, svc)
	s.Consume(t.Context(), token.Consumption{User: alice, Token: tok, Attempt: "warm"}) // loads the scripts
	_, tok = issue(t, svc)
	s.Status(t.Context(), token.Subject{User: alice, ID: tok.ID, Token: tok})
	keys := rdb.DBSize(t.Context()).Val()
	rdb.ConfigSet(t.Context(), "maxmemory", "1")
	for _, limited := range []bool{true, false} {
		_, err := svc.Issue(t.Context(), token.IssueRequest{User: "carol", Purpose: "p", Limited: limited})
		mustFault(t, "issue while memory is full", err)
	}
	if got := rdb.DBSize(t.Context()).Val(); got != keys {
		t.Errorf("%d keys after issues that failed, want %d", got, keys)
	}
	if _, err := s.Consume(t.Context(), token.Consumption{User: alice, Token: tok, Attempt: "a"}); err != nil {
		t.Errorf("consume while memory is full: %v", err)
	}
	if _, err := s.Consume(t.Context(), token.Consumption{User: alice, Token: tok, Attempt: "b"}); !errors.Is(err, token.ErrUsed) {
		t.Errorf("again: %v", err)
	}
}

// TestDownAndPaused: a call is answered or given up within the timeout, and the store
// recovers by itself.
func TestDownAndPaused(t *testing.T) {
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr, ContextTimeoutEnabled: true, PoolSize: 5})
	t.Cleanup(func() { rdb.Close() })
	const timeout = 300 * time.Millisecond
	s := redisstore.New(rdb, redisstore.Options{Timeout: timeout})
	_, used := issue(t, newService(t, s))
	if _, err := s.Consume(t.Context(), token.Consumption{User: alice, Token: used, Attempt: "a"}); err != nil {
		t.Fatal(err)
	}
	for name, stop := range map[string]func(){"paused": server.Pause, "down": server.Kill} {
		stop()
		began := time.Now()
		var wg sync.WaitGroup
		for range 50 { // more than there are connections
			wg.Go(func() {
				_, err := s.Consume(t.Context(), token.Consumption{User: alice, Token: used, Attempt: "b"})
				mustFault(t, name, err)
			})
		}
		wg.Wait()
		// Generous: what is measured is that nobody waits for go-redis's own 2.4 s and more.
		if took := time.Since(began); took > timeout*5 {
			t.Errorf("%s: 50 calls at once took %v to be given up, the timeout is %v", name, took, timeout)
		}
		if name == "paused" {
			server.Resume()
		} else {
			server.Restart()
		}
		var err error
		for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); {
			if _, err = s.Consume(t.Context(), token.Consumption{User: alice, Token: used, Attempt: "b"}); errors.Is(err, token.ErrUsed) {
				break
			}
		}
		if !errors.Is(err, token.ErrUsed) {
			t.Errorf("after %s: %v, want %v", name, err, token.ErrUsed)
		}
	}
}

// TestUnknownRecords holds records of no version or state that this release knows to be
// faults: no guess is made.
func TestUnknownRecords(t *testing.T) {
	rdb := redistest.Start(t).Client()
	s := redisstore.New(rdb, redisstore.Options{})
	_, tok := issue(t, newService(t, s))
	key := redisstore.TokenKey("tokend", alice.Hash(), tok.ID)
	good := rdb.Get(t.Context(), key).Val()
	for name, rec := range map[string]string{
		"later version": "\x02" + good[1:],
		"later state":   good[:1] + "\x07" + good[2:],
		"empty":         "",
		"cut":           good[:3],
		"foreign":       "hello, world, this is not a record",
	} {
		if err := rdb.Set(t.Context(), key, rec, time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
		_, err := s.Consume(t.Context(), token.Consumption{User: alice, Token: tok, Attempt: "a"})
		mustFault(t, "consume, "+name, err)
		_, err = s.Status(t.Context(), token.Subject{User: alice, ID: tok.ID, Token: tok})
		mustFault(t, "status, "+name, err)
		if got := rdb.Get(t.Context(), key).Val(); got != rec {
			t.Errorf("%s: the record was changed to %q", name, got)
		}
	}
	rdb.Del(t.Context(), key)
	rdb.LPush(t.Context(), key, "x")
	_, err := s.Consume(t.Context(), token.Consumption{User: alice, Token: tok, Attempt: "a"})
	mustFault(t, "consume, wrong type", err)
}

// TestBrokenBatch breaks the connection in the middle of batches: no call is lost, none is
// answered with another's answer, and no token is consumed twice.
func TestBrokenBatch(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr)
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr, ContextTimeoutEnabled: true, DialerRetries: 1})
	t.Cleanup(func() { rdb.Close() })
	s := redisstore.New(rdb, redisstore.Options{Timeout: 30 * time.Second})
	const callers, rounds = 64, 20
	for range rounds {
		tokens := make([]*token.Token, callers)
		for i := range tokens {
			tokens[i] = opened(t, s, token.Record)
		}
		proxy.DropReply("evalsha")
		var wg sync.WaitGroup
		var winners [callers]atomic.Int32
		for i := range callers {
			for _, a := range []token.Attempt{"a", "b"} {
				wg.Go(func() {
					got, err := s.Consume(t.Context(), token.Consumption{User: alice, Token: tokens[i], Attempt: a})
					switch {
					case err == nil:
						winners[i].Add(1)
						if got.UsedAt.IsZero() {
							t.Errorf("token %d by %s: %+v", i, a, got)
						}
					case !errors.Is(err, token.ErrUsed):
						t.Errorf("token %d by %s: %v", i, a, err)
					}
				})
			}
		}
		wg.Wait()
		for i := range callers {
			if n := winners[i].Load(); n != 1 {
				t.Errorf("token %d was consumed by %d attempts", i, n)
			}
		}
	}
	if got := proxy.Dropped(); got != rounds {
		t.Errorf("%d replies were dropped, want %d", got, rounds)
	}
}

// TestOneConnectionStandsStill has one connection to Redis die without a word, under load:
// the others do not wait for it.
func TestOneConnectionStandsStill(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr)
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr, ContextTimeoutEnabled: true, DialerRetries: 1, MaxRetries: -1})
	t.Cleanup(func() { rdb.Close() })
	const timeout = 30 * time.Second // whoever waits for the dead connection waits so long
	s := redisstore.New(rdb, redisstore.Options{Timeout: timeout})
	tok := opened(t, s, token.Record)
	s.Status(t.Context(), token.Subject{User: alice, ID: tok.ID, Token: tok}) // by now Redis knows the script
	release := proxy.HoldReply("evalsha")
	stuck := make(chan error)
	go func() {
		_, err := s.Status(t.Context(), token.Subject{User: alice, ID: tok.ID, Token: tok})
		stuck <- err
	}()
	for proxy.Held() == 0 {
	}
	began := time.Now()
	for range 100 {
		if _, err := s.Status(t.Context(), token.Subject{User: alice, ID: tok.ID, Token: tok}); err != nil {
			t.Fatalf("beside a connection that stands still: %v", err)
		}
	}
	if took := time.Since(began); took >= timeout {
		t.Errorf("100 calls beside a connection that stands still took %v", took)
	}
	release()
	if err := <-stuck; err != nil {
		t.Errorf("the call that stood still: %v", err)
	}
}

// TestAnothersKey has the second of two new tokens find its key taken: that is a fault, and what
// is there stays as it is.
func TestAnothersKey(t *testing.T) {
	rdb := redistest.Start(t).Client()
	s := redisstore.New(rdb, redisstore.Options{})
	asked := token.NewRecords{User: alice, Mode: token.Record, TTL: time.Minute, Retention: time.Hour}
	taken := asked
	taken.IDs = []token.ID{token.NewID()}
	if _, err := s.Issue(t.Context(), taken); err != nil {
		t.Fatal(err)
	}
	key := redisstore.TokenKey("tokend", alice.Hash(), taken.IDs[0])
	before := rdb.Get(t.Context(), key).Val()
	asked.IDs = []token.ID{token.NewID(), taken.IDs[0]}
	_, err := s.Issue(t.Context(), asked)
	mustFault(t, "issue", err)
	if after := rdb.Get(t.Context(), key).Val(); before == "" || after != before {
		t.Errorf("the record is %q, was %q", after, before)
	}
}

// TestIssuedAgainInTime sends an issue again: the record lives no longer for it, and is the same.
func TestIssuedAgainInTime(t *testing.T) {
	rdb := redistest.Start(t).Client()
	s := redisstore.New(rdb, redisstore.Options{})
	for name, rate := range map[string]token.Rate{"": {}, "above the rate": {PerMinute: 1, Burst: 1}} {
		asked := token.NewRecords{
			IDs: []token.ID{token.NewID()}, User: alice, Mode: token.Record, TTL: time.Minute, Retention: time.Hour, Rate: rate,
		}
		first, err := s.Issue(t.Context(), asked)
		if err != nil {
			t.Fatal(err)
		}
		key := redisstore.TokenKey("tokend", alice.Hash(), asked.IDs[0])
		was, ends := rdb.Get(t.Context(), key).Val(), rdb.PExpireTime(t.Context(), key).Val()
		again, err := s.Issue(t.Context(), asked)
		if err != nil || again != first {
			t.Errorf("%s: %+v, %v; at first %+v", name, again, err, first)
		}
		if is, end := rdb.Get(t.Context(), key).Val(), rdb.PExpireTime(t.Context(), key).Val(); is != was || end != ends || ends <= 0 {
			t.Errorf("%s: the record is %q until %v, was %q until %v", name, is, end, was, ends)
		}
	}
}
