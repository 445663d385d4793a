package loadtest

import (
	"context"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// In a bubble only the time package's own sleep moves the clock.
func init() { nap = time.Sleep }

func TestPrecisely(t *testing.T) {
	for end := time.Now().Add(5 * time.Millisecond); time.Now().Before(end); {
		precisely(time.Until(end))
	}
}

func TestClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls, now, most atomic.Int64
		took := Closed(t.Context(), 3, time.Second, func() {
			most.Store(max(most.Load(), now.Add(1)))
			time.Sleep(100 * time.Millisecond)
			now.Add(-1)
			calls.Add(1)
		})
		if calls.Load() != 30 || most.Load() != 3 || took != time.Second {
			t.Errorf("%d calls, %d at once, in %v", calls.Load(), most.Load(), took)
		}
	})
}

func TestLoopsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		closed := Closed(ctx, 2, time.Hour, func() { time.Sleep(time.Millisecond) })
		if closed > 2*time.Second {
			t.Errorf("the closed loop took %v", closed)
		}
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if got := Open(ctx, Arrivals{Rate: 100, Span: time.Hour, AtOnce: 10}, func(time.Time) {}); got.Took > 2*time.Second {
			t.Errorf("the open loop: %+v", got)
		}
	})
}

// Arrivals come at the rate, independent of each other: gaps have the spread of Poisson's.
func TestOpenArrivals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var last time.Time
		var n, sum, squares float64
		got := Open(t.Context(), Arrivals{Rate: 1000, Span: 20 * time.Second, AtOnce: 1000}, func(due time.Time) {
			if !due.Equal(time.Now()) {
				t.Errorf("due at %v, called at %v", due, time.Now())
			}
			if !last.IsZero() {
				gap := due.Sub(last).Seconds()
				n, sum, squares = n+1, sum+gap, squares+gap*gap
			}
			last = due
		})
		mean := sum / n
		spread := math.Sqrt(squares/n-mean*mean) / mean
		if mean < .9e-3 || mean > 1.1e-3 || spread < .9 || spread > 1.1 {
			t.Errorf("%v calls, gaps of %v with a spread of %v", n, mean, spread)
		}
		if got.Late != 0 || got.Dropped != 0 || got.Called != int64(n)+1 {
			t.Errorf("%+v", got)
		}
	})
}

// A service that stalls is charged for all who arrive meanwhile: none waits with arriving,
// and who finds too many under way is dropped and counted.
func TestOpenStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		end := began.Add(5 * time.Second)
		var h Histogram
		got := Open(t.Context(), Arrivals{Rate: 100, Span: 5 * time.Second, AtOnce: 200}, func(due time.Time) {
			time.Sleep(time.Until(end))
			h.Add(time.Since(due))
		})
		if got.Called != 200 || got.Dropped < 200 || got.Late != 0 {
			t.Errorf("%+v", got)
		}
		if p50 := h.Quantile(.5); p50 < 3*time.Second || p50 > 4900*time.Millisecond {
			t.Errorf("half took %v", p50)
		}
	})
}
