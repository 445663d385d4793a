package redisstore

import "context"

// Traced tells whether a call with ctx is a span. Where it is none, tracing adds to a call no
// more than the asking.
func (s *Store) Traced(ctx context.Context) bool { return s.traced(ctx) }
