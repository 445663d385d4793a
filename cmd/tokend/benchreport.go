package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
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
	Interrupted  string                `json:"interrupted,omitempty"` // when, in words
	Calls        map[string]*benchCall `json:"calls"`
	Made         int64                 `json:"made"`              // calls, answered or not
	Arrived      int64                 `json:"arrived,omitempty"` // in an open loop, the dropped included
	Late         int64                 `json:"late"`
	Dropped      int64                 `json:"dropped"`
	Doubles      int64                 `json:"doubles"` // tokens that two attempts were made at
	Faults       map[string]int64      `json:"faults"`
	FaultShare   float64               `json:"fault_share"`           // of the calls that were made
	FaultsTook   *benchTook            `json:"faults_took,omitempty"` // nil: there were none
	WrongAnswers []*wrongAnswer        `json:"wrong_answers"`
	Remarks      []string              `json:"remarks"`

	maxFaults float64
}

// benchCall is what the answered calls of one kind took: the medians of the rounds, and the
// histogram of all.
type benchCall struct {
	Answers   int64      `json:"answers"`
	PerSecond float64    `json:"per_second"`
	P50       micros     `json:"p50_us"`
	P90       micros     `json:"p90_us"`
	P99       micros     `json:"p99_us"`
	P999      micros     `json:"p999_us"`
	Max       micros     `json:"max_us"` // of all rounds
	Histogram []benchBar `json:"histogram"`
}

// benchTook is what the calls took that ended in a fault, of all rounds.
type benchTook struct {
	P50 micros `json:"p50_us"`
	P99 micros `json:"p99_us"`
	Max micros `json:"max_us"`
}

// benchBar is how many answers took From to To.
type benchBar struct {
	From  micros `json:"from_us"`
	To    micros `json:"to_us"`
	Count int64  `json:"count"`
}

// micros is a span in microseconds. NaN says that there is no value: null in JSON.
type micros float64

func microsOf(d time.Duration) micros { return micros(float64(d) / float64(time.Microsecond)) }

// quantileOf returns a quantile of h, or none where h is empty.
func quantileOf(h *loadtest.Histogram, q float64) micros {
	if h.Count() == 0 {
		return micros(math.NaN())
	}
	return microsOf(h.Quantile(q))
}

func (m micros) MarshalJSON() ([]byte, error) {
	if math.IsNaN(float64(m)) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(m))
}

func (m micros) String() string {
	if math.IsNaN(float64(m)) {
		return "–"
	}
	return short(time.Duration(float64(m) * float64(time.Microsecond))).String()
}

func newBenchCall(rounds []*benchRound, of func(*benchRound) *loadtest.Histogram) *benchCall {
	all := new(loadtest.Histogram)
	var answered []*benchRound // the others have no percentiles
	for _, r := range rounds {
		all.Merge(of(r))
		if of(r).Count() > 0 {
			answered = append(answered, r)
		}
	}
	quantile := func(q float64) micros {
		return micros(medianOf(answered, func(r *benchRound) float64 { return float64(quantileOf(of(r), q)) }))
	}
	c := &benchCall{
		Answers:   all.Count(),
		PerSecond: medianOf(rounds, func(r *benchRound) float64 { return float64(of(r).Count()) / r.took.Seconds() }),
		P50:       quantile(.5), P90: quantile(.9), P99: quantile(.99), P999: quantile(.999),
		Max:       micros(math.NaN()),
		Histogram: []benchBar{},
	}
	if c.Answers > 0 {
		c.Max = microsOf(all.Max())
	}
	for bar := range all.Bars() {
		c.Histogram = append(c.Histogram, benchBar{microsOf(bar.From), microsOf(bar.To), bar.Count})
	}
	return c
}

// medianOf returns the median of what f tells of rounds; of an even number, the mean of the
// two in the middle, and of none NaN.
func medianOf(rounds []*benchRound, f func(*benchRound) float64) float64 {
	if len(rounds) == 0 {
		return math.NaN()
	}
	var all []float64
	for _, r := range rounds {
		all = append(all, f(r))
	}
	slices.Sort(all)
	return (all[(len(all)-1)/2] + all[len(all)/2]) / 2
}

// verdict returns an error where an answer was wrong, there was none at all, or too few
// calls had one, and one where the run was interrupted.
func (r *benchReport) verdict() error {
	var err, interrupted error
	switch {
	case len(r.WrongAnswers) > 0:
		var all []string
		for _, w := range r.WrongAnswers {
			all = append(all, w.String())
		}
		err = &unhealthyError{"answers were wrong: " + strings.Join(all, "; ")}
	case r.Rounds > 0 && r.Calls["issue"].Answers+r.Calls["consume"].Answers == 0:
		err = fmt.Errorf("no call was answered: %s", tallied(r.Faults))
	case r.FaultShare > r.maxFaults:
		err = &unhealthyError{fmt.Sprintf("%s of the calls ended in a fault, above --max-faults=%v: %s", percent(r.FaultShare), r.maxFaults, tallied(r.Faults))}
	}
	if r.Interrupted != "" {
		interrupted = fmt.Errorf("interrupted %s", r.Interrupted)
	}
	return errors.Join(err, interrupted)
}

