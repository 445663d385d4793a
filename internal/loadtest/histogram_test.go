package loadtest

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// Buckets part all durations without gap or overlap.
func TestBuckets(t *testing.T) {
	for i := range buckets {
		from := bucketFrom(i)
		if got := bucketOf(from); got != i {
			t.Fatalf("bucket %d begins at %d, which is in %d", i, from, got)
		}
		if i > 0 && bucketOf(from-1) != i-1 {
			t.Fatalf("the end of bucket %d is in %d", i-1, bucketOf(from-1))
		}
		if width := bucketFrom(i+1) - from; width > 1 && float64(width) > float64(from)/parts {
			t.Fatalf("bucket %d from %d is %d wide", i, from, width)
		}
	}
	for _, d := range []time.Duration{-1, 1 << 50, 1<<63 - 1} {
		if i := bucketOf(d); i != 0 && i != buckets-1 {
			t.Errorf("%d is in %d", d, i)
		}
	}
}

// Quantiles are those of the durations themselves, but for the buckets' width.
func TestQuantile(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{1, 2, 10, 999, 10_000} {
		h, halves := new(Histogram), [2]*Histogram{new(Histogram), new(Histogram)}
		var all []time.Duration
		for i := range n {
			d := time.Duration(r.ExpFloat64() * 1e6)
			all = append(all, d)
			halves[i%2].Add(d)
		}
		h.Merge(halves[0])
		h.Merge(halves[1])
		slices.Sort(all)
		for _, q := range []float64{0, .5, .9, .99, .999, 1} {
			want := all[max(int(q*float64(n)+.999999)-1, 0)]
			got := h.Quantile(q)
			if got < want || float64(got) > float64(want)*(1+1./parts)+1 {
				t.Errorf("%d durations, %v: got %v, want %v", n, q, got, want)
			}
		}
		if h.Count() != int64(n) || h.Max() != all[n-1] {
			t.Errorf("%d durations up to %v, want %d up to %v", h.Count(), h.Max(), n, all[n-1])
		}
	}
	if q := new(Histogram).Quantile(.5); q != 0 {
		t.Errorf("of nothing: %v", q)
	}
}

func TestBars(t *testing.T) {
	h := new(Histogram)
	for _, d := range []time.Duration{1000, 1023, 1024, 5000} {
		h.Add(d)
	}
	want := []Bar{{512, 1024, 2}, {1024, 2048, 1}, {2048, 4096, 0}, {4096, 8192, 1}}
	if got := slices.Collect(h.Bars()); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for range h.Bars() {
		break
	}
	if got := slices.Collect(new(Histogram).Bars()); got != nil {
		t.Errorf("of nothing: %v", got)
	}
}
