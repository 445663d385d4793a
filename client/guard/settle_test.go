package guard_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/labstack/echo/v4"

	"example.com/tokend/client"
	"example.com/tokend/client/guard"
	"example.com/tokend/httpapi/wire"
)

// post sends a keyed request to srv, and returns the answer and its body.
func post(t *testing.T, srv *httptest.Server, path, key string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequest(http.MethodPost, srv.URL+path, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Test-User", user)
	r.Header.Set("Idempotency-Key", key)
	resp, err := srv.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Errorf("%s: %v", path, err)
	}
	return resp, string(body)
}

// What is committed stays so while tokend is away: whatever would commit once more asks
// nothing, and the work that was done is answered and kept.
func TestCommittedIsNotAskedAgain(t *testing.T) {
	t.Parallel()
	const raw = "HTTP/1.1 201 Created\r\nConnection: close\r\nContent-Length: 20\r\n\r\n"
	for name, again := range map[string]func(*testing.T, http.ResponseWriter, *http.Request){
		"overflow": func(*testing.T, http.ResponseWriter, *http.Request) {},
		"flush": func(t *testing.T, w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusCreated)
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
		},
		"hijack": func(t *testing.T, w http.ResponseWriter, _ *http.Request) {
			c, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			io.WriteString(c, raw+strings.Repeat("x", 20))
			c.Close()
		},
		"commit": func(t *testing.T, _ http.ResponseWriter, r *http.Request) {
			if err := guard.Commit(r.Context()); err != nil {
				t.Error(err)
			}
		},
	} {
		for first, opts := range map[string][]guard.Option{"Commit": nil, "CommitFirst": {guard.CommitFirst()}} {
			t.Run(name+" after "+first, func(t *testing.T) {
				t.Parallel()
				s := newService(t, append(opts, guard.IdempotencyKey(), guard.ResultLimit(10), guard.RetryAtOnce())...)
				returned := make(chan struct{}, 1)
				replay := s.guard.Replay(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if opts == nil {
						if err := guard.Commit(r.Context()); err != nil {
							t.Error(err)
						}
					}
					s.ran()
					s.tokend.Down(true)
					again(t, w, r)
					if name != "hijack" {
						w.WriteHeader(http.StatusCreated)
						if n, err := io.WriteString(w, strings.Repeat("x", 20)); n != 20 || err != nil {
							t.Errorf("wrote %d, %v", n, err)
						}
					}
					if err := r.Context().Err(); err != nil {
						t.Error(err)
					}
				}))
				srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					replay.ServeHTTP(w, r)
					returned <- struct{}{}
				}))
				defer srv.Close()
				if resp, body := post(t, srv, "/orders", "k1"); resp.StatusCode != http.StatusCreated || body != strings.Repeat("x", 20) {
					t.Errorf("%d %q", resp.StatusCode, body)
				}
				<-returned
				s.tokend.Down(false)
				if err := s.guard.Drain(t.Context()); err != nil {
					t.Error(err)
				}
				s.wantEvents(guard.EventNotKept, guard.EventKeptLate)
				resp, body := post(t, srv, "/orders", "k1")
				if name == "hijack" {
					if resp.StatusCode != http.StatusConflict || !strings.Contains(body, `"token_used"`) {
						t.Errorf("the repeat got %d %q", resp.StatusCode, body)
					}
				} else if resp.StatusCode != http.StatusCreated || body != "" || resp.Header.Get(guard.HeaderBodyOmitted) != "true" {
					t.Errorf("the repeat got %d %q %v", resp.StatusCode, body, resp.Header)
				}
				s.wantRuns(1)
			})
		}
	}
}

