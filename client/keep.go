package client

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"example.com/tokend/httpapi/wire"
)

// start begins to keep cl's lease. A claim that was long in coming, as one that has waited
// is, or that another call was granted before, may have little left of it, or nothing: it is
// renewed before anybody works on it.
func (cl *Claim) start() error {
	ctx, quit := context.WithCancel(context.WithoutCancel(cl.ctx))
	cl.quit = quit
	if cl.left() < cl.lease/2 {
		err := cl.renew(cl.ctx, cl.keeping(), cl.lease)
		if err != nil && (notOurs(err) || cl.left() <= 0 && !cl.Committed()) {
			close(cl.kept)
			return err
		}
	}
	go cl.keep(ctx)
	return nil
}

// keeping returns the call that renews the lease. Several tries must fit into what is left of
// a short one.
func (cl *Claim) keeping() endpoint {
	e := cl.at(renewCall, wire.PathRenew)
	e.tryTimeout = min(cl.client.tryTimeout, cl.lease/4)
	return e
}

// keep renews cl's lease until ctx ends or the claim is lost.
func (cl *Claim) keep(ctx context.Context) {
	defer close(cl.kept)
	var err error // the last renewal's
	for wait := cl.untilRenewal(); ; {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
		if cl.lose(err) {
			return
		}
		err = cl.renewInTime(ctx)
		switch {
		case ctx.Err() != nil || notOurs(err):
			return
		case err == nil:
			wait = cl.untilRenewal()
		case cl.lose(err):
			return
		default:
			wait = cl.untilRetry()
		}
	}
}

// untilRenewal returns when the lease is to be renewed that was granted or renewed last:
// after a quarter to a third of it, so that claims that were made together are not renewed
// together.
func (cl *Claim) untilRenewal() time.Duration {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	return time.Until(cl.sent) + cl.lease/4 + rand.N(cl.lease/12)
}

// untilRetry returns when a renewal that failed is tried again.
func (cl *Claim) untilRetry() time.Duration {
	wait := cl.lease/20 + rand.N(cl.lease/20)
	if left := cl.left(); left > 0 {
		wait = min(wait, left)
	}
	return wait
}

// left returns how long the lease is known to last.
func (cl *Claim) left() time.Duration {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	return time.Until(cl.deadline)
}

// renewInTime renews the lease before its deadline. Where that has passed, and there is still
// something to be kept, it takes the time that any call has.
func (cl *Claim) renewInTime(ctx context.Context) error {
	if left := cl.left(); left > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, left)
		defer cancel()
	}
	return cl.renew(ctx, cl.keeping(), cl.lease)
}

// lose notes that no renewal was answered in time, if that is so, err being what the last one
// ended with; and tells whether there is nothing to be kept any more.
func (cl *Claim) lose(err error) (lost bool) {
	cl.note(func() {
		if time.Until(cl.deadline) <= 0 {
			cl.lost = ErrLeaseLost
			if err != nil {
				cl.lost = fmt.Errorf("%w: %w", ErrLeaseLost, err)
			}
		}
		lost = cl.lost != nil && !cl.committed && cl.calls == 0
	})
	return lost
}
