package client

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"sync"
	"time"

	"example.com/tokend/httpapi/wire"
)

// ErrLeaseLost is in the cause that a claim's context ends with where no renewal was answered
// for as long as its lease lasts: another may have taken it over, or not. It is neither a
// refusal nor a fault of one call.
var ErrLeaseLost = errors.New("tokend: the lease could not be renewed in time")

// Claim is a token or key that is claimed; [Client.Claim] makes it. It is safe for concurrent
// use.
//
// It keeps its lease by itself, renewing it well before its end, until Complete or Release
// has succeeded or Close is called. Call Close whatever happens: a claim that is forgotten
// blocks its subject for as long as the process lives.
type Claim struct {
	Ref      string // the token's or key's, for logs and tickets
	Fence    int64  // grows with each claim of the same subject: hand it on to what can compare it
	Takeover bool   // of a claim whose lease had ended
	Replayed bool   // a try of this attempt had been granted it before: no reason not to do the work

	client *Client
	handle string
	lease  time.Duration
	ctx    context.Context
	cancel context.CancelCauseFunc
	unlink func() bool   // from the caller's context
	quit   func()        // ends the keeping
	kept   chan struct{} // closed where the keeping has ended

	mu        sync.Mutex
	sent      time.Time // when the latest request was begun that the lease is known to last from
	deadline  time.Time // the lease's length from then, or later
	committed bool
	over      bool  // completed or released
	calls     int   // that what ends the context depends on, and that are not answered yet
	gone      error // why the caller's context ended
	lost      error // the lease's deadline has passed
	refused   error // tokend says that it is not the caller's claim any more
}

func newClaim(ctx context.Context, c *Client, got *wire.Claimed, lease time.Duration, sent time.Time) *Claim {
	cl := &Claim{
		Ref: got.Ref, Fence: got.Fence, Takeover: got.Takeover, Replayed: got.Replayed,
		client: c, handle: got.Claim, lease: lease, committed: got.Committed,
		sent: sent, deadline: sent.Add(lease), kept: make(chan struct{}),
	}
	detached := context.WithoutCancel(ctx)
	cl.ctx, cl.cancel = context.WithCancelCause(detached)
	cl.unlink = context.AfterFunc(ctx, func() { cl.note(func() { cl.gone = context.Cause(ctx) }) })
	return cl
}

// Context returns what the work is to be done on. It has the values of the context that Claim
// was called with, though not its deadline, and ends
//
//   - when tokend says that the claim is not the caller's any more: the cause is a
//     [*Refusal], [ErrSuperseded] where another has taken it over;
//   - when the lease could not be renewed for its length, counted on this machine's monotonic
//     clock from before the request was sent: the cause is [ErrLeaseLost];
//   - with the context that Claim was called with, and for the same cause;
//   - when Complete or Release has succeeded, or with Close.
//
// After Commit neither a lease that is not renewed nor the caller's context ends it: nothing
// is handed on then, so the work is best brought to its end. A commit that is under way
// holds both back.
//
// A context cannot stop what it is not looked at by, and the clock of a machine that was
// suspended may have stood still: where two must never write, compare Fence, or Commit first.
func (cl *Claim) Context() context.Context { return cl.ctx }

// Committed tells whether the claim is known to be past its point of no return.
func (cl *Claim) Committed() bool {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	return cl.committed
}

var (
	commitCall   = endpoint{op: "commit", success: http.StatusOK, changes: true}
	renewCall    = endpoint{op: "renew", success: http.StatusOK, changes: true}
	completeCall = endpoint{op: "complete", method: http.MethodPut, success: http.StatusOK, changes: true, bulky: true}
	releaseCall  = endpoint{op: "release", method: http.MethodDelete, success: http.StatusNoContent, changes: true, once: true}
)

// at returns e for cl.
func (cl *Claim) at(e endpoint, path func(claim string) string) endpoint {
	e.path = path(url.PathEscape(cl.handle))
	return e
}

// Commit marks the point of no return: from here on nobody takes the claim over, whatever its
// lease, and nothing is run twice. Do it right before what cannot be undone. Whoever comes
// after a crash hears [ErrUnfinished]. Committing twice is the same as once.
//
// After any error the work must not go on: after [ErrSuperseded] or [ErrClaimEnded] another
// may be at it, and after a [*Fault] with MaybeDone nobody can tell whether it is committed.
// Release tells: [ErrClaimCommitted] if it is.
func (cl *Claim) Commit(ctx context.Context) error {
	if err := cl.standing("commit"); err != nil {
		return err
	}
	cl.begin()
	defer cl.end()
	got, err := call(ctx, cl.client, cl.at(commitCall, wire.PathCommit), wire.CommitRequest{}, func(a *wire.HeldResponse) bool {
		return cl.isHeld(a) && a.Committed
	})
	return cl.held(got, err)
}

// Renew has the lease last for d from now on, whole seconds from 1s to 1h, and never shortens
// it: before a step during which the claim cannot keep itself. It does nothing else that a
// Claim does not do by itself.
func (cl *Claim) Renew(ctx context.Context, d time.Duration) error {
	if err := cl.standing("renew"); err != nil {
		return err
	}
	return cl.renew(ctx, cl.at(renewCall, wire.PathRenew), d)
}

