package main

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"example.com/tokend/client"
	"example.com/tokend/e2e/internal/topology"
	"example.com/tokend/internal/loadtest"
)

// turn is what one setting did in one turn.
type turn struct {
	rate     float64 // calls a second
	mid, far time.Duration
}

// cost compares settings of redis.wait_replicas on one master with two replicas.
func cost(program *topology.Program, dir string) error {
	s, err := start("sentinel", dir, noFile)
	if err != nil {
		return err
	}
	defer s.close()
	var clients []*client.Client
	for wait := range replicas + 1 {
		i, err := program.Serve(s.url, "sentinel", fmt.Sprint("REDIS_WAIT_REPLICAS=", wait), "REDIS_WAIT_TIMEOUT=3s", "REDIS_TIMEOUT=5s")
		if err != nil {
			return err
		}
		defer i.Close()
		clients = append(clients, i.Client())
	}
	fmt.Println("| callers | `redis.wait_replicas` | calls a second | of those without | median, ms | 99 of 100 within, ms |")
	fmt.Println("| --- | --- | --- | --- | --- | --- |")
	for _, n := range []int{1, 16, 64} {
		turns := make([][]turn, len(clients))
		for round := range max(3, *rounds) {
			for wait, c := range clients {
				fmt.Fprintf(os.Stderr, "cost: round %d, %d callers, wait %d\n", round+1, n, wait)
				got, err := measure(c, n, s.users)
				if err != nil {
					return err
				}
				turns[wait] = append(turns[wait], got)
			}
		}
		var ratio []float64
		for wait, of := range turns {
			var rates []float64
			var mids, fars []time.Duration
			for round, t := range of {
				rates, mids, fars = append(rates, t.rate), append(mids, t.mid), append(fars, t.far)
				ratio = append(ratio[:round], t.rate/turns[0][round].rate)
			}
			fmt.Printf("| %d | %d | %.0f | %.2f | %.2f | %.2f |\n", n, wait, median(rates), median(ratio),
				float64(median(mids))/1e6, float64(median(fars))/1e6)
		}
	}
	return nil
}

// measure has n callers issue and consume by turns. A call without an answer counts as a
// call: the machine alone is its reason here.
func measure(c *client.Client, n int, users []string) (turn, error) {
	var h loadtest.Histogram
	var calls, failed atomic.Int64
	var fault atomic.Value
	ctx := context.Background()
	took := loadtest.Closed(ctx, n, *span, func() {
		user := users[int(calls.Add(2))/2%len(users)]
		began := time.Now()
		tok, err := c.Issue(ctx, user)
		h.Add(time.Since(began))
		if err == nil {
			began = time.Now()
			_, err = c.Consume(ctx, user, tok.Value)
			h.Add(time.Since(began))
		}
		if err != nil {
			failed.Add(1)
			fault.Store(err.Error())
		}
	})
	if failed.Load() > calls.Load()/100 {
		return turn{}, fmt.Errorf("%d of %d calls failed: %v", failed.Load(), calls.Load(), fault.Load())
	}
	return turn{float64(calls.Load()) / took.Seconds(), h.Quantile(0.5), h.Quantile(0.99)}, nil
}
