package token

import (
	"context"
	"errors"
	"time"
)

// pollEvery is how often a call that waits asks the store, though nobody told it of an end:
// the safety net under [Store.Watch].
const pollEvery = time.Second

// await asks for c again until the answer is other than ErrInProgress, wait is over or ctx
// ends; last is the refusal so far. Whoever takes the claim over meanwhile is waited for,
// too.
func (s *Service) await(ctx context.Context, c Claiming, wait time.Duration, last error) (Claimed, error) {
	woken, stop := s.store.Watch(c.Subject)
	defer stop()
	over := time.NewTimer(wait)
	defer over.Stop()
	for done := false; !done; {
		again := time.NewTimer(min(pollEvery, leaseLeft(last)))
		select {
		case <-woken:
		case <-again.C:
		case <-over.C:
			done = true // what it came to in the end is asked once more
		case <-ctx.Done():
		}
		again.Stop()
		if ctx.Err() != nil {
			return Claimed{}, last // a claim now would be nobody's
		}
		got, err := s.store.Claim(ctx, c)
		if !inProgress(err) {
			return got, err
		}
		last = err
	}
	return Claimed{}, last
}

func inProgress(err error) bool { return errors.Is(err, ErrInProgress) }

// leaseLeft returns when to ask again for what err says is in progress: the moment at which
// its lease ends, if it is not renewed.
func leaseLeft(err error) time.Duration {
	const soonest = 5 * time.Millisecond
	if no, ok := errors.AsType[*Refusal](err); ok {
		return max(no.RetryAfter, soonest)
	}
	return pollEvery
}
