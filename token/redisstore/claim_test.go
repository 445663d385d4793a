package redisstore_test

import (
	"bytes"
	"errors"
	"maps"
	"slices"
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

// What only a real server shows of claims.

// newKey returns a key of alice's that no other test uses.
func newKey() token.Subject {
	return token.KeySubject(alice, "p", token.IdempotencyKey(token.NewAttempt()))
}

func claiming(sub token.Subject, a token.Attempt) token.Claiming {
	return token.Claiming{Subject: sub, Attempt: a, Lease: time.Minute, Retention: time.Hour}
}

// claim claims, or fails the test.
func claim(t testing.TB, s *redisstore.Store, c token.Claiming) token.Handle {
	t.Helper()
	got, err := s.Claim(t.Context(), c)
	if err != nil || got.State != token.StateClaimed {
		t.Fatalf("claim: %+v, %v", got, err)
	}
	return got.Handle
}

// complete completes, or fails the test.
func complete(t testing.TB, s *redisstore.Store, h token.Handle, r *token.Result) {
	t.Helper()
	if _, err := s.Complete(t.Context(), h, r); err != nil {
		t.Fatal(err)
	}
}

// claimSteps are the calls about claims, each with what it needs before, and what it does
// then. With an error they changed nothing that a second call would stumble over.
func claimSteps(t testing.TB, s *redisstore.Store) map[string]func() (call func() error) {
	onHeld := func(step func(token.Handle) error) func() func() error {
		return func() func() error {
			h := claim(t, s, claiming(newKey(), "a"))
			return func() error { return step(h) }
		}
	}
	return map[string]func() func() error{
		"claim of a key": func() func() error {
			c := claiming(newKey(), "a")
			return func() error { _, err := s.Claim(t.Context(), c); return err }
		},
		"claim of a token": func() func() error {
			tok := opened(t, s, token.Record)
			return func() error {
				_, err := s.Claim(t.Context(), claiming(token.TokenSubject(alice, tok), "a"))
				return err
			}
		},
		"claim that commits": func() func() error {
			c := claiming(newKey(), "a")
			c.Commit = true
			return func() error { _, err := s.Claim(t.Context(), c); return err }
		},
		"replay": func() func() error {
			c := claiming(newKey(), "a")
			complete(t, s, claim(t, s, c), &token.Result{Status: 200, Body: bytes.Repeat([]byte("x"), 1<<18)})
			return func() error { _, err := s.Claim(t.Context(), c); return err }
		},
		"claim status": func() func() error {
			sub := newKey()
			complete(t, s, claim(t, s, claiming(sub, "a")), nil)
			return func() error { _, err := s.ClaimStatus(t.Context(), sub); return err }
		},
		"commit": onHeld(func(h token.Handle) error { _, err := s.Commit(t.Context(), h); return err }),
		"renew":  onHeld(func(h token.Handle) error { _, err := s.Renew(t.Context(), h, time.Hour); return err }),
		"complete": onHeld(func(h token.Handle) error {
			_, err := s.Complete(t.Context(), h, &token.Result{Status: 200, Body: []byte("done")})
			return err
		}),
		"release": onHeld(func(h token.Handle) error { return s.Release(t.Context(), h) }),
	}
}

// TestClaimsTakeOneRoundTrip counts the commands that each call sends.
func TestClaimsTakeOneRoundTrip(t *testing.T) {
	rdb := redistest.Start(t).Client()
	var hook countHook
	rdb.AddHook(&hook)
	s := redisstore.New(rdb, redisstore.Options{})
	steps := claimSteps(t, s)
	for name, prepare := range steps { // by then Redis knows every script
		if err := prepare()(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	for name, prepare := range steps {
		call := prepare()
		before := hook.n
		call()
		if got := hook.n - before; got != 1 {
			t.Errorf("%s sent %d commands, want 1", name, got)
		}
	}
}

// TestClaimsLoseReplies loses the reply of each call that Redis has carried out: go-redis
// sends it again, and the rightful caller must not read its own write as another's.
func TestClaimsLoseReplies(t *testing.T) {
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr)
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr, ContextTimeoutEnabled: true})
	t.Cleanup(func() { rdb.Close() })
	s := redisstore.New(rdb, redisstore.Options{Timeout: 10 * time.Second})
	steps := claimSteps(t, s)
	want := 0
	for range 3 {
		for name, prepare := range steps {
			call := prepare()
			proxy.DropReply("evalsha", "\r\neval\r\n")
			if err := call(); err != nil {
				t.Errorf("%s whose reply was lost: %v", name, err)
			}
			if want++; proxy.Dropped() != want {
				t.Fatalf("%s: %d replies were dropped, want %d", name, proxy.Dropped(), want)
			}
		}
	}
	// What the re-send of a claim says is the first one's.
	c := claiming(newKey(), "a")
	c.Commit = true
	proxy.DropReply("evalsha", "\r\neval\r\n")
	first, err := s.Claim(t.Context(), c)
	if err != nil || !first.Replayed || first.Handle.Fence != 1 {
		t.Errorf("claim whose reply was lost: %+v, %v", first, err)
	}
	if again, err := s.Claim(t.Context(), c); err != nil || again.Handle != first.Handle || !again.LeaseExpiresAt.Equal(first.LeaseExpiresAt) {
		t.Errorf("again: %+v, %v; want %+v", again, err, first)
	}
}

