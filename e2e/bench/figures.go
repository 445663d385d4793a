package main

import (
	"fmt"
	"os"
	"text/tabwriter"
)

// figure is a ratio, or what else was found, with its goal.
type figure struct {
	what, at string
	value    float64
	goal     string // empty: none
	met      bool
}

func (b *bench) note(what, at string, value float64) {
	b.figures = append(b.figures, figure{what: what, at: at, value: value})
}

// atMost and atLeast note a value with its goal; a goal of 0 is none.
func (b *bench) atMost(what, at string, value, goal float64) {
	b.add(what, at, value, goal, "≤", value <= goal)
}

func (b *bench) atLeast(what, at string, value, goal float64) {
	b.add(what, at, value, goal, "≥", value >= goal)
}

func (b *bench) add(what, at string, value, goal float64, sign string, met bool) {
	if goal == 0 {
		b.note(what, at, value)
		return
	}
	b.figures = append(b.figures, figure{what, at, value, fmt.Sprintf("%s %.4g", sign, goal), met})
}

// goalAt returns goal where there are at least from callers, else none.
func goalAt(n, from int, goal float64) float64 {
	if n >= from {
		return goal
	}
	return 0
}

func (b *bench) printFigures() error {
	fmt.Println()
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "figure\tat\tmeasured\tgoal\tmet")
	for _, f := range b.figures {
		met := ""
		if f.goal != "" {
			met = map[bool]string{true: "yes", false: "NO"}[f.met]
		}
		fmt.Fprintf(t, "%s\t%s\t%.4g\t%s\t%s\n", f.what, f.at, f.value, f.goal, met)
	}
	return t.Flush()
}
