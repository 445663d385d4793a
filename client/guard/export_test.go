package guard

import "time"

// RetryAtOnce has g wait for nothing between its tries to keep a result.
func RetryAtOnce() Option {
	return func(s *settings) error {
		s.backoff = func(int) time.Duration { return time.Millisecond }
		return nil
	}
}

// GiveUpAfter has g try no longer than that to keep a result.
func GiveUpAfter(d time.Duration) Option {
	return func(s *settings) error { s.keepFor = d; return nil }
}

// BackOff is backOff.
var BackOff = backOff

// Ordered is ordered.
func Ordered(data []byte) []byte { return ordered(data) }

// Details are details.
var Details = details
