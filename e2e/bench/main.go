// Command bench compares tokend with what it is built on and with what else there is, on
// this machine, in one run, the servers in turns. Figures are medians of the rounds and
// ratios: absolute times say more of the machine than of the program.
//
//	go run ./bench                                        all of it: a quarter of an hour or so
//	go run ./bench -only closed -callers 64 -rounds 2     half a minute
//
// Its parts:
//
//	closed  in a closed loop: a bare Echo handler that answers a constant body (hello),
//	        tokend as built with everything on (JWTs, log, metrics; issue and consume by
//	        turns), and the same API with each call a round trip of its own (plain)
//	open    in an open loop, by tokend bench: tokend and plain at some arrival rates
//	ways    what plain's server takes with other ways to Redis: a round trip for each call,
//	        the store's batcher, and go-redis's AutoPipeline as it comes, with a delay, and
//	        with several batches at a time
//	direct  the same issues and consumes by go-redis alone, without HTTP
//	fiber   once per submission within a form service, both of them the same Fiber app with
//	        the same handler: Fiber's idempotency middleware on its Redis storage, and a
//	        middleware that consumes a token by redisstore, in the same process; and, as
//	        another has it, tokend's own POST /v1/tokens/consume
//	redis   redis-benchmark: SET with an expiry and GETEX, two commands where a consume is
//	        one script; what this Redis does at most
//
// A request of plain differs from one of tokend in one thing, redisstore's NoBatching, but
// for the log: plain's lines are only buffered, which costs it less than tokend's cost.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"
)

var partNames = []string{"closed", "open", "ways", "direct", "fiber", "redis"}

func main() {
	rounds := flag.Int("rounds", 5, "rounds; in each, every contestant has its turn")
	span := flag.Duration("span", 2*time.Second, "how long a turn lasts")
	callers := flag.String("callers", "1,16,64,256", "how many callers at once, comma-separated")
	rates := flag.String("rates", "1000,5000,20000", "calls a second in open loops, comma-separated")
	keys := flag.Int("keys", 1_200_000, "keys that Redis holds from the start; above a power of two, so that its tables do not grow meanwhile")
	only := flag.String("only", strings.Join(partNames, ","), "the parts to run, comma-separated")
	serve := flag.String("serve", "", "be a contestant's server, and nothing else: hello, idempotency, consume or a way to Redis (plain, batcher, auto …)")
	listen := flag.String("listen", "", "where that server listens")
	redis := flag.String("redis", "", "where its Redis is")
	flag.Parse()
	if *serve != "" {
		fatal(serveContestant(*serve, *listen, *redis))
		return
	}
	parts := strings.Split(*only, ",")
	for _, part := range parts {
		if !slices.Contains(partNames, part) {
			fatal(fmt.Errorf("-only must name some of %s", strings.Join(partNames, ", ")))
		}
	}
	debug.SetGCPercent(400) // the load shares the machine with what it measures
	b := &bench{rounds: *rounds, span: *span, callers: numbers("callers", *callers), rates: numbers("rates", *rates), keys: *keys}
	fatal(b.run(parts))
}

// numbers reads the flag called name.
func numbers(name, text string) []int {
	var all []int
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(part)
		if err != nil || n < 1 {
			fatal(fmt.Errorf("-%s must be numbers with commas between", name))
		}
		all = append(all, n)
	}
	return all
}

func fatal(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}
