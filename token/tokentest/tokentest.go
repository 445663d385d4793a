// Package tokentest is the behaviour that every [token.Store] must show, as tests.
package tokentest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/tokend/token"
)

// Backend is a store under test. Stores of one test run may share their database: the
// suite never uses a token or user twice.
type Backend struct {
	Store token.Store
	// Advance moves the store's clock on by d, or waits for as long where the clock
	// cannot be moved.
	Advance func(d time.Duration)
	// Movable tells that Advance moves the clock, so that long spans cost nothing.
	Movable bool
}

// Run runs the suite. open is called once in each test and may use its t.
func Run(t *testing.T, open func(t *testing.T) Backend) {
	tests := []struct {
		name string
		run  func(t *testing.T, e *env)
	}{
		{"Issue", testIssue},
		{"IssueAgain", testIssueAgain},
		{"IssueAgainUsed", testIssueAgainUsed},
		{"Milliseconds", testMilliseconds},
		{"Rate", testRate},
		{"Consume", testConsume},
		{"Digest", testDigest},
		{"Expiry", testExpiry},
		{"Stale", testStale},
		{"Lost", testLost},
		{"Strangers", testStrangers},
		{"AnyUser", testAnyUser},
		{"OneWinner", testOneWinner},
		{"OneAttempt", testOneAttempt},
		{"HangUp", testHangUp},
		{"IssueBatch", testIssueBatch},
		{"ConsumeBatch", testConsumeBatch},
		{"Revoke", testRevoke},
		{"RevokeTooLate", testRevokeTooLate},
		{"RevokeJustExpired", testRevokeJustExpired},
		{"ByRef", testByRef},
		{"DeleteMode", testDeleteMode},
		{"DeleteModeOneWinner", testDeleteModeOneWinner},
		{"Claim", testClaim},
		{"Results", testResults},
		{"ClaimDigest", testClaimDigest},
		{"Takeover", testTakeover},
		{"TakeoverByConsume", testTakeoverByConsume},
		{"LeaseOver", testLeaseOver},
		{"Commit", testCommit},
		{"CommitByClaim", testCommitByClaim},
		{"Resolve", testResolve},
		{"RenewCommitted", testRenewCommitted},
		{"Release", testRelease},
		{"ReleasedExpires", testReleasedExpires},
		{"ClaimedInTime", testClaimedInTime},
		{"TakeoverRemembered", testTakeoverRemembered},
		{"RevokeClaimed", testRevokeClaimed},
		{"NotClaimable", testNotClaimable},
		{"KeyScope", testKeyScope},
		{"KeyRetention", testKeyRetention},
		{"KeyRemembered", testKeyRemembered},
		{"KeyForgotten", testKeyForgotten},
		{"ClaimHangUp", testClaimHangUp},
		{"OneHolder", testOneHolder},
		{"StepsRace", testStepsRace},
		{"Wait", testWait},
		{"ConsumeTells", testConsumeTells},
		{"Model", testModel},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := open(t)
			if !b.Movable {
				t.Parallel() // such tests mostly wait
			}
			tt.run(t, newEnv(t, b))
		})
	}
}

// env is what each test works with.
type env struct {
	Backend
	t    *testing.T
	svc  *token.Service
	user token.User
}

const purpose token.Purpose = "order.create"

func newEnv(t *testing.T, b Backend) *env {
	e := &env{Backend: b, t: t, user: token.User("user " + string(token.NewAttempt()))}
	e.svc = e.service(token.Options{})
	return e
}

// service returns a service on e's store. A test's retention is long unless it says
// otherwise.
func (e *env) service(opts token.Options) *token.Service {
	e.t.Helper()
	ring, err := token.NewRing(token.Key{ID: "test", Secret: [32]byte{1}})
	if err != nil {
		e.t.Fatal(err)
	}
	if opts.Mode == 0 {
		opts.Mode = token.Record
	}
	if opts.TTL == 0 {
		opts.TTL = time.Minute
	}
	if opts.MaxTTL == 0 {
		opts.MaxTTL = 24 * time.Hour
	}
	if opts.Retention == 0 {
		opts.Retention = time.Hour
	}
	return token.NewService(ring, e.Store, opts)
}