func (cl *Claim) renew(ctx context.Context, e endpoint, d time.Duration) error {
	lease, no := leaseMember(d)
	if no != nil {
		return no
	}
	sent := time.Now()
	got, err := call(ctx, cl.client, e, wire.RenewRequest{Lease: lease}, cl.isHeld)
	if err == nil {
		cl.note(func() {
			if context.Cause(cl.ctx) != cl.lost { // what has ended the context stays
				cl.lost = nil
			}
			cl.sent = sent
			if over := sent.Add(d); over.After(cl.deadline) {
				cl.deadline = over
			}
		})
	}
	return cl.held(got, err)
}

// Complete ends the claim and keeps r, which every later claim of the subject is answered
// with. A second result does not replace the first. It works after the lease's end, too,
// while nobody has taken over.
//
// The work is done by now, and is not to be run again because its result is too big: where
// tokend refuses its length, it is completed without its body and BodyOmitted, and without
// its header if need be.
//
// Give it a ctx that the caller who hangs up does not end: context.WithoutCancel. After a
// [*Fault] the claim is still kept, and Complete may be called again, with the same result.
// [ErrInvalidRequest] says that r is no result; [ErrSuperseded] and [ErrClaimEnded] say that
// another has the claim, or may have it.
func (cl *Claim) Complete(ctx context.Context, r Result) error {
	if no := r.check(); no != nil {
		return no
	}
	cl.begin()
	defer cl.end()
	for {
		_, err := call(ctx, cl.client, cl.at(completeCall, wire.PathResult), wire.CompleteRequest{Result: r.request()},
			func(a *wire.CompleteResponse) bool {
				return a.State == wire.StateCompleted && a.Ref == cl.Ref && !a.CompletedAt.IsZero()
			})
		if errors.Is(err, ErrBodyTooLarge) {
			if less, ok := r.smaller(); ok {
				r = less
				continue
			}
		}
		return cl.ended(err)
	}
}

// Release ends the claim, of which nothing was done: a token is good again for what is left
// of its life, and the next claim is a new one. Releasing twice is the same as once. After
// Commit it is [ErrClaimCommitted], but for a claim of [Client.Resolve].
func (cl *Claim) Release(ctx context.Context) error {
	cl.begin()
	defer cl.end()
	return cl.ended(cl.client.run(ctx, cl.at(releaseCall, wire.PathClaim), released{}))
}

// released is the exchange of a release, which nothing is said in.
type released struct{}

func (released) request() any              { return nil }
func (released) take(*answer, Fault) *miss { return nil }

// Close stops keeping the lease and waits until that has stopped. What was neither completed
// nor released stays claimed until its lease is over. Closing twice is the same as once.
func (cl *Claim) Close() {
	cl.unlink()
	cl.quit()
	<-cl.kept
	cl.cancel(nil)
}

// isHeld tells whether a answers a call of cl's.
func (cl *Claim) isHeld(a *wire.HeldResponse) bool {
	return a.State == wire.StateClaimed && a.Ref == cl.Ref && a.Fence == cl.Fence && !a.LeaseExpiresAt.IsZero()
}

// held notes what tokend said of cl, and returns err.
func (cl *Claim) held(got *wire.HeldResponse, err error) error {
	cl.note(func() {
		if err == nil {
			cl.committed = cl.committed || got.Committed
		} else if notOurs(err) {
			cl.refused = err
		}
	})
	return err
}

// ended notes that cl is over where err is nil, and returns err.
func (cl *Claim) ended(err error) error {
	if err != nil {
		return cl.held(nil, err)
	}
	cl.mu.Lock()
	cl.over = true
	cl.mu.Unlock()
	cl.Close()
	return nil
}

// notOurs tells whether err says that the claim is not its holder's any more.
func notOurs(err error) bool { return errors.Is(err, ErrSuperseded) || errors.Is(err, ErrClaimEnded) }

// standing returns what op is answered without being sent: a claim that has been lost is not
// to be used.
func (cl *Claim) standing(op string) error {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	switch {
	case cl.refused != nil:
		return cl.refused
	case cl.lost != nil && !cl.committed:
		return &Fault{Op: op, Err: noRefusal(cl.lost)}
	}
	return nil
}

// begin holds back what ends the context until the call that begins has its answer: a commit
// that is granted must not come too late, nor one that completes be told that the claim has
// ended.
func (cl *Claim) begin() { cl.note(func() { cl.calls++ }) }

func (cl *Claim) end() { cl.note(func() { cl.calls-- }) }

// note changes what ends the context, and ends it where that is due.
func (cl *Claim) note(change func()) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	change()
	switch {
	case cl.calls > 0:
	case cl.refused != nil:
		cl.cancel(cl.refused)
		cl.quit()
	case cl.committed:
	case cl.lost != nil:
		cl.cancel(cl.lost)
	case cl.gone != nil:
		cl.cancel(cl.gone)
	}
}
