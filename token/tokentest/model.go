package tokentest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"example.com/tokend/token"
)

// modelRecord is what a token or key should be, without a store. It keeps every claim, and
// so knows what became of each without the tricks by which a record does.
type modelRecord struct {
	sub       token.Subject // of a token, or of a key where sub.Token is nil
	retention time.Duration // a key's

	used    *modelUse
	revoked bool
	claims  []*modelClaim // by fence, less one; a consume that takes over is one too, of nobody
	ends    time.Time     // when all of it is forgotten; zero where nothing is remembered
}

type modelUse struct {
	attempt  token.Attempt
	digest   token.Digest
	takeover bool
}

type modelClaim struct {
	attempt  token.Attempt
	digest   token.Digest
	takeover bool
	commit   string // "" while it is not committed, or how: by claim, later, resolving
	lease    time.Time
	fate     string // "" while it is current, or: completed, released, over
	result   int
}

// last returns when a token's retention is over; the zero time for a key.
func (m *modelRecord) last() time.Time {
	if m.sub.Token == nil {
		return time.Time{}
	}
	return m.sub.Token.ExpiresAt.Add(m.sub.Token.Retention)
}

// forget drops what is past its end at now.
func (m *modelRecord) forget(now time.Time) {
	if now.After(m.ends) {
		*m = modelRecord{sub: m.sub, retention: m.retention}
	}
}

// keep has m remembered until t at least. The end only moves outwards.
func (m *modelRecord) keep(ts ...time.Time) {
	for _, t := range append(ts, m.last()) {
		if t.After(m.ends) {
			m.ends = t
		}
	}
}

// anew returns how long what happens at now is remembered.
func (m *modelRecord) anew(now time.Time) time.Time {
	if m.sub.Token != nil {
		return now.Add(m.sub.Token.Retention)
	}
	return now.Add(m.retention)
}

// current returns the claim that m is claimed or completed by, or nil.
func (m *modelRecord) current() *modelClaim {
	if n := len(m.claims); n > 0 && m.used == nil && !m.revoked && (m.claims[n-1].fate == "" || m.claims[n-1].fate == "completed") {
		return m.claims[n-1]
	}
	return nil
}

func differ(a, b token.Digest) bool { return a != "" && b != "" && a != b }

// good returns why a token that nobody has claimed is no good at now, or nil.
func (m *modelRecord) good(now time.Time) *token.Reason {
	switch {
	case m.revoked:
		return token.ErrRevoked
	case m.sub.Token == nil:
		return nil
	case !now.Before(m.last()):
		return token.ErrStale
	case !now.Before(m.sub.Token.ExpiresAt):
		return token.ErrExpired
	}
	return nil
}

// free returns nil where a claim, or a consume, by another attempt than c's may take over.
func (c *modelClaim) free(now time.Time) *token.Reason {
	switch {
	case now.Before(c.lease):
		return token.ErrInProgress
	case c.commit != "":
		return token.ErrUnfinished
	}
	return nil
}

// consume does what a consume at now must do, and returns what it must answer.
func (m *modelRecord) consume(now time.Time, a token.Attempt, d token.Digest) (want token.Consumed, why *token.Reason) {
	m.forget(now)
	c := m.current()
	switch {
	case m.used != nil && differ(m.used.digest, d), c != nil && differ(c.digest, d):
		return want, token.ErrDigestMismatch
	case m.used != nil && m.used.attempt == a:
		return token.Consumed{Replayed: true, Takeover: m.used.takeover, Fence: uint32(len(m.claims))}, nil
	case m.used != nil, c != nil && c.fate == "completed":
		return want, token.ErrUsed
	case c != nil:
		if why := c.free(now); why != nil {
			return want, why
		}
		if d == "" {
			d = c.digest
		}
		c.fate = "over"
		m.claims = append(m.claims, &modelClaim{fate: "over"})
		m.keep(m.anew(now))
	default:
		if why := m.good(now); why != nil {
			return want, why
		}
	}
	m.used = &modelUse{attempt: a, digest: d, takeover: c != nil}
	m.keep()
	return token.Consumed{Takeover: c != nil, Fence: uint32(len(m.claims))}, nil
}

