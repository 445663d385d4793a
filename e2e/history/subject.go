package history

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Subject is one token or key, and all that was asked and heard of it.
type Subject struct {
	Name      string
	Key       bool
	Delete    bool  // a token of delete mode
	Expires   int64 // a token's, Unix milliseconds
	Retention int64 // ms

	mu  sync.Mutex
	ops []*Op
}

// Add adds a call that was made.
func (s *Subject) Add(o *Op) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ops = append(s.ops, o)
}

// Len returns how many calls there are.
func (s *Subject) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.ops)
}

// last returns when a token's retention is over.
func (s *Subject) last() int64 { return s.Expires + s.Retention }

// sorted returns the calls by when they were sent.
func (s *Subject) sorted() []*Op {
	s.mu.Lock()
	defer s.mu.Unlock()
	ops := slices.Clone(s.ops)
	slices.SortStableFunc(ops, func(a, b *Op) int { return cmp.Compare(a.Call, b.Call) })
	return ops
}

// String returns the history, a line a call, in milliseconds from the first.
func (s *Subject) String() string {
	ops := s.sorted()
	if len(ops) == 0 {
		return s.Name + ": no calls"
	}
	start := ops[0].Call
	var b strings.Builder
	what := "token"
	switch {
	case s.Key:
		what = "key"
	case s.Delete:
		what = "token of delete mode"
	}
	fmt.Fprintf(&b, "%s %s", what, s.Name)
	if !s.Key {
		fmt.Fprintf(&b, ", expires at %.1f, remembered for %d ms more", float64(s.Expires)-float64(start)/1000, s.Retention)
	}
	fmt.Fprintf(&b, ", times in ms:\n    sent answered\n")
	for _, o := range ops {
		b.WriteString(o.format(start))
		b.WriteByte('\n')
	}
	return b.String()
}
