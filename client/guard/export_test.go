package guard

import "time"

// RetryAtOnce has g wait for nothing between its tries to keep a result.
func RetryAtOnce() Option {
	return func(s *settings) error {
		s.backoff = func(int) time.Duration { return time.Millisecond }
		return nil
	}
}

// Ordered is ordered.
func Ordered(data []byte) []byte { return ordered(data) }
