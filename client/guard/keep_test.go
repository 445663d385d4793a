package guard_test

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"example.com/tokend/client"
	"example.com/tokend/client/guard"
	"example.com/tokend/httpapi/wire"
)

// between returns a service whose client asks answer before tokend; nil is no answer.
func between(t *testing.T, answer func(*http.Request) *http.Response, opts ...guard.Option) *service {
	t.Helper()
	s := newService(t)
	transport := new(http.Transport)
	t.Cleanup(transport.CloseIdleConnections)
	forms := s.tokend.Client(client.HTTPClient(&http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		if resp := answer(r); resp != nil {
			resp.Request = r
			if r.Body != nil {
				r.Body.Close()
			}
			return resp, nil
		}
		return transport.RoundTrip(r)
	})}), client.MaxTries(1)).Purpose(purpose)
	s.guard = guard.New(forms, append([]guard.Option{guard.User(sessionUser), guard.Observe(s.observe), guard.RetryAtOnce()}, opts...)...)
	return s
}

func problem(status int, code client.Code, field string) *http.Response {
	return &http.Response{
		StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {wire.TypeProblem}},
		Body:   io.NopCloser(strings.NewReader(`{"type":"/problems/` + string(code) + `","code":"` + string(code) + `","next":"fix","title":"t","field":"` + field + `","detail":"d","status":` + strconv.Itoa(status) + `}`)),
	}
}

// What refuses the service, and not its claim, is no reason to do the work twice: keeping and
// releasing are tried on.
func TestServiceIsRefusedAtTheEnd(t *testing.T) {
	t.Parallel()
	for code, status := range map[client.Code]int{
		wire.CodeUnauthenticated: 401, wire.CodeForbidden: 403, wire.CodeRateLimited: 429,
		wire.CodeInvalidRequest: 400, wire.CodeNotFound: 404,
	} {
		var refusing atomic.Bool
		s := between(t, func(r *http.Request) *http.Response {
			if refusing.Load() && (strings.HasSuffix(r.URL.Path, "/result") || r.Method == http.MethodDelete) {
				return problem(status, code, "")
			}
			return nil
		})
		end := 201
		h := s.guard.Replay(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			refusing.Store(true)
			s.ran()
			w.WriteHeader(end)
		}))
		token := s.token()
		wantAnswer(t, send(h, form(token)), 201, "")
		s.wantEvents(guard.EventNotKept)
		refusing.Store(false)
		if err := s.guard.Drain(t.Context()); err != nil {
			t.Error(err)
		}
		s.wantEvents(guard.EventNotKept, guard.EventKeptLate)
		if w := send(h, form(token)); w.Code != 201 || w.Header().Get("Idempotent-Replayed") != "true" {
			t.Errorf("%s: %d %q", code, w.Code, w.Body)
		}
		s.wantRuns(1)

		end, token, s.events = 422, s.token(), nil
		wantAnswer(t, send(h, form(token)), 422, "")
		refusing.Store(false)
		if err := s.guard.Drain(t.Context()); err != nil {
			t.Error(err)
		}
		s.wantEvents(guard.EventNotReleased)
		s.wantState(token, client.StateIssued)
	}
}

// A panic of what the service counts events with leaves no lease that never ends: what is
// tried on has it for as long as that lasts, and a result that is kept is kept all the same.
func TestObserverPanics(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		fault client.Code // of the first completion
		field string
		want  client.State
	}{
		"not kept yet": {fault: wire.CodeForbidden, want: wire.StateCompleted},
		"no result":    {fault: wire.CodeInvalidRequest, field: "result.headers", want: client.StateClaimed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var completed, renewed atomic.Int32
			s := between(t, func(r *http.Request) *http.Response {
				if strings.HasSuffix(r.URL.Path, "/renew") {
					renewed.Add(1)
				}
				if strings.HasSuffix(r.URL.Path, "/result") && completed.Add(1) == 1 {
					return problem(400, tt.fault, tt.field)
				}
				return nil
			}, guard.Lease(time.Second), guard.Observe(func(e guard.Event) {
				if e.Kind == guard.EventNotKept {
					panic("observer")
				}
			}))
			h := s.guard.Replay(http.HandlerFunc(s.run))
			token := s.token()
			func() {
				defer func() {
					if recover() == nil {
						t.Error("no panic")
					}
				}()
				send(h, form(token))
			}()
			if err := s.guard.Drain(t.Context()); err != nil {
				t.Error(err)
			}
			s.wantState(token, tt.want)
			before := renewed.Load()
			time.Sleep(1200 * time.Millisecond) // longer than a lease goes without a renewal
			if after := renewed.Load(); after != before {
				t.Errorf("renewed %d times after the request", after-before)
			}
		})
	}
}
