// Package devredis is a Redis within the process, for tokend dev and for tests: nothing
// to install, and everything is gone when it ends.
//
// It is miniredis with a clock that moves its keys' lives too; left alone, miniredis
// lets them stand still. It knows no memory limit, no persistence and no replicas, so it
// shows nothing of how a real Redis fails.
package devredis

import (
	"fmt"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// Server is a running server. Close it after use.
type Server struct {
	mini *miniredis.Miniredis
	addr string

	mu  sync.Mutex
	now time.Time // zero: the host's clock runs
}

// Start starts a server on addr, 127.0.0.1:0 say, whose clock is the host's.
func Start(addr string) (*Server, error) {
	return newServer(time.Time{}).listen(addr)
}

// StartAt starts a server on addr whose clock stands at now and is moved by
// [Server.Advance] alone.
func StartAt(addr string, now time.Time) (*Server, error) {
	return newServer(now).listen(addr)
}

func newServer(now time.Time) *Server {
	s := &Server{mini: miniredis.NewMiniRedis(), now: now}
	s.mini.SetTime(now)
	s.mini.ClockTTL(true)
	return s
}

func (s *Server) listen(addr string) (*Server, error) {
	if err := s.mini.StartAddr(addr); err != nil {
		return nil, fmt.Errorf("devredis: %w", err)
	}
	s.addr = s.mini.Addr()
	return s, nil
}

// Addr returns the address that the server listens on, or did.
func (s *Server) Addr() string { return s.addr }

// URL returns the server's URL.
func (s *Server) URL() string { return "redis://" + s.Addr() + "/0" }

// Now returns the server's time.
func (s *Server) Now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now.IsZero() {
		return time.Now()
	}
	return s.now
}

// Advance moves the clock of a server of [StartAt]: TIME and what is left of every key's
// life agree after it. It panics for a server whose clock is the host's, and where d is
// negative.
func (s *Server) Advance(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now.IsZero() || d < 0 {
		panic("devredis: only a clock that stands can be moved, and only forwards")
	}
	s.now = s.now.Add(d)
	s.mini.SetTime(s.now)
}

// Mini returns what the server is made of, for tests that break it.
func (s *Server) Mini() *miniredis.Miniredis { return s.mini }

// Close stops the server and waits for its connections to end.
func (s *Server) Close() { s.mini.Close() }
