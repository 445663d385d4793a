package client

import (
	"math/rand/v2"
	"time"
)

const (
	backoffBase = 100 * time.Millisecond
	backoffCap  = 2 * time.Second
)

// backOff is how long is waited after the n-th try where no [Backoff] says otherwise.
func backOff(n int, retryAfter time.Duration) time.Duration {
	return retryAfter + fullJitter(backoff(n))
}

// backoff returns the most that is waited after the n-th try, the first being 1.
func backoff(n int) time.Duration {
	d := backoffBase
	for range n - 1 {
		if d = min(2*d, backoffCap); d == backoffCap {
			break
		}
	}
	return d
}

// fullJitter returns any duration from 0 to limit, so that callers who failed together
// do not come back together.
func fullJitter(limit time.Duration) time.Duration { return rand.N(limit + 1) }
