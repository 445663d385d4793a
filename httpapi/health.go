package httpapi

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/labstack/echo/v4"
)

// livez handles /livez: the process lives. The store is not asked: a restart would not
// mend it.
func (s *Server) livez(ec echo.Context) error { return s.probe(ec, true, "alive") }

// readyz handles /readyz: the service can serve.
func (s *Server) readyz(ec echo.Context) error {
	if s.draining.Err() != nil {
		return s.probe(ec, false, "shutting down")
	}
	if err := s.ready.ask(); err != nil {
		return s.probe(ec, false, "the store does not answer")
	}
	return s.probe(ec, true, "ready")
}

// probe answers a probe. Probes are no outcomes: they are not logged.
func (s *Server) probe(ec echo.Context, ok bool, text string) error {
	c := s.begin(ec, opNone)
	c.echo.Response().Header()["Content-Type"] = []string{"text/plain; charset=utf-8"}
	status := http.StatusOK
	if !ok {
		status = http.StatusServiceUnavailable
	}
	c.echo.Response().WriteHeader(status)
	c.echo.Response().Write([]byte(text + "\n"))
	return nil
}

// readiness asks the store whether it can serve, on behalf of any number of probes at
// once. A blip is no reason to take an instance out: the store is unready only when it
// has not answered for as long as a ping may take, tried again and again.
type readiness struct {
	ping func(context.Context) error

	mu      sync.Mutex
	asking  chan struct{} // closed when the answer is there; nil while none is asked for
	err     error
	answers time.Time // when err was found
}

const (
	readyFor   = 250 * time.Millisecond // how long an answer stands
	askAtMost  = time.Second
	askBetween = 50 * time.Millisecond
)

func newReadiness(ping func(context.Context) error) *readiness { return &readiness{ping: ping} }

// ask returns nil if the store answers.
func (r *readiness) ask() error {
	r.mu.Lock()
	if time.Since(r.answers) < readyFor {
		defer r.mu.Unlock()
		return r.err
	}
	if r.asking == nil {
		r.asking = make(chan struct{})
		go r.answer(r.asking)
	}
	asking := r.asking
	r.mu.Unlock()
	<-asking
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

func (r *readiness) answer(done chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), askAtMost)
	defer cancel()
	err := r.ping(ctx)
	for err != nil && ctx.Err() == nil {
		select {
		case <-time.After(askBetween):
			err = r.ping(ctx)
		case <-ctx.Done():
		}
	}
	r.mu.Lock()
	r.err, r.answers, r.asking = err, time.Now(), nil
	r.mu.Unlock()
	close(done)
}
