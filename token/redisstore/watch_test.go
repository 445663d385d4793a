package redisstore_test

import (
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"example.com/tokend/internal/redistest"
	"example.com/tokend/token"
	"example.com/tokend/token/redisstore"
)

// instance is a service with connections of its own.
type instance struct {
	svc   *token.Service
	store *redisstore.Store
	rdb   *redis.Client
}

func newInstance(t *testing.T, addr string) *instance {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true, DialerRetries: 1, PoolSize: 2})
	t.Cleanup(func() { rdb.Close() })
	s := redisstore.New(rdb, redisstore.Options{Timeout: 10 * time.Second})
	return &instance{newService(t, s), s, rdb}
}

// outcome is what a call that waited was answered with, and when.
type outcome struct {
	got token.Claimed
	err error
	at  time.Time
}

// wait has n calls on i wait for sub, and returns when all do.
func (i *instance) wait(t *testing.T, sub token.Subject, n int) <-chan outcome {
	t.Helper()
	answers := make(chan outcome, n)
	for range n {
		go func() {
			got, err := i.svc.Claim(t.Context(), token.ClaimRequest{
				Subject: sub, Purpose: "p", Attempt: token.NewAttempt(), Lease: time.Minute, Wait: 30 * time.Second,
			})
			answers <- outcome{got, err, time.Now()}
		}()
	}
	return answers
}

// subscribed waits until as many connections to Redis are subscribed as n, and returns how
// many connections there are.
func subscribed(t *testing.T, rdb *redis.Client, n int) int {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		list := rdb.ClientList(t.Context()).Val()
		if strings.Count(list, " sub=") == strings.Count(list, "\n") && strings.Count(list, "\n")-strings.Count(list, " sub=0 ") == n {
			return strings.Count(list, "\n")
		}
		if time.Now().After(deadline) {
			t.Fatalf("want %d subscribed connections:\n%s", n, list)
		}
	}
}

// TestWatchOfWhatIsWatched has watches of one claim begin one after another. Each is woken
// when it begins: what was published since its owner asked, it has not heard.
func TestWatchOfWhatIsWatched(t *testing.T) {
	i := newInstance(t, redistest.Start(t).Addr)
	sub := newKey()
	for n := range 3 {
		woken, stop := i.store.Watch(sub)
		defer stop()
		select {
		case <-woken:
		case <-time.After(30 * time.Second):
			t.Fatalf("watch %d was never woken", n+1)
		}
	}
	// One that ends and begins anew, the listener being told of neither alone.
	other := newKey()
	for n := range 100 {
		woken, stop := i.store.Watch(other)
		select {
		case <-woken:
		case <-time.After(30 * time.Second):
			t.Fatalf("watch %d was never woken", n+1)
		}
		stop()
	}
}

