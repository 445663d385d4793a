package main

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/tokend/token"
	"example.com/tokend/token/redisstore"
)

// way is a way from calls to Redis.
type way struct {
	name string
	// auto are the options of go-redis's AutoPipeline; nil for the store's own ways.
	auto  *redis.AutoPipelineOptions
	batch bool // by the store's batcher
	none  bool // to no Redis at all
}

// ways are what plain's server may take, the first being plain itself. An AutoPipeline sends
// its batches to the end whatever becomes of their callers, and a broken connection has it
// send a batch again: it is here to be measured.
var ways = []way{
	{name: "plain"},
	{name: "batcher", batch: true},
	{name: "none", none: true}, // what is left for a way to Redis to cost
	{name: "auto", auto: redis.DefaultBlockingAutoPipelineOptions()},
	{name: "auto-delay", auto: &redis.AutoPipelineOptions{MaxBatchSize: 300, MaxConcurrentBatches: 1, MaxFlushDelay: 100 * time.Microsecond}},
	{name: "auto-parallel", auto: &redis.AutoPipelineOptions{MaxBatchSize: 300, MaxConcurrentBatches: 4, Unordered: true}},
}

// wayNamed returns the way called name, or nil.
func wayNamed(name string) *way {
	for i := range ways {
		if ways[i].name == name {
			return &ways[i]
		}
	}
	return nil
}

// client returns the client of the Redis at addr that w goes by, and what the store is told.
func (w *way) client(addr string) (redis.UniversalClient, redisstore.Options, error) {
	rdb := newRedis(addr)
	if w.auto == nil {
		return rdb, redisstore.Options{NoBatching: !w.batch}, nil
	}
	auto, err := rdb.AutoPipelineWithOptions(w.auto)
	return auto, redisstore.Options{NoBatching: true}, err
}

// bound is a store that grants whatever is asked and keeps nothing.
type bound struct{ token.Store }

func (bound) Issue(_ context.Context, n token.NewRecords) (token.Issued, error) {
	now := time.Now().Truncate(time.Millisecond)
	return token.Issued{IssuedAt: now, ExpiresAt: now.Add(n.TTL)}, nil
}

func (bound) Consume(context.Context, token.Consumption) (token.Consumed, error) {
	return token.Consumed{UsedAt: time.Now()}, nil
}

// toRedis compares the ways to Redis: the same server, in closed loops and in open ones.
func (b *bench) toRedis() error {
	hello, err := b.startSelf("hello")
	if err != nil {
		return err
	}
	if err := b.build(); err != nil { // its bench makes the open loops
		return err
	}
	servers := make([]*server, len(ways))
	all := []contestant{{"hello", hello.cpu, nil, (&greeter{newClient(hello)}).call}}
	for i, w := range ways {
		if servers[i], err = b.startSelf(w.name); err != nil {
			return err
		}
		if err := servers[i].ready(); err != nil {
			return err
		}
		all = append(all, contestant{w.name, servers[i].cpu, nil, newPairs(servers[i]).call})
	}
	for _, n := range b.callers {
		got, err := b.compare(n, all)
		if err != nil {
			return err
		}
		at := fmt.Sprintf("%d callers", n)
		for i, w := range ways {
			t := got[i+1]
			b.note("throughput, "+w.name+" ÷ hello", at, median(t, turn.perSecond)/median(got[0], turn.perSecond))
			b.note("server CPU, "+w.name+" ÷ hello", at, median(t, turn.cpuEach)/median(got[0], turn.cpuEach))
			b.note("Redis CPU of "+w.name+", µs a request", at, median(t, turn.redisEach))
		}
	}
	for _, rate := range b.rates {
		turns := make([][]arrivals, len(ways))
		for round := range b.rounds {
			for i := range ways {
				i = (i + round) % len(ways)
				if ways[i].none { // tokend bench would find each token consumed twice
					continue
				}
				a, err := b.arrive(servers[i], rate)
				if err != nil {
					return err
				}
				turns[i] = append(turns[i], a)
			}
		}
		at := fmt.Sprintf("%d calls/s", rate)
		for i, w := range ways[1:] {
			if w.none {
				continue
			}
			b.note("open loop p50, "+w.name+" ÷ plain", at, medianArrival(turns[i+1], arrivals.p50)/medianArrival(turns[0], arrivals.p50))
			b.note("open loop p99, "+w.name+" ÷ plain", at, medianArrival(turns[i+1], arrivals.p99)/medianArrival(turns[0], arrivals.p99))
		}
	}
	return nil
}

func medianArrival(turns []arrivals, f func(arrivals) float64) float64 {
	var all []float64
	for _, a := range turns {
		all = append(all, f(a))
	}
	return medianOf(all)
}
