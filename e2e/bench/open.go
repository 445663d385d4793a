package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// arrivals is what tokend bench prints of an open loop.
type arrivals struct {
	Calls map[string]struct {
		PerSecond float64 `json:"per_second"`
		P50       float64 `json:"p50_us"`
		P99       float64 `json:"p99_us"`
	} `json:"calls"`
	Late    int64            `json:"late"`
	Dropped int64            `json:"dropped"`
	Faults  map[string]int64 `json:"faults"`
}

// mean is that of both kinds of calls, which arrive equally often.
func (a arrivals) p50() float64 { return (a.Calls["issue"].P50 + a.Calls["consume"].P50) / 2 }
func (a arrivals) p99() float64 { return (a.Calls["issue"].P99 + a.Calls["consume"].P99) / 2 }
func (a arrivals) perSecond() float64 {
	return a.Calls["issue"].PerSecond + a.Calls["consume"].PerSecond
}

// open compares what calls take that arrive on their own.
func (b *bench) open() error {
	tokend, plain, err := b.startBoth()
	if err != nil {
		return err
	}
	for _, rate := range b.rates {
		servers := []*server{tokend, plain}
		turns := make([][]arrivals, len(servers))
		for round := range b.rounds {
			for i := range servers {
				i = (i + round) % len(servers)
				a, err := b.arrive(servers[i], rate)
				if err != nil {
					return err
				}
				turns[i] = append(turns[i], a)
			}
		}
		over := func(i int, f func(arrivals) float64) float64 {
			return medianArrival(turns[i], f)
		}
		for i, name := range []string{"tokend", "plain"} {
			fmt.Printf("%6d calls/s arrive  %-7s %9.0f answered/s  p50 %8.0f µs  p99 %8.0f µs  late %.0f  dropped %.0f  faults %.0f\n", rate, name,
				over(i, arrivals.perSecond), over(i, arrivals.p50), over(i, arrivals.p99),
				over(i, func(a arrivals) float64 { return float64(a.Late) }),
				over(i, func(a arrivals) float64 { return float64(a.Dropped) }),
				over(i, func(a arrivals) (n float64) {
					for _, count := range a.Faults {
						n += float64(count)
					}
					return n
				}))
		}
		at := fmt.Sprintf("%d calls/s", rate)
		b.atMost("open loop p50, tokend ÷ plain", at, over(0, arrivals.p50)/over(1, arrivals.p50), 1.15)
		b.atMost("open loop p99, tokend ÷ plain", at, over(0, arrivals.p99)/over(1, arrivals.p99), 1)
	}
	return nil
}

// arrive has calls arrive at s for a span.
func (b *bench) arrive(s *server, rate int) (arrivals, error) {
	file := filepath.Join(b.dir, "bearer")
	credential := strings.TrimPrefix(bearer("svc", "tokend.issue tokend.consume"), "Bearer ")
	if err := os.WriteFile(file, []byte(credential), 0o600); err != nil {
		return arrivals{}, err
	}
	cmd := exec.Command(b.tokend, "bench", "--url", "http://"+s.addr, "--token-file", file, "--json",
		"--rate", strconv.Itoa(rate), "--rounds", "1", "--duration", b.span.String(), "--warmup", (b.span / 10).Round(time.Millisecond).String())
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return arrivals{}, fmt.Errorf("tokend bench: %w: %s", err, errs.Bytes())
	}
	var a arrivals
	return a, json.Unmarshal(out.Bytes(), &a)
}
