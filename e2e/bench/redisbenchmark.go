package main

import (
	"encoding/csv"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"strings"
)

// redisBenchmark notes what redis-benchmark, which costs next to nothing, gets out of this
// Redis by single commands.
func (b *bench) redisBenchmark() error {
	if _, err := exec.LookPath("redis-benchmark"); err != nil {
		fmt.Println("redis-benchmark is not installed: left out")
		return nil
	}
	host, port, err := net.SplitHostPort(b.redis.addr)
	if err != nil {
		return err
	}
	const key, value = "bench:__rand_int__", "0123456789abcdef0123456789abcdef"
	for _, n := range b.callers {
		for _, command := range [][]string{{"SET", key, value, "EX", "30"}, {"GETEX", key}} {
			requests := min(n, 16) * int(b.span.Seconds()*10_000)
			args := []string{"-h", host, "-p", port, "-c", strconv.Itoa(n), "-n", strconv.Itoa(max(requests, 1000)), "-r", "100000", "--csv"}
			var all []float64
			for range b.rounds {
				out, err := exec.Command("redis-benchmark", append(args, command...)...).Output()
				if err != nil {
					return err
				}
				perSecond, err := readBenchmark(string(out))
				if err != nil {
					return err
				}
				all = append(all, perSecond)
			}
			b.note("redis-benchmark "+command[0]+", commands/s", fmt.Sprintf("%d callers", n), medianOf(all))
		}
	}
	return nil
}

// readBenchmark returns the commands a second of the last line.
func readBenchmark(out string) (float64, error) {
	rows, err := csv.NewReader(strings.NewReader(out)).ReadAll()
	if err != nil || len(rows) == 0 || len(rows[len(rows)-1]) < 2 {
		return 0, fmt.Errorf("redis-benchmark printed %q: %w", out, err)
	}
	return strconv.ParseFloat(rows[len(rows)-1][1], 64)
}
