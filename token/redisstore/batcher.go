package redisstore

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"example.com/tokend/token"
)

// batcher has calls to one server that are under way at the same time share round trips:
// who finds no batch in flight sends at once, whoever comes meanwhile joins the next one.
// So a lone call waits for nobody, and under load a round trip, with its system calls and
// wake-ups, is paid for once by many.
//
// One batch is in flight at a time, unless it stands still: then the next goes beside it, on
// another connection, and one connection that has died without a word holds nobody up.
//
// There is no goroutine of its own: the callers lead in turn.
type batcher struct {
	send func(context.Context, []*call) // answers every call, and never panics

	mu     sync.Mutex
	queue  []*call   // of those who wait to be sent, in order
	flying []*flight // in flight, or about to be

	watch    *time.Timer // has look called while somebody waits
	watching bool
	looks    time.Time // when it does

	seats sync.Pool // of chan *flight that nobody sends to any more
}

// flight is a place for one batch after another.
type flight struct {
	since time.Time // when the present batch was sent
	calls []*call   // those of it who wait for its leader
}

// overdue is what a call hears whose time is over.
var overdue = new(flight)

const (
	// maxQueue bounds those who wait: above it a server is so far behind that a caller is
	// better told at once.
	maxQueue = 1024
	// maxBatch bounds a batch, and with it how long its first call waits for its last.
	maxBatch = 256
	// stall is how long after it was sent a batch stands still: many times what one takes.
	// As often it is looked for, and for calls whose time is over.
	stall = 25 * time.Millisecond
	// maxFlights bounds the connections that batches stand still on.
	maxFlights = 8
)

var (
	errQueueFull = fmt.Errorf("%w: too many calls wait for the server", token.ErrBusy)
	errGivenUp   = errors.New("not answered within the timeout")
)

// do has c answered, within timeout. The error is nil where c says what came of it;
// otherwise it was given up, in time or because ctx ended: then c is not looked at any
// more, and it may or may not have been carried out, as after any lost reply.
func (b *batcher) do(ctx context.Context, c *call, timeout time.Duration) error {
	b.mu.Lock()
	if len(b.flying) == 0 {
		f := b.newFlight()
		b.mu.Unlock()
		b.lead(ctx, f, c, timeout)
		return nil
	}
	if len(b.queue) >= maxQueue {
		b.mu.Unlock()
		return errQueueFull
	}
	called, ok := b.seats.Get().(chan *flight)
	if !ok {
		called = make(chan *flight, 1)
	}
	now := time.Now()
	c.called, c.until = called, now.Add(timeout)
	b.queue = append(b.queue, c)
	if !b.watching || c.until.Before(b.looks) {
		b.watchOver(now, min(stall, timeout))
	}
	b.mu.Unlock()
	err := b.wait(ctx, c, timeout)
	if err == nil { // else who leads c's batch may send to it yet
		b.seats.Put(called)
	}
	return err
}

