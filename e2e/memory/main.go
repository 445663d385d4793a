// Command memory measures what tokens take of Redis, and whether a call costs more among
// many of them. It starts a redis-server of its own on loopback and fills it.
//
//	go run ./memory -to 10000000
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/tokend/token"
	"example.com/tokend/token/redisstore"
)

func main() {
	to := flag.Int("to", 1_000_000, "how many live tokens to go up to, in powers of ten from 10,000")
	flag.Parse()
	if err := measure(*to); err != nil {
		fmt.Fprintln(os.Stderr, "memory:", err)
		os.Exit(1)
	}
}

func measure(to int) error {
	rdb, stop, err := startRedis()
	if err != nil {
		return err
	}
	defer stop()
	f, err := newFiller(rdb)
	if err != nil {
		return err
	}
	if err := f.sizes(); err != nil {
		return err
	}
	fmt.Printf("\n%12s %16s %16s %16s\n", "live tokens", "issue, µs", "consume, µs", "refusal, µs")
	for n := 10_000; n <= to; n *= 10 {
		if err := f.fillTo(n); err != nil {
			return err
		}
		issue, consume, refuse, err := f.costs()
		if err != nil {
			return err
		}
		fmt.Printf("%12d %16.2f %16.2f %16.2f\n", n, issue, consume, refuse)
	}
	return nil
}

// filler makes tokens, a batch at a time. Each batch is another user's.
type filler struct {
	ctx   context.Context
	rdb   *redis.Client
	store *redisstore.Store
	svc   *token.Service
	users int
	live  int
}

const batch = 100

func newFiller(rdb *redis.Client) (*filler, error) {
	ring, err := token.NewRing(token.Key{ID: "1"})
	if err != nil {
		return nil, err
	}
	store := redisstore.New(rdb, redisstore.Options{Timeout: time.Minute})
	return &filler{ctx: context.Background(), rdb: rdb, store: store, svc: token.NewService(ring, store, token.Options{
		Mode: token.Record, Settings: token.Settings{TTL: 24 * time.Hour, MaxTTL: 24 * time.Hour, Retention: 24 * time.Hour},
	})}, nil
}

// issue issues a batch and returns what would consume it.
func (f *filler) issue() ([]token.Consumption, error) {
	f.users++
	user := token.User(fmt.Sprintf("user-%d", f.users))
	tokens, err := f.svc.IssueBatch(f.ctx, token.IssueRequest{User: user, Purpose: "order.create"}, batch)
	if err != nil {
		return nil, err
	}
	f.live += batch
	cs := make([]token.Consumption, batch)
	for i, t := range tokens {
		opened, err := f.svc.Open(token.Use{Text: t.Text, User: user, Purpose: "order.create"})
		if err != nil {
			return nil, err
		}
		cs[i] = token.Consumption{User: user, Token: opened, Attempt: token.NewAttempt()}
	}
	return cs, nil
}

func (f *filler) consume(cs []token.Consumption) error {
	_, errs := f.store.ConsumeBatch(f.ctx, cs)
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	f.live -= len(cs)
	return nil
}

func (f *filler) fillTo(live int) error {
	for f.live < live {
		if _, err := f.issue(); err != nil {
			return err
		}
	}
	return nil
}

// sizes prints what a million tokens of a kind take.
func (f *filler) sizes() error {
	const n = 1_000_000
	fmt.Printf("%24s %22s %22s\n", "over a million tokens", "used_memory each, B", "MEMORY USAGE, B")
	for _, kind := range []struct {
		name   string
		use    bool
		digest token.Digest
	}{{"live", false, ""}, {"used", true, ""}, {"used, with a digest", true, "sha-256=:xyz:"}} {
		if err := f.rdb.FlushAll(f.ctx).Err(); err != nil {
			return err
		}
		f.live = 0
		before, err := f.info("memory", `used_memory:(\d+)`)
		if err != nil {
			return err
		}
		var last token.Consumption
		for range n / batch {
			cs, err := f.issue()
			if err != nil {
				return err
			}
			for i := range cs {
				cs[i].Digest = kind.digest
			}
			if kind.use {
				if err := f.consume(cs); err != nil {
					return err
				}
			}
			last = cs[0]
		}
		after, err := f.info("memory", `used_memory:(\d+)`)
		if err != nil {
			return err
		}
		one, err := f.rdb.MemoryUsage(f.ctx, redisstore.TokenKey("tokend", last.User.Hash(), last.Token.ID)).Result()
		if err != nil {
			return err
		}
		fmt.Printf("%24s %22.1f %22d\n", kind.name, (after-before)/n, one)
	}
	return f.rdb.FlushAll(f.ctx).Err()
}

// costs returns what Redis itself spends on a call, by its own account: the median of
// rounds of a hundred.
func (f *filler) costs() (issue, consume, refuse float64, err error) {
	var all [3][]float64
	for range 101 {
		var cs []token.Consumption
		steps := []func() error{
			func() (err error) { cs, err = f.issue(); return err },
			func() error { return f.consume(cs) },
			func() error {
				for i := range cs {
					cs[i].Attempt = token.NewAttempt()
				}
				f.store.ConsumeBatch(f.ctx, cs) // all refused
				return nil
			},
		}
		for i, step := range steps {
			if err := f.rdb.ConfigResetStat(f.ctx).Err(); err != nil {
				return 0, 0, 0, err
			}
			if err := step(); err != nil {
				return 0, 0, 0, err
			}
			us, err := f.info("commandstats", `cmdstat_evalsha:calls=\d+,usec=(\d+)`)
			if err != nil {
				return 0, 0, 0, err
			}
			all[i] = append(all[i], us/batch)
		}
	}
	return median(all[0]), median(all[1]), median(all[2]), nil
}

// info returns a number from INFO.
func (f *filler) info(section, pattern string) (float64, error) {
	text, err := f.rdb.Info(f.ctx, section).Result()
	if err != nil {
		return 0, err
	}
	m := regexp.MustCompile(pattern).FindStringSubmatch(text)
	if m == nil {
		return 0, fmt.Errorf("INFO %s says nothing of %s", section, pattern)
	}
	return strconv.ParseFloat(m[1], 64)
}

func startRedis() (*redis.Client, func(), error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	addr := l.Addr().String()
	l.Close()
	_, port, _ := net.SplitHostPort(addr)
	dir, err := os.MkdirTemp("", "tokend-memory")
	if err != nil {
		return nil, nil, err
	}
	cmd := exec.Command("redis-server", "--port", port, "--bind", "127.0.0.1", "--dir", dir, "--save", "", "--appendonly", "no")
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	rdb := redis.NewClient(&redis.Options{Addr: addr, ReadTimeout: time.Minute})
	stop := func() {
		rdb.Close()
		cmd.Process.Kill()
		cmd.Wait()
		os.RemoveAll(dir)
	}
	for range 500 {
		if err = rdb.Ping(context.Background()).Err(); err == nil {
			return rdb, stop, nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	stop()
	return nil, nil, err
}

func median(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}
