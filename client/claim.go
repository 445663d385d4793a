package client

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"example.com/tokend/httpapi/wire"
)

// ClaimOption says more about one claim. [Digest] and [Attempt] are some, too.
type ClaimOption interface{ ofClaim(*claimParams) }

type claimParams struct {
	requestParams
	lease, wait     time.Duration
	commit, resolve bool
	made            *string // the attempt, where the caller names none
}

func newClaimParams(opts []ClaimOption) claimParams {
	p := claimParams{lease: wire.LeaseDefault * time.Second, made: new(rand.Text())}
	p.attempt = p.made // before the first try, and the same in all
	for _, o := range opts {
		o.ofClaim(&p)
	}
	return p
}

// ownAttempt tells whether nobody else knows of the attempt.
func (p *claimParams) ownAttempt() bool { return p.attempt == p.made }

type claimOption func(*claimParams)

func (o claimOption) ofClaim(p *claimParams) { o(p) }

// Lease is how long the claim is held for without a renewal: whole seconds, from 1s to 1h.
// It is 30s where not set. It bounds how long a crash blocks whoever comes next, and how
// long tokend may be away before a claim that is not committed is lost.
func Lease(d time.Duration) ClaimOption {
	return claimOption(func(p *claimParams) { p.lease = d })
}

// Wait is how long to wait where another attempt is at work, for it to complete or release:
// whole seconds, up to 30s. It comes on top of what [TryTimeout] and [Budget] give the call;
// the Timeout of an [HTTPClient] must leave room for it. Where it is not set, or over,
// [ErrInProgress] is the answer.
func Wait(d time.Duration) ClaimOption {
	return claimOption(func(p *claimParams) { p.wait = d })
}

// CommitFirst commits the claim in the same step: for work that cannot be told to have begun
// or not. After a [*Fault] of such a claim, as after a crash, the next one may be
// [ErrUnfinished].
func CommitFirst() ClaimOption {
	return claimOption(func(p *claimParams) { p.commit = true })
}

// Claim takes s for the length of a lease, so that the caller, and no other, does the work;
// or it finds that the work was done, and has its result. Exactly one of the three is not
// nil:
//
//	cl, done, err := c.Claim(ctx, orders.Key(user, key), client.Wait(10*time.Second))
//	switch {
//	case err != nil:
//		return err // nothing is to be done
//	case done != nil:
//		return replay(w, done.Result)
//	}
//	defer cl.Close()
//	… // the work, on cl.Context(); cl.Commit before what cannot be undone
//	return cl.Complete(ctx, result)
//
// [Client.Do] does all that. Claim takes a service with the scope tokend.consume.
//
// The refusals are those of [Purpose.Consume], and [ErrInProgress] and [ErrUnfinished]: an
// earlier claim was committed and never completed, so look for the business record, and see
// [Client.Resolve]. [ErrSuperseded] and [ErrClaimEnded] are answers where the call itself
// outlasted its lease.
//
// After a [*Fault] with MaybeDone there may be a claim that nobody holds: it blocks others
// until its lease is over.
func (c *Client) Claim(ctx context.Context, s Subject, opts ...ClaimOption) (*Claim, *Completed, error) {
	return c.claim(ctx, s, newClaimParams(opts))
}

// Resolve is Claim for whoever has heard [ErrUnfinished] and looked for the business record
// since. It takes over what is committed and was not completed before its lease ended; in
// all other states it does what Claim does. A claim that is Committed is then to be
// completed, with the result that the record tells, or released if there is no record: the
// one release that is allowed after a commit.
//
// Nothing in this package resolves by itself.
func (c *Client) Resolve(ctx context.Context, s Subject, opts ...ClaimOption) (*Claim, *Completed, error) {
	params := newClaimParams(opts)
	params.resolve = true
	return c.claim(ctx, s, params)
}

var claimCall = endpoint{
	op: "claim", path: wire.PathClaims, success: http.StatusCreated, other: http.StatusOK,
	changes: true, once: true, results: true,
}

