package program_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.com/tokend/client"
)

// load is many form services that have tokens issued and consume each of them several
// times at once, by calls that know nothing of each other, through whichever instance
// answers. Each call has one attempt, and sends it until it is answered.
type load struct {
	t       *testing.T
	clients []*client.Client
	users   []string
	once    bool // a lost outcome is an answer: delete mode

	ctx    context.Context // ends with the patience for all of it
	stop   chan struct{}
	wg     sync.WaitGroup
	faults atomic.Int64 // calls, not tries, that were not answered

	mu     sync.Mutex
	tokens []*history
}

// history is one token and what those who wanted it heard.
type history struct {
	client.Token
	brief bool // its life is so short that it may end before anybody is granted it
	calls []*logicalCall
}

// logicalCall is one attempt, and how it was answered in the end.
type logicalCall struct {
	attempt string
	got     client.Consumed
	err     error
	unknown bool // a try of it, whose outcome nobody knows, may have been granted the token
}

const (
	workers = 6
	briefly = time.Second
	enough  = 60 // tokens
)

// startLoad puts load on instances.
func startLoad(t *testing.T, instances ...*instance) *load {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	t.Cleanup(cancel)
	l := &load{t: t, ctx: ctx, stop: make(chan struct{}), users: []string{"alice", "bob", "用户:42}{"}}
	for _, i := range instances {
		l.clients = append(l.clients, i.client(client.MaxTries(3), client.TryTimeout(5*time.Second)))
	}
	return l
}

// begin has the workers work. It is apart from startLoad for what is to be set before.
func (l *load) begin() *load {
	for w := range workers {
		l.wg.Go(func() { l.work(w) })
	}
	return l
}

// end has the workers bring to an end what they have begun, when nothing breaks any more
// and enough has been served for it to show something.
func (l *load) end() {
	l.t.Helper()
	l.served(max(20, enough-l.count()))
	close(l.stop)
	l.wg.Wait()
	time.Sleep(briefly + 100*time.Millisecond) // now brief tokens are past their life
	if l.ctx.Err() != nil {
		l.t.Fatal("calls were not answered in a long time")
	}
}

// served waits until n more tokens have been through.
func (l *load) served(n int) {
	l.t.Helper()
	want := l.count() + n
	until(l.t, fmt.Sprintf("%d tokens more are served", n), func() bool { return l.count() >= want })
}

func (l *load) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.tokens)
}

func (l *load) work(w int) {
	purpose := fmt.Sprintf("purpose.%d", w)
	for n := 0; l.ctx.Err() == nil; n++ {
		select {
		case <-l.stop:
			return
		default:
		}
		hs := l.issue(purpose, n)
		var wg sync.WaitGroup
		callers := 2 + rand.N(2)
		if n%10 == 0 {
			callers = 0 // nobody wants it
		}
		for range callers {
			calls := make([]*logicalCall, len(hs))
			for i, h := range hs {
				calls[i] = &logicalCall{attempt: fmt.Sprintf("%d.%d.%d.%x", w, n, len(h.calls), rand.Uint64())}
				h.calls = append(h.calls, calls[i])
			}
			batch, first := rand.N(3) == 0, rand.N(len(l.clients))
			wg.Go(func() {
				if batch {
					l.consumeBatch(first, purpose, hs, calls)
					return
				}
				for i, h := range hs {
					l.consume(first, purpose, h, calls[i])
				}
			})
		}
		wg.Wait()
		l.mu.Lock()
		l.tokens = append(l.tokens, hs...)
		l.mu.Unlock()
	}
}

// issue has tokens issued, one or a batch.
func (l *load) issue(purpose string, n int) []*history {
	user := l.users[n%len(l.users)]
	var opts []client.IssueOption
	brief := n%5 == 0
	if brief {
		opts = append(opts, client.TTL(briefly))
	}
	for try := n; l.ctx.Err() == nil; try++ {
		p := l.clients[try%len(l.clients)].Purpose(purpose)
		var tokens []client.Token
		var err error
		if n%4 == 1 {
			tokens, err = p.IssueBatch(l.ctx, user, 3, opts...)
		} else {
			var one client.Token
			one, err = p.Issue(l.ctx, user, opts...)
			tokens = []client.Token{one}
		}
		if l.again(err) {
			continue
		}
		if err != nil {
			l.t.Errorf("issue: %v", err)
			break
		}
		hs := make([]*history, len(tokens))
		for i, t := range tokens {
			hs[i] = &history{Token: t, brief: brief}
		}
		return hs
	}
	return nil
}

