package client

import (
	"errors"
	"net/http"
	"time"
)

// Option changes how a [Client] calls.
type Option func(*Client) error

// HTTPClient has calls made by a copy of h, for a transport of the caller's: TLS, a
// proxy, a Unix socket, tracing. The copy follows no redirects, whatever h does. h's
// own Timeout holds for each try, beside [TryTimeout].
func HTTPClient(h *http.Client) Option {
	return func(c *Client) error {
		if h == nil {
			return errors.New("HTTPClient: must not be nil")
		}
		own := *h
		c.http = &own
		return nil
	}
}

// TryTimeout bounds each try, from the dial to the last byte of its answer. It is 3s
// where not set, well above the 1s in which tokend itself gives Redis up.
func TryTimeout(d time.Duration) Option {
	return func(c *Client) error {
		if d <= 0 {
			return errors.New("TryTimeout: must be above 0")
		}
		c.tryTimeout = d
		return nil
	}
}

// MaxTries bounds the tries of one call, the first one included. It is 5 where not set.
func MaxTries(n int) Option {
	return func(c *Client) error {
		if n < 1 {
			return errors.New("MaxTries: must be at least 1")
		}
		c.maxTries = n
		return nil
	}
}

// Budget bounds one call with all its tries and waits, as a deadline of its context
// would; the earlier of the two counts. It is 10s where not set.
func Budget(d time.Duration) Option {
	return func(c *Client) error {
		if d <= 0 {
			return errors.New("Budget: must be above 0")
		}
		c.budget = d
		return nil
	}
}

// Backoff replaces how long a call waits between two tries. wait is told how many were
// made and what Retry-After asks for, 0 if nothing; it is called by many goroutines at a
// time. Where it is not set, a call waits a random part of 100ms, which doubles with each
// try up to 2s, on top of what Retry-After asks for. Waiting less keeps a tokend that is
// overloaded from recovering: tests do it, services do not.
func Backoff(wait func(tries int, retryAfter time.Duration) time.Duration) Option {
	return func(c *Client) error {
		if wait == nil {
			return errors.New("Backoff: must not be nil")
		}
		c.wait = wait
		return nil
	}
}

// UserAgent sets the header of that name, for tokend's and proxies' logs: visible
// ASCII and spaces.
func UserAgent(s string) Option {
	return func(c *Client) error {
		for i := range len(s) {
			if s[i] < ' ' || s[i] > '~' {
				return errors.New("UserAgent: must be visible ASCII and spaces")
			}
		}
		c.userAgent = s
		return nil
	}
}