// claim does what a claim at now must do, and returns the claim that it must be answered
// with.
func (m *modelRecord) claim(now time.Time, req token.Claiming) (got *modelClaim, replayed bool, why *token.Reason) {
	m.forget(now)
	c := m.current()
	lease := now.Add(req.Lease)
	next := &modelClaim{attempt: req.Attempt, digest: req.Digest, lease: lease}
	if req.Commit {
		next.commit = "by claim"
	}
	switch {
	case m.used != nil && differ(m.used.digest, req.Digest), c != nil && differ(c.digest, req.Digest):
		return nil, false, token.ErrDigestMismatch
	case m.used != nil:
		return nil, false, token.ErrUsed
	case c != nil && c.fate == "completed":
		return c, true, nil
	case c != nil && c.attempt == req.Attempt && (c.commit == "" || c.commit != "later" && now.Before(c.lease)):
		if !now.Before(c.lease) {
			c.lease = lease
		}
		if c.commit == "" {
			c.commit = next.commit
		}
		if req.Digest != "" {
			c.digest = req.Digest
		}
		m.keep(c.lease)
		if c.takeover || m.sub.Token == nil {
			m.keep(m.anew(now))
		}
		return c, true, nil
	case c != nil:
		if why := c.free(now); why == token.ErrUnfinished && req.Resolve {
			next.commit = "resolving"
		} else if why != nil {
			return nil, false, why
		}
		c.fate, next.takeover = "over", true
		if next.digest == "" {
			next.digest = c.digest
		}
	default:
		if why := m.good(now); why != nil {
			return nil, false, why
		}
	}
	m.claims = append(m.claims, next)
	m.keep(lease)
	if next.takeover || m.sub.Token == nil {
		m.keep(m.anew(now))
	}
	return next, false, nil
}

// held returns the claim of h while it is current, or why a later step of it is refused;
// and its fate, where it is known.
func (m *modelRecord) held(now time.Time, h token.Handle) (c *modelClaim, fate string, why *token.Reason) {
	m.forget(now)
	n := int(h.Fence)
	switch {
	case len(m.claims) > n:
		return nil, "", token.ErrSuperseded
	case len(m.claims) < n || m.claims[n-1].attempt.Hash() != h.Attempt:
		return nil, "", token.ErrClaimEnded
	}
	c = m.claims[n-1]
	if c.fate != "" {
		return c, c.fate, token.ErrClaimEnded
	}
	return c, "", nil
}

func (m *modelRecord) commit(now time.Time, h token.Handle) (*modelClaim, *token.Reason) {
	c, _, why := m.held(now, h)
	if why == nil && c.commit == "" {
		c.commit = "later"
		if m.sub.Token == nil {
			m.keep(m.anew(now))
		}
	}
	return c, why
}

func (m *modelRecord) renew(now time.Time, h token.Handle, lease time.Duration) (*modelClaim, *token.Reason) {
	c, _, why := m.held(now, h)
	if why == nil && now.Add(lease).After(c.lease) {
		c.lease = now.Add(lease)
		m.keep(c.lease)
	}
	return c, why
}

func (m *modelRecord) complete(now time.Time, h token.Handle, result int) (replayed bool, why *token.Reason) {
	c, fate, why := m.held(now, h)
	switch {
	case fate == "completed":
		return true, nil
	case why == nil:
		c.fate, c.result = "completed", result
		m.keep(m.anew(now))
	}
	return false, why
}

func (m *modelRecord) release(now time.Time, h token.Handle) *token.Reason {
	c, fate, why := m.held(now, h)
	switch {
	case fate == "released":
		return nil
	case why == nil && c.commit != "" && c.commit != "resolving":
		return token.ErrClaimCommitted
	case why == nil:
		c.fate = "released"
	}
	return why
}

func (m *modelRecord) state(now time.Time) token.State {
	m.forget(now)
	c := m.current()
	switch {
	case m.used != nil:
		return token.StateUsed
	case m.revoked:
		return token.StateRevoked
	case c != nil && c.fate == "completed":
		return token.StateCompleted
	case c != nil:
		return token.StateClaimed
	case m.sub.Token == nil:
		return token.StateUnknown
	}
	switch m.good(now) {
	case token.ErrStale:
		return token.StateStale
	case token.ErrExpired:
		return token.StateExpired
	}
	return token.StateIssued
}

// revoke does what a revoke at now must do, and returns the state that it must answer.
func (m *modelRecord) revoke(now time.Time) token.State {
	state := m.state(now)
	c := m.current()
	if state == token.StateIssued || state == token.StateClaimed && c.commit == "" {
		m.revoked = true
		if c != nil {
			c.fate = "over"
		}
		m.keep()
	}
	return m.state(now)
}