// again tells whether err is the lack of an answer.
func (l *load) again(err error) bool {
	if _, ok := errors.AsType[*client.Fault](err); ok {
		l.faults.Add(1)
		return true
	}
	return false
}

// pause is waited between two calls with one attempt.
const pause = 30 * time.Millisecond

func (l *load) consume(first int, purpose string, h *history, c *logicalCall) {
	for n := first; l.ctx.Err() == nil; n++ {
		c.got, c.err = l.clients[n%len(l.clients)].Purpose(purpose).Consume(l.ctx, h.User, h.Value, client.Attempt(c.attempt))
		if !l.again(c.err) || l.gaveUp(c) {
			return
		}
		time.Sleep(pause)
	}
}

// consumeBatch is consume for several tokens in one call.
func (l *load) consumeBatch(first int, purpose string, hs []*history, calls []*logicalCall) {
	open := make([]int, len(hs))
	for i := range hs {
		open[i] = i
	}
	for n := first; len(open) > 0 && l.ctx.Err() == nil; n++ {
		items := make([]client.Item, len(open))
		for j, i := range open {
			items[j] = client.Item{User: hs[i].User, Token: hs[i].Value, Attempt: calls[i].attempt}
		}
		outcomes, err := l.clients[n%len(l.clients)].Purpose(purpose).ConsumeBatch(l.ctx, items)
		left := open[:0:0]
		for j, i := range open {
			c := calls[i]
			c.err = err
			if err == nil {
				c.got, c.err = outcomes[j].Consumed, outcomes[j].Err
			}
			if l.again(c.err) && !l.gaveUp(c) {
				left = append(left, i)
			}
		}
		if open = left; len(open) > 0 {
			time.Sleep(pause)
		}
	}
}

// gaveUp tells whether c, which ended in a fault, is not to be sent again: in delete mode
// that would read its own consume as another's.
func (l *load) gaveUp(c *logicalCall) bool {
	fault, ok := errors.AsType[*client.Fault](c.err)
	if l.once && ok && fault.MaybeDone && fault.Code != client.Code("store_unavailable") {
		c.unknown = true
	}
	return c.unknown
}

// winners returns the calls that were granted h.
func (h *history) winners() (won []*logicalCall) {
	for _, c := range h.calls {
		if c.err == nil {
			won = append(won, c)
		}
	}
	return won
}

// tally is what came of a load.
type tally struct{ tokens, calls, winners, replayed, brief, expired, unknown int }

// exactlyOneWinner fails the test unless each token was granted to exactly one attempt, and
// is still granted to that one and refused to all others. It sends each attempt again,
// through any instance.
func (l *load) exactlyOneWinner() tally {
	l.t.Helper()
	var sum tally
	var mu sync.Mutex
	l.each(func(n int, h *history) {
		won := h.winners()
		mu.Lock()
		sum.tokens++
		sum.calls += len(h.calls)
		sum.winners += len(won)
		for _, c := range won {
			if c.got.Replayed {
				sum.replayed++
			}
			if h.brief {
				sum.brief++
			}
		}
		if len(won) == 0 {
			sum.expired++
		}
		mu.Unlock()
		switch {
		case len(won) > 1:
			l.t.Errorf("the token %s was granted to %d attempts", h.Ref, len(won))
		case len(won) == 1:
			l.holds(n, h, won[0])
		default:
			l.neverUsed(n, h)
		}
	})
	l.show(sum)
	return sum
}

