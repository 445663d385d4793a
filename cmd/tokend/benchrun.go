package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"example.com/tokend/httpapi/wire"
	"example.com/tokend/internal/loadtest"
)

// benchRun makes load and checks what it is answered.
type benchRun struct {
	target  *target
	purpose string
	opts    benchOptions
	users   []benchUser
	stock   chan benchToken // issued and not yet consumed, for an open loop
	turn    atomic.Int64

	round       *benchRound // the current one
	rounds      []*benchRound
	interrupted string // when, in words; empty where it was not

	mu      sync.Mutex
	doubles int64                   // tokens that two attempts were made at
	wrong   map[string]*wrongAnswer // by what is wrong; the warm-up's too
}

// benchRound is what one round has measured.
type benchRound struct {
	issue, consume loadtest.Histogram // of answers
	fault          loadtest.Histogram // of calls that ended without
	arrived        loadtest.Arrived   // of an open loop
	took           time.Duration

	faults map[string]int64 // calls that ended without an answer, by why
}

func newBenchRound() *benchRound { return &benchRound{faults: map[string]int64{}} }

// calls returns how many calls were made.
func (r *benchRound) calls() int64 { return r.issue.Count() + r.consume.Count() + r.fault.Count() }

// benchUser is a user with the bodies of the calls; a consume's token goes between.
type benchUser struct{ name, issue, before, after string }

// benchToken is a token with its user.
type benchToken struct {
	text, ref string
	user      *benchUser
}

const (
	benchUsers  = 500 // on many slots of a cluster
	maxStock    = 1 << 16
	afterAFault = 20 * time.Millisecond // a caller waits that long, to not hammer what is down
)

func newBenchRun(t *target, purpose string, o benchOptions) *benchRun {
	b := &benchRun{target: t, opts: o, purpose: purpose, stock: make(chan benchToken, maxStock), wrong: map[string]*wrongAnswer{}}
	quoted, _ := json.Marshal(purpose) // a string
	for i := range benchUsers {
		b.users = append(b.users, benchUser{
			name:   fmt.Sprintf("bench-%d", i),
			issue:  fmt.Sprintf(`{"user":"bench-%d","purpose":%s}`, i, quoted),
			before: `{"token":"`,
			after:  fmt.Sprintf(`","user":"bench-%d","purpose":%s}`, i, quoted),
		})
	}
	return b
}

// run warms up and makes the rounds. Each is told to log as it ends. Where ctx ends before
// they do, the rounds that are whole count, and the first one even if it is not.
func (b *benchRun) run(ctx context.Context, log io.Writer) {
	if b.opts.warmup > 0 {
		fmt.Fprintf(log, "warming up for %v\n", b.opts.warmup)
		b.round = newBenchRound()
		b.load(ctx, b.opts.warmup)
	}
	if ctx.Err() != nil {
		b.interrupted = "before the first round"
		return
	}
	for i := range b.opts.rounds {
		b.round = newBenchRound()
		b.load(ctx, b.opts.duration)
		r := b.round
		if ctx.Err() != nil {
			b.interrupted = fmt.Sprintf("after %d of %d rounds", i, b.opts.rounds)
			if i == 0 {
				b.interrupted = fmt.Sprintf("in the first of %d rounds", b.opts.rounds)
				b.rounds = append(b.rounds, r)
			}
			return
		}
		b.rounds = append(b.rounds, r)
		fmt.Fprintf(log, "round %d of %d: %.0f calls/s answered, p99 issue %v, consume %v, faults %d\n", i+1, b.opts.rounds,
			float64(r.issue.Count()+r.consume.Count())/r.took.Seconds(), quantileOf(&r.issue, .99), quantileOf(&r.consume, .99), r.fault.Count())
	}
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
	b.round = newBenchRound()
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
	r, err := b.target.post(wire.PathTokens, user.issue)
	if b.noAnswer(r, err, due) {
		return benchToken{}, false
	}
	b.round.issue.Add(time.Since(due))
	t := benchToken{text: member(r.body, "token"), ref: member(r.body, "ref"), user: user}
	wrong := ""
	if r.status != http.StatusCreated || t.text == "" {
		wrong = refusedOrNot(r)
	} else {
		wrong = b.unlike(r, t)
	}
	if wrong != "" {
		b.fail("issue: "+wrong, t.ref, r.requestID)
		return benchToken{}, false
	}
	return t, true
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
		became, id := b.attempt(t, due)
		if became == used {
			b.fail("consume: refused token_used without reason: there was no other attempt", t.ref, id)
		}
		return became == granted
	}
	b.count(func() { b.doubles++ })
	other := make(chan func() (attempted, string), 1)
	go func() {
		became, id := b.attempt(t, due)
		other <- func() (attempted, string) { return became, id }
	}()
	one, id1 := b.attempt(t, due)
	two, id2 := (<-other)()
	switch {
	case one == granted && two == granted:
		b.fail("consume: GRANTED TO TWO ATTEMPTS", t.ref, id1, id2)
	case one == used && two == used:
		b.fail("consume: refused token_used to both of two attempts", t.ref, id1, id2)
	}
	// Where one was not answered, nobody knows which was granted the token.
	return one != noAnswer && two != noAnswer
}

