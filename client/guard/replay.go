package guard

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"example.com/tokend/client"
	"example.com/tokend/httpapi/wire"
)

// HeaderBodyOmitted stands in a replay whose body was too long to be kept.
const HeaderBodyOmitted = wire.HeaderBodyOmitted

// Replay returns h behind a token, or with [IdempotencyKey] or [KeyFunc] a key, that stands
// for one run of h: its first answer is kept, and every repeat gets it, byte for byte and
// with Idempotent-Replayed: true. The package comment says what is kept.
func (g *Guard) Replay(h http.Handler, opts ...Option) http.Handler {
	set := g.with(opts)
	if set.user == nil && set.userFunc == nil {
		panic("guard: User or UserFunc is required")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if passes(r) {
			h.ServeHTTP(w, r)
			return
		}
		set.replay(h, w, r)
	})
}

func (s *settings) replay(h http.Handler, w http.ResponseWriter, r *http.Request) {
	u := s.newRun(r, "")
	ask, err := s.asked(r)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	u.user, u.sent = ask.user, ask.token
	if ask.none {
		if !s.optional {
			u.refuse(w, s.keyMissing())
			return
		}
		u.unguarded = true
		serve(h, w, r, ask.body(r.WithContext(u.context(r.Context()))))
		return
	}
	cl, done, err := s.claim(r, ask)
	open := false
	if err != nil {
		err = u.opens(ask.subject, err)
		open = err == nil
	}
	switch {
	case open:
		u.unguarded = true
		ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context())) // as if it were committed
		defer cancel()
		serve(h, w, r, ask.body(r.WithContext(u.context(ctx))))
	case err != nil:
		u.refuse(w, s.notClaimed(err))
	case done != nil:
		u.ref = done.Ref
		s.observe(Event{Kind: EventReplayed, Request: r, Ref: done.Ref})
		if done.Status < http.StatusOK { // there is no result, or none that net/http can answer with
			no := newRefused(wire.CodeTokenUsed, nil)
			no.Ref = done.Ref
			u.refuse(w, no)
			return
		}
		s.writeReplay(w, done.Result)
	default:
		u.work(h, w, ask, cl)
	}
}

// asked is what a request asks for.
type asked struct {
	user, token string
	none        bool // it came with neither token nor key
	subject     client.Subject
	digest      string
	data        []byte
}

// body gives r the body anew.
func (a *asked) body(r *http.Request) *http.Request {
	r.Body = again(a.data, r.Body)
	return r
}

// asked reads r, to its end.
func (s *settings) asked(r *http.Request) (*asked, error) {
	a := new(asked)
	if s.userFunc == nil {
		a.user = s.user(r)
		if a.user == "" {
			return nil, newRefused(wire.CodeUnauthenticated, nil)
		}
	}
	var err error
	if a.data, err = s.readBody(r); err != nil {
		return nil, err
	}
	if s.userFunc != nil {
		if a.user, err = s.userFunc(withBody(r, a.data), a.data); err != nil {
			return nil, callersFault("body", err)
		}
		if a.user == "" {
			return nil, newRefused(wire.CodeUnauthenticated, nil)
		}
	}
	if err := s.identify(a, r); err != nil || a.none {
		return a, err
	}
	a.digest, err = s.digestOf(r, a.data)
	return a, err
}

// identify finds what the request is known by: its token, or its key.
func (s *settings) identify(a *asked, r *http.Request) error {
	var key string
	switch {
	case s.key == nil:
		token, _, err := s.findToken(withBody(r, a.data))
		if no, ok := errors.AsType[*Refused](err); ok && no.Code == CodeTokenMissing {
			a.none = true
			return nil
		}
		a.token, a.subject = token, s.purpose.Token(a.user, token)
		return err
	default:
		var err error
		if key, err = s.key(withBody(r, a.data), a.data); err != nil {
			if no, ok := errors.AsType[*Refused](err); ok {
				return no
			}
			return callersFault("key", err)
		}
	}
	a.none = key == ""
	a.subject = s.purpose.Key(a.user, keyFor(r, key))
	return nil
}