// issue issues a token by svc with a life of ttl and opens it.
func (e *env) issue(svc *token.Service, ttl time.Duration) *token.Token {
	e.t.Helper()
	got, err := svc.Issue(e.t.Context(), token.IssueRequest{User: e.user, Purpose: purpose, TTL: ttl})
	if err != nil {
		e.t.Fatalf("issue: %v", err)
	}
	opened, err := svc.Open(token.Use{Text: got.Text, User: e.user, Purpose: purpose})
	if err != nil {
		e.t.Fatalf("open: %v", err)
	}
	return opened
}

func (e *env) consume(tok *token.Token, a token.Attempt, d token.Digest) (token.Consumed, error) {
	return e.Store.Consume(e.t.Context(), e.consumption(tok, a, d))
}

func (e *env) consumption(tok *token.Token, a token.Attempt, d token.Digest) token.Consumption {
	return token.Consumption{User: e.user, Token: tok, Attempt: a, Digest: d}
}

// subject returns tok, as its text names it.
func (e *env) subject(tok *token.Token) token.Subject {
	return token.Subject{User: e.user, ID: tok.ID, Token: tok}
}

// byRef returns tok, as its ref names it.
func (e *env) byRef(tok *token.Token) token.Subject {
	return token.Subject{User: e.user, ID: tok.ID}
}

// consumed consumes tok, or fails the test.
func (e *env) consumed(tok *token.Token, a token.Attempt, d token.Digest) token.Consumed {
	e.t.Helper()
	got, err := e.consume(tok, a, d)
	if err != nil {
		e.t.Fatalf("consume by %s: %v", a, err)
	}
	return got
}

// refused consumes tok and fails the test unless it is refused for why.
func (e *env) refused(tok *token.Token, a token.Attempt, d token.Digest, why *token.Reason) *token.Refusal {
	e.t.Helper()
	got, err := e.consume(tok, a, d)
	if !errors.Is(err, why) {
		e.t.Fatalf("consume by %s: %+v, %v; want the refusal %q", a, got, err, why)
	}
	var no *token.Refusal
	if !errors.As(err, &no) {
		e.t.Fatalf("consume by %s: %T, want *token.Refusal", a, err)
	}
	if no.Ref != tok.Ref() || !no.ExpiresAt.Equal(tok.ExpiresAt) {
		e.t.Errorf("refusal is of %s until %v, want %s until %v", no.Ref, no.ExpiresAt, tok.Ref(), tok.ExpiresAt)
	}
	return no
}

// status returns tok's status, or fails the test unless its state is want.
func (e *env) status(tok *token.Token, want token.State) token.Status {
	e.t.Helper()
	got, err := e.Store.Status(e.t.Context(), e.subject(tok))
	if err != nil {
		e.t.Fatalf("status: %v", err)
	}
	if got.State != want {
		e.t.Fatalf("status: %q, want %q", got.State, want)
	}
	if !got.ExpiresAt.Equal(tok.ExpiresAt) {
		e.t.Errorf("status: expires at %v, want %v", got.ExpiresAt, tok.ExpiresAt)
	}
	return got
}

