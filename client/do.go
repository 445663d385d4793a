package client

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrNotKept is in the error of a [Client.Do] whose work was done, by this call, and whose
// result is not known to be kept.
var ErrNotKept = errors.New("tokend: the work was done, but its result may not be kept")

// Do does the work that s stands for once, and returns its result: fn's, or the one that an
// earlier claim was completed with, with Replayed. The claim is made, kept and completed as
// [Client.Claim] and its methods say.
//
//	done, err := c.Do(ctx, client.Key("stripe:acct_1", "payment.callback", event.ID),
//		func(ctx context.Context, cl *client.Claim) (client.Result, error) {
//			… // what can be undone, or done twice
//			if err := cl.Commit(ctx); err != nil {
//				return client.Result{}, err
//			}
//			… // what must not be done twice
//			return client.JSON(http.StatusOK, out)
//		})
//
// A ctx that ends while the claim is asked for leaves none behind, as far as tokend can be
// reached: Do takes a moment to see to it.
//
// fn's ctx is [Claim.Context]. What it ended with is in Do's error, beside fn's.
//
// fn's error, or its panic, says that nothing was done: the claim is released, and the next
// one runs fn again. Once it is committed it is left as it is instead, and whoever comes
// after its lease hears [ErrUnfinished]; so a fn that has committed returns a Result for
// whatever can be said. A fn that has released the claim itself may return a Result, which
// nobody keeps: a form with its mistakes, say.
//
// Where fn has done its work, completing goes on though ctx has ended, and for as long as the
// lease is kept, up to half a minute, through faults and refusals alike but for those that are
// about the claim or the result: a credential that is not taken for a moment has nothing run
// twice. A result that is too big is kept without its body.
//
// Do's error is one of
//
//   - a [*Refusal] or [*Fault] of the claim, as [Client.Claim] says: fn did not run;
//   - fn's own, in which errors.Is finds it; a release that failed is in its text;
//   - one in which errors.Is finds [ErrNotKept]: fn ran to its end, and its result stands
//     beside the error, to be shown to whoever asked for it. With a Fault nobody knows
//     whether it is kept. If not, a repeat is [ErrUnfinished] where fn has committed, and
//     runs fn again where it has not. With [ErrSuperseded] another has taken the claim over
//     meanwhile, and may have done the work too. With [ErrInvalidRequest] fn's result is
//     none, and repeats get one with BodyOmitted.
func (c *Client) Do(ctx context.Context, s Subject, fn func(ctx context.Context, cl *Claim) (Result, error), opts ...ClaimOption) (Completed, error) {
	params := newClaimParams(opts)
	cl, done, err := c.claim(ctx, s, params)
	if err != nil {
		if ctx.Err() != nil {
			c.unclaim(ctx, s, params, err)
		}
		return Completed{}, err
	}
	if done != nil {
		return *done, nil
	}
	return cl.do(fn)
}

// unclaim releases what a claim that its caller has cut off, and that ended with err, may
// have come to: who sends a form twice hangs up on the first request, and the second one is
// not to wait for a lease that nobody holds. It tries once; what is committed, or whose
// attempt others know, is left as it is.
func (c *Client) unclaim(ctx context.Context, s Subject, params claimParams, err error) {
	fault, ok := errors.AsType[*Fault](err)
	if !ok || !fault.MaybeDone || params.commit || !params.ownAttempt() {
		return
	}
	params.wait = 0
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.tryTimeout)
	defer cancel()
	if cl, _, _ := c.claim(ctx, s, params); cl != nil {
		defer cl.Close()
		cl.Release(ctx)
	}
}

func (cl *Claim) do(fn func(context.Context, *Claim) (Result, error)) (Completed, error) {
	defer cl.Close()
	returned := false
	defer func() {
		if !returned { // it panics, or its goroutine ends
			cl.abandon()
		}
	}()
	r, err := fn(cl.ctx, cl)
	returned = true
	if err != nil {
		if cause := context.Cause(cl.ctx); cause != nil && !cl.isOver() && !errors.Is(err, cause) {
			err = fmt.Errorf("%w: %w", err, cause)
		}
		if failed := cl.abandon(); failed != nil {
			err = fmt.Errorf("%w (and the claim was not released: %v)", err, failed)
		}
		return Completed{}, err
	}
	if err := cl.completeSurely(r); err != nil {
		return Completed{Result: r, Ref: cl.Ref}, fmt.Errorf("%w: %w", ErrNotKept, err)
	}
	return Completed{Result: r, Ref: cl.Ref}, nil
}

func (cl *Claim) isOver() bool {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	return cl.over
}

// abandon releases what nothing was done of, if it is known to be neither committed nor
// another's.
func (cl *Claim) abandon() error {
	cl.mu.Lock()
	leave := cl.over || cl.committed || cl.refused != nil
	cl.mu.Unlock()
	if leave {
		return nil
	}
	return cl.Release(context.WithoutCancel(cl.ctx))
}

// How long completing goes on: while the lease lasts, but not for ever, as somebody may be
// waiting. The number of calls counts where a [Backoff] waits for nothing.
const (
	completeFor   = 30 * time.Second
	completeCalls = 20
)

// completeSurely completes through faults, and through refusals that say nothing of the claim
// or of r: a credential that is not taken for a moment, or a gateway that is asked too much,
// must not have the work done twice. Its error is a *Refusal or a *Fault.
func (cl *Claim) completeSurely(r Result) error {
	if cl.isOver() {
		return nil
	}
	ctx, giveUp := context.WithoutCancel(cl.ctx), time.Now().Add(completeFor)
	var bad error // what is wrong with r, which something else is kept for
	for n := 1; ; n++ {
		err := cl.Complete(ctx, r)
		if bad == nil && unkeepable(err) {
			bad, r = err, r.placeholder()
			err = cl.Complete(ctx, r)
		}
		if err == nil {
			return bad
		}
		if notOurs(err) || unkeepable(err) {
			return err
		}
		left := time.Until(giveUp)
		if !cl.Committed() { // else there is no end that hands the claim on
			left = min(left, cl.left())
		}
		wait := cl.client.wait(n, 0)
		if no, ok := errors.AsType[*Refusal](err); ok && no.RetryAfter > 0 && no.RetryAfter+wait < left {
			wait += no.RetryAfter
		}
		if n == completeCalls || left <= wait {
			return err
		}
		time.Sleep(wait)
	}
}