// headerKey reads Idempotency-Key.
func headerKey(r *http.Request, _ []byte) (string, error) {
	values := r.Header.Values(wire.HeaderIdempotencyKey)
	if len(values) == 0 {
		return "", nil
	}
	key := values[0]
	ok := len(values) == 1 && 1 <= len(key) && len(key) <= 255
	for i := range len(key) {
		ok = ok && '!' <= key[i] && key[i] <= '~'
	}
	if !ok {
		return "", invalid(wire.HeaderIdempotencyKey, "Idempotency-Key must stand once, with 1 to 255 visible ASCII characters.")
	}
	return key, nil
}

// keyMissing refuses a request without what it is known by.
func (s *settings) keyMissing() *Refused {
	if s.key == nil {
		return newRefused(CodeTokenMissing, nil)
	}
	return invalid(wire.HeaderIdempotencyKey, "The request needs an idempotency key; nothing was done.")
}

// claim claims what r asks for, or waits for its result.
//
// A browser that sends a form twice hangs up on the first request. A claim that is cut off
// by that would block the second one for a lease, so asking goes on; only waiting ends with
// the caller.
func (s *settings) claim(r *http.Request, a *asked) (*client.Claim, *client.Completed, error) {
	opts := []client.ClaimOption{client.Digest(a.digest), client.Lease(s.lease)}
	if s.commitFirst {
		opts = append(opts, client.CommitFirst())
	}
	c, ctx := s.purpose.Client(), context.WithoutCancel(r.Context())
	cl, done, err := c.Claim(ctx, a.subject, opts...)
	if !errors.Is(err, client.ErrInProgress) || s.wait == 0 {
		return cl, done, err
	}
	opts = append(opts, client.Wait(s.wait))
	ctx, letGo, end := leash(ctx, r.Context())
	cl, done, waited := c.Claim(ctx, a.subject, opts...)
	if fault, ok := errors.AsType[*client.Fault](waited); ok {
		if fault.MaybeDone && r.Context().Err() != nil && !s.commitFirst {
			s.unclaim(context.WithoutCancel(ctx), a, fault.Attempt)
		}
		waited = err // which is all that is known
	}
	if cl == nil {
		end()
		return nil, done, waited
	}
	letGo() // the claim's context is the handler's, which has a leash of its own
	context.AfterFunc(cl.Context(), end)
	return cl, nil, nil
}

// unclaim releases what a claim of a's may have come to that its caller has cut off while it
// waited: it would block whoever comes next for a lease that nobody holds. It tries once.
func (s *settings) unclaim(ctx context.Context, a *asked, attempt string) {
	ctx, cancel := context.WithTimeout(ctx, keepInSight)
	defer cancel()
	cl, _, _ := s.purpose.Client().Claim(ctx, a.subject, client.Digest(a.digest), client.Lease(s.lease), client.Attempt(attempt))
	if cl != nil {
		defer cl.Close()
		cl.Release(ctx)
	}
}

// notClaimed returns what is said of a claim that failed with err. The handler has not run,
// so the same again is safe, unless the claim may be committed.
func (s *settings) notClaimed(err error) *Refused {
	if _, ok := errors.AsType[*client.Fault](err); ok && !s.commitFirst {
		return undone(err)
	}
	no := refusedFor(err)
	if no.Code == wire.CodeIdempotencyKeyReused && s.reused != 0 {
		no.Status = s.reused
	}
	return no
}

// writeReplay answers with what the first request was answered. It need not have been this
// guard that completed the claim, so of the header only what it would keep is given.
func (s *settings) writeReplay(w http.ResponseWriter, res client.Result) {
	h := w.Header()
	for name, value := range res.Header {
		if slices.Contains(s.headers, http.CanonicalHeaderKey(name)) {
			h.Set(name, value)
		}
	}
	h.Set(wire.HeaderIdempotentReplayed, "true")
	if res.BodyOmitted {
		h.Set(HeaderBodyOmitted, "true")
		for _, name := range []string{"Content-Type", "Content-Encoding", "Content-Disposition", "Etag"} {
			h.Del(name) // of a body that does not come
		}
	}
	if _, typed := h["Content-Type"]; !typed {
		h["Content-Type"] = nil // net/http is not to guess one
	}
	if hasBody(res.Status) {
		h.Set("Content-Length", strconv.Itoa(len(res.Body)))
	}
	w.WriteHeader(res.Status)
	if len(res.Body) > 0 {
		w.Write(res.Body)
	}
}

