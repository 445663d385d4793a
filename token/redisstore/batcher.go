package redisstore

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"
)

// batcher has calls to one server that are under way at the same time share round trips:
// who finds no batch in flight sends at once, whoever comes meanwhile joins the next one.
// So a lone call waits for nobody, and under load a round trip, with its system calls and
// wake-ups, is paid for once by many.
//
// There is no goroutine of its own: the callers lead in turn.
type batcher struct {
	send func(context.Context, []*call) // answers every call

	mu    sync.Mutex
	queue []*call // of those who wait to be sent, in order
	busy  bool    // a batch is in flight, or its leader has been called
}

const (
	// maxQueue bounds those who wait: above it a server is so far behind that a caller is
	// better told at once.
	maxQueue = 1024
	// maxBatch bounds a batch, and with it how long its first call waits for its last.
	maxBatch = 256
)

var (
	errQueueFull = errors.New("too many calls wait for the server")
	errGivenUp   = errors.New("not answered within the timeout")
)

// do has c answered, within timeout. The error is nil where c says what came of it;
// otherwise it was given up, in time or because ctx ended: then c is not looked at any
// more, and it may or may not have been carried out, as after any lost reply.
func (b *batcher) do(ctx context.Context, c *call, timeout time.Duration) error {
	b.mu.Lock()
	if !b.busy {
		b.busy = true
		b.mu.Unlock()
		b.lead(ctx, c, timeout)
		return nil
	}
	if len(b.queue) >= maxQueue {
		b.mu.Unlock()
		return errQueueFull
	}
	c.called = make(chan bool, 1)
	b.queue = append(b.queue, c)
	b.mu.Unlock()

	began := time.Now()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for {
		select {
		case lead := <-c.called:
			waited := time.Since(began)
			switch {
			case !lead:
				return nil
			case waited < timeout/8:
				b.lead(ctx, c, timeout-waited)
				return nil
			}
			// It has little time left, the others have more: it leads in the background,
			// and gives up in time by itself.
			go func() {
				b.lead(ctx, c, timeout)
				c.called <- false
			}()
		case <-timer.C:
			return b.leave(c, errGivenUp)
		case <-ctx.Done():
			return b.leave(c, context.Cause(ctx))
		}
	}
}

// lead sends c and those who wait, and calls the next leader.
func (b *batcher) lead(ctx context.Context, c *call, timeout time.Duration) {
	// Whoever is about to call joins: that costs a lone call nothing, and under load makes
	// one round trip of several.
	runtime.Gosched()
	b.mu.Lock()
	n := min(len(b.queue), maxBatch-1)
	batch := make([]*call, 1, 1+n)
	batch[0] = c
	batch = append(batch, b.queue[:n]...)
	b.queue = append(b.queue[:0], b.queue[n:]...)
	b.mu.Unlock()

	// The batch is not its leader's alone: it does not end with the leader's context.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	b.send(ctx, batch)
	cancel()

	b.mu.Lock()
	b.next()
	b.mu.Unlock()
	for _, other := range batch[1:] {
		other.called <- false
	}
}

// next calls the next leader, if anybody waits. b.mu is held.
func (b *batcher) next() {
	if len(b.queue) == 0 {
		b.busy = false
		return
	}
	leader := b.queue[0]
	b.queue = append(b.queue[:0], b.queue[1:]...)
	leader.called <- true
}

// leave takes c out of the queue, and returns why; or nil if it was answered meanwhile.
func (b *batcher) leave(c *call, why error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, waiting := range b.queue {
		if waiting == c {
			b.queue = append(b.queue[:i], b.queue[i+1:]...)
			return why
		}
	}
	select {
	case lead := <-c.called:
		if !lead {
			return nil
		}
		b.next() // called just now: somebody else leads
	default: // in flight: its answer is nobody's
	}
	return why
}
