package main

import (
	"math"
	"os"
	"slices"
	"testing"
	"time"
)

// TestMain is the contestants' servers too, which the bench starts as itself.
func TestMain(m *testing.M) {
	if slices.Contains(os.Args, "-serve") {
		main()
		return
	}
	os.Exit(m.Run())
}

// All parts run, however short, and every answer is as it should be. What they measure in
// such a time means nothing.
func TestBenchRuns(t *testing.T) {
	b := &bench{rounds: 1, span: 100 * time.Millisecond, callers: []int{2}, rates: []int{200}}
	if err := b.run(partNames); err != nil {
		t.Fatal(err)
	}
	for _, f := range b.figures {
		if math.IsInf(f.value, -1) || f.value < 0 || f.what == "" || f.at == "" {
			t.Errorf("%+v", f)
		}
	}
	if len(b.figures) < 15 {
		t.Errorf("%d figures: %+v", len(b.figures), b.figures)
	}
}

func TestReadBenchmark(t *testing.T) {
	out := "\"test\",\"rps\",\"avg_latency_ms\"\n\"SET bench:__rand_int__ x EX 30\",\"123456.79\",\"0.3\"\n"
	if got, err := readBenchmark(out); got != 123456.79 || err != nil {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"", "x", "a,b\n"} {
		if _, err := readBenchmark(bad); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}

func TestFigures(t *testing.T) {
	b := new(bench)
	b.atLeast("a", "", 2, goalAt(64, 64, 2))
	b.atLeast("b", "", 1, goalAt(64, 64, 2))
	b.atLeast("c", "", 1, goalAt(16, 64, 2))
	b.atMost("d", "", 1.9, 1.9)
	b.atMost("e", "", 2, 1.9)
	var got []string
	for _, f := range b.figures {
		got = append(got, f.what+f.goal+map[bool]string{true: "!"}[f.met])
	}
	if want := []string{"a≥ 2!", "b≥ 2", "c", "d≤ 1.9!", "e≤ 1.9"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestMedian(t *testing.T) {
	for _, tt := range []struct {
		of   []float64
		want float64
	}{{[]float64{3}, 3}, {[]float64{9, 1}, 5}, {[]float64{9, 1, 2}, 2}} {
		if got := medianOf(tt.of); got != tt.want {
			t.Errorf("%v: %v", tt.of, got)
		}
	}
}
