package main

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// contestant is what is measured.
type contestant struct {
	name    string
	cpu     func() time.Duration // that its server has used so far
	prepare func() error         // before each turn; may be nil
	call    func() (int64, error)
}

// errDry ends a turn early: there is nothing left to call with.
var errDry = errors.New("the stock is used up")

// turn is what came of one contestant's turn.
type turn struct {
	requests int64
	took     time.Duration
	cpu      time.Duration // the server's
	redisCPU time.Duration
	loadCPU  time.Duration // what making the load took, which shares the machine
}

func (t turn) perSecond() float64 { return float64(t.requests) / t.took.Seconds() }
func (t turn) cpuEach() float64   { return us(t.cpu) / float64(t.requests) }
func (t turn) redisEach() float64 { return us(t.redisCPU) / float64(t.requests) }
func (t turn) loadEach() float64  { return us(t.loadCPU) / float64(t.requests) }

// allEach leaves out what the load itself costs, which thins ratios of throughput.
func (t turn) allEach() float64 { return t.cpuEach() + t.redisEach() }

func us(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// compare lets all have their turns with n callers, each round beginning with another, and
// prints the medians. It returns the turns of each.
func (b *bench) compare(n int, all []contestant) ([][]turn, error) {
	turns := make([][]turn, len(all))
	for round := range b.rounds {
		for i := range all {
			i = (i + round) % len(all)
			t, err := b.take(n, all[i])
			if err != nil {
				return nil, fmt.Errorf("%s: %w", all[i].name, err)
			}
			turns[i] = append(turns[i], t)
		}
	}
	for i, c := range all {
		fmt.Printf("%4d callers  %-12s %9.0f requests/s  CPU µs/request: server %6.1f  Redis %6.2f  load %6.1f\n", n, c.name,
			median(turns[i], turn.perSecond), median(turns[i], turn.cpuEach), median(turns[i], turn.redisEach), median(turns[i], turn.loadEach))
	}
	return turns, nil
}

// take gives c a turn: n callers call until the span has passed.
func (b *bench) take(n int, c contestant) (turn, error) {
	if c.prepare != nil {
		if err := c.prepare(); err != nil {
			return turn{}, err
		}
	}
	if _, _, err := callers(n, b.span/20, c.call); err != nil { // connections, caches, scripts
		return turn{}, err
	}
	cpu, redisCPU, loadCPU := c.cpu(), b.redis.cpu(), ownCPU()
	requests, took, err := callers(n, b.span, c.call)
	return turn{requests, took, c.cpu() - cpu, b.redis.cpu() - redisCPU, ownCPU() - loadCPU}, err
}

// callers has n of them call until span has passed, or one fails.
func callers(n int, span time.Duration, call func() (int64, error)) (requests int64, took time.Duration, err error) {
	var total atomic.Int64
	var failed atomic.Pointer[error]
	var wg sync.WaitGroup
	began := time.Now()
	end := began.Add(span)
	for range n {
		wg.Go(func() {
			for time.Now().Before(end) && failed.Load() == nil {
				done, err := call()
				if err != nil {
					failed.CompareAndSwap(nil, &err)
				}
				total.Add(done)
			}
		})
	}
	wg.Wait()
	took = time.Since(began)
	if err := failed.Load(); err != nil && !errors.Is(*err, errDry) {
		return 0, took, *err
	}
	return total.Load(), took, nil
}

func median(turns []turn, f func(turn) float64) float64 {
	var all []float64
	for _, t := range turns {
		all = append(all, f(t))
	}
	return medianOf(all)
}

// medianOf sorts all; of an even number, it is the mean of the two in the middle.
func medianOf(all []float64) float64 {
	slices.Sort(all)
	return (all[(len(all)-1)/2] + all[len(all)/2]) / 2
}

// ownCPU returns what this process has used so far.
func ownCPU() time.Duration {
	var u syscall.Rusage
	fatal(syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