// holds fails the test unless h is w's, and nobody else's.
func (l *load) holds(n int, h *history, w *logicalCall) {
	p := l.clients[n%len(l.clients)].Purpose(h.Purpose)
	got, err := p.Consume(l.ctx, h.User, h.Value, client.Attempt(w.attempt))
	if err != nil || !got.Replayed || !got.UsedAt.Equal(w.got.UsedAt) {
		l.t.Errorf("the winner's attempt again, of the token %s: %+v, %v; it had heard %+v", h.Ref, got, err, w.got)
	}
	var usedBy []string
	for _, c := range append(slices.Clip(h.calls), latecomer(l, p, h)) {
		if c == w {
			continue
		}
		for _, err := range []error{c.err, again(l.ctx, p, h, c)} {
			no, ok := errors.AsType[*client.Refusal](err)
			if !ok || !errors.Is(err, client.ErrUsed) {
				l.t.Errorf("a loser of the used token %s heard %v", h.Ref, err)
				continue
			}
			usedBy = append(usedBy, no.UsedBy)
		}
	}
	if slices.Sort(usedBy); len(slices.Compact(usedBy)) > 1 {
		l.t.Errorf("the token %s was used by several attempts: %v", h.Ref, usedBy)
	}
	if s, err := p.Status(l.ctx, h.User, h.Value); err != nil || string(s.State) != "used" {
		l.t.Errorf("the status of the used token %s: %v, %v", h.Ref, s.State, err)
	}
}

// latecomer is a call that nobody has made before.
func latecomer(l *load, p client.Purpose, h *history) *logicalCall {
	c := &logicalCall{attempt: "latecomer"}
	c.got, c.err = p.Consume(l.ctx, h.User, h.Value, client.Attempt(c.attempt))
	return c
}

func again(ctx context.Context, p client.Purpose, h *history, c *logicalCall) error {
	_, err := p.Consume(ctx, h.User, h.Value, client.Attempt(c.attempt))
	return err
}

// neverUsed fails the test unless h has expired before anybody was granted it.
func (l *load) neverUsed(n int, h *history) {
	p := l.clients[n%len(l.clients)].Purpose(h.Purpose)
	for _, c := range append(slices.Clip(h.calls), latecomer(l, p, h)) {
		for _, err := range []error{c.err, again(l.ctx, p, h, c)} {
			if !h.brief || !errors.Is(err, client.ErrExpired) {
				l.t.Errorf("nobody was granted the token %s, and a call heard %v", h.Ref, err)
			}
		}
	}
	if s, err := p.Status(l.ctx, h.User, h.Value); err != nil || string(s.State) != "expired" {
		l.t.Errorf("the status of the expired token %s: %v, %v", h.Ref, s.State, err)
	}
}

// atMostOneWinner is what delete mode promises: no token was granted twice, and one that
// nobody was granted had a call of which nobody knows, or is past its life.
func (l *load) atMostOneWinner() tally {
	l.t.Helper()
	var sum tally
	var mu sync.Mutex
	l.each(func(n int, h *history) {
		won := h.winners()
		unknown, gone := 0, 0
		for _, c := range h.calls {
			switch {
			case c.unknown:
				unknown++
			case errors.Is(c.err, client.ErrGone):
				gone++
			case c.err != nil && !errors.Is(c.err, client.ErrUsed):
				l.t.Errorf("a call for the token %s heard %v", h.Ref, c.err)
			}
		}
		if len(won) > 1 || len(won) == 0 && unknown == 0 && gone == 0 && len(h.calls) > 0 {
			l.t.Errorf("the token %s was granted to %d attempts, of %d more nobody knows", h.Ref, len(won), unknown)
		}
		if late := latecomer(l, l.clients[n%len(l.clients)].Purpose(h.Purpose), h); late.err == nil && (len(won) > 0 || h.brief) {
			l.t.Errorf("the token %s was granted once more", h.Ref)
		}
		mu.Lock()
		defer mu.Unlock()
		sum.tokens++
		sum.calls += len(h.calls)
		sum.winners += len(won)
		sum.unknown += unknown
		if h.brief {
			sum.brief += len(won)
		}
		if len(won) == 0 && unknown == 0 {
			sum.expired++
		}
	})
	l.show(sum)
	return sum
}

// each calls check for every token, several at a time.
func (l *load) each(check func(int, *history)) {
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for n := w; n < len(l.tokens); n += workers {
				check(n, l.tokens[n])
			}
		})
	}
	wg.Wait()
}

// show prints what came of the load.
func (l *load) show(sum tally) {
	l.t.Helper()
	l.t.Logf("%d tokens, %d calls for them (and %d times no answer): %d winners (%d told so by a later try, %d past the token's life by now), %d expired unused, %d unknown",
		sum.tokens, sum.calls, l.faults.Load(), sum.winners, sum.replayed, sum.brief, sum.expired, sum.unknown)
}