// wait waits until c, which is in the queue, is answered, or leads.
func (b *batcher) wait(ctx context.Context, c *call, timeout time.Duration) error {
	var f *flight
	if done := ctx.Done(); done == nil {
		f = <-c.called
	} else {
		select {
		case f = <-c.called:
		case <-done:
			return b.leave(c, context.Cause(ctx))
		}
	}
	switch f {
	case nil:
		return nil
	case overdue:
		return errGivenUp
	}
	left := time.Until(c.until)
	if left > timeout*7/8 {
		b.lead(ctx, f, c, left)
		return nil
	}
	// It has little time left, the others have more: it leads in the background, and gives
	// up in time by itself.
	go func() {
		b.lead(ctx, f, c, timeout)
		c.called <- nil
	}()
	select {
	case <-c.called:
		return nil
	case <-time.After(left):
		return errGivenUp
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// watchOver has look called after a while from now. b.mu is held.
func (b *batcher) watchOver(now time.Time, after time.Duration) {
	b.watching, b.looks = true, now.Add(after)
	if b.watch == nil {
		b.watch = time.AfterFunc(after, b.look)
	} else {
		b.watch.Reset(after)
	}
}

// look gives up calls whose time is over, and has the next one leave if all flights stand
// still; and it looks again as long as somebody waits, at the latest when somebody's time is
// over. One look for all costs less than a timer for each.
func (b *batcher) look() {
	b.mu.Lock()
	defer b.mu.Unlock()
	now, again := time.Now(), stall
	waiting := 0
	watch := func(c *call) (over bool) {
		if over = c.giveUp(now); !over {
			waiting++
			again = min(again, c.until.Sub(now))
		}
		return over
	}
	b.queue = slices.DeleteFunc(b.queue, watch)
	for _, f := range b.flying {
		for _, c := range f.calls {
			watch(c)
		}
	}
	if len(b.queue) > 0 && len(b.flying) < maxFlights && !b.moving(nil) {
		b.callLeader(b.newFlight())
	}
	if b.watching = waiting > 0; b.watching {
		b.watchOver(now, again)
	}
}

// giveUp tells c if its time is over, and returns whether it is.
func (c *call) giveUp(now time.Time) bool {
	if now.Before(c.until) {
		return false
	}
	select {
	case c.called <- overdue:
	default: // answered just now, or told before
	}
	return true
}

// lead sends c and those who wait, in f, and calls the next leader.
func (b *batcher) lead(ctx context.Context, f *flight, c *call, timeout time.Duration) {
	b.gather()
	n := min(len(b.queue), maxBatch-1)
	batch := make([]*call, 1, 1+n)
	batch[0] = c
	batch = append(batch, b.queue[:n]...)
	b.queue = append(b.queue[:0], b.queue[n:]...)
	f.since, f.calls = time.Now(), batch[1:]
	b.mu.Unlock()

	// The batch is not its leader's alone: it does not end with the leader's context.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	b.send(ctx, batch)
	cancel()

	b.mu.Lock()
	f.calls = nil
	b.next(f)
	b.mu.Unlock()
	for _, other := range batch[1:] {
		select {
		case other.called <- nil:
		default: // given up
		}
	}
}

// gather lets whoever is about to call join the queue, for as long as somebody does: that
// costs a lone call nothing, and under load makes one round trip of several. It locks b.mu.
func (b *batcher) gather() {
	const most = 4 // times that others go first
	before := -1
	for range most {
		runtime.Gosched()
		b.mu.Lock()
		now := len(b.queue)
		if now == before {
			return
		}
		before = now
		b.mu.Unlock()
	}
	b.mu.Lock()
}

// next calls the next leader to f, if anybody waits and no other flight is on its way to
// them. b.mu is held.
func (b *batcher) next(f *flight) {
	if len(b.queue) == 0 || b.moving(f) {
		b.flying = slices.DeleteFunc(b.flying, func(other *flight) bool { return other == f })
		return
	}
	b.callLeader(f)
}

// callLeader has the first who waits lead in f. b.mu is held.
func (b *batcher) callLeader(f *flight) {
	leader := b.queue[0]
	b.queue = append(b.queue[:0], b.queue[1:]...)
	f.since = time.Now()
	leader.called <- f
}

// moving tells whether a flight other than f does not stand still. b.mu is held.
func (b *batcher) moving(f *flight) bool {
	for _, other := range b.flying {
		if other != f && time.Since(other.since) < stall {
			return true
		}
	}
	return false
}

// rests tells whether nothing flies.
func (b *batcher) rests() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.flying) == 0
}

// newFlight adds one. b.mu is held.
func (b *batcher) newFlight() *flight {
	f := &flight{since: time.Now()}
	b.flying = append(b.flying, f)
	return f
}

// dequeue takes c out of the queue, and tells whether it was there. b.mu is held.
func (b *batcher) dequeue(c *call) bool {
	i := slices.Index(b.queue, c)
	if i < 0 {
		return false
	}
	b.queue = slices.Delete(b.queue, i, i+1)
	return true
}

// leave takes c out of the queue, and returns why; or nil if it was answered meanwhile.
func (b *batcher) leave(c *call, why error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.dequeue(c) {
		return why
	}
	select {
	case f := <-c.called:
		switch f {
		case nil:
			return nil
		case overdue:
			return why
		}
		b.next(f) // called just now: somebody else leads
	default: // in flight: its answer is nobody's
	}
	return why
}
