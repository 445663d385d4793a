package loadtest

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"
)

// Closed has n callers call, each again as soon as it was answered, until span has passed
// or ctx ends. It returns how long that took, the last answers included.
func Closed(ctx context.Context, n int, span time.Duration, call func()) time.Duration {
	began := time.Now()
	end := began.Add(span)
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			for time.Now().Before(end) && ctx.Err() == nil {
				call()
			}
		})
	}
	wg.Wait()
	return time.Since(began)
}

// Arrivals say how calls arrive in an open loop.
type Arrivals struct {
	Rate   float64       // a second, in the long run: they are independent of each other (Poisson)
	Span   time.Duration // how long they arrive
	AtOnce int           // how many may be under way; who arrives above that is dropped
}

// Arrived is what became of the arrivals of an open loop.
type Arrived struct {
	Called  int64         // calls made
	Late    int64         // of these, how many were begun more than LateBy after their time: the generator's own fault
	Dropped int64         // arrivals that found too many under way: no call was made
	Took    time.Duration // until the last answer
}

// LateBy is how long after its time a call must begin to be counted as late.
const LateBy = 5 * time.Millisecond

// Open has calls arrive until a.Span has passed or ctx ends, and tells each when it was to
// arrive: what it took is counted from there.
func Open(ctx context.Context, a Arrivals, call func(due time.Time)) Arrived {
	var got Arrived
	var wg sync.WaitGroup
	waiting := make(chan time.Time) // to callers that are free
	callers := 0
	began := time.Now()
	for due := began.Add(a.gap()); due.Sub(began) < a.Span; due = due.Add(a.gap()) {
		sleepUntil(ctx, due)
		if ctx.Err() != nil {
			break
		}
		late := time.Since(due) > LateBy
		select {
		case waiting <- due:
		default:
			if callers == a.AtOnce {
				got.Dropped++
				continue
			}
			callers++
			wg.Go(func() {
				call(due)
				for due := range waiting {
					call(due)
				}
			})
		}
		got.Called++
		if late {
			got.Late++
		}
	}
	close(waiting)
	wg.Wait()
	got.Took = time.Since(began)
	return got
}

// gap returns how long after an arrival the next one comes.
func (a Arrivals) gap() time.Duration {
	return time.Duration(rand.ExpFloat64() / a.Rate * float64(time.Second))
}

// nap sleeps for a millisecond or two at most, or less. Tests replace it.
var nap = precisely

// sleepUntil returns when due has come, or ctx has ended.
func sleepUntil(ctx context.Context, due time.Time) {
	const near = 2 * time.Millisecond
	if wait := time.Until(due) - near; wait > 0 {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
	}
	runtime.Gosched() // to whoever was called: a nap holds what it would run on
	for wait := time.Until(due); wait > 0; wait = time.Until(due) {
		nap(wait)
	}
}
