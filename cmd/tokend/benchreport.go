package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"example.com/tokend/internal/loadtest"
)

// benchReport is what a bench has found, as --json prints it.
type benchReport struct {
	URL          string                `json:"url"`
	Loop         string                `json:"loop"` // closed or open
	Callers      int                   `json:"callers"`
	Rate         float64               `json:"rate,omitempty"`
	Rounds       int                   `json:"rounds"`
	RoundSeconds float64               `json:"round_seconds"`
	Calls        map[string]*benchCall `json:"calls"`
	Late         int64                 `json:"late"`
	Dropped      int64                 `json:"dropped"`
	Doubles      int64                 `json:"doubles"` // tokens that two attempts were made at
	Faults       map[string]int64      `json:"faults"`
	Failures     map[string]int64      `json:"failures"`
}

// benchCall is what one kind of call took: the medians of the rounds, and the histogram of
// all.
type benchCall struct {
	Answers   int64      `json:"answers"`
	PerSecond float64    `json:"per_second"`
	P50       float64    `json:"p50_us"`
	P90       float64    `json:"p90_us"`
	P99       float64    `json:"p99_us"`
	P999      float64    `json:"p999_us"`
	Max       float64    `json:"max_us"` // of all rounds
	Histogram []benchBar `json:"histogram"`
}

// benchBar is how many answers took From to To.
type benchBar struct {
	From  float64 `json:"from_us"`
	To    float64 `json:"to_us"`
	Count int64   `json:"count"`
}

func newBenchCall(rounds []*benchRound, of func(*benchRound) *loadtest.Histogram) *benchCall {
	all := new(loadtest.Histogram)
	for _, r := range rounds {
		all.Merge(of(r))
	}
	quantile := func(q float64) float64 {
		return medianOf(rounds, func(r *benchRound) float64 { return micros(of(r).Quantile(q)) })
	}
	c := &benchCall{
		Answers:   all.Count(),
		PerSecond: medianOf(rounds, func(r *benchRound) float64 { return float64(of(r).Count()) / r.took.Seconds() }),
		P50:       quantile(.5), P90: quantile(.9), P99: quantile(.99), P999: quantile(.999),
		Max:       micros(all.Max()),
		Histogram: []benchBar{},
	}
	for bar := range all.Bars() {
		c.Histogram = append(c.Histogram, benchBar{micros(bar.From), micros(bar.To), bar.Count})
	}
	return c
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// medianOf returns the median of what f tells of rounds, of which there is at least one;
// of an even number, the mean of the two in the middle.
func medianOf(rounds []*benchRound, f func(*benchRound) float64) float64 {
	var all []float64
	for _, r := range rounds {
		all = append(all, f(r))
	}
	slices.Sort(all)
	return (all[(len(all)-1)/2] + all[len(all)/2]) / 2
}

// verdict returns an error where an answer was wrong, or there was none at all.
func (r *benchReport) verdict() error {
	if len(r.Failures) > 0 {
		return &unhealthyError{"answers were wrong: " + tallied(r.Failures)}
	}
	if r.Calls["issue"].Answers+r.Calls["consume"].Answers == 0 {
		return fmt.Errorf("no call was answered: %s", tallied(r.Faults))
	}
	return nil
}

// tallied lists counts in the order of their names.
func tallied(counts map[string]int64) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		all = append(all, fmt.Sprintf("%d × %s", counts[name], name))
	}
	if all == nil {
		return "none"
	}
	return strings.Join(all, ", ")
}

func (r *benchReport) printJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// benchKinds are the kinds of calls in the order that they are told in.
var benchKinds = []string{"issue", "consume"}

func (r *benchReport) print(w io.Writer) error {
	how := fmt.Sprintf("closed loop, %d callers", r.Callers)
	if r.Loop == "open" {
		how = fmt.Sprintf("open loop, %.0f calls/s, at most %d under way", r.Rate, r.Callers)
	}
	fmt.Fprintf(w, "%s: %s, %d rounds of %v, medians\n\n", r.URL, how, r.Rounds, time.Duration(r.RoundSeconds*float64(time.Second)))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "call\tcalls/s\tp50\tp90\tp99\tp99.9\tmax\t")
	var perSecond float64
	for _, kind := range benchKinds {
		c := r.Calls[kind]
		perSecond += c.PerSecond
		fmt.Fprintf(t, "%s\t%.0f\t", kind, c.PerSecond)
		for _, us := range []float64{c.P50, c.P90, c.P99, c.P999, c.Max} {
			fmt.Fprintf(t, "%v\t", span(us))
		}
		fmt.Fprintln(t)
	}
	fmt.Fprintf(t, "both\t%.0f\t\t\t\t\t\t\n", perSecond)
	if err := t.Flush(); err != nil {
		return err
	}
	for _, kind := range benchKinds {
		fmt.Fprintf(w, "\n%s\n", kind)
		if err := printBars(w, r.Calls[kind]); err != nil {
			return err
		}
	}
	fmt.Fprintf(w, "\ntokens with two attempts at once: %d\nfaults: %s\nwrong answers: %s\n", r.Doubles, tallied(r.Faults), tallied(r.Failures))
	if r.Loop == "open" {
		_, err := fmt.Fprintf(w, "arrivals dropped: %d; begun more than %v late: %d\n", r.Dropped, loadtest.LateBy, r.Late)
		return err
	}
	return nil
}

// span returns us microseconds for people.
func span(us float64) time.Duration { return short(time.Duration(us * float64(time.Microsecond))) }

const widestBar = 50

// printBars draws c's histogram.
func printBars(w io.Writer, c *benchCall) error {
	most := int64(1)
	for _, bar := range c.Histogram {
		most = max(most, bar.Count)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, bar := range c.Histogram {
		width := int((bar.Count*widestBar + most - 1) / most) // what is there at all can be seen
		fmt.Fprintf(t, "%v\tto %v\t%d\t %s\n", span(bar.From), span(bar.To), bar.Count, strings.Repeat("█", width))
	}
	return t.Flush()
}
