// Command failover measures what tokend loses when Redis does, and what it costs to lose less.
// It starts Redis under Sentinels and as a cluster, each master with two replicas, and tokend
// on it; has callers issue and consume; breaks the master that they use; and asks afterwards
// for every token whose consume was acknowledged, with another attempt.
//
//	go run ./failover                        all of it, once: seven minutes or so
//	go run ./failover -rounds 3 -only loss   three times, without the cost
//	go run ./failover -match 'sentinel.*killed'
//
// What breaks:
//
//	killed     the master is killed (SIGKILL) under load, and a replica takes over
//	behind     the same, after its replicas have got nothing for a second: they are stopped
//	           (SIGSTOP) and their connections cut, until the master is dead. It makes certain
//	           what a slow network, or a replica that syncs, makes likely
//	restarted  the master is killed and started again at once, before anybody has noticed,
//	           as a supervisor does; with an append-only file, or without
//
// Each token is consumed two seconds after it was issued, or a little more. Half of them live for
// five, so that they are expired when they are asked for.
// What becomes of a token whose consume was acknowledged:
//
//	revived    it was granted once more
//	expired    it reads as expired, never used
//	lost       it reads as lost: nobody can tell
//
// SIGKILL takes a process's memory and leaves what it has written to the system: a power
// failure, which takes that too, is not measured.
//
// The cost is that of redis.wait_replicas 0, 1 and 2 on one master with two replicas, by
// turns: medians over the rounds. All of it shares one machine, on which a replica is never far.
package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"

	"example.com/tokend/e2e/internal/topology"
)

var (
	rounds = flag.Int("rounds", 1, "rounds: figures of loss are added up, those of cost are medians")
	only   = flag.String("only", "loss,cost", "the parts to run, comma-separated")
	match  = flag.String("match", "", "of loss, only what matches this regular expression: \"sentinel, killed, no file, wait 0\"")
	span   = flag.Duration("span", 3*time.Second, "of cost: how long a turn lasts")
	atOnce = flag.Int("callers", 8, "of loss: callers at once")
)

func main() {
	flag.Parse()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	picked, err := regexp.Compile(*match)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "failover")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	program, err := topology.Build(dir)
	if err != nil {
		return err
	}
	for part := range strings.SplitSeq(*only, ",") {
		switch part {
		case "loss":
			err = losses(program, dir, picked)
		case "cost":
			err = cost(program, dir)
		default:
			err = fmt.Errorf("-only must name some of loss, cost")
		}
		if err != nil {
			return err
		}
	}
	return nil
}