// What is released and handed on as it is written is sent once, and nothing is to be done
// after it.
func TestReleasedIsSentOnce(t *testing.T) {
	t.Parallel()
	for _, status := range []int{200, 422, 500} {
		for _, how := range []string{"flush", "overflow"} {
			s := newService(t, guard.ResultLimit(10))
			h := s.guard.Replay(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if status == 200 {
					if err := guard.Release(r.Context()); err != nil {
						t.Error(err)
					}
				}
				w.WriteHeader(status)
				io.WriteString(w, "01234")
				if how == "flush" {
					w.(http.Flusher).Flush()
				} else {
					io.WriteString(w, "5678901")
				}
				if err := guard.Commit(r.Context()); err == nil {
					t.Errorf("%d, %s: a commit of what was released", status, how)
				}
			}))
			w := &headWriter{ResponseRecorder: httptest.NewRecorder()}
			token := s.token()
			h.ServeHTTP(w, form(token))
			wantAnswer(t, w.ResponseRecorder, status, map[string]string{"flush": "01234", "overflow": "012345678901"}[how])
			if w.heads != 1 {
				t.Errorf("%d, %s: WriteHeader was called %d times", status, how, w.heads)
			}
			s.wantState(token, client.StateIssued)
			s.wantEvents()
		}
	}
}

// headWriter counts calls of WriteHeader.
type headWriter struct {
	*httptest.ResponseRecorder
	heads int
}

func (w *headWriter) WriteHeader(status int) {
	w.heads++
	w.ResponseRecorder.WriteHeader(status)
}

// What was released and then hijacked is nothing that could be lost.
func TestReleasedAndHijacked(t *testing.T) {
	t.Parallel()
	s := newService(t)
	token := s.token()
	returned := make(chan struct{})
	h := s.guard.Replay(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := guard.Release(r.Context()); err != nil {
			t.Error(err)
		}
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		io.WriteString(c, "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
		c.Close()
	}))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(returned)
		r.Header.Set(guard.HeaderToken, token)
		h.ServeHTTP(w, r)
	}))
	defer srv.Close()
	if resp, body := post(t, srv, "/orders", "k1"); resp.StatusCode != http.StatusNoContent {
		t.Errorf("%d %q", resp.StatusCode, body)
	}
	<-returned
	s.wantEvents()
	s.wantState(token, client.StateIssued)
	if s.log.String() != "" {
		t.Errorf("logged %s", s.log)
	}
}

// Where nothing can be hijacked nothing is committed for it.
func TestHijackImpossible(t *testing.T) {
	t.Parallel()
	s := newService(t)
	h := s.guard.Replay(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, _, err := http.NewResponseController(w).Hijack(); !errors.Is(err, http.ErrNotSupported) {
			t.Error(err)
		}
		w.WriteHeader(http.StatusUpgradeRequired)
	}))
	// Echo's writer has a Hijack whatever it wraps, as a guard's has.
	around := []func(http.Handler) http.Handler{
		func(h http.Handler) http.Handler { return h },
		func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				h.ServeHTTP(echo.NewResponse(w, echo.New()), r)
			})
		},
		func(h http.Handler) http.Handler {
			return s.guard.Replay(h, guard.IdempotencyKey(), guard.Optional())
		},
	}
	for i, f := range around {
		token := s.token()
		r := form(token)
		r.Header.Set("Idempotency-Key", "k1")
		if w := send(f(h), r); w.Code != http.StatusUpgradeRequired {
			t.Errorf("%d: %d %q", i, w.Code, w.Body)
		}
		s.wantState(token, client.StateIssued)
	}
	s.wantEvents()
}

// A replayed page that holds a token is not cached, as the first was not.
func TestReplayedFieldIsNotCached(t *testing.T) {
	t.Parallel()
	for _, stream := range []bool{false, true} {
		s := newService(t)
		h := s.guard.Replay(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Cache-Control", "max-age=60")
			io.WriteString(w, string(guard.Field(r.Context())))
			if stream {
				w.(http.Flusher).Flush()
			}
		}))
		token := s.token()
		for i := range 2 {
			if got := send(h, form(token)).Header().Get("Cache-Control"); got != "no-store" {
				t.Errorf("stream %t, request %d: %q", stream, i, got)
			}
		}
	}
}

