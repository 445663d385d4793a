package history

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"example.com/tokend/token"
)

// Load is many callers of a few instances.
type Load struct {
	URLs       []string // of the instances, as the callers see them
	ServiceKey string
	Keys       []token.Key // that may sign, at any time: to read a token's mode and retention
	Seed       uint64
	Subjects   int           // how many there are at a time
	Timeout    time.Duration // of one call
	// Again tells whether tokend may have sent twice what was under way between two
	// moments, in Unix microseconds; nil where it never does.
	Again func(from, to int64) bool
	// Briefly has leases and lives last a second, and callers wait for their ends, so often
	// (of 100).
	Briefly int

	http    *http.Client
	opener  *token.Service
	serial  atomic.Int64
	made    atomic.Int64 // calls
	heard   atomic.Int64 // of these were answered
	checked atomic.Int64 // subjects
	figures struct {
		sync.Mutex
		m map[string]int
	}
	epoch struct {
		sync.Mutex
		open *sync.WaitGroup
	}
	wrong struct {
		sync.Mutex
		subjects []*Wrong
		unknown  []*Subject
	}
}

// Wrong is a history that cannot have come about by right answers.
type Wrong struct {
	*Subject
	Why []string
}

// String returns why, and the history.
func (w *Wrong) String() string {
	text := ""
	for _, why := range w.Why {
		text += why + "\n"
	}
	return text + w.Subject.String()
}

// Start readies l.
func (l *Load) Start() error {
	ring, err := token.NewRing(l.Keys...)
	if err != nil {
		return err
	}
	l.opener = token.NewService(ring, nil, token.Options{})
	l.http = &http.Client{
		Timeout:   l.Timeout,
		Transport: &http.Transport{MaxIdleConnsPerHost: 1024, IdleConnTimeout: 30 * time.Second},
	}
	l.figures.m = make(map[string]int)
	l.epoch.open = new(sync.WaitGroup)
	return nil
}

// Run makes calls until enough, which is asked now and then, or ctx's end; and ends what was
// begun.
func (l *Load) Run(ctx context.Context, enough func() bool) {
	var wg sync.WaitGroup
	defer l.http.CloseIdleConnections()
	for n := range l.Subjects {
		wg.Go(func() {
			// Not all at once.
			pause(ctx, time.Duration(n)*time.Second/time.Duration(l.Subjects))
			for ctx.Err() == nil && !enough() {
				l.one(ctx)
			}
		})
	}
	wg.Wait()
}

// one is one subject's whole life.
func (l *Load) one(ctx context.Context) {
	l.epoch.Lock()
	open := l.epoch.open
	open.Add(1)
	l.epoch.Unlock()
	defer open.Done()

	n := l.serial.Add(1)
	rng := rand.New(rand.NewPCG(l.Seed, uint64(n)))
	w := l.begin(ctx, rng, n)
	if w == nil {
		return
	}
	var wg sync.WaitGroup
	for c := range 2 + rng.IntN(3) {
		own := rand.New(rand.NewPCG(rng.Uint64(), uint64(c)))
		wg.Go(func() { (&caller{work: w, rng: own, number: c + 1}).act(ctx) })
	}
	wg.Wait()
	l.check(w.Subject)
}

// check checks s, which is over.
func (l *Load) check(s *Subject) {
	why := s.Violations()
	right, known := s.Check()
	l.checked.Add(1)
	l.wrong.Lock()
	defer l.wrong.Unlock()
	switch {
	case !known:
		l.wrong.unknown = append(l.wrong.unknown, s)
	case !right:
		why = append(why, "there is no order of these calls in which every answer is right")
	}
	if len(why) > 0 {
		l.wrong.subjects = append(l.wrong.subjects, &Wrong{s, why})
	}
}

// Wrong returns what was found so far, and the histories that were too much to be searched.
func (l *Load) Wrong() (found []*Wrong, unchecked []*Subject) {
	l.wrong.Lock()
	defer l.wrong.Unlock()
	return l.wrong.subjects, l.wrong.unknown
}

// Epoch waits until all subjects that there are now are over.
func (l *Load) Epoch() {
	l.epoch.Lock()
	before := l.epoch.open
	l.epoch.open = new(sync.WaitGroup)
	l.epoch.Unlock()
	before.Wait()
}

// Made returns how many calls were made, how many of them were answered, and of how many
// subjects that are over.
func (l *Load) Made() (calls, answered, subjects int64) {
	return l.made.Load(), l.heard.Load(), l.checked.Load()
}

// Figures returns how often a call of which kind heard what.
func (l *Load) Figures() map[string]int {
	l.figures.Lock()
	defer l.figures.Unlock()
	return maps.Clone(l.figures.m)
}

// count counts o.
func (l *Load) count(o *Op) {
	l.made.Add(1)
	if o.answered() {
		l.heard.Add(1)
	}
	l.figures.Lock()
	defer l.figures.Unlock()
	for _, what := range o.figures() {
		l.figures.m[string(o.Kind)+" "+what]++
	}
}

// figures are what o counts as.
func (o *Op) figures() (as []string) {
	out := o.Out
	what := out.Code
	if out.Why != "" {
		what += " (" + out.Why + ")"
	}
	if out.State != "" {
		what += " " + out.State
	}
	as = append(as, what)
	if out.Takeover && out.Code == ok {
		as = append(as, "takeover")
	}
	if o.Resolve && out.Committed && out.Takeover {
		as = append(as, "resolved")
	}
	if out.Replayed && out.Code == ok {
		as = append(as, "replayed")
	}
	return as
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func micros() int64 { return time.Now().UnixMicro() }

// begin issues a token, or makes up a key. It returns nil where there is none.
func (l *Load) begin(ctx context.Context, rng *rand.Rand, n int64) *work {
	w := &work{load: l, Subject: &Subject{Name: fmt.Sprintf("u%d-%d", l.Seed, n)}, attempts: map[string]uint8{}}
	w.user = w.Name
	if w.brief = rng.IntN(100) < l.Briefly; w.brief {
		w.ttl = 1
	} else {
		w.ttl = 60
	}
	w.plain = rng.IntN(3) == 0
	if rng.IntN(5) == 0 {
		w.Key, w.text = true, "key-"+w.Name
		w.plain = false
		return w
	}
	if err := w.issue(ctx, rng); err != nil {
		if !errors.Is(err, errNoAnswer) {
			l.wrong.Lock()
			l.wrong.subjects = append(l.wrong.subjects, &Wrong{w.Subject, []string{err.Error()}})
			l.wrong.Unlock()
		}
		pause(ctx, 50*time.Millisecond)
		return nil
	}
	return w
}
