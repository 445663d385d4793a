package guard_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"example.com/tokend/client"
	"example.com/tokend/client/clienttest"
	"example.com/tokend/client/guard"
	"example.com/tokend/httpapi/wire"
)

// during returns a service whose client calls f while tokend carries out a request to path.
func during(t *testing.T, path string, f func(), opts ...guard.Option) *service {
	t.Helper()
	s := newService(t)
	transport := new(http.Transport)
	t.Cleanup(transport.CloseIdleConnections)
	forms := s.tokend.Client(client.HTTPClient(&http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		resp, err := transport.RoundTrip(r)
		if r.URL.Path == path || strings.HasSuffix(r.URL.Path, path) {
			f()
		}
		return resp, err
	})})).Purpose(purpose)
	s.guard = guard.New(forms, append([]guard.Option{guard.User(sessionUser), guard.Observe(s.observe)}, opts...)...)
	return s
}

// A caller that hangs up while tokend takes the token undoes nothing: the work is done, on a
// context that has not ended.
func TestHangUpPastThePoint(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		path string
		opt  guard.Option
		once bool
		call func(context.Context) error
		want client.State
	}{
		"Consume":      {wire.PathConsume, nil, true, guard.Consume, client.StateUsed},
		"ConsumeFirst": {wire.PathConsume, guard.ConsumeFirst(), true, guard.Consume, client.StateUsed},
		"Commit":       {"/commit", nil, false, guard.Commit, wire.StateCompleted},
		"CommitFirst":  {wire.PathClaims, guard.CommitFirst(), false, guard.Commit, wire.StateCompleted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, hangUp := context.WithCancel(t.Context())
			var opts []guard.Option
			if tt.opt != nil {
				opts = append(opts, tt.opt)
			}
			s := during(t, tt.path, hangUp, opts...)
			var inner context.Context
			handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				inner = r.Context()
				for range 2 {
					if err := tt.call(r.Context()); err != nil {
						t.Error(err)
					}
				}
				s.state(s.token()) // which takes longer than a context to end
				if ctx.Err() == nil || r.Context().Err() != nil {
					t.Errorf("the caller's context: %v, the handler's: %v", ctx.Err(), r.Context().Err())
				}
				s.run(w, r)
			})
			h := s.guard.Replay(handler)
			if tt.once {
				h = s.guard.Once(handler)
			}
			token := s.token()
			wantAnswer(t, send(h, form(token).WithContext(ctx)), http.StatusCreated, "run 1")
			s.wantState(token, tt.want)
			if inner.Err() == nil {
				t.Error("the context outlives the handler")
			}
		})
	}
}

// One that hangs up before has nothing done: Consume and Commit are errors, and the token is
// good for a repeat.
func TestHangUpBeforeThePoint(t *testing.T) {
	t.Parallel()
	for _, once := range []bool{true, false} {
		s := newService(t)
		ctx, hangUp := context.WithCancel(t.Context())
		call := guard.Commit
		if once {
			call = guard.Consume
		}
		handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			hangUp()
			for range 2 {
				err := call(r.Context())
				if no, ok := errors.AsType[*guard.Refused](err); !errors.Is(err, context.Canceled) || !ok || no.Next != client.NextWait {
					t.Errorf("once %t: %v", once, err)
				}
			}
		})
		h := s.guard.Replay(handler)
		if once {
			h = s.guard.Once(handler)
		}
		token := s.token()
		wantProblem(t, send(h, form(token).WithContext(ctx)), 503, wire.CodeStoreUnavailable, client.NextWait)
		s.wantState(token, client.StateIssued)
		s.wantEvents()
		if s.log.String() != "" {
			t.Errorf("once %t: logged %s", once, s.log)
		}
	}

	// ConsumeFirst uses nothing up for a caller who is gone.
	s := newService(t, guard.ConsumeFirst())
	ctx, hangUp := context.WithCancel(t.Context())
	hangUp()
	token := s.token()
	send(s.guard.Once(http.HandlerFunc(s.work)), form(token).WithContext(ctx))
	s.wantRuns(0)
	s.wantState(token, client.StateIssued)
}

// Where FailOpen has let a request through, its handler is as good as committed.
func TestHangUpFailOpen(t *testing.T) {
	t.Parallel()
	s := newService(t, guard.FailOpen())
	token := s.token()
	s.tokend.Down(true)
	ctx, hangUp := context.WithCancel(t.Context())
	h := s.guard.Replay(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hangUp()
		if err := guard.Commit(r.Context()); err != nil || r.Context().Err() != nil {
			t.Errorf("%v; the context: %v", err, r.Context().Err())
		}
		s.run(w, r)
	}))
	wantAnswer(t, send(h, form(token).WithContext(ctx)), http.StatusCreated, "run 1")
}

