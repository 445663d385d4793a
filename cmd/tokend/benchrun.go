package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"example.com/tokend/httpapi/wire"
	"example.com/tokend/internal/loadtest"
)

// benchRun makes load and checks what it is answered.
type benchRun struct {
	target *target
	opts   benchOptions
	users  []benchUser
	stock  chan benchToken // issued and not yet consumed, for an open loop
	turn   atomic.Int64

	round  *benchRound // the current one
	rounds []*benchRound

	mu       sync.Mutex
	doubles  int64            // tokens that two attempts were made at
	faults   map[string]int64 // no answers, by why
	failures map[string]int64 // wrong answers, by what is wrong
}

// benchRound is what one round has measured.
type benchRound struct {
	issue, consume loadtest.Histogram // of answers, but for faults
	arrived        loadtest.Arrived   // of an open loop
	took           time.Duration
}

// benchUser is a user with the bodies of the calls; a consume's token goes between.
type benchUser struct{ issue, before, after string }

// benchToken is a token with its user.
type benchToken struct {
	text string
	user *benchUser
}

const (
	benchUsers  = 500 // on many slots of a cluster
	maxStock    = 1 << 16
	afterAFault = 20 * time.Millisecond // a caller waits that long, to not hammer what is down
)

func newBenchRun(t *target, purpose string, o benchOptions) *benchRun {
	b := &benchRun{target: t, opts: o, stock: make(chan benchToken, maxStock), faults: map[string]int64{}, failures: map[string]int64{}}
	quoted, _ := json.Marshal(purpose) // a string
	for i := range benchUsers {
		b.users = append(b.users, benchUser{
			issue:  fmt.Sprintf(`{"user":"bench-%d","purpose":%s}`, i, quoted),
			before: `{"token":"`,
			after:  fmt.Sprintf(`","user":"bench-%d","purpose":%s}`, i, quoted),
		})
	}
	return b
}

// run warms up and makes the rounds. Each is told to log as it ends.
func (b *benchRun) run(ctx context.Context, log io.Writer) error {
	if b.opts.warmup > 0 {
		fmt.Fprintf(log, "warming up for %v\n", b.opts.warmup)
		b.round = new(benchRound)
		b.load(ctx, b.opts.warmup)
	}
	for i := range b.opts.rounds {
		b.round = new(benchRound)
		b.load(ctx, b.opts.duration)
		if ctx.Err() != nil {
			return errors.New("interrupted")
		}
		b.rounds = append(b.rounds, b.round)
		r := b.round
		fmt.Fprintf(log, "round %d of %d: %.0f calls/s, p99 issue %v, consume %v\n", i+1, b.opts.rounds,
			float64(r.issue.Count()+r.consume.Count())/r.took.Seconds(), short(r.issue.Quantile(.99)), short(r.consume.Quantile(.99)))
	}
	return nil
}

// load makes load for span.
func (b *benchRun) load(ctx context.Context, span time.Duration) {
	if b.opts.rate == 0 {
		b.round.took = loadtest.Closed(ctx, b.opts.callers, span, b.pair)
		return
	}
	b.fill(ctx)
	b.round.arrived = loadtest.Open(ctx, loadtest.Arrivals{Rate: b.opts.rate, Span: span, AtOnce: b.opts.callers}, b.arrival)
	b.round.took = b.round.arrived.Took
}

// pair issues a token and consumes it: a closed loop's turn.
func (b *benchRun) pair() {
	t, ok := b.issue(time.Now())
	if !ok || !b.consume(t, time.Now()) {
		time.Sleep(afterAFault)
	}
}

// fill puts a quarter of a second's tokens in stock, so that an open loop's consumes need
// not wait for its issues. They are not measured.
func (b *benchRun) fill(ctx context.Context) {
	measured := b.round
	b.round = new(benchRound)
	defer func() { b.round = measured }()
	ctx, full := context.WithCancel(ctx)
	defer full()
	want := min(max(int(b.opts.rate/4), 8), 1024)
	loadtest.Closed(ctx, 8, b.opts.timeout, func() {
		if len(b.stock) >= want {
			full()
			return
		}
		if t, ok := b.issue(time.Now()); ok {
			b.stock <- t
		} else {
			time.Sleep(afterAFault)
		}
	})
}

// arrival is an open loop's turn: to issue, or to consume what an earlier one issued.
func (b *benchRun) arrival(due time.Time) {
	if b.turn.Add(1)%2 == 0 {
		select {
		case t := <-b.stock:
			b.consume(t, due)
			return
		default: // the issues have fallen behind
		}
	}
	if t, ok := b.issue(due); ok {
		select {
		case b.stock <- t:
		default: // the consumes have
		}
	}
}