// modelRun is one random run, of the store and a model side by side.
type modelRun struct {
	*env
	rt      *rapid.T
	span    time.Duration
	now     time.Time
	records []*modelRecord
	handles map[*modelRecord][]token.Handle
}

// testModel makes random calls, and holds each answer to the model's.
func testModel(t *testing.T, e *env) {
	span := 10 * time.Second
	if !e.Movable {
		span = time.Hour // nothing ends while the test runs, however slowly
	}
	rapid.Check(t, func(rt *rapid.T) {
		r := &modelRun{env: e, rt: rt, span: span, now: e.storeNow(rt), handles: make(map[*modelRecord][]token.Handle)}
		actions := map[string]func(*rapid.T){
			"issue": r.issue, "key": r.newKey, "consume": r.consume, "claim": r.claim, "claim again": r.claim,
			"commit": r.commit, "renew": r.renew, "complete": r.complete, "release": r.release,
			"revoke": r.revoke, "status": r.status,
		}
		if e.Movable {
			actions["advance"] = func(rt *rapid.T) {
				// Steps miss the boundaries, which have tests of their own.
				d := time.Duration(rapid.IntRange(1, 20).Draw(rt, "seconds"))*time.Second + time.Millisecond
				e.Advance(d)
				r.now = r.now.Add(d)
			}
		}
		rt.Repeat(actions)
	})
}

// storeNow returns the store's time.
func (e *env) storeNow(rt *rapid.T) time.Time {
	got, err := e.Store.Issue(e.t.Context(), token.NewRecords{
		IDs: newIDs(1), User: e.user, Mode: token.Record, TTL: time.Second, Retention: time.Second,
	})
	if err != nil {
		rt.Fatal(err)
	}
	return got.IssuedAt
}

func (r *modelRun) spans(rt *rapid.T, what string) time.Duration {
	return time.Duration(rapid.IntRange(1, 5).Draw(rt, what)) * r.span
}

func (r *modelRun) issue(rt *rapid.T) {
	svc := r.service(token.Options{Settings: token.Settings{Retention: r.spans(rt, "retention")}})
	tok := r.env.issue(svc, r.spans(rt, "ttl"))
	r.records = append(r.records, &modelRecord{sub: r.subject(tok), ends: tok.ExpiresAt.Add(tok.Retention)})
}

func (r *modelRun) newKey(rt *rapid.T) {
	r.records = append(r.records, &modelRecord{sub: r.key(), retention: r.spans(rt, "retention")})
}

// pick picks a record, of a token where that is asked for.
func (r *modelRun) pick(rt *rapid.T, tokens bool) *modelRecord {
	var of []*modelRecord
	for _, m := range r.records {
		if !tokens || m.sub.Token != nil {
			of = append(of, m)
		}
	}
	if len(of) == 0 {
		rt.Skip("none yet")
	}
	return of[rapid.IntRange(0, len(of)-1).Draw(rt, "record")]
}

// handle picks a claim that was granted, long ago perhaps.
func (r *modelRun) handle(rt *rapid.T) (*modelRecord, token.Handle) {
	m := r.pick(rt, false)
	hs := r.handles[m]
	if len(hs) == 0 {
		rt.Skip("no claim yet")
	}
	return m, hs[len(hs)-1-min(rapid.IntRange(0, 3).Draw(rt, "how old"), len(hs)-1)]
}

func attemptOf(rt *rapid.T) token.Attempt {
	return rapid.SampledFrom([]token.Attempt{"a", "b", "c"}).Draw(rt, "attempt")
}

func digestOf(rt *rapid.T) token.Digest {
	return rapid.SampledFrom([]token.Digest{"", "", "d1", "d2"}).Draw(rt, "digest")
}

// answered fails the run unless err is the refusal why, or nil where there is none.
func answered(rt *rapid.T, what string, err error, why *token.Reason) {
	if why == nil && err != nil || why != nil && !errors.Is(err, why) {
		rt.Fatalf("%s: %v, want %v", what, err, why)
	}
}

func (r *modelRun) consume(rt *rapid.T) {
	m, a, d := r.pick(rt, true), attemptOf(rt), digestOf(rt)
	want, why := m.consume(r.now, a, d)
	got, err := r.env.consume(m.sub.Token, a, d)
	answered(rt, "consume", err, why)
	got.UsedAt = time.Time{}
	if got != want {
		rt.Fatalf("consume: %+v, want %+v", got, want)
	}
}

