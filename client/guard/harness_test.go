package guard_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"example.com/tokend/client"
	"example.com/tokend/client/clienttest"
	"example.com/tokend/client/guard"
	"example.com/tokend/httpapi/wire"
)

func TestMain(m *testing.M) {
	if point := os.Getenv(crashPoint); point != "" {
		crashAt(point)
		return
	}
	goleak.VerifyTestMain(m)
}

const (
	user    = "alice"
	purpose = "order.create"
)

// sessionUser returns who is logged in.
func sessionUser(r *http.Request) string { return r.Header.Get("X-Test-User") }

// service is a form service on a tokend of its own.
type service struct {
	*testing.T
	tokend *clienttest.Server
	forms  client.Purpose
	guard  *guard.Guard
	log    *lines

	mu     sync.Mutex
	events []guard.Event
	runs   int
}

func newService(t *testing.T, opts ...guard.Option) *service {
	t.Helper()
	return newServiceOn(t, clienttest.New(t), opts...)
}

func newServiceOn(t *testing.T, tokend *clienttest.Server, opts ...guard.Option) *service {
	t.Helper()
	s := &service{T: t, tokend: tokend, forms: tokend.Client(client.MaxTries(3)).Purpose(purpose), log: new(lines)}
	s.guard = guard.New(s.forms, append([]guard.Option{
		guard.User(sessionUser), guard.Logger(slog.New(slog.NewJSONHandler(s.log, nil))), guard.Observe(s.observe),
	}, opts...)...)
	return s
}

func (s *service) observe(e guard.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, e)
}

// ran counts a run of the handler.
func (s *service) ran() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs++
	return s.runs
}

func (s *service) wantRuns(want int) {
	s.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.runs != want {
		s.Errorf("the handler did its work %d times, want %d", s.runs, want)
	}
}

// wantEvents wants these kinds, whatever was refused besides.
func (s *service) wantEvents(want ...guard.Kind) {
	s.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	var got []guard.Kind
	for _, e := range s.events {
		if e.Kind != guard.EventRefused {
			got = append(got, e.Kind)
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		s.Errorf("events %v, want %v", got, want)
	}
}

// token returns a live token of user.
func (s *service) token() string {
	s.Helper()
	t, err := s.forms.Issue(s.Context(), user)
	if err != nil {
		s.Fatal(err)
	}
	return t.Value
}

// state returns what tokend knows of the token.
func (s *service) state(token string) client.State {
	s.Helper()
	st, err := s.forms.Status(s.Context(), user, token)
	if err != nil {
		s.Fatal(err)
	}
	return st.State
}

func (s *service) wantState(token string, want client.State) {
	s.Helper()
	if got := s.state(token); got != want {
		s.Errorf("the token is %s, want %s", got, want)
	}
}

// work consumes, counts a run and answers 201 with the run's number.
func (s *service) work(w http.ResponseWriter, r *http.Request) {
	if err := guard.Consume(r.Context()); err != nil {
		return
	}
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, "run %d", s.ran())
}

// form returns a submission of user: a form with token, if it is not empty, and fields.
func form(token string, fields ...string) *http.Request {
	values := url.Values{}
	if token != "" {
		values.Set(guard.FieldToken, token)
	}
	for i := 0; i < len(fields); i += 2 {
		values.Add(fields[i], fields[i+1])
	}
	return submission("application/x-www-form-urlencoded", values.Encode())
}

func submission(contentType, body string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(body))
	r.Header.Set("Content-Type", contentType)
	r.Header.Set("X-Test-User", user)
	return r
}

func send(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// wantProblem holds w to a problem as the guard gives it.
func wantProblem(t *testing.T, w *httptest.ResponseRecorder, status int, code client.Code, next client.Next) wire.Problem {
	t.Helper()
	var p wire.Problem
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
		t.Fatalf("%d %v: %v in %q", w.Code, w.Header(), err, w.Body)
	}
	if w.Code != status || p.Status != status || p.Code != code || p.Next != next {
		t.Errorf("%d %+v, want %d %s %s", w.Code, p, status, code, next)
	}
	if p.Title == "" || p.Detail == "" || p.Type != "/problems/"+string(code) {
		t.Errorf("a problem without words: %+v", p)
	}
	if w.Header().Get("Content-Type") != wire.TypeProblem || w.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("header %v", w.Header())
	}
	if (next == client.NextWait) != (w.Header().Get("Retry-After") != "") {
		t.Errorf("Retry-After is %q for %s", w.Header().Get("Retry-After"), next)
	}
	return p
}

func wantAnswer(t *testing.T, w *httptest.ResponseRecorder, status int, body string) {
	t.Helper()
	if w.Code != status || w.Body.String() != body {
		t.Errorf("%d %q, want %d %q", w.Code, w.Body, status, body)
	}
}

// lines is a log.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