// issue has a token issued, and tells whether it was.
func (b *benchRun) issue(due time.Time) (benchToken, bool) {
	user := &b.users[rand.IntN(len(b.users))]
	status, answer, err := b.target.post(wire.PathTokens, user.issue)
	if b.noAnswer(status, answer, err) {
		return benchToken{}, false
	}
	b.round.issue.Add(time.Since(due))
	text, ok := member(answer, "token")
	if status != http.StatusCreated || !ok {
		b.fail("issue: " + said(status, answer))
		return benchToken{}, false
	}
	return benchToken{text, user}, true
}

// attempted is what became of one attempt at a token.
type attempted int

const (
	noAnswer attempted = iota
	granted
	used    // by another attempt
	refused // for no reason: a failure already
)

// consume has t consumed, by one attempt or by two at once, and tells whether all was
// answered as it should be.
func (b *benchRun) consume(t benchToken, due time.Time) bool {
	if b.opts.double == 0 || rand.Float64() >= b.opts.double {
		switch b.attempt(t, due) {
		case granted:
			return true
		case used:
			b.fail("consume: token_used, for a token that nobody had used")
		}
		return false
	}
	b.count(&b.doubles)
	other := make(chan attempted, 1)
	go func() { other <- b.attempt(t, due) }()
	one, two := b.attempt(t, due), <-other
	switch {
	case one == granted && two == granted:
		b.fail("DOUBLE CONSUME: two attempts were granted the same token")
	case one == used && two == used:
		b.fail("consume: token_used to both of two attempts")
	}
	// Where one was not answered, nobody knows which was granted the token.
	return one != noAnswer && two != noAnswer
}

func (b *benchRun) attempt(t benchToken, due time.Time) attempted {
	status, answer, err := b.target.post(wire.PathConsume, t.user.before+t.text+t.user.after)
	if b.noAnswer(status, answer, err) {
		return noAnswer
	}
	b.round.consume.Add(time.Since(due))
	outcome, _ := member(answer, "outcome")
	code, _ := member(answer, "code")
	switch {
	case status == http.StatusOK && outcome == wire.OutcomeConsumed && bytes.Contains(answer, []byte(`"replayed":false`)):
		return granted
	case status == http.StatusConflict && code == string(wire.CodeTokenUsed):
		return used
	}
	b.fail("consume: " + said(status, answer))
	return refused
}

// noAnswer counts a fault, and tells whether it is one.
func (b *benchRun) noAnswer(status int, answer []byte, err error) bool {
	var why string
	switch {
	case err != nil:
		why = faultOf(err)
	case status >= http.StatusInternalServerError:
		why = said(status, answer)
	default:
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults[why]++
	return true
}

func (b *benchRun) fail(what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failures[what]++
}

func (b *benchRun) count(n *int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	*n++
}

// said names an answer by its status and code.
func said(status int, answer []byte) string {
	if code, ok := member(answer, "code"); ok && len(code) < 64 {
		return strconv.Itoa(status) + " " + code
	}
	return strconv.Itoa(status)
}

// member returns the text of answer's member called name, which tokend writes without
// spaces and escapes.
func member(answer []byte, name string) (string, bool) {
	_, rest, ok := bytes.Cut(answer, []byte(`"`+name+`":"`))
	if !ok {
		return "", false
	}
	text, _, ok := bytes.Cut(rest, []byte(`"`))
	return string(text), ok
}

// report sums the run up.
func (b *benchRun) report(url string) *benchReport {
	r := &benchReport{
		URL: url, Loop: "closed", Callers: b.opts.callers, Rate: b.opts.rate, Rounds: len(b.rounds), RoundSeconds: b.opts.duration.Seconds(),
		Calls:   map[string]*benchCall{},
		Doubles: b.doubles, Faults: maps.Clone(b.faults), Failures: maps.Clone(b.failures),
	}
	if b.opts.rate > 0 {
		r.Loop = "open"
	}
	for name, of := range map[string]func(*benchRound) *loadtest.Histogram{
		"issue":   func(r *benchRound) *loadtest.Histogram { return &r.issue },
		"consume": func(r *benchRound) *loadtest.Histogram { return &r.consume },
	} {
		r.Calls[name] = newBenchCall(b.rounds, of)
	}
	for _, round := range b.rounds {
		r.Late += round.arrived.Late
		r.Dropped += round.arrived.Dropped
	}
	return r
}
