package loadtest

import (
	"iter"
	"math"
	"math/bits"
	"sync/atomic"
	"time"
)

// Histogram counts durations with an error below one in a hundred: each power of two is
// parted into 64 buckets of equal width. The zero Histogram is ready to use, by many
// goroutines at once; it is not to be copied.
type Histogram struct {
	counts [buckets]atomic.Int64
	max    atomic.Int64
}

const (
	partBits = 6
	parts    = 1 << partBits
	longest  = 40 // bits: durations of 2^40 ns, 18 minutes, and longer share a bucket
	buckets  = (longest - partBits + 1) * parts
)

// bucketOf returns d's bucket. Below 2·parts ns each ns has its own.
func bucketOf(d time.Duration) int {
	n := uint64(max(d, 0))
	shift := max(bits.Len64(n)-partBits-1, 0)
	return min(shift*parts+int(n>>shift), buckets-1)
}

// bucketFrom returns the shortest duration of bucket i.
func bucketFrom(i int) time.Duration {
	shift := max(i/parts-1, 0)
	return time.Duration(i-shift*parts) << shift
}

// Add counts d; a negative one counts as 0.
func (h *Histogram) Add(d time.Duration) {
	h.counts[bucketOf(d)].Add(1)
	for {
		longest := h.max.Load()
		if int64(d) <= longest || h.max.CompareAndSwap(longest, int64(d)) {
			return
		}
	}
}

// Merge adds what o has counted.
func (h *Histogram) Merge(o *Histogram) {
	for i := range o.counts {
		h.counts[i].Add(o.counts[i].Load())
	}
	h.max.Store(max(h.max.Load(), o.max.Load()))
}

// Count returns how many durations were counted.
func (h *Histogram) Count() int64 {
	var n int64
	for i := range h.counts {
		n += h.counts[i].Load()
	}
	return n
}

// Max returns the longest duration, exactly.
func (h *Histogram) Max() time.Duration { return time.Duration(h.max.Load()) }

// Quantile returns the duration that the share q (0 to 1) of those counted does not
// exceed, or 0 where none was.
func (h *Histogram) Quantile(q float64) time.Duration {
	rank := max(int64(math.Ceil(q*float64(h.Count()))), 1)
	for i := range h.counts {
		if rank -= h.counts[i].Load(); rank <= 0 {
			return min(bucketFrom(i+1)-1, h.Max())
		}
	}
	return 0
}

// Bar is how many durations there are from From (included) to To.
type Bar struct {
	From, To time.Duration
	Count    int64
}

// Bars yields the histogram with a bar for each power of two, from the first that is not
// empty to the last.
func (h *Histogram) Bars() iter.Seq[Bar] {
	return func(yield func(Bar) bool) {
		left := h.Count()
		for i := 0; i < buckets && left > 0; i += parts {
			b := Bar{From: bucketFrom(i), To: bucketFrom(i + parts)}
			for j := range parts {
				b.Count += h.counts[i+j].Load()
			}
			if b.Count == 0 && left == h.Count() {
				continue
			}
			left -= b.Count
			if !yield(b) {
				return
			}
		}
	}
}