// TestWaitOnAnotherInstance has many wait on two instances: all are answered after the
// completion, over one connection an instance, and nothing of them is left.
func TestWaitOnAnotherInstance(t *testing.T) {
	server := redistest.Start(t)
	before := goleak.IgnoreCurrent()
	look := server.Client()
	one, two := newInstance(t, server.Addr), newInstance(t, server.Addr)
	const callers = 100
	for range 2 {
		sub, other := newKey(), newKey()
		h := claim(t, one.store, claiming(sub, "a"))
		o := claim(t, one.store, claiming(other, "a"))
		answers := []<-chan outcome{one.wait(t, sub, callers), two.wait(t, sub, callers)}
		others := two.wait(t, other, 1)
		if n := subscribed(t, look, 2); n > 1+2*(2+1) { // each a pool of 2, and one that is subscribed
			t.Errorf("%d connections for %d callers that wait", n, 2*callers)
		}
		if n := len(answers[0]) + len(answers[1]) + len(others); n > 0 {
			t.Fatalf("%d calls did not wait", n)
		}
		complete(t, one.store, h, &token.Result{Status: 201})
		for _, ch := range answers {
			for range callers {
				a := <-ch
				if a.err != nil || a.got.State != token.StateCompleted || a.got.Result.Status != 201 {
					t.Errorf("%+v, %v", a.got, a.err)
				}
			}
		}
		if len(others) > 0 {
			t.Error("another key's completion answered a call")
		}
		if err := one.store.Release(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		if a := <-others; a.err != nil || a.got.State != token.StateClaimed || a.got.Handle.Fence != 2 {
			t.Errorf("after the release: %+v, %v", a.got, a.err)
		}
		subscribed(t, look, 0)
	}
	for _, rdb := range []*redis.Client{one.rdb, two.rdb, look} {
		rdb.Close()
	}
	goleak.VerifyNone(t, before)
}

// TestWaitIsPrompt measures how soon a call on another instance is answered.
func TestWaitIsPrompt(t *testing.T) {
	server := redistest.Start(t)
	one, two := newInstance(t, server.Addr), newInstance(t, server.Addr)
	var best time.Duration
	for i := range 10 {
		sub := newKey()
		h := claim(t, one.store, claiming(sub, "a"))
		answers := two.wait(t, sub, 1)
		subscribed(t, one.rdb, 1)
		ended := time.Now()
		complete(t, one.store, h, nil)
		if took := (<-answers).at.Sub(ended); i == 0 || took < best {
			best = took
		}
	}
	// The best of ten: what is measured is the way, not this machine's other work.
	if best > 100*time.Millisecond {
		t.Errorf("answered %v after the completion at best, 100ms are promised", best)
	}
}

// TestOneOfThoseWhoWait has the holder release: one of those who wait holds the claim then,
// and the others wait on, for its result.
func TestOneOfThoseWhoWait(t *testing.T) {
	server := redistest.Start(t)
	one, two := newInstance(t, server.Addr), newInstance(t, server.Addr)
	sub := newKey()
	h := claim(t, one.store, claiming(sub, "a"))
	const callers = 10
	answers := two.wait(t, sub, callers)
	subscribed(t, one.rdb, 1)
	if err := one.store.Release(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	first := <-answers
	if first.err != nil || first.got.State != token.StateClaimed || first.got.Handle.Fence != 2 {
		t.Fatalf("%+v, %v", first.got, first.err)
	}
	complete(t, one.store, first.got.Handle, &token.Result{Status: 200})
	for range callers - 1 {
		if a := <-answers; a.err != nil || a.got.State != token.StateCompleted {
			t.Errorf("%+v, %v", a.got, a.err)
		}
	}
}

// TestWaitWithoutPubSub has Redis refuse to subscribe, and then to publish: those who wait
// find out by themselves.
func TestWaitWithoutPubSub(t *testing.T) {
	for _, forbidden := range []string{"-subscribe", "-publish"} {
		server := redistest.Start(t)
		i := newInstance(t, server.Addr)
		sub := newKey()
		h := claim(t, i.store, claiming(sub, "a"))
		if err := i.rdb.Do(t.Context(), "ACL", "SETUSER", "default", forbidden).Err(); err != nil {
			t.Fatal(err)
		}
		answers := i.wait(t, sub, 1)
		time.Sleep(50 * time.Millisecond) // it waits, or is about to
		complete(t, i.store, h, nil)
		select {
		case a := <-answers:
			if a.err != nil || a.got.State != token.StateCompleted {
				t.Errorf("%s: %+v, %v", forbidden, a.got, a.err)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("%s: never answered", forbidden)
		}
	}
}

// TestWaitIsCut cuts the connection over which those who wait are told. They are told over
// the next one, and of what they have missed meanwhile.
func TestWaitIsCut(t *testing.T) {
	server := redistest.Start(t)
	i := newInstance(t, server.Addr)
	look := server.Client()
	for range 3 {
		sub := newKey()
		h := claim(t, i.store, claiming(sub, "a"))
		answers := i.wait(t, sub, 1)
		subscribed(t, look, 1)
		// The server may still be busy with the connection that the round before has ended.
		for deadline := time.Now().Add(30 * time.Second); ; {
			n, err := look.Do(t.Context(), "CLIENT", "KILL", "TYPE", "pubsub").Int()
			if n > 0 {
				break
			}
			if err != nil || time.Now().After(deadline) {
				t.Fatalf("no connection was cut: %v", err)
			}
		}
		complete(t, i.store, h, nil) // before or after it is connected again
		if a := <-answers; a.err != nil || a.got.State != token.StateCompleted {
			t.Errorf("%+v, %v", a.got, a.err)
		}
	}
}

// TestWaitOutlivesRedis has Redis stop and come back while a call waits: it is answered with
// a fault, which may be retried, and leaves nothing behind.
func TestWaitOutlivesRedis(t *testing.T) {
	server := redistest.Start(t)
	before := goleak.IgnoreCurrent()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr, ContextTimeoutEnabled: true, DialerRetries: 1, MaxRetries: -1})
	s := redisstore.New(rdb, redisstore.Options{Timeout: 300 * time.Millisecond})
	i := &instance{newService(t, s), s, rdb}
	sub := newKey()
	claim(t, s, claiming(sub, "a"))
	answers := i.wait(t, sub, 3)
	subscribed(t, rdb, 1)
	server.Kill()
	for range 3 {
		mustFault(t, "a call that waits while Redis is down", (<-answers).err)
	}
	server.Restart()
	h := claim(t, s, claiming(sub, "b")) // the record went with Redis
	again := i.wait(t, sub, 1)
	complete(t, s, h, nil)
	if a := <-again; a.err != nil {
		t.Errorf("after that: %v", a.err)
	}
	rdb.Close()
	goleak.VerifyNone(t, before)
}

// TestWatchesComeAndGo has many begin and end watches at once, while claims of some of them
// end: each that lasts is told, and no goroutine stays.
func TestWatchesComeAndGo(t *testing.T) {
	server := redistest.Start(t)
	i := newInstance(t, server.Addr)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 30 {
				sub := newKey()
				h := claim(t, i.store, claiming(sub, "a"))
				woken, stop := i.store.Watch(sub)
				<-woken // it has begun
				complete(t, i.store, h, nil)
				select {
				case <-woken:
				case <-time.After(10 * time.Second):
					t.Error("not told")
				}
				stop()
			}
		})
	}
	wg.Wait()
	subscribed(t, i.rdb, 0)
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		stacks := make([]byte, 1<<20)
		if stacks = stacks[:runtime.Stack(stacks, true)]; !strings.Contains(string(stacks), "(*watches).listen") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("a listener is left:\n%s", stacks)
		}
	}
}

// TestWaitEndsWithTheLease has the holder go silent: whoever waits takes over when the lease
// ends, and not a poll later.
func TestWaitEndsWithTheLease(t *testing.T) {
	i := newInstance(t, redistest.Start(t).Addr)
	for _, commit := range []bool{false, true} {
		c := claiming(newKey(), "a")
		c.Lease, c.Commit = 300*time.Millisecond, commit
		claim(t, i.store, c)
		began := time.Now()
		a := <-i.wait(t, c.Subject, 1)
		if took := a.at.Sub(began); took < 250*time.Millisecond || took > 900*time.Millisecond {
			t.Errorf("answered after %v, the lease was 300ms", took)
		}
		if commit && !errors.Is(a.err, token.ErrUnfinished) || !commit && (a.err != nil || !a.got.Takeover || a.got.Handle.Fence != 2) {
			t.Errorf("committed %v: %+v, %v", commit, a.got, a.err)
		}
	}
}