// TestClaimsSurviveScriptFlush has Redis forget its scripts before each call.
func TestClaimsSurviveScriptFlush(t *testing.T) {
	rdb := redistest.Start(t).Client()
	s := redisstore.New(rdb, redisstore.Options{})
	for name, prepare := range claimSteps(t, s) {
		call := prepare()
		rdb.ScriptFlush(t.Context())
		if err := call(); err != nil {
			t.Errorf("%s after SCRIPT FLUSH: %v", name, err)
		}
	}
}

// TestWhatRedisHoldsOfClaims looks at everything that Redis holds after all kinds of calls.
func TestWhatRedisHoldsOfClaims(t *testing.T) {
	rdb := redistest.Start(t).Client()
	s := redisstore.New(rdb, redisstore.Options{})
	for range 2 {
		for name, prepare := range claimSteps(t, s) {
			if err := prepare()(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	resolved := claiming(newKey(), "a")
	resolved.Commit, resolved.Lease = true, time.Millisecond
	claim(t, s, resolved)
	time.Sleep(5 * time.Millisecond)
	resolved.Attempt, resolved.Resolve = "r", true
	claim(t, s, resolved)
	keys := rdb.Keys(t.Context(), "*").Val()
	if len(keys) != 2*len(claimSteps(t, s))+1 {
		t.Errorf("%d keys", len(keys))
	}
	for _, key := range keys {
		if !strings.HasPrefix(key, "tokend:") {
			t.Errorf("key %q is outside the prefix", key)
		}
		if left := rdb.PTTL(t.Context(), key).Val(); left <= 0 {
			t.Errorf("key %q has no expiry: %v", key, left)
		}
		if dump := key + rdb.Get(t.Context(), key).Val(); strings.Contains(dump, string(alice)) {
			t.Errorf("Redis holds the user's name: %q", dump)
		}
	}
}

// TestClaimOutlivesItsEnd has Redis keep the record of a claim a minute past its stated end,
// and a clock that jumps a little bring nothing back.
func TestClaimOutlivesItsEnd(t *testing.T) {
	rdb := redistest.Start(t).Client()
	s := redisstore.New(rdb, redisstore.Options{})
	c := claiming(newKey(), "a")
	got, err := s.Claim(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	key := redisstore.RecordKey("tokend", token.OfKey, alice.Hash(), c.ID)
	at, err := rdb.PExpireTime(t.Context(), key).Result()
	ends := got.LeaseExpiresAt.Add(c.Retention - c.Lease)
	if want := time.Duration(ends.Add(time.Minute).UnixMilli()) * time.Millisecond; err != nil || at != want {
		t.Errorf("Redis drops the record at %v, %v; want %v", at, err, want)
	}
}

// TestNoClaimRefusalFromBelow asks a server that may not write: it must not answer from what
// it holds.
func TestNoClaimRefusalFromBelow(t *testing.T) {
	rdb := redistest.Start(t).Client()
	s := redisstore.New(rdb, redisstore.Options{})
	calls := make(map[string]func() error)
	for name, prepare := range claimSteps(t, s) {
		calls[name] = prepare()
	}
	held, done, released, used := newKey(), newKey(), newKey(), opened(t, s, token.Record)
	h := claim(t, s, claiming(held, "a"))
	complete(t, s, claim(t, s, claiming(done, "a")), nil)
	r := claim(t, s, claiming(released, "a"))
	if err := s.Release(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	s.Consume(t.Context(), token.Consumption{User: alice, Token: used, Attempt: "a"})
	refused := func(sub token.Subject) func() error {
		return func() error { _, err := s.Claim(t.Context(), claiming(sub, "b")); return err }
	}
	calls["claim in progress"], calls["claim of what is used"] = refused(held), refused(token.TokenSubject(alice, used))
	calls["claim of what is released"], calls["status of what is completed"] = refused(released), func() error { _, err := s.Status(t.Context(), done); return err }
	superseded, gone := h, h
	superseded.Fence, gone.ID = 0, token.NewID()
	for name, h := range map[string]token.Handle{"superseded": superseded, "gone": gone, "released": r} {
		calls["commit of what is "+name] = func() error { _, err := s.Commit(t.Context(), h); return err }
		calls["release of what is "+name] = func() error { return s.Release(t.Context(), h) }
	}
	rdb.ConfigSet(t.Context(), "min-replicas-to-write", "1")
	for name, call := range calls {
		mustFault(t, name, call())
	}
	rdb.ConfigSet(t.Context(), "min-replicas-to-write", "0")
	for _, name := range []string{"commit", "renew", "complete", "release", "replay", "claim of a token", "claim of a key"} {
		if err := calls[name](); err != nil {
			t.Errorf("%s, when it may be written again: %v", name, err)
		}
	}
}

// TestClaimsWhileMemoryIsFull: a key's first claim adds memory and is a fault; nothing else
// is, lest work that is done be run again.
func TestClaimsWhileMemoryIsFull(t *testing.T) {
	rdb := redistest.Start(t).Client()
	s := redisstore.New(rdb, redisstore.Options{})
	steps := claimSteps(t, s)
	for range 2 { // loads the scripts
		for _, name := range slices.Sorted(maps.Keys(steps)) {
			steps[name]()()
		}
	}
	calls := make(map[string]func() error)
	for name, prepare := range steps {
		calls[name] = prepare()
	}
	over, released := claiming(newKey(), "a"), claiming(newKey(), "a")
	over.Lease = time.Millisecond
	claim(t, s, over)
	time.Sleep(5 * time.Millisecond) // its lease is over by then, by the same clock
	if err := s.Release(t.Context(), claim(t, s, released)); err != nil {
		t.Fatal(err)
	}
	over.Attempt, released.Attempt = "b", "b"
	for name, c := range map[string]token.Claiming{"takeover": over, "claim of what was released": released} {
		calls[name] = func() error { _, err := s.Claim(t.Context(), c); return err }
	}
	keys := rdb.DBSize(t.Context()).Val()
	rdb.ConfigSet(t.Context(), "maxmemory", "1")
	for name, call := range calls {
		err := call()
		switch firstOfKey := name == "claim of a key" || name == "claim that commits"; {
		case firstOfKey:
			mustFault(t, name+" while memory is full", err)
		case err != nil:
			t.Errorf("%s while memory is full: %v", name, err)
		}
	}
	if got := rdb.DBSize(t.Context()).Val(); got != keys {
		t.Errorf("%d keys after that, want %d", got, keys)
	}
}

// TestUnknownClaimRecords holds records of no version or state that this release knows to
// be faults: no guess is made.
func TestUnknownClaimRecords(t *testing.T) {
	rdb := redistest.Start(t).Client()
	s := redisstore.New(rdb, redisstore.Options{})
	sub := newKey()
	h := claim(t, s, claiming(sub, "a"))
	key := redisstore.RecordKey("tokend", token.OfKey, alice.Hash(), sub.ID)
	good := rdb.Get(t.Context(), key).Val()
	for name, rec := range map[string]string{
		"later version":       "\x02" + good[1:],
		"later state":         good[:1] + "\x07" + good[2:],
		"state 0":             good[:1] + "\x00" + good[2:],
		"delete mode":         good[:1] + "\x44" + good[2:],
		"empty":               "",
		"cut":                 good[:3],
		"foreign":             "hello, world, this is not a record",
		"completed, cut":      good[:1] + "\x05" + good[2:],
		"result of no layout": good[:1] + "\x05" + good[2:] + strings.Repeat("\x00", 12) + "\x09",
	} {
		if err := rdb.Set(t.Context(), key, rec, time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
		_, err := s.Claim(t.Context(), claiming(sub, "b"))
		mustFault(t, "claim, "+name, err)
		_, err = s.ClaimStatus(t.Context(), sub)
		if name != "delete mode" { // which a status looks past: it changes nothing
			mustFault(t, "status, "+name, err)
		}
		if !strings.Contains(name, "comple") && !strings.Contains(name, "result") {
			_, err = s.Commit(t.Context(), h)
			mustFault(t, "commit, "+name, err)
			mustFault(t, "release, "+name, s.Release(t.Context(), h))
		}
		if got := rdb.Get(t.Context(), key).Val(); got != rec {
			t.Errorf("%s: the record was changed to %q", name, got)
		}
	}
}

// TestClaimsWaitForReplicas acknowledges each change only when a replica has it: each is a
// fault without one, and so is its repeat, which changes nothing.
func TestClaimsWaitForReplicas(t *testing.T) {
	rdb := redistest.Start(t).Client()
	plain := redisstore.New(rdb, redisstore.Options{})
	s := redisstore.New(rdb, redisstore.Options{WaitReplicas: 1, WaitTimeout: 10 * time.Millisecond, Timeout: 10 * time.Second})
	sub := newKey()
	c := claiming(sub, "a")
	h := claim(t, plain, c)
	for name, step := range map[string]func() error{
		"claim":  func() error { _, err := s.Claim(t.Context(), c); return err },
		"commit": func() error { _, err := s.Commit(t.Context(), h); return err },
		"renew":  func() error { _, err := s.Renew(t.Context(), h, time.Hour); return err },
	} {
		for range 2 {
			mustFault(t, name, step())
		}
	}
	for range 2 {
		_, err := s.Complete(t.Context(), h, nil)
		mustFault(t, "complete", err)
	}
	h = claim(t, plain, claiming(newKey(), "a"))
	for range 2 {
		mustFault(t, "release", s.Release(t.Context(), h))
	}
}

// TestManyClaimsInOneBatch has claims, steps and replays of large results share round trips,
// and each get its own answer.
func TestManyClaimsInOneBatch(t *testing.T) {
	s := redisstore.New(redistest.Start(t).Client(), redisstore.Options{Timeout: 30 * time.Second})
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			sub := newKey()
			body := bytes.Repeat([]byte{byte(i)}, 1000*i)
			complete(t, s, claim(t, s, claiming(sub, "a")), &token.Result{Status: 200 + i, Body: body})
			got, err := s.Claim(t.Context(), claiming(sub, "b"))
			if err != nil || got.Result == nil || got.Result.Status != 200+i || !bytes.Equal(got.Result.Body, body) {
				t.Errorf("claim %d was answered with another's: %v", i, err)
			}
			if err := s.Release(t.Context(), claim(t, s, claiming(newKey(), "a"))); err != nil {
				t.Errorf("release: %v", err)
			}
		})
	}
	wg.Wait()
}

// TestRecordSizes holds records to the 44 bytes that Redis keeps in one allocation, and a
// completed one to its result and little more.
func TestRecordSizes(t *testing.T) {
	rdb := redistest.Start(t).Client()
	s := redisstore.New(rdb, redisstore.Options{})
	short := func(d token.Digest) *token.Token {
		tok := opened(t, s, token.Record)
		c := claiming(token.TokenSubject(alice, tok), "a")
		c.Lease, c.Digest = time.Millisecond, d
		claim(t, s, c)
		time.Sleep(3 * time.Millisecond)
		return tok
	}
	consume := func(tok *token.Token) {
		t.Helper()
		if _, err := s.Consume(t.Context(), token.Consumption{User: alice, Token: tok, Attempt: "b"}); err != nil {
			t.Fatal(err)
		}
	}
	claimed, over, digested, released, revoked, completed := short(""), short(""), short("d"), short(""), short(""), short("")
	consume(over)
	consume(digested)
	handle := func(tok *token.Token) token.Handle {
		return token.Handle{User: alice.Hash(), ID: tok.ID, Fence: 1, Attempt: token.Attempt("a").Hash()}
	}
	if err := s.Release(t.Context(), handle(released)); err != nil {
		t.Fatal(err)
	}
	consume(released)
	if _, err := s.Revoke(t.Context(), token.TokenSubject(alice, revoked)); err != nil {
		t.Fatal(err)
	}
	complete(t, s, handle(completed), &token.Result{Status: 200, Body: make([]byte, 1000)})
	for name, of := range map[string]struct {
		tok  *token.Token
		want int
	}{
		"claimed": {claimed, 44}, "used by a takeover": {over, 44}, "used by one with a digest": {digested, 56},
		"released and used": {released, 44}, "revoked while claimed": {revoked, 44}, "completed": {completed, 56 + 5 + 1000},
	} {
		key := redisstore.TokenKey("tokend", alice.Hash(), of.tok.ID)
		if got := len(rdb.Get(t.Context(), key).Val()); got != of.want {
			t.Errorf("a record %s is %d bytes, want %d", name, got, of.want)
		}
	}
}

// TestOneHolderWhileRepliesAreLost has many claim, work and release in turns, while replies
// are lost all the time: never do two hold the claim, and each has a fence of its own.
func TestOneHolderWhileRepliesAreLost(t *testing.T) {
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr)
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr, ContextTimeoutEnabled: true, DialerRetries: 1})
	t.Cleanup(func() { rdb.Close() })
	s := redisstore.New(rdb, redisstore.Options{Timeout: 10 * time.Second})
	svc := newService(t, s)
	stop := make(chan struct{})
	var lossy sync.WaitGroup
	lossy.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
				proxy.DropReply("evalsha", "\r\neval\r\n")
			}
		}
	})
	sub := newKey()
	var fences sync.Map
	var holding atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 10 {
				a := token.NewAttempt()
				claim := func() (token.Claimed, error) {
					return svc.Claim(t.Context(), token.ClaimRequest{Subject: sub, Purpose: "p", Attempt: a, Lease: time.Hour, Wait: 20 * time.Second})
				}
				got, err := claim()
				for isFault(err) { // no outcome: the same attempt again
					got, err = claim()
				}
				if err != nil {
					t.Errorf("claim: %v", err)
					return
				}
				if n := holding.Add(1); n != 1 {
					t.Errorf("%d hold the claim", n)
				}
				if _, twice := fences.LoadOrStore(got.Handle.Fence, a); twice {
					t.Errorf("fence %d was given twice", got.Handle.Fence)
				}
				holding.Add(-1)
				for err = svc.Release(t.Context(), got.Handle); isFault(err); {
					err = svc.Release(t.Context(), got.Handle)
				}
				// A re-send may come when the next has claimed already.
				if err != nil && !errors.Is(err, token.ErrSuperseded) {
					t.Errorf("release: %v", err)
				}
			}
		})
	}
	wg.Wait()
	close(stop)
	lossy.Wait()
	t.Logf("%d replies were lost", proxy.Dropped())
	if proxy.Dropped() == 0 {
		t.Error("no reply was lost")
	}
}

func isFault(err error) bool {
	var f *token.Fault
	return errors.As(err, &f)
}