// A field never gives back what is spent.
func TestFieldAfterCommit(t *testing.T) {
	t.Parallel()
	for _, first := range []bool{true, false} {
		var opts []guard.Option
		if first {
			opts = append(opts, guard.CommitFirst())
		}
		s := newService(t, opts...)
		h := s.guard.Replay(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !first {
				s.tokend.LoseReplies(3)
				if err := guard.Commit(r.Context()); err == nil {
					t.Error("no error")
				}
			}
			w.WriteHeader(http.StatusUnprocessableEntity)
			io.WriteString(w, guard.Token(r.Context()))
		}))
		token := s.token()
		w := send(h, form(token))
		if got := w.Body.String(); w.Code != 422 || got == token || s.state(got) != client.StateIssued {
			t.Errorf("CommitFirst %t: %d %q", first, w.Code, got)
		}
	}
}

// What was completed elsewhere is no answer of this service's, and gets no header of it that
// it would not keep.
func TestForeignResults(t *testing.T) {
	t.Parallel()
	s := newService(t, guard.Headers("X-Total"))
	h := s.guard.Replay(http.HandlerFunc(s.run))
	complete := func(res client.Result) string {
		token := s.token()
		cl, _, err := s.forms.Client().Claim(t.Context(), s.forms.Token(user, token))
		if err != nil {
			t.Fatal(err)
		}
		if err := cl.Complete(t.Context(), res); err != nil {
			t.Fatal(err)
		}
		return token
	}
	w := send(h, form(complete(client.Result{Status: 201, Body: []byte("x"), Header: map[string]string{
		"location": "/orders/1", "X-Total": "1", "Set-Cookie": "session=other", "Transfer-Encoding": "chunked", "X-Other": "1",
	}})))
	wantAnswer(t, w, 201, "x")
	if w.Header().Get("Location") != "/orders/1" || w.Header().Get("X-Total") != "1" {
		t.Errorf("header %v", w.Header())
	}
	for _, name := range []string{"Set-Cookie", "Transfer-Encoding", "X-Other"} {
		if w.Header().Get(name) != "" {
			t.Errorf("header %v", w.Header())
		}
	}
	for _, status := range []int{100, 101, 199} {
		wantProblem(t, send(h, form(complete(client.Result{Status: status}))), 409, wire.CodeTokenUsed, client.NextStop)
	}
	s.wantRuns(0)
}

// Where an answer could not be handed on because its commit failed, a later commit does not
// mend it: the handler's context has ended, and its sender is told that nothing was done.
func TestCommitAfterBrokenAnswer(t *testing.T) {
	t.Parallel()
	s := newService(t, guard.ResultLimit(10))
	h := s.guard.Replay(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.tokend.BadGateway(3)
		_, err := io.WriteString(w, strings.Repeat("x", 20))
		if again := guard.Commit(r.Context()); err == nil || !errors.Is(again, err) {
			t.Errorf("Write: %v, Commit: %v", err, again)
		}
		if _, again := io.WriteString(w, strings.Repeat("x", 20)); !errors.Is(again, err) {
			t.Errorf("Write: %v, then %v", err, again)
		}
	}))
	token := s.token()
	wantProblem(t, send(h, form(token)), 503, wire.CodeStoreUnavailable, client.NextWait)
	s.wantState(token, client.StateIssued)
}

// A commit that was carried out and not heard of is not logged as if nothing had been.
func TestUnheardCommitIsLogged(t *testing.T) {
	t.Parallel()
	s := newService(t)
	h := s.guard.Replay(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.tokend.LoseReplies(3)
		if err := guard.Commit(r.Context()); err == nil {
			t.Error("no error")
		}
	}))
	wantProblem(t, send(h, form(s.token())), 503, wire.CodeOutcomeUnknown, client.NextVerify)
	s.wantEvents(guard.EventNotReleased)
	if got := s.log.String(); strings.Contains(got, "nothing was done") || !strings.Contains(got, "the claim is committed") {
		t.Errorf("logged %s", got)
	}
}