// cutWriter fails as a connection does whose other end is gone.
type cutWriter struct {
	*httptest.ResponseRecorder
	left int
}

func (w *cutWriter) Write(b []byte) (int, error) {
	if w.left--; w.left < 0 {
		return 0, net.ErrClosed
	}
	return w.ResponseRecorder.Write(b)
}

func (w *cutWriter) FlushError() error {
	if w.left <= 0 {
		return net.ErrClosed
	}
	return nil
}

// A stream that its caller cut off is not kept as if it were the whole.
func TestCutOffStreams(t *testing.T) {
	t.Parallel()
	for left := range 3 {
		for _, before := range []bool{false, true} { // the caller hangs up before the first flush
			s := newService(t, guard.IdempotencyKey())
			ctx, hangUp := context.WithCancel(t.Context())
			h := s.guard.Replay(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if before {
					hangUp()
				}
				w.Header().Set("Location", "/orders/1")
				w.WriteHeader(http.StatusCreated)
				for i := range 3 {
					if _, err := fmt.Fprint(w, i); err != nil {
						return
					}
					if err := http.NewResponseController(w).Flush(); err != nil {
						return
					}
				}
			}))
			h.ServeHTTP(&cutWriter{httptest.NewRecorder(), left}, keyed("k1", "{}").WithContext(ctx))
			w := send(h, keyed("k1", "{}"))
			if w.Code != 201 || w.Body.Len() > 0 || w.Header().Get(guard.HeaderBodyOmitted) != "true" || w.Header().Get("Location") != "/orders/1" {
				t.Errorf("after %d writes: %d %v %q", left, w.Code, w.Header(), w.Body)
			}
			hangUp()
		}
	}
}

// The same over a real connection.
func TestCutOffConnection(t *testing.T) {
	t.Parallel()
	tokend := clienttest.New(t)
	s := newServiceOn(t, tokend, guard.IdempotencyKey())
	returned := make(chan error, 1)
	replay := s.guard.Replay(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		for {
			if _, err := io.WriteString(w, "event\n"); err != nil {
				returned <- err
				return
			}
			if err := rc.Flush(); err != nil {
				returned <- err
				return
			}
			select {
			case <-time.After(time.Millisecond):
			case <-t.Context().Done():
			}
		}
	}))
	ended := make(chan struct{}, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		replay.ServeHTTP(w, r)
		ended <- struct{}{}
	}))
	defer srv.Close()
	c, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(c, "POST /orders HTTP/1.1\r\nHost: x\r\nX-Test-User: %s\r\nIdempotency-Key: k1\r\nContent-Length: 2\r\n\r\n{}", user)
	if _, err := io.ReadAtLeast(c, make([]byte, 256), 64); err != nil {
		t.Error(err)
	}
	c.Close()
	if err := <-returned; err == nil {
		t.Error("the handler heard nothing")
	}
	<-ended
	resp, body := post(t, srv, "/orders", "k1")
	if resp.StatusCode != 200 || body != "" || resp.Header.Get(guard.HeaderBodyOmitted) != "true" {
		t.Errorf("the repeat got %d %q", resp.StatusCode, body)
	}
}

// A repeat whose caller hangs up just when its wait is granted leaves no claim that nobody
// holds.
func TestHangUpWhileWaiting(t *testing.T) {
	t.Parallel()
	s := newService(t)
	ctx, hangUp := context.WithCancel(t.Context())
	transport := new(http.Transport)
	defer transport.CloseIdleConnections()
	waiting := make(chan struct{}, 1)
	forms := s.tokend.Client(client.HTTPClient(&http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		data, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		r.Body = io.NopCloser(bytes.NewReader(data))
		if !bytes.Contains(data, []byte(`"wait"`)) {
			return transport.RoundTrip(r)
		}
		waiting <- struct{}{}
		resp, err := transport.RoundTrip(r.WithContext(context.WithoutCancel(r.Context())))
		if err == nil {
			resp.Body.Close()
		}
		hangUp()
		<-r.Context().Done()
		return nil, r.Context().Err()
	})})).Purpose(purpose)
	token := s.token()
	began, goOn := make(chan struct{}), make(chan struct{})
	first := make(chan struct{})
	go func() {
		defer close(first)
		send(s.guard.Replay(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			close(began)
			<-goOn
			w.WriteHeader(http.StatusServiceUnavailable)
		})), form(token))
	}()
	<-began
	second := make(chan struct{})
	go func() {
		defer close(second)
		send(guard.New(forms, guard.User(sessionUser)).Replay(http.HandlerFunc(s.run)), form(token).WithContext(ctx))
	}()
	<-waiting
	close(goOn)
	<-first
	<-second
	s.wantState(token, client.StateIssued)
	wantAnswer(t, send(s.guard.Replay(http.HandlerFunc(s.run), guard.Wait(0)), form(token)), http.StatusCreated, "run 1")
}
