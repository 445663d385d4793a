package clienttest

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Down takes the store away, or gives it back: while it is down, tokend answers
// store_unavailable to whatever needs it, and nothing changes. A client cannot know that
// much: its fault says MaybeDone.
func (s *Server) Down(down bool) {
	message := ""
	if down {
		message = "LOADING Redis is loading the dataset in memory"
	}
	s.redis.Mini().SetError(message)
}

// LoseReplies has the next n requests carried out and their replies lost: the caller's
// connection closes instead. A client's tries are a request each. As for the other
// faults with a number, the latest n counts, and 0 ends them.
func (s *Server) LoseReplies(n int) { s.faults.set(&s.faults.replies, n) }

// LoseStoreReplies has the next n changes and questions reach the store, and its replies to
// them lost on the way back to tokend. Each item of a batch is one of its own; where n is
// less than the items, the last ones are lost.
func (s *Server) LoseStoreReplies(n int) { s.faults.set(&s.faults.storeReplies, n) }

// BadGateway has the next n requests end at a gateway before tokend, which answers 502
// and a page of its own.
func (s *Server) BadGateway(n int) { s.faults.set(&s.faults.gateway, n) }

// LoseData has the store forget all that it holds, as a Redis does that comes back without
// its data.
func (s *Server) LoseData() { s.redis.Mini().FlushAll() }

// faults are those that are still to come.
type faults struct {
	mu                             sync.Mutex
	replies, storeReplies, gateway int
}

func (f *faults) set(left *int, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	*left = n
}

// take takes up to n of left, and tells how many.
func (f *faults) take(left *int, n int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n = min(n, *left)
	*left -= n
	return n
}

// before returns h behind a network on which f happens.
func (f *faults) before(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case f.take(&f.gateway, 1) > 0:
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(http.StatusBadGateway)
			io.WriteString(w, "<h1>502 Bad Gateway</h1>")
		case f.take(&f.replies, 1) > 0:
			h.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		default:
			h.ServeHTTP(w, r)
		}
	})
}

// DialHook, ProcessHook and ProcessPipelineHook make a redis.Hook of f.
func (f *faults) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f *faults) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := next(ctx, cmd); err != nil {
			return err // which cmd itself does not know yet
		}
		f.lose([]redis.Cmder{cmd})
		return cmd.Err()
	}
}

func (f *faults) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		f.lose(cmds)
		for _, cmd := range cmds {
			if cmd.Err() != nil {
				return cmd.Err() // the first, as go-redis does; a command that lost a part has none
			}
		}
		return err
	}
}

// lose takes from cmds the replies that are to be lost, the last ones. What was not carried
// out, a script that the server does not know yet say, does not count.
func (f *faults) lose(cmds []redis.Cmder) {
	for _, cmd := range slices.Backward(cmds) {
		switch cmd.Name() {
		case "evalsha", "eval", "del":
			if cmd.Err() == nil {
				f.loseOf(cmd)
			}
		}
	}
}

// loseOf takes from cmd's reply what is to be lost: it may answer several items.
func (f *faults) loseOf(cmd redis.Cmder) {
	script, ok := cmd.(*redis.Cmd)
	if ok {
		if answers, several := script.Val().([]any); several {
			n := f.take(&f.storeReplies, len(answers))
			if n < len(answers) {
				clear(answers[len(answers)-n:]) // no answer is a lost one, to the store
				return
			}
			cmd.SetErr(io.EOF)
			return
		}
	}
	if f.take(&f.storeReplies, 1) > 0 {
		cmd.SetErr(io.EOF)
	}
}
