package redisstore

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"example.com/tokend/token"
)

// heldBatcher is a batcher whose batches are in flight until the test lets them go.
type heldBatcher struct {
	batcher
	sent chan []*call // each batch, when it is sent
	free chan struct{}
}

func newHeldBatcher() *heldBatcher {
	h := &heldBatcher{sent: make(chan []*call, 100), free: make(chan struct{})}
	h.send = func(ctx context.Context, calls []*call) {
		h.sent <- calls
		select {
		case <-h.free:
			for _, c := range calls {
				c.reply.status = "answered " + c.keys[0]
			}
		case <-ctx.Done():
			for _, c := range calls {
				c.err = ctx.Err()
			}
		}
	}
	return h
}

// start calls in the background and returns where the error will be.
func (h *heldBatcher) start(ctx context.Context, key string) (*call, chan error) {
	c, done := &call{keys: []string{key}}, make(chan error, 1)
	go func() { done <- h.do(ctx, c, time.Second) }()
	synctest.Wait()
	return c, done
}

// stallAll has as many batches stand still as may.
func (h *heldBatcher) stallAll(t *testing.T) {
	t.Helper()
	for range maxFlights {
		h.start(context.Background(), "stalled")
		time.Sleep(stall)
		synctest.Wait()
		if batch := <-h.sent; len(batch) != 1 {
			t.Errorf("a batch of %d stands still, want 1", len(batch))
		}
	}
}

// mustRest fails the test if batches fly or calls wait.
func (b *batcher) mustRest(t *testing.T) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.flying) != 0 || len(b.queue) != 0 {
		t.Errorf("%d batches fly still, %d calls wait", len(b.flying), len(b.queue))
	}
}

func mustAnswer(t *testing.T, c *call, done chan error) {
	t.Helper()
	if err := <-done; err != nil || c.reply.status != "answered "+c.keys[0] {
		t.Errorf("%s: %q, %v", c.keys[0], c.reply.status, err)
	}
}

func TestBatcherSharesRoundTrips(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeldBatcher()
		a, aDone := h.start(t.Context(), "a")
		if batch := <-h.sent; len(batch) != 1 {
			t.Errorf("a lone call waited for %d others", len(batch)-1)
		}
		b, bDone := h.start(t.Context(), "b")
		c, cDone := h.start(t.Context(), "c")
		h.free <- struct{}{}
		mustAnswer(t, a, aDone)
		if batch := <-h.sent; len(batch) != 2 || batch[0] != b || batch[1] != c {
			t.Errorf("the next batch is of %d", len(batch))
		}
		h.free <- struct{}{}
		mustAnswer(t, b, bDone)
		mustAnswer(t, c, cDone)
		d, dDone := h.start(t.Context(), "d") // nothing is in flight any more
		h.free <- struct{}{}
		mustAnswer(t, d, dDone)
	})
}

// TestBatcherCancelDropsOnlyItsOwn cancels a call that waits, one that is in flight and the
// one that leads.
func TestBatcherCancelDropsOnlyItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeldBatcher()
		leading, stopLeader := context.WithCancel(t.Context())
		waiting, stopWaiter := context.WithCancel(t.Context())
		flying, stopFlyer := context.WithCancel(t.Context())
		a, aDone := h.start(leading, "a")
		<-h.sent
		b, bDone := h.start(t.Context(), "b")
		_, cDone := h.start(waiting, "c")
		_, dDone := h.start(flying, "d")
		stopLeader() // its batch is not its own alone
		stopWaiter()
		synctest.Wait()
		if err := <-cDone; !errors.Is(err, context.Canceled) {
			t.Errorf("the waiting call: %v, want it to be given up", err)
		}
		h.free <- struct{}{}
		mustAnswer(t, a, aDone)
		if batch := <-h.sent; len(batch) != 2 {
			t.Errorf("%d calls are sent, want b and d", len(batch))
		}
		stopFlyer()
		synctest.Wait()
		if err := <-dDone; !errors.Is(err, context.Canceled) {
			t.Errorf("the call in flight: %v, want it to be given up", err)
		}
		h.free <- struct{}{}
		mustAnswer(t, b, bDone)
	})
}

// TestBatcherGoesBesideAStall has a batch stand still, as on a connection that died without
// a word: who comes later goes beside it, together, and soon.
func TestBatcherGoesBesideAStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeldBatcher()
		a, aDone := h.start(t.Context(), "a")
		<-h.sent
		began := time.Now()
		b, bDone := h.start(t.Context(), "b")
		c, cDone := h.start(t.Context(), "c")
		if batch := <-h.sent; len(batch) != 2 || time.Since(began) != stall {
			t.Errorf("%d calls are sent after %v, want b and c after %v", len(batch), time.Since(began), stall)
		}
		h.free <- struct{}{} // of the two in flight one, whichever
		h.free <- struct{}{}
		mustAnswer(t, a, aDone)
		mustAnswer(t, b, bDone)
		mustAnswer(t, c, cDone)
		h.mustRest(t)
	})
}

func TestBatcherGivesUpInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeldBatcher()
		began := time.Now()
		a, aDone := h.start(t.Context(), "a") // leads, and is in flight
		if err := <-aDone; err != nil || !errors.Is(a.err, context.DeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("in flight: given up after %v: %v, %v; want 1s", time.Since(began), err, a.err)
		}
		<-h.sent
		h.stallAll(t)
		began = time.Now()
		waiting, stop := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer stop()
		_, bDone := h.start(waiting, "b")
		if err := <-bDone; !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 500*time.Millisecond {
			t.Errorf("waiting: given up after %v: %v, want 500ms", time.Since(began), err)
		}
		for _, timeout := range []time.Duration{10 * time.Millisecond, stall + 7*time.Millisecond, 4 * stall} {
			began = time.Now()
			if err := h.do(t.Context(), &call{keys: []string{"c"}}, timeout); !errors.Is(err, errGivenUp) || time.Since(began) != timeout {
				t.Errorf("waiting: given up after %v: %v, want %v", time.Since(began), err, timeout)
			}
		}
		time.Sleep(time.Second) // until those that stand still have been given up
		h.mustRest(t)
	})
}

// TestBatcherLeadsInTime has two calls wait for most of their time, and one of them lead then:
// they give up when their time is over, and their batch, where another has more, goes on.
func TestBatcherLeadsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeldBatcher()
		h.stallAll(t)
		began := time.Now()
		_, aDone := h.start(t.Context(), "a")
		_, bDone := h.start(t.Context(), "b")
		time.Sleep(700 * time.Millisecond)
		c, cDone := h.start(t.Context(), "c")
		h.free <- struct{}{}
		if batch := <-h.sent; len(batch) != 3 {
			t.Errorf("%d calls are sent, want a, b and c", len(batch))
		}
		for _, done := range []chan error{aDone, bDone} {
			if err := <-done; !errors.Is(err, errGivenUp) || time.Since(began) != time.Second {
				t.Errorf("given up after %v: %v, want 1s", time.Since(began), err)
			}
		}
		h.free <- struct{}{} // all others have been given up by now
		mustAnswer(t, c, cDone)
		d, dDone := h.start(t.Context(), "d")
		h.free <- struct{}{}
		mustAnswer(t, d, dDone)
		h.mustRest(t)
	})
}

func TestBatcherQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeldBatcher()
		a, aDone := h.start(t.Context(), "a")
		<-h.sent
		var calls []*call
		var dones []chan error
		for range maxQueue {
			c, done := h.start(t.Context(), "waiting")
			calls, dones = append(calls, c), append(dones, done)
		}
		began := time.Now()
		_, done := h.start(t.Context(), "one too many")
		if err := <-done; !errors.Is(err, token.ErrBusy) || time.Since(began) != 0 {
			t.Errorf("above the bound: %v after %v, want %v at once", err, time.Since(began), token.ErrBusy)
		}
		for range 1 + maxQueue/maxBatch {
			h.free <- struct{}{}
		}
		mustAnswer(t, a, aDone)
		for i := range calls {
			mustAnswer(t, calls[i], dones[i])
		}
		for len(h.sent) > 0 {
			if batch := <-h.sent; len(batch) > maxBatch {
				t.Errorf("a batch of %d, at most %d are sent together", len(batch), maxBatch)
			}
		}
	})
}

// TestBatcherCalledWhileLeaving gives calls up at the very moment in which they are called
// to lead: whoever waits must not wait for a leader that has gone.
func TestBatcherCalledWhileLeaving(t *testing.T) {
	var answered, givenUp atomic.Int64
	b := &batcher{send: func(_ context.Context, calls []*call) {
		if rand.IntN(100) == 0 {
			time.Sleep(stall + time.Millisecond) // others go beside it
		}
		for _, c := range calls {
			c.reply.status = c.keys[0]
		}
	}}
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(i)))
			for range 500 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(r.IntN(20))*time.Microsecond)
				c := &call{keys: []string{"k"}}
				switch err := b.do(ctx, c, time.Minute); {
				case err != nil:
					givenUp.Add(1)
				case c.reply.status != "k":
					t.Errorf("not answered and not given up")
				default:
					answered.Add(1)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	t.Logf("%d answered, %d given up", answered.Load(), givenUp.Load())
	c := &call{keys: []string{"k"}}
	if err := b.do(t.Context(), c, time.Minute); err != nil || c.reply.status != "k" {
		t.Errorf("afterwards: %v, %q", err, c.reply.status)
	}
	b.mustRest(t)
}

// TestBatchersOfServersThatLeave has servers of a cluster leave: what is kept of each is let go
// of when another comes, unless it has something under way.
func TestBatchersOfServersThatLeave(t *testing.T) {
	s := New(redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}}), Options{})
	defer s.rdb.Close()
	client := func() *redis.Client {
		c := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
		t.Cleanup(func() { c.Close() })
		return c
	}
	kept := func() (n int) {
		s.batchers.Range(func(any, any) bool { n++; return true })
		return n
	}
	stays, flies, left := client(), client(), client()
	for _, c := range []*redis.Client{stays, flies, left} {
		if err := c.Ping(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		s.batcher(c)
	}
	if n := kept(); n != 3 {
		t.Fatalf("%d batchers for 3 servers", n)
	}
	b := s.batcher(flies)
	b.mu.Lock()
	f := b.newFlight()
	b.mu.Unlock()
	left.Close()
	flies.Close()
	s.batcher(client())
	if _, there := s.batchers.Load(left); there || kept() != 3 || s.batcher(flies) != b {
		t.Errorf("%d batchers, want those of the one that stays, the one that flies and the new one", kept())
	}
	b.mu.Lock()
	b.next(f)
	b.mu.Unlock()
	s.batcher(client())
	if _, there := s.batchers.Load(flies); there {
		t.Error("what had something under way is kept for ever")
	}
}
