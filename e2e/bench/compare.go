package main

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/valyala/fasthttp"
)

// turn is what came of one server's turn.
type turn struct {
	requests int64
	took     time.Duration
	cpu      time.Duration
	redisCPU time.Duration
}

func (t turn) perSecond() float64 { return float64(t.requests) / t.took.Seconds() }
func (t turn) cpuEach() float64   { return us(t.cpu) / float64(t.requests) }
func (t turn) redisEach() float64 { return us(t.redisCPU) / float64(t.requests) }

func us(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func compare(rounds int, span time.Duration, counts []int) error {
	dir, err := os.MkdirTemp("", "tokend-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	redis, tokend, hello, err := startAll(dir)
	for _, s := range []*server{redis, tokend, hello} {
		if s != nil {
			defer s.stop()
		}
	}
	if err != nil {
		return err
	}
	pairs := &pairs{client: client(tokend.addr), user: bearer("alice", ""), service: bearer("svc", "tokend.consume")}
	greet := &greeter{client: client(hello.addr)}

	fmt.Printf("%7s  %-22s %12s %12s %12s\n", "callers", "medians", "hello", "tokend", "tokend÷hello")
	for _, n := range counts {
		var hellos, tokends []turn
		for range rounds {
			h, err := take(n, span, hello, redis, greet.call)
			if err != nil {
				return err
			}
			t, err := take(n, span, tokend, redis, pairs.call)
			if err != nil {
				return err
			}
			hellos, tokends = append(hellos, h), append(tokends, t)
		}
		row := func(name string, f func(turn) float64) {
			h, t := median(hellos, f), median(tokends, f)
			fmt.Printf("%7d  %-22s %12.1f %12.1f %12.2f\n", n, name, h, t, t/h)
		}
		row("server CPU µs/request", turn.cpuEach)
		row("requests/s", turn.perSecond)
		fmt.Printf("%7d  %-22s %12s %12.1f\n", n, "Redis CPU µs/request", "", median(tokends, turn.redisEach))
	}
	return nil
}

// take gives s a turn: n callers call until span has passed.
func take(n int, span time.Duration, s, redis *server, call func() (int64, error)) (turn, error) {
	var total atomic.Int64
	var failed atomic.Pointer[error]
	var wg sync.WaitGroup
	run := func(span time.Duration) {
		total.Store(0)
		end := time.Now().Add(span)
		for range n {
			wg.Go(func() {
				for time.Now().Before(end) && failed.Load() == nil {
					done, err := call()
					if err != nil {
						failed.Store(&err)
					}
					total.Add(done)
				}
			})
		}
		wg.Wait()
	}
	run(span / 10) // connections, caches, scripts
	cpu, redisCPU, began := s.cpu(), redis.cpu(), time.Now()
	run(span)
	if err := failed.Load(); err != nil {
		return turn{}, *err
	}
	return turn{total.Load(), time.Since(began), s.cpu() - cpu, redis.cpu() - redisCPU}, nil
}

func median(turns []turn, f func(turn) float64) float64 {
	var all []float64
	for _, t := range turns {
		all = append(all, f(t))
	}
	slices.Sort(all)
	return all[len(all)/2]
}

func client(addr string) *fasthttp.HostClient {
	return &fasthttp.HostClient{Addr: addr, MaxConns: 1024}
}

func bearer(sub, scope string) string {
	claims := jwt.MapClaims{"sub": sub, "exp": time.Now().Add(time.Hour).Unix()}
	if scope != "" {
		claims["scope"] = scope
	}
	text, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString([]byte(jwtSecret))
	fatal(err)
	return "Bearer " + text
}