// attempt makes an attempt at t, and tells what became of it and the request's id.
func (b *benchRun) attempt(t benchToken, due time.Time) (attempted, string) {
	r, err := b.target.post(wire.PathConsume, t.user.before+t.text+t.user.after)
	if b.noAnswer(r, err, due) {
		return noAnswer, ""
	}
	b.round.consume.Add(time.Since(due))
	wrong := ""
	switch {
	// A replay is a grant: the service has asked Redis again after a lost reply.
	case r.status == http.StatusOK && member(r.body, "outcome") == wire.OutcomeConsumed:
		if wrong = b.unlike(r, t); wrong == "" {
			return granted, r.requestID
		}
	case r.status == http.StatusConflict && member(r.body, "code") == string(wire.CodeTokenUsed):
		return used, r.requestID
	default:
		wrong = refusedOrNot(r)
	}
	b.fail("consume: "+wrong, t.ref, r.requestID)
	return refused, r.requestID
}

// noAnswer counts a fault, and tells whether it is one.
func (b *benchRun) noAnswer(r benchReply, err error, due time.Time) bool {
	var why string
	switch {
	case err != nil:
		why = faultOf(err)
	case r.status >= http.StatusInternalServerError:
		why = strconv.Itoa(r.status)
		if code := codeOf(r); code != "" {
			why += " " + code
		}
	default:
		return false
	}
	b.round.fault.Add(time.Since(due))
	b.count(func() { b.round.faults[why]++ })
	return true
}

func (b *benchRun) count(add func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	add()
}

// report sums the run up.
func (b *benchRun) report(url string) *benchReport {
	r := &benchReport{
		URL: url, Loop: "closed", Callers: b.opts.callers, Rate: b.opts.rate, Rounds: len(b.rounds), RoundSeconds: b.opts.duration.Seconds(),
		Interrupted: b.interrupted,
		Calls:       map[string]*benchCall{},
		Doubles:     b.doubles, Faults: map[string]int64{}, WrongAnswers: []*wrongAnswer{},
		Remarks:   []string{},
		maxFaults: b.opts.maxFaults,
	}
	if b.opts.rate > 0 {
		r.Loop = "open"
	}
	r.Calls["issue"] = newBenchCall(b.rounds, func(r *benchRound) *loadtest.Histogram { return &r.issue })
	r.Calls["consume"] = newBenchCall(b.rounds, func(r *benchRound) *loadtest.Histogram { return &r.consume })
	fault := new(loadtest.Histogram)
	var took time.Duration
	for _, round := range b.rounds {
		r.Made += round.calls()
		r.Late += round.arrived.Late
		r.Dropped += round.arrived.Dropped
		r.Arrived += round.arrived.Called + round.arrived.Dropped
		took += round.took
		fault.Merge(&round.fault)
		for why, n := range round.faults {
			r.Faults[why] += n
		}
	}
	if n := fault.Count(); n > 0 {
		r.FaultShare = float64(n) / float64(r.Made)
		r.FaultsTook = &benchTook{quantileOf(fault, .5), quantileOf(fault, .99), microsOf(fault.Max())}
	}
	if b.interrupted != "" && len(b.rounds) == 1 && took < b.opts.duration {
		r.RoundSeconds = short(took).Seconds()
	}
	for _, what := range slices.Sorted(maps.Keys(b.wrong)) {
		r.WrongAnswers = append(r.WrongAnswers, b.wrong[what])
	}
	r.remark(took)
	return r
}