func testIssue(t *testing.T, e *env) {
	got, err := e.svc.Issue(t.Context(), token.IssueRequest{User: e.user, Purpose: purpose, TTL: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if life := got.ExpiresAt.Sub(got.IssuedAt); life != 5*time.Second || got.TTL != life {
		t.Errorf("life is %v, TTL %v, want 5s", life, got.TTL)
	}
	opened, err := e.svc.Open(token.Use{Text: got.Text, User: e.user, Purpose: purpose})
	if err != nil {
		t.Fatal(err)
	}
	if !opened.ExpiresAt.Equal(got.ExpiresAt) {
		t.Errorf("signed expiry %v, want %v", opened.ExpiresAt, got.ExpiresAt)
	}
	if st := e.status(opened, token.StateIssued); !st.IssuedAt.Equal(got.IssuedAt) {
		t.Errorf("status: issued at %v, want %v", st.IssuedAt, got.IssuedAt)
	}
}

func testIssueAgain(t *testing.T, e *env) {
	rec := token.NewRecords{
		IDs: newIDs(1), User: e.user, Mode: token.Record, TTL: time.Minute, Retention: time.Hour,
		Rate: token.Rate{PerMinute: 1, Burst: 1},
	}
	first, err := e.Store.Issue(t.Context(), rec)
	if err != nil {
		t.Fatal(err)
	}
	if e.Movable {
		e.Advance(10 * time.Millisecond)
	}
	again, err := e.Store.Issue(t.Context(), rec)
	if err != nil {
		t.Fatalf("the same issue again: %v, want success, not counted", err)
	}
	if diff := cmp.Diff(first, again); diff != "" {
		t.Errorf("the same issue again has other times (-first +again):\n%s", diff)
	}
	rec.IDs = newIDs(1)
	if _, err := e.Store.Issue(t.Context(), rec); !errors.Is(err, token.ErrRateLimited) {
		t.Errorf("a second token above the rate: %v, want %v", err, token.ErrRateLimited)
	}
}

// testIssueAgainUsed has an issue be sent again when its token is used already: that must not
// bring the token back.
func testIssueAgainUsed(t *testing.T, e *env) {
	rec := token.NewRecords{IDs: newIDs(1), User: e.user, Mode: token.Record, TTL: time.Minute, Retention: time.Hour}
	got, err := e.Store.Issue(t.Context(), rec)
	if err != nil {
		t.Fatal(err)
	}
	tok := &token.Token{ID: rec.IDs[0], Mode: rec.Mode, ExpiresAt: got.ExpiresAt, Retention: rec.Retention}
	e.consumed(tok, "a", "")
	if again, err := e.Store.Issue(t.Context(), rec); err != nil || again != got {
		t.Errorf("the same issue again: %+v, %v; want %+v", again, err, got)
	}
	e.refused(tok, "b", "", token.ErrUsed)
}

// testMilliseconds measures a span that is no number of seconds.
func testMilliseconds(t *testing.T, e *env) {
	const span = 250 * time.Millisecond
	first := e.issue(e.svc, time.Minute)
	e.Advance(span)
	second := e.issue(e.svc, time.Minute)
	got := second.ExpiresAt.Sub(first.ExpiresAt)
	if got < span || e.Movable && got != span {
		t.Errorf("what was issued %v apart expires %v apart", span, got)
	}
}

// testStrangers asks for tokens as who they are not for: they stay as they are.
func testStrangers(t *testing.T, e *env) {
	got, err := e.svc.Issue(t.Context(), token.IssueRequest{User: e.user, Purpose: purpose})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		use token.Use
		why error
	}{
		{token.Use{Text: got.Text, User: e.user + "'s neighbour", Purpose: purpose}, token.ErrWrongUser},
		{token.Use{Text: got.Text, User: e.user, Purpose: purpose + ".other"}, token.ErrWrongPurpose},
		{token.Use{Text: got.Text, User: e.user + "'s neighbour", Purpose: purpose + ".other"}, token.ErrWrongUser},
	} {
		if _, err := e.svc.Open(tt.use); !errors.Is(err, tt.why) {
			t.Errorf("a stranger opens it: %v, want %v", err, tt.why)
		}
	}
	tok, err := e.svc.Open(token.Use{Text: got.Text, User: e.user, Purpose: purpose})
	if err != nil {
		t.Fatal(err)
	}
	// Nor is it found under another user, whatever was opened.
	c := e.consumption(tok, "a", "")
	c.User += "'s neighbour"
	if _, err := e.Store.Consume(t.Context(), c); !errors.Is(err, token.ErrLost) {
		t.Errorf("consume as another user: %v, want %v", err, token.ErrLost)
	}
	e.status(tok, token.StateIssued)
	e.consumed(tok, "a", "")
}

func testRate(t *testing.T, e *env) {
	rate := token.Rate{PerMinute: 60, Burst: 3} // one a second
	issue := func(u token.User, r token.Rate) error {
		_, err := e.Store.Issue(t.Context(), token.NewRecords{
			IDs: newIDs(1), User: u, Mode: token.Record, TTL: time.Minute, Retention: time.Hour, Rate: r,
		})
		return err
	}
	// On a slow machine a token may have come back by the end of the burst.
	n := 0
	var err error
	for err == nil && n < 100 {
		if err = issue(e.user, rate); err == nil {
			n++
		}
	}
	if n < 3 || e.Movable && n != 3 {
		t.Errorf("%d tokens passed, want a burst of 3", n)
	}
	var no *token.Refusal
	if !errors.As(err, &no) || no.Reason != token.ErrRateLimited {
		t.Fatalf("above the burst: %v, want %v", err, token.ErrRateLimited)
	}
	if no.RetryAfter <= 0 || no.RetryAfter > time.Second {
		t.Errorf("retry after %v, want more than 0 and at most 1s", no.RetryAfter)
	}
	if err := issue(e.user+"'s neighbour", rate); err != nil {
		t.Errorf("another user: %v", err)
	}
	if err := issue(e.user, token.Rate{}); err != nil {
		t.Errorf("a call that is not limited: %v", err)
	}
	e.Advance(no.RetryAfter)
	if err := issue(e.user, rate); err != nil {
		t.Errorf("after the wait that the refusal named: %v", err)
	}
}

func testConsume(t *testing.T, e *env) {
	tok := e.issue(e.svc, time.Minute)
	got := e.consumed(tok, "first", "")
	if got.Replayed || got.Takeover || got.UsedAt.IsZero() || got.UsedAt.After(tok.ExpiresAt) {
		t.Errorf("consumed: %+v", got)
	}
	again := e.consumed(tok, "first", "")
	if want := (token.Consumed{UsedAt: got.UsedAt, Replayed: true}); again != want {
		t.Errorf("the same attempt again: %+v, want %+v", again, want)
	}
	for _, other := range []token.Attempt{"second", "First"} {
		no := e.refused(tok, other, "", token.ErrUsed)
		if !no.UsedAt.Equal(got.UsedAt) || no.UsedBy != token.Attempt("first").Hash().Ref() {
			t.Errorf("refusal: %+v, want used at %v by %s", no, got.UsedAt, token.Attempt("first").Hash().Ref())
		}
	}
	if again := e.consumed(tok, "first", ""); !again.Replayed {
		t.Error("the first attempt after another was refused: not replayed")
	}
	st := e.status(tok, token.StateUsed)
	if !st.UsedAt.Equal(got.UsedAt) || st.UsedBy != token.Attempt("first").Hash().Ref() || st.IssuedAt.IsZero() {
		t.Errorf("status: %+v", st)
	}
}

func testDigest(t *testing.T, e *env) {
	with := e.issue(e.svc, time.Minute)
	e.consumed(with, "a", "d1")
	e.consumed(with, "a", "d1")
	e.consumed(with, "a", "") // only where both sides have one
	e.refused(with, "b", "", token.ErrUsed)
	e.refused(with, "b", "d1", token.ErrUsed)
	no := e.refused(with, "a", "d2", token.ErrDigestMismatch) // the same attempt too
	if no.UsedBy != token.Attempt("a").Hash().Ref() || no.UsedAt.IsZero() {
		t.Errorf("mismatch: %+v, want the winner's used_at and used_by", no)
	}
	e.refused(with, "b", "d2", token.ErrDigestMismatch)

	without := e.issue(e.svc, time.Minute)
	e.consumed(without, "a", "")
	e.consumed(without, "a", "d1")
	e.refused(without, "b", "d1", token.ErrUsed)
}

func testExpiry(t *testing.T, e *env) {
	unused, used := e.issue(e.svc, time.Second), e.issue(e.svc, time.Second)
	got := e.consumed(used, "a", "")
	e.Advance(1100 * time.Millisecond)
	e.refused(unused, "a", "", token.ErrExpired)
	e.status(unused, token.StateExpired)
	e.Advance(2 * time.Second) // Redis has dropped the unused one's record
	e.refused(unused, "a", "", token.ErrExpired)
	e.status(unused, token.StateExpired)

	e.refused(used, "b", "", token.ErrUsed)
	e.status(used, token.StateUsed)
	if again := e.consumed(used, "a", ""); !again.Replayed || !again.UsedAt.Equal(got.UsedAt) {
		t.Errorf("the winner's attempt after the expiry: %+v", again)
	}
	if e.Movable {
		e.Advance(59 * time.Minute)
		e.refused(unused, "a", "", token.ErrExpired)
		e.refused(used, "b", "", token.ErrUsed)
	}
}

func testStale(t *testing.T, e *env) {
	svc := e.service(token.Options{Settings: token.Settings{Retention: time.Second}})
	unused, used := e.issue(svc, time.Second), e.issue(svc, time.Second)
	e.consumed(used, "a", "")
	e.Advance(2100 * time.Millisecond)
	for _, tok := range []*token.Token{unused, used} {
		e.refused(tok, "a", "", token.ErrStale) // the record may still stand: it counts as absent
		e.status(tok, token.StateStale)
	}
}

func testLost(t *testing.T, e *env) {
	tok := e.issue(e.svc, time.Minute)
	tok.ID = token.NewID() // as if the store had lost it
	e.refused(tok, "a", "", token.ErrLost)
	st := e.status(tok, token.StateLost)
	if !st.IssuedAt.IsZero() {
		t.Errorf("lost, but issued at %v", st.IssuedAt)
	}
}

func testAnyUser(t *testing.T, e *env) {
	base := e.user
	for _, suffix := range []string{"}{", "{}", ":t:", "用户", "*?[", "'\"\\", "\u00a0"} {
		e.user = base + token.User(suffix)
		tok := e.issue(e.svc, time.Minute)
		e.consumed(tok, "a", "")
		e.refused(tok, "b", "", token.ErrUsed)
	}
}

func testOneWinner(t *testing.T, e *env) {
	const rounds, callers = 20, 100
	for range rounds {
		tok := e.issue(e.svc, time.Minute)
		var wg sync.WaitGroup
		errs := make([]error, callers)
		for i := range callers {
			wg.Go(func() {
				a := token.Attempt(fmt.Sprintf("caller-%d", i))
				_, errs[i] = e.consume(tok, a, "")
				for isFault(errs[i]) { // no outcome: the same attempt again
					_, errs[i] = e.consume(tok, a, "")
				}
			})
		}
		wg.Wait()
		winners := 0
		for _, err := range errs {
			switch {
			case err == nil:
				winners++
			case !errors.Is(err, token.ErrUsed):
				t.Fatalf("a loser: %v, want %v", err, token.ErrUsed)
			}
		}
		if winners != 1 {
			t.Fatalf("%d of %d callers consumed one token", winners, callers)
		}
	}
}

func newIDs(n int) []token.ID {
	ids := make([]token.ID, n)
	for i := range ids {
		ids[i] = token.NewID()
	}
	return ids
}

func isFault(err error) bool {
	var f *token.Fault
	return errors.As(err, &f)
}

func testOneAttempt(t *testing.T, e *env) {
	tok := e.issue(e.svc, time.Minute)
	var wg sync.WaitGroup
	var mu sync.Mutex
	firsts := 0
	for range 50 {
		wg.Go(func() {
			got, err := e.consume(tok, "one", "")
			for isFault(err) {
				got, err = e.consume(tok, "one", "")
			}
			if err != nil {
				t.Errorf("a send of the winning attempt: %v", err)
			}
			mu.Lock()
			defer mu.Unlock()
			if err == nil && !got.Replayed {
				firsts++
			}
		})
	}
	wg.Wait()
	if firsts > 1 {
		t.Errorf("%d sends of one attempt were told that they were the first", firsts)
	}
}

func testHangUp(t *testing.T, e *env) {
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	tok := e.issue(e.svc, time.Minute)
	if _, err := e.Store.Consume(gone, e.consumption(tok, "a", "")); err != nil {
		t.Fatalf("consume whose caller has hung up: %v, want it carried out", err)
	}
	e.refused(tok, "b", "", token.ErrUsed)
	if _, err := e.svc.Issue(gone, token.IssueRequest{User: e.user, Purpose: purpose}); err != nil {
		t.Fatalf("issue whose caller has hung up: %v, want it carried out", err)
	}
	// Those of delete mode go ways of their own.
	svc := e.service(token.Options{Mode: token.Delete})
	tok = e.issue(svc, time.Minute)
	if _, err := e.Store.Consume(gone, e.consumption(tok, "a", "")); err != nil {
		t.Fatalf("consume in delete mode whose caller has hung up: %v, want it carried out", err)
	}
	if _, err := svc.Issue(gone, token.IssueRequest{User: e.user, Purpose: purpose}); err != nil {
		t.Fatalf("issue in delete mode whose caller has hung up: %v, want it carried out", err)
	}
}