// muchOf is the share of arrivals above which it is said what their loss means.
const muchOf = .01

// remark says where the bench itself was the limit, in rounds that took so long in all.
func (r *benchReport) remark(took time.Duration) {
	called := r.Arrived - r.Dropped
	if share := ratio(r.Dropped, r.Arrived); share > muchOf {
		r.Remarks = append(r.Remarks, fmt.Sprintf("the bench was the limit: %s of the arrivals found all %d callers waiting for answers, and no call was made; the service saw %.0f calls/s, and what it does at %.0f was not measured (--callers is %d at most)",
			percent(share), r.Callers, float64(called)/took.Seconds(), r.Rate, maxCallers))
	}
	if share := ratio(r.Late, called); share > muchOf {
		r.Remarks = append(r.Remarks, fmt.Sprintf("the bench was the limit, not the service: it began %s of the calls more than %v late, which is in what they took; give it more of a machine, or a lower --rate",
			percent(share), loadtest.LateBy))
	}
}

// ratio returns the share that n is of all; of nothing it is 0.
func ratio(n, all int64) float64 { return float64(n) / float64(max(all, 1)) }

// percent writes a share for people.
func percent(share float64) string { return fmt.Sprintf("%.3g %%", 100*share) }

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

func (r *benchReport) print(to io.Writer) error {
	w := new(bytes.Buffer)
	how := fmt.Sprintf("closed loop, %d callers", r.Callers)
	if r.Loop == "open" {
		how = fmt.Sprintf("open loop, %.0f calls/s, at most %d under way", r.Rate, r.Callers)
	}
	fmt.Fprintf(w, "%s: %s, %s\n%s\n\n", r.URL, how, r.inRounds(), r.whatIsTold())
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "call\tcalls/s\tp50\tp90\tp99\tp99.9\tmax\t")
	var perSecond float64
	for _, kind := range benchKinds {
		c := r.Calls[kind]
		perSecond += c.PerSecond
		fmt.Fprintf(t, "%s\t%.0f\t", kind, c.PerSecond)
		for _, took := range []micros{c.P50, c.P90, c.P99, c.P999, c.Max} {
			fmt.Fprintf(t, "%v\t", took)
		}
		fmt.Fprintln(t)
	}
	fmt.Fprintf(t, "both\t%.0f\t\t\t\t\t\t\n", perSecond)
	if err := t.Flush(); err != nil {
		return err
	}
	for _, kind := range benchKinds {
		if r.Calls[kind].Answers == 0 {
			continue
		}
		fmt.Fprintf(w, "\n%s\n", kind)
		if err := printBars(w, r.Calls[kind]); err != nil {
			return err
		}
	}
	fmt.Fprintf(w, "\ntokens with two attempts at once: %d\n", r.Doubles)
	if took := r.FaultsTook; took == nil {
		fmt.Fprintf(w, "faults: none of %d calls\n", r.Made)
	} else {
		var n int64
		for _, count := range r.Faults {
			n += count
		}
		fmt.Fprintf(w, "faults: %d of %d calls, %s: %s; they took p50 %v, p99 %v, max %v\n",
			n, r.Made, percent(r.FaultShare), tallied(r.Faults), took.P50, took.P99, took.Max)
	}
	if len(r.WrongAnswers) == 0 {
		fmt.Fprintln(w, "wrong answers: none")
	}
	for _, wrong := range r.WrongAnswers {
		fmt.Fprintf(w, "wrong answers: %v\n", wrong)
	}
	if r.Loop == "open" {
		fmt.Fprintf(w, "arrivals dropped: %d of %d; begun more than %v late: %d\n", r.Dropped, r.Arrived, loadtest.LateBy, r.Late)
	}
	for _, remark := range r.Remarks {
		fmt.Fprintf(w, "%s\n", remark)
	}
	_, err := w.WriteTo(to)
	return err
}

// inRounds says how long was measured.
func (r *benchReport) inRounds() string {
	each := time.Duration(r.RoundSeconds * float64(time.Second))
	text := fmt.Sprintf("%d rounds of %v", r.Rounds, each)
	if r.Rounds == 1 {
		text = fmt.Sprintf("1 round of %v", each)
	}
	if r.Interrupted != "" {
		text += ", interrupted " + r.Interrupted
	}
	return text
}

// whatIsTold says what the table's figures are of.
func (r *benchReport) whatIsTold() string {
	if r.Rounds == 1 {
		return "of the calls that were answered; faults stand below"
	}
	return "of the calls that were answered: calls/s and p50 to p99.9 the median of the rounds, max and histograms of all rounds; faults stand below"
}

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
		fmt.Fprintf(t, "%v\tto %v\t%d\t %s\n", bar.From, bar.To, bar.Count, strings.Repeat("█", width))
	}
	return t.Flush()
}