// work runs h under cl, and keeps or releases what it says before anybody hears it.
func (u *run) work(h http.Handler, w http.ResponseWriter, ask *asked, cl *client.Claim) {
	s, r := u.set, u.req
	u.claim, u.ref, u.fence = cl, cl.Ref, cl.Fence
	u.sent = ask.token
	base, cancel := context.WithCancelCause(context.WithoutCancel(r.Context()))
	unlink := context.AfterFunc(cl.Context(), func() { cancel(context.Cause(cl.Context())) })
	caller := r.Context()
	if cl.Committed() {
		caller = noCaller
	}
	ctx, letGo, end := leash(base, caller)
	u.letGo = letGo
	rec, out := newRecorder(w, s.resultLimit, u.noStore, func(status int) error {
		if !u.keeps(status) {
			unlink() // nothing was done; but what is said about it may still take the context
			u.mu.Lock()
			u.released = true // and nothing is to be done any more
			u.mu.Unlock()
			u.abandon()
			return nil
		}
		// The handler says that its work is done, so it is kept like what fits; but as it may have
		// stopped where its context ended, not as the whole.
		u.rec.cut = !letGo()
		err := u.commit()
		if err != nil {
			u.mu.Lock()
			u.broken = err
			u.mu.Unlock()
			cancel(err) // whoever writes more than fits need not look at Write's error
		}
		return err
	})
	u.rec = rec

	returned := false
	defer func() {
		unlink()
		cancel(nil)
		end()
		defer func() {
			if !u.handedOver { // a lease that is not let go never ends
				cl.Close()
			}
		}()
		if !returned { // a panic, http.ErrAbortHandler or the end of the goroutine
			u.abandon()
		}
	}()
	serve(h, out, r, ask.body(r.WithContext(u.context(ctx))))
	returned = true
	u.finish(w, rec)
}

// finish ends the claim as the answer says, and gives the answer.
func (u *run) finish(w http.ResponseWriter, rec *recorder) {
	s := u.set
	u.mu.Lock()
	refused := u.refused
	u.mu.Unlock()
	failed := rec.broken != nil || rec.status == 0 && refused != nil // at a commit, and there is no answer
	if !failed {
		rec.WriteHeader(http.StatusOK)
	}
	switch {
	case rec.hijacked:
		if !u.over { // else it was released before
			u.complete(client.Result{})
		}
	case failed:
		u.uncommitted(w, refused)
	case !u.keeps(rec.status):
		u.abandon()
		if !rec.passing {
			rec.send()
		}
	default:
		u.noStore(rec.head) // of what is kept, too
		result := s.result(rec)
		if lost := u.complete(result); lost != nil && !rec.passing {
			u.refuse(w, lost)
			return
		}
		if !rec.passing {
			if hasBody(rec.status) {
				rec.head.Set("Content-Length", strconv.Itoa(rec.body.Len()))
			}
			rec.send()
		}
	}
}

// keeps tells whether an answer of status is kept.
func (u *run) keeps(status int) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.claim.Committed():
		return true
	case u.released:
		return false
	case status >= 500:
		return u.set.keep5xx
	}
	return status < 400
}

// uncommitted answers where a commit has failed and so the handler has done nothing. Where it
// is not known whether the claim is committed all the same, its release tells.
func (u *run) uncommitted(w http.ResponseWriter, refused error) {
	if released := u.abandon(); released == nil {
		refused = undone(refused)
	}
	u.refuse(w, refused)
}

// result returns what is kept of rec.
func (s *settings) result(rec *recorder) client.Result {
	res := client.Result{Status: rec.status, BodyOmitted: rec.omitted, Header: map[string]string{}}
	if res.Status > 599 { // net/http sends it, and tokend keeps none such
		res.Status = http.StatusInternalServerError
	}
	if !rec.omitted && rec.body.Len() > 0 {
		res.Body = rec.body.Bytes()
	}
	for _, name := range s.headers {
		// What JSON cannot carry is left out, and what a header cannot is what net/http would
		// have made of it.
		value := strings.Join(rec.head.Values(name), ", ")
		if value != "" && utf8.ValidString(value) {
			res.Header[name] = strings.Map(noControl, value)
		}
	}
	return res
}

func noControl(c rune) rune {
	if c < ' ' || 0x7f <= c && c <= 0x9f {
		return ' '
	}
	return c
}