func (c *Client) claim(ctx context.Context, s Subject, params claimParams) (*Claim, *Completed, error) {
	x, no := newClaiming(s, &params)
	if no != nil {
		return nil, nil, no
	}
	e := claimCall
	e.hold = max(params.wait, 0)
	if err := c.run(ctx, e, x); err != nil {
		return nil, nil, madeFor(params.attempt, err)
	}
	if done := x.got.Completed; done != nil {
		return nil, &Completed{Result: resultOf(done.Result), Ref: done.Ref, Replayed: true}, nil
	}
	cl := newClaim(ctx, c, x.got.Claimed, params.lease, x.began)
	if cl.Replayed && !params.ownAttempt() {
		cl.deadline = x.began // its lease may have begun with another call
	}
	if err := cl.start(); err != nil {
		cl.Close()
		return nil, nil, outlasted(err)
	}
	return cl, nil, nil
}

// outlasted returns what a claim is answered that was granted too late to be kept, as the
// renewal said that ended with err: a refusal, if another has the claim; if not, it is there,
// and nobody holds it.
func outlasted(err error) error {
	if notOurs(err) {
		return err
	}
	fault, ok := errors.AsType[*Fault](err)
	if !ok {
		fault = &Fault{Tries: 1, Err: noRefusal(err)}
	}
	fault.Op, fault.MaybeDone = claimCall.op, true
	return fault
}

// claiming is the exchange of a claim.
type claiming struct {
	req   wire.ClaimRequest
	wait  time.Duration
	began time.Time
	got   wire.ClaimResponse
}

func newClaiming(s Subject, p *claimParams) (*claiming, *Refusal) {
	if no := s.check(); no != nil {
		return nil, no
	}
	lease, no := leaseMember(p.lease)
	if no != nil {
		return nil, no
	}
	wait, no := wholeSeconds("wait", p.wait)
	if no != nil {
		return nil, no
	}
	x := &claiming{wait: p.wait, began: time.Now(), req: wire.ClaimRequest{
		Token: s.token, Key: s.key, User: s.user, Purpose: s.purpose,
		Digest: p.digest, Attempt: p.attempt, Lease: lease,
	}}
	if p.wait != 0 {
		x.req.Wait = wait
	}
	if p.commit {
		x.req.Commit = &p.commit
	}
	if p.resolve {
		x.req.Resolve = &p.resolve
	}
	return x, nil
}

func wholeSeconds(member string, d time.Duration) (*int64, *Refusal) {
	if d%time.Second != 0 {
		return nil, refuse(wire.CodeInvalidRequest, member, member+" must be whole seconds")
	}
	return new(int64(d / time.Second)), nil
}

// leaseMember returns d as a request's member, or refuses what is no lease.
func leaseMember(d time.Duration) (*int64, *Refusal) {
	if d < time.Second {
		return nil, refuse(wire.CodeInvalidRequest, "lease", "lease must be whole seconds, at least 1")
	}
	return wholeSeconds("lease", d)
}

// request asks for what is left of the wait.
func (x *claiming) request() any {
	req := x.req
	if x.wait > 0 {
		left := max(x.wait-time.Since(x.began), 0)
		req.Wait = new(int64((left + time.Second - 1) / time.Second))
	}
	return req
}

func (x *claiming) take(a *answer, _ Fault) *miss {
	x.got = wire.ClaimResponse{}
	if json.Unmarshal(a.body, &x.got) != nil {
		return a.unreadable(claimCall)
	}
	switch got, done := x.got.Claimed, x.got.Completed; {
	case a.status == http.StatusCreated && got != nil && got.State == wire.StateClaimed &&
		got.Claim != "" && got.Ref != "" && got.Fence > 0 && !got.LeaseExpiresAt.IsZero():
		return nil
	case a.status == http.StatusOK && done != nil && done.Ref != "" && done.Replayed:
		return nil
	}
	return a.unreadable(claimCall)
}
