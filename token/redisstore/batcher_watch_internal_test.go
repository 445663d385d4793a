package redisstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// What calls that wait are watched for, and that nobody hears what was meant for another.

// gatedBatcher is a batcher each of whose batches is in flight until the test lets its leader's
// key go.
type gatedBatcher struct {
	batcher
	gates map[string]chan struct{}
	sent  chan string // each batch's leader's key, when it is sent
}

func newGatedBatcher(keys ...string) *gatedBatcher {
	g := &gatedBatcher{gates: map[string]chan struct{}{}, sent: make(chan string, len(keys))}
	for _, key := range keys {
		g.gates[key] = make(chan struct{})
	}
	g.send = func(_ context.Context, calls []*call) {
		g.sent <- calls[0].keys[0]
		<-g.gates[calls[0].keys[0]]
	}
	return g
}

func (g *gatedBatcher) start(key string) (done chan error) {
	done = make(chan error, 1)
	go func() { done <- g.do(context.Background(), &call{keys: []string{key}}, time.Second) }()
	synctest.Wait()
	return done
}

// land lets the batch that key leads go.
func (g *gatedBatcher) land(key string) {
	close(g.gates[key])
	synctest.Wait()
}

// mustFly fails the test unless keys, and no others, were sent as leaders since it last looked.
func (g *gatedBatcher) mustFly(t *testing.T, keys ...string) {
	t.Helper()
	synctest.Wait()
	var got []string
	for len(g.sent) > 0 {
		got = append(got, <-g.sent)
	}
	if fmt.Sprint(got) != fmt.Sprint(keys) {
		t.Errorf("%q are sent, want %q", got, keys)
	}
}

// TestBatcherOneMovesAtATime has nobody go beside a batch that does not stand still yet:
// neither when it is looked for stalls nor when another batch lands.
func TestBatcherOneMovesAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGatedBatcher("a", "b", "c", "d")
		a, b := g.start("a"), g.start("b") // from here on it is looked every stall
		time.Sleep(stall / 2)
		g.land("a")
		g.mustFly(t, "a", "b")
		c := g.start("c")
		time.Sleep(stall / 2)
		time.Sleep(time.Millisecond)
		g.mustFly(t) // b is half a stall old
		time.Sleep(stall)
		g.mustFly(t, "c")
		d := g.start("d")
		g.land("b")
		g.mustFly(t) // c moves, and will take d along
		g.land("c")
		g.mustFly(t, "d")
		g.land("d")
		for _, done := range []chan error{a, b, c, d} {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		g.mustRest(t)
	})
}

// TestBatcherLeave has calls leave that have been told something just now.
func TestBatcherLeave(t *testing.T) {
	why := errors.New("the caller has gone")
	for _, tt := range []struct {
		name string
		tell func(*batcher, *call, *flight)
		want error
		next bool // whether the next in the queue leads
	}{
		{"nothing", func(*batcher, *call, *flight) {}, why, false},
		{"the answer", func(_ *batcher, c *call, _ *flight) { c.called <- nil }, nil, false},
		{"to lead", func(_ *batcher, c *call, f *flight) { c.called <- f }, why, true},
		{"its time is over", func(_ *batcher, c *call, _ *flight) { c.giveUp(c.until) }, why, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, next := &call{called: make(chan *flight, 1)}, &call{called: make(chan *flight, 1)}
			b := &batcher{queue: []*call{next}}
			f := b.newFlight()
			f.since = time.Now().Add(-time.Hour) // stands still
			tt.tell(b, c, f)
			if err := b.leave(c, why); err != tt.want {
				t.Errorf("%v, want %v", err, tt.want)
			}
			var led *flight
			if tt.next {
				led = f
			}
			select {
			case got := <-next.called:
				if got != led {
					t.Errorf("the next is called to %p, want %p", got, led)
				}
			default:
				if tt.next {
					t.Error("nobody leads")
				}
			}
		})
	}
}

// TestBatcherHearsItsOwn has many calls share few seats, while batches stand still, land late
// or never, calls come to the end of their time and callers go, much of it at the same instants:
// each hears its own answer or that it was given up, in time and not before; and in the end
// nothing flies, waits, watches or lies in a seat.
func TestBatcherHearsItsOwn(t *testing.T) {
	var answered, overdue, left int
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex // of rnd and what is counted
			rnd := rand.New(rand.NewPCG(seed, 0))
			draw := func(n int) int {
				mu.Lock()
				defer mu.Unlock()
				return rnd.IntN(n)
			}
			b := &batcher{}
			b.send = func(ctx context.Context, calls []*call) {
				takes := time.Duration(draw(1000)) * time.Microsecond
				switch draw(5) {
				case 0:
					takes = time.Hour
				case 1:
					takes = time.Duration(draw(5)) * stall
				}
				select {
				case <-time.After(takes):
				case <-ctx.Done():
				}
				for _, c := range calls {
					c.reply.status = c.keys[0]
				}
			}
			var callers sync.WaitGroup
			for i := range 40 {
				callers.Go(func() {
					for j := range 50 {
						timeout := time.Duration(1+draw(8)) * stall
						ctx, cancel := context.Background(), context.CancelFunc(func() {})
						if draw(3) == 0 {
							ctx, cancel = context.WithTimeout(ctx, time.Duration(draw(6))*stall)
						}
						c := &call{keys: []string{fmt.Sprint(i, "/", j)}}
						began := time.Now()
						err := b.do(ctx, c, timeout)
						took := time.Since(began)
						cancel()
						mu.Lock()
						switch {
						case took > timeout+stall:
							t.Errorf("seed %d: it took %v of %v: %v", seed, took, timeout, err)
						case err == nil && c.reply.status == c.keys[0]:
							answered++
						case err == errGivenUp && took >= timeout:
							overdue++
						case err != nil && err == ctx.Err():
							left++
						default:
							t.Errorf("seed %d: after %v of %v %s hears %q, %v", seed, took, timeout, c.keys[0], c.reply.status, err)
						}
						mu.Unlock()
						time.Sleep(time.Duration(draw(3000)) * time.Microsecond)
					}
				})
			}
			callers.Wait()
			time.Sleep(9*stall + 2*stall) // the longest flight there may be, and a look or two
			b.mustRest(t)
			if b.mu.Lock(); b.watching {
				t.Errorf("seed %d: nobody waits, and it is watched still", seed)
			}
			b.mu.Unlock()
			for {
				called, ok := b.seats.Get().(chan *flight)
				if !ok {
					break
				}
				if len(called) != 0 {
					t.Errorf("seed %d: something lies in a free seat", seed)
				}
			}
		})
	}
	t.Logf("%d answered, %d given up in time, %d left", answered, overdue, left)
	if answered == 0 || overdue == 0 || left == 0 {
		t.Errorf("%d answered, %d given up in time, %d left: want some of each", answered, overdue, left)
	}
}