// How long the sender waits while its result is kept, and how long that is tried afterwards.
const (
	keepInSight    = 3 * time.Second
	defaultKeepFor = 5 * time.Minute
)

// complete keeps res. It returns what the sender is told instead of its answer: that another
// has the claim, whose result counts. Where it comes to no end in sight it goes on by itself,
// and says nothing.
func (u *run) complete(res client.Result) error {
	s, cl := u.set, u.claim
	u.over = true
	whole := true
	keep := func(ctx context.Context) error {
		err := cl.Complete(ctx, res)
		if whole && unkeepable(err) {
			// The work is done all the same.
			whole, res = false, client.Result{Status: res.Status, BodyOmitted: true}
			s.report(slog.LevelError, Event{Kind: EventNotKept, Request: u.req, Ref: u.ref, Err: err}, "the answer is none that can be kept: repeats get its status")
			err = cl.Complete(ctx, res)
		}
		return err
	}
	ctx := context.WithoutCancel(u.req.Context())
	inSight, cancel := context.WithTimeout(ctx, keepInSight)
	defer cancel()
	err := keep(inSight)
	switch {
	case err == nil:
		return nil
	case !settled(err):
		u.handedOver = true
		defer s.later(keep, ctx, func(err error) { // also where the report panics
			cl.Close()
			if err != nil {
				u.lose(err)
				return
			}
			s.report(slog.LevelInfo, Event{Kind: EventKeptLate, Request: u.req, Ref: u.ref}, "the result is kept now")
		})
		s.report(slog.LevelError, Event{Kind: EventNotKept, Request: u.req, Ref: u.ref, Err: err}, "the work is done and its result is not kept yet")
		return nil
	}
	cl.Close()
	u.lose(err)
	if errors.Is(err, client.ErrSuperseded) {
		no := newRefused(wire.CodeRequestInProgress, err)
		no.Ref, no.RetryAfter = u.ref, time.Second
		return no
	}
	return nil
}

// lose reports a result that is given up, for err.
func (u *run) lose(err error) {
	text := "the work is done and its result was not kept"
	if notOurs(err) {
		text = "the work is done, and the claim is not this request's any more"
	}
	u.set.report(slog.LevelError, Event{Kind: EventLost, Request: u.req, Ref: u.ref, Err: err}, text)
}

// settled tells whether err, of a call that ends a claim, is about that claim or its result,
// so that the same call comes to nothing else. All others are: a fault, a token of the
// service that has expired, a rate that is exceeded, a gateway that knows nothing of claims.
func settled(err error) bool {
	return err == nil || notOurs(err) || errors.Is(err, client.ErrClaimCommitted) || unkeepable(err)
}

// notOurs tells whether err says that the claim has ended or is another's.
func notOurs(err error) bool {
	return errors.Is(err, client.ErrSuperseded) || errors.Is(err, client.ErrClaimEnded)
}

// unkeepable tells whether err is about the result, and not about the claim or the service.
func unkeepable(err error) bool {
	no, ok := errors.AsType[*client.Refusal](err)
	return ok && no.Code == wire.CodeInvalidRequest && strings.HasPrefix(no.Field, "result")
}

// errLeft is abandon's where it has released nothing.
var errLeft = errors.New("guard: the claim is left as it is")

// abandon releases what nothing was done of, as far as the handler says. What is committed is
// left as it is: repeats are told to look. Its error is nil where the claim is released.
func (u *run) abandon() error {
	s, cl := u.set, u.claim
	if u.over {
		return errLeft
	}
	u.over = true
	if cl.Committed() {
		cl.Close()
		return errLeft
	}
	ctx := context.WithoutCancel(u.req.Context())
	inSight, cancel := context.WithTimeout(ctx, keepInSight)
	defer cancel()
	err := cl.Release(inSight)
	if err == nil {
		return nil
	}
	cl.Close() // the lease's end releases it, too
	if notOurs(err) {
		return err // there is nothing to be released
	}
	text := "the claim is committed, though the commit had no answer: somebody has to look"
	if !settled(err) {
		text = "nothing was done, and the claim is not released yet"
		defer s.later(cl.Release, ctx, func(error) {})
	}
	s.report(slog.LevelWarn, Event{Kind: EventNotReleased, Request: u.req, Ref: u.ref, Err: err}, text)
	return err
}

