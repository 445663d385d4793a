package main

import (
	"fmt"
	"os"
	"slices"
	"time"
)

// bench is one run.
type bench struct {
	rounds  int
	span    time.Duration // of a turn
	callers []int
	rates   []int
	keys    int // that Redis holds from the start

	dir     string
	tokend  string  // the program
	redis   *server // everybody's
	running []*server
	figures []figure
}

// run runs the parts and prints what they found.
func (b *bench) run(parts []string) (err error) {
	if b.dir, err = os.MkdirTemp("", "tokend-bench"); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	defer b.stopAll()
	if b.redis, err = b.startRedis(); err != nil {
		return err
	}
	if err := b.fill(); err != nil {
		return err
	}
	for _, part := range []struct {
		name string
		run  func() error
	}{{"closed", b.closed}, {"open", b.open}, {"ways", b.toRedis}, {"direct", b.direct}, {"fiber", b.fiber}, {"redis", b.redisBenchmark}} {
		if slices.Contains(parts, part.name) {
			if err := part.run(); err != nil {
				return fmt.Errorf("%s: %w", part.name, err)
			}
		}
	}
	return b.printFigures()
}

// closed compares tokend with a bare handler and with itself without batching.
func (b *bench) closed() error {
	hello, err := b.startSelf("hello")
	if err != nil {
		return err
	}
	tokend, plain, err := b.startBoth()
	if err != nil {
		return err
	}
	for _, n := range b.callers {
		got, err := b.compare(n, []contestant{
			{"hello", hello.cpu, nil, (&greeter{newClient(hello)}).call},
			{"tokend", tokend.cpu, nil, newPairs(tokend).call},
			{"plain", plain.cpu, nil, newPairs(plain).call},
		})
		if err != nil {
			return err
		}
		h, t, p := got[0], got[1], got[2]
		at := fmt.Sprintf("%d callers", n)
		b.atMost("server CPU, tokend ÷ hello", at, median(t, turn.cpuEach)/median(h, turn.cpuEach), 1.9)
		b.atMost("Redis CPU, µs a request", at, median(t, turn.redisEach), 3.2)
		b.atLeast("throughput, tokend ÷ hello", at, median(t, turn.perSecond)/median(h, turn.perSecond), goalAt(n, 64, .5))
		b.atLeast("throughput, tokend ÷ plain", at, median(t, turn.perSecond)/median(p, turn.perSecond), max(goalAt(n, 64, 1.4), goalAt(n, 256, 1.6)))
	}
	return nil
}

// direct takes HTTP away.
func (b *bench) direct() error {
	d, err := newDirect(b.redis)
	if err != nil {
		return err
	}
	for _, n := range b.callers {
		got, err := b.compare(n, []contestant{{"go-redis", ownCPU, nil, d.call}})
		if err != nil {
			return err
		}
		at := fmt.Sprintf("%d callers", n)
		b.note("go-redis alone, calls/s", at, median(got[0], turn.perSecond))
		b.note("go-redis alone, Redis CPU, µs a call", at, median(got[0], turn.redisEach))
	}
	return nil
}

// fiber compares ways to carry out a submission once.
func (b *bench) fiber() error {
	idempotency, err := b.startSelf("idempotency")
	if err != nil {
		return err
	}
	consume, err := b.startSelf("consume")
	if err != nil {
		return err
	}
	tokend, err := b.startTokend()
	if err != nil {
		return err
	}
	s, err := newStock(b.redis)
	if err != nil {
		return err
	}
	fill := func() error { return s.fill(int(b.span.Seconds()*maxPerSecond) + maxPerSecond/10) }
	for _, n := range b.callers {
		got, err := b.compare(n, []contestant{
			{"idempotency", idempotency.cpu, nil, newIdempotent(idempotency).call},
			{"consume", consume.cpu, fill, (&submitter{newClient(consume), s}).call},
			{"tokend", tokend.cpu, fill, newConsumer(tokend, s).call},
		})
		if err != nil {
			return err
		}
		i, c, t := got[0], got[1], got[2]
		at := fmt.Sprintf("%d callers", n)
		b.atLeast("once per submission, consume ÷ idempotency", at, median(c, turn.perSecond)/median(i, turn.perSecond), goalAt(n, 64, 2.4))
		b.note("once per submission, by CPU of server and Redis, consume ÷ idempotency", at, median(i, turn.allEach)/median(c, turn.allEach))
		b.note("once per submission, server CPU, consume ÷ idempotency", at, median(c, turn.cpuEach)/median(i, turn.cpuEach))
		b.note("once per submission, Redis CPU, consume ÷ idempotency", at, median(c, turn.redisEach)/median(i, turn.redisEach))
		b.note("tokend's consume over HTTP ÷ idempotency", at, median(t, turn.perSecond)/median(i, turn.perSecond))
	}
	return nil
}

// maxPerSecond is more than this bench can send in a second.
const maxPerSecond = 40_000