func (r *modelRun) claim(rt *rapid.T) {
	m := r.pick(rt, false)
	c := token.Claiming{
		Subject: m.sub, Attempt: attemptOf(rt), Digest: digestOf(rt), Lease: r.spans(rt, "lease"), Retention: m.retention,
		Commit: rapid.IntRange(0, 4).Draw(rt, "commit") == 0, Resolve: rapid.IntRange(0, 4).Draw(rt, "resolve") == 0,
	}
	want, replayed, why := m.claim(r.now, c)
	got, err := r.Store.Claim(r.t.Context(), c)
	answered(rt, "claim", err, why)
	switch {
	case err != nil:
	case want.fate == "completed":
		if got.State != token.StateCompleted || !got.Replayed || got.Result == nil || got.Result.Status != want.result {
			rt.Fatalf("claim: %+v, want the result %d", got, want.result)
		}
	default:
		if got.State != token.StateClaimed || got.Replayed != replayed || got.Handle.Fence != uint32(len(m.claims)) || got.Handle.Attempt != c.Attempt.Hash() {
			rt.Fatalf("claim: %+v, want fence %d, replayed %v", got, len(m.claims), replayed)
		}
		r.sameClaim(rt, "claim", want, got.Committed, got.LeaseExpiresAt)
		if got.Takeover != want.takeover {
			rt.Fatalf("claim: takeover is %v", got.Takeover)
		}
		r.handles[m] = append(r.handles[m], got.Handle)
	}
}

// sameClaim compares what a store says of a claim with what it should be.
func (r *modelRun) sameClaim(rt *rapid.T, what string, want *modelClaim, committed bool, lease time.Time) {
	if committed != (want.commit != "") || r.Movable && !lease.Equal(want.lease) {
		rt.Fatalf("%s: committed %v, lease until %v; want %q, %v", what, committed, lease, want.commit, want.lease)
	}
}

func (r *modelRun) commit(rt *rapid.T) {
	m, h := r.handle(rt)
	want, why := m.commit(r.now, h)
	got, err := r.Store.Commit(r.t.Context(), h)
	answered(rt, fmt.Sprintf("commit by fence %d", h.Fence), err, why)
	if err == nil {
		r.sameClaim(rt, "commit", want, got.Committed, got.LeaseExpiresAt)
	}
}

func (r *modelRun) renew(rt *rapid.T) {
	m, h := r.handle(rt)
	lease := r.spans(rt, "lease")
	want, why := m.renew(r.now, h, lease)
	got, err := r.Store.Renew(r.t.Context(), h, lease)
	answered(rt, fmt.Sprintf("renew by fence %d", h.Fence), err, why)
	if err == nil {
		r.sameClaim(rt, "renew", want, got.Committed, got.LeaseExpiresAt)
	}
}

func (r *modelRun) complete(rt *rapid.T) {
	m, h := r.handle(rt)
	result := rapid.IntRange(200, 299).Draw(rt, "result")
	replayed, why := m.complete(r.now, h, result)
	got, err := r.Store.Complete(r.t.Context(), h, &token.Result{Status: result})
	answered(rt, fmt.Sprintf("complete by fence %d", h.Fence), err, why)
	if got.Replayed != replayed {
		rt.Fatalf("complete: replayed is %v", got.Replayed)
	}
}

func (r *modelRun) release(rt *rapid.T) {
	m, h := r.handle(rt)
	why := m.release(r.now, h)
	answered(rt, fmt.Sprintf("release by fence %d", h.Fence), r.Store.Release(r.t.Context(), h), why)
}

func (r *modelRun) revoke(rt *rapid.T) {
	m := r.pick(rt, true)
	want := m.revoke(r.now)
	got, err := r.Store.Revoke(r.t.Context(), m.sub)
	if err != nil || got.State != want {
		rt.Fatalf("revoke: %q, %v; want %q", got.State, err, want)
	}
}

func (r *modelRun) status(rt *rapid.T) {
	m := r.pick(rt, false)
	want := m.state(r.now)
	got, err := r.Store.ClaimStatus(r.t.Context(), m.sub)
	if err != nil || got.State != want {
		rt.Fatalf("status: %q, %v; want %q", got.State, err, want)
	}
	if c := m.current(); c != nil && c.fate == "" {
		r.sameClaim(rt, "status", c, got.Committed, got.LeaseExpiresAt)
		if got.Fence != uint32(len(m.claims)) {
			rt.Fatalf("status: fence %d, want %d", got.Fence, len(m.claims))
		}
	}
}