// later calls f until it is settled, apart from the request that it is for.
func (s *settings) later(f func(context.Context) error, ctx context.Context, ended func(error)) {
	s.background.begin()
	go func() {
		defer s.background.end()
		ctx, cancel := context.WithTimeout(ctx, s.keepFor)
		defer cancel()
		for n := 1; ; n++ {
			select {
			case <-time.After(s.backoff(n)):
			case <-ctx.Done():
			}
			err := f(ctx)
			if settled(err) || ctx.Err() != nil {
				ended(err)
				return
			}
		}
	}()
}

func backOff(n int) time.Duration { return min(250*time.Millisecond<<min(n, 5), 5*time.Second) }

// background counts what goes on when its request has been answered.
type background struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // closed when n is 0 again
}

func (b *background) begin() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.n++; b.n == 1 {
		b.idle = make(chan struct{})
	}
}

func (b *background) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.n--; b.n == 0 {
		close(b.idle)
	}
}

// Drain waits for results that could not be kept at once and are being kept. Call it when
// the HTTP server has shut down. Its error is ctx's.
func (g *Guard) Drain(ctx context.Context) error {
	b := g.set.background
	b.mu.Lock()
	n, idle := b.n, b.idle
	b.mu.Unlock()
	if n == 0 {
		return nil
	}
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// replayed returns the run of a handler of [Guard.Replay]; anywhere else there is none to
// commit or release.
func replayed(ctx context.Context) (*run, error) {
	u := runOf(ctx)
	if u == nil || u.claim == nil && !u.unguarded {
		return nil, ErrNotGuarded
	}
	return u, nil
}

// Commit marks the point of no return: the handler of [Guard.Replay] calls it right before
// what must not be done twice. From there on nothing is run again, whatever the handler
// answers is kept, and its context does not end with its caller. After a crash repeats get
// claim_unfinished, and somebody has to look.
//
// After any error the handler must not go on: it returns without an answer, and the guard
// gives one, or it gives [Refuse]'s. Where its caller's hanging up has ended its context
// before, Commit is an error, tokend is not asked, and the claim is released.
func Commit(ctx context.Context) error {
	u, err := replayed(ctx)
	if err != nil || u.unguarded {
		return err
	}
	return u.commitHere()
}

// commitHere is commit for the handler, which must not go on on a context that has ended.
func (u *run) commitHere() error {
	u.mu.Lock()
	if !u.released && !u.claim.Committed() && !u.letGo() {
		defer u.mu.Unlock()
		u.refused = hungUp(u.req)
		return u.refused
	}
	u.mu.Unlock()
	return u.commit()
}

var errReleased = errors.New("guard: Release was called, so nothing is to be done any more")

func (u *run) commit() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.released:
		return errReleased
	case u.broken != nil:
		return u.broken
	case u.claim.Committed():
		// Nothing is left to be asked, and an answer that does not come would change nothing.
		u.letGo()
		u.refused, u.spent = nil, true
		return nil
	}
	u.letGo() // a commit that is granted must not come too late
	if err := u.claim.Commit(context.WithoutCancel(u.req.Context())); err != nil {
		u.refused = u.lost(err)
		if fault, ok := errors.AsType[*client.Fault](err); ok && fault.MaybeDone {
			u.spent = true
		}
		return u.refused
	}
	u.refused, u.spent = nil, true
	return nil
}

// lost returns what is said of a claim that is another's.
func (u *run) lost(err error) error {
	if notOurs(err) {
		no := newRefused(wire.CodeRequestInProgress, err)
		no.Ref, no.RetryAfter = u.ref, time.Second
		return no
	}
	return refusedFor(err)
}

// Release says that nothing was done, so the answer is not kept and the token or key is good
// again: for a 200 page that shows the form with its mistakes. Call it before the page is
// rendered, so that [Field] gives the same token again. What answers 4xx need not call it.
// After [Commit] it is an error, and changes nothing.
func Release(ctx context.Context) error {
	u, err := replayed(ctx)
	if err != nil || u.unguarded {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.claim.Committed() {
		return client.ErrClaimCommitted
	}
	u.released = true
	return nil
}

// Fence returns a number that grows with each run for the same token or key, to be compared
// by whatever the handler of [Guard.Replay] writes to. It is 0 where nothing was claimed.
func Fence(ctx context.Context) int64 {
	u := runOf(ctx)
	if u == nil {
		return 0
	}
	return u.fence
}
