package guard_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"example.com/tokend/client"
	"example.com/tokend/client/clienttest"
	"example.com/tokend/client/guard"
	"example.com/tokend/httpapi/wire"
)

// keyed returns a submission of user's with a key.
func keyed(key, body string) *http.Request {
	r := submission("application/json", body)
	r.Header.Set("Idempotency-Key", key)
	return r
}

// run counts a run and answers 201 with its number.
func (s *service) run(w http.ResponseWriter, r *http.Request) {
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, "run %d", s.ran())
}

// wantReplay holds w to the first answer.
func wantReplay(t *testing.T, w, first *httptest.ResponseRecorder) {
	t.Helper()
	if w.Code != first.Code || w.Body.String() != first.Body.String() || w.Header().Get("Idempotent-Replayed") != "true" {
		t.Errorf("%d %v %q, want %d %q replayed", w.Code, w.Header(), w.Body, first.Code, first.Body)
	}
	if first.Header().Get("Idempotent-Replayed") != "" {
		t.Error("the first answer says that it is a replay")
	}
}

func TestReplay(t *testing.T) {
	t.Parallel()
	s := newService(t)
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if guard.Fence(r.Context()) != 1 || guard.Ref(r.Context()) == "" {
			t.Errorf("fence %d, ref %q", guard.Fence(r.Context()), guard.Ref(r.Context()))
		}
		if data, err := io.ReadAll(r.Body); len(data) == 0 || err != nil {
			t.Errorf("the handler read %q, %v", data, err)
		}
		s.run(w, r)
	})
	token := s.token()
	byToken, byKey := s.guard.Replay(h), s.guard.Replay(h, guard.IdempotencyKey())
	first := send(byToken, form(token))
	wantAnswer(t, first, http.StatusCreated, "run 1")
	wantReplay(t, send(byToken, form(token)), first)
	first = send(byKey, keyed("k1", "{}"))
	wantAnswer(t, first, http.StatusCreated, "run 2")
	wantReplay(t, send(byKey, keyed("k1", "{}")), first)
	wantAnswer(t, send(byKey, keyed("k2", "{}")), http.StatusCreated, "run 3")
	s.wantState(token, "completed")
	s.wantEvents(guard.EventReplayed, guard.EventReplayed)
}

// What an answer means is replayed byte for byte, and nothing that belongs to one exchange.
func TestReplayedAnswers(t *testing.T) {
	t.Parallel()
	s := newService(t, guard.IdempotencyKey(), guard.Headers("x-total", "X-List"))
	binary := string([]byte{0, 0xff, '\r', '\n', 0xc3, 0x28})
	tests := map[string]http.HandlerFunc{
		"created": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "/orders/ä?a=b")
			w.WriteHeader(http.StatusCreated)
		},
		"see other":  func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/orders/1", http.StatusSeeOther) },
		"found":      func(w http.ResponseWriter, r *http.Request) { w.Header().Set("Location", "x"); w.WriteHeader(302) },
		"no content": func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusNoContent) },
		"nothing":    func(w http.ResponseWriter, r *http.Request) {},
		"empty":      func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusOK) },
		"csv": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/csv; charset=utf-8")
			w.Header().Set("Content-Disposition", `attachment; filename="a.csv"`)
			io.WriteString(w, "a,b\r\n1,2\r\n")
		},
		"guessed": func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "<html>") },
		"binary":  func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, binary) },
		"untyped": func(w http.ResponseWriter, r *http.Request) {
			w.Header()["Content-Type"] = nil
			io.WriteString(w, "<html>")
		},
		"headers": func(w http.ResponseWriter, r *http.Request) {
			for _, name := range []string{"X-Total", "X-List", "X-Other", "Etag", "Set-Cookie", "Date", "X-Request-Id", "Www-Authenticate"} {
				w.Header().Set(name, name)
			}
			w.Header().Add("X-List", "second")
			w.Header().Set("Content-Length", "7") // which is not so
			io.WriteString(w, "ok")
			w.Header().Set("X-Total", "too late")
		},
	}
	mux := http.NewServeMux()
	for name, f := range tests {
		mux.Handle("/"+strings.ReplaceAll(name, " ", "-"), s.guard.Replay(f))
	}
	srv := httptest.NewServer(mux)
	defer srv.Close()
	c := srv.Client()
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	for name := range tests {
		var answers [2]string
		for i := range answers {
			r, err := http.NewRequest(http.MethodPost, srv.URL+"/"+strings.ReplaceAll(name, " ", "-"), strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("X-Test-User", user)
			r.Header.Set("Idempotency-Key", "k1")
			resp, err := c.Do(r)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			body, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if got := resp.Header.Get("Idempotent-Replayed"); (got == "true") != (i == 1) {
				t.Errorf("%s, request %d: Idempotent-Replayed %q", name, i, got)
			}
			if name == "headers" && i == 1 && (resp.Header.Get("Set-Cookie")+resp.Header.Get("X-Request-Id")+resp.Header.Get("Www-Authenticate")+resp.Header.Get("X-Other")) != "" {
				t.Errorf("replayed %v", resp.Header)
			}
			h := resp.Header
			answers[i] = fmt.Sprintf("%d %q %d", resp.StatusCode, body, resp.ContentLength)
			for _, k := range []string{"Content-Type", "Content-Disposition", "Location", "Etag", "X-Total", "X-List"} {
				answers[i] += fmt.Sprintf(" %s=%q", k, strings.Join(h.Values(k), ", "))
			}
		}
		if answers[0] != answers[1] {
			t.Errorf("%s: first\n%s, then\n%s", name, answers[0], answers[1])
		}
	}
}

// 2xx and 3xx are kept; 4xx and 5xx run again, unless the handler has committed or an option
// says otherwise.
func TestWhatIsKept(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		status int
		when   string // what the handler does
		opts   []guard.Option
		kept   bool
	}{
		{200, "", nil, true},
		{303, "", nil, true},
		{304, "", nil, true},
		{400, "", nil, false},
		{422, "", nil, false},
		{499, "", nil, false},
		{500, "", nil, false},
		{503, "", nil, false},
		{503, "", []guard.Option{guard.Keep5xx()}, true},
		{422, "", []guard.Option{guard.Keep5xx()}, false},
		{200, "commit", nil, true},
		{402, "commit", nil, true},
		{500, "commit", nil, true},
		{422, "", []guard.Option{guard.CommitFirst()}, true},
		{500, "", []guard.Option{guard.CommitFirst()}, true},
		{200, "release", nil, false},
		{500, "release", []guard.Option{guard.Keep5xx()}, false},
	} {
		s := newService(t, tt.opts...)
		h := s.guard.Replay(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n := s.ran()
			switch tt.when {
			case "commit":
				if err := guard.Commit(r.Context()); err != nil {
					t.Error(err)
				}
				if err := guard.Release(r.Context()); !errors.Is(err, client.ErrClaimCommitted) {
					t.Errorf("Release after Commit: %v", err)
				}
			case "release":
				if err := guard.Release(r.Context()); err != nil {
					t.Error(err)
				}
				if err := guard.Commit(r.Context()); err == nil {
					t.Error("Commit after Release")
				}
			}
			w.WriteHeader(tt.status)
			if tt.status != 304 {
				fmt.Fprint(w, n)
			}
		}))
		token := s.token()
		first := send(h, form(token))
		again := send(h, form(token))
		if first.Code != tt.status || again.Code != tt.status || (again.Header().Get("Idempotent-Replayed") != "") != tt.kept {
			t.Errorf("%d %s %d: %d, then %d %v", tt.status, tt.when, len(tt.opts), first.Code, again.Code, again.Header())
		}
		if s.runs != 1 && tt.kept || s.runs != 2 && !tt.kept {
			t.Errorf("%d %s: %d runs", tt.status, tt.when, s.runs)
		}
	}
}

// A form with mistakes keeps its token under Replay too, with another body behind it.
func TestReplayMended(t *testing.T) {
	t.Parallel()
	s := newService(t)
	for name, answer := range map[string]func(http.ResponseWriter, *http.Request){
		"200": func(w http.ResponseWriter, r *http.Request) { guard.Release(r.Context()) },
		"422": func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusUnprocessableEntity) },
	} {
		s.runs = 0
		h := s.guard.Replay(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.PostFormValue("item") == "" {
				answer(w, r)
				io.WriteString(w, string(guard.Field(r.Context())))
				return
			}
			s.run(w, r)
		}))
		token := s.token()
		w := send(h, form(token))
		if !strings.Contains(w.Body.String(), token) || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %v %s", name, w.Header(), w.Body)
		}
		wantAnswer(t, send(h, form(token, "item", "tea")), http.StatusCreated, "run 1")
		wantAnswer(t, send(h, form(token, "item", "tea")), http.StatusCreated, "run 1")
	}
	// What is kept shows no token that is spent.
	h := s.guard.Replay(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, guard.Token(r.Context())) }))
	token := s.token()
	if got := send(h, form(token)).Body.String(); got == token || s.state(got) != client.StateIssued {
		t.Errorf("the page carries %q", got)
	}
}

func TestReplayPanics(t *testing.T) {
	t.Parallel()
	for _, committed := range []bool{false, true} {
		for _, value := range []any{"boom", http.ErrAbortHandler, nil} { // nil ends the goroutine
			s := newService(t)
			fail := true
			h := s.guard.Replay(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if committed {
					guard.Commit(r.Context())
				}
				if !fail {
					s.run(w, r)
					return
				}
				io.WriteString(w, "half of")
				if value == nil {
					runtime.Goexit()
				}
				panic(value)
			}), guard.Wait(0))
			token := s.token()
			w := httptest.NewRecorder()
			done := make(chan any)
			go func() {
				defer close(done)
				defer func() {
					if got := recover(); got != value {
						t.Errorf("recovered %v, want %v", got, value)
					}
				}()
				h.ServeHTTP(w, form(token))
			}()
			<-done
			if w.Body.Len() != 0 {
				t.Errorf("said %s", w.Body)
			}
			fail = false
			if !committed {
				wantAnswer(t, send(h, form(token)), http.StatusCreated, "run 1")
				continue
			}
			wantProblem(t, send(h, form(token)), 409, wire.CodeRequestInProgress, client.NextWait)
			s.tokend.Advance(31 * time.Second)
			wantProblem(t, send(h, form(token)), 409, wire.CodeClaimUnfinished, client.NextVerify)
			s.wantRuns(0)
		}
	}
}

// at has requests of one path noticed: each sends on the channel when it begins.
type at struct {
	path string
	seen chan struct{}
	next http.RoundTripper
}

func (a at) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Path == a.path {
		a.seen <- struct{}{}
	}
	return a.next.RoundTrip(r)
}

// A repeat waits while the first one is at work, and gets its answer; or what the first one
// left undone.
func TestRepeatWaits(t *testing.T) {
	t.Parallel()
	for _, status := range []int{201, 500} {
		tokend := clienttest.New(t)
		seen := make(chan struct{}, 10)
		transport := new(http.Transport)
		defer transport.CloseIdleConnections()
		forms := tokend.Client(client.HTTPClient(&http.Client{Transport: at{wire.PathClaims, seen, transport}})).Purpose(purpose)
		s := newServiceOn(t, tokend)
		token := s.token()
		began, goOn := make(chan struct{}), make(chan struct{})
		var once sync.Once
		h := guard.New(forms, guard.User(sessionUser)).Replay(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n := s.ran()
			if n == 1 {
				once.Do(func() { close(began) })
				<-goOn
				w.WriteHeader(status)
			}
			fmt.Fprint(w, n)
		}))
		answers := make(chan *httptest.ResponseRecorder, 2)
		go func() { answers <- send(h, form(token)) }()
		<-began
		<-seen
		go func() { answers <- send(h, form(token)) }()
		<-seen
		<-seen // the second one, which waits
		close(goOn)
		first, second := <-answers, <-answers
		if first.Header().Get("Idempotent-Replayed") != "" || first.Code == 200 {
			first, second = second, first
		}
		if status == 201 {
			wantReplay(t, second, first)
			s.wantRuns(1)
			continue
		}
		wantAnswer(t, second, 200, "2")
	}
}

// While the first one is at work another body is refused at once, and a repeat that does not
// wait is told when to come again.
func TestInProgress(t *testing.T) {
	t.Parallel()
	s := newService(t, guard.IdempotencyKey())
	var inner http.Handler
	h := s.guard.Replay(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		wantProblem(t, send(inner, keyed("k1", `{"a":1}`)), 409, wire.CodeRequestInProgress, client.NextWait)
		wantProblem(t, send(inner, keyed("k1", `{"a":2}`)), 422, wire.CodeIdempotencyKeyReused, client.NextFix)
		s.run(w, r)
	}))
	inner = s.guard.Replay(http.HandlerFunc(s.run), guard.Wait(0))
	wantAnswer(t, send(h, keyed("k1", `{"a":1}`)), http.StatusCreated, "run 1")
	wantProblem(t, send(inner, keyed("k1", `{"a":2}`)), 422, wire.CodeIdempotencyKeyReused, client.NextFix)
	older := s.guard.Replay(http.HandlerFunc(s.run), guard.ReusedConflict())
	wantProblem(t, send(older, keyed("k1", `{"a":2}`)), 409, wire.CodeIdempotencyKeyReused, client.NextFix)
}

func TestReplayAtTheSameTime(t *testing.T) {
	t.Parallel()
	s := newService(t)
	h := s.guard.Replay(http.HandlerFunc(s.run))
	for round := range 5 {
		token := s.token()
		want := fmt.Sprintf("run %d", round+1)
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() { wantAnswer(t, send(h, form(token)), http.StatusCreated, want) })
		}
		wg.Wait()
		s.wantRuns(round + 1)
	}
}

// A key is good for one user, method and path; parts do not run into each other.
func TestKeysAreScoped(t *testing.T) {
	t.Parallel()
	s := newService(t, guard.IdempotencyKey())
	h := s.guard.Replay(http.HandlerFunc(s.run))
	n := 0
	for _, r := range []struct{ user, method, path, key string }{
		{"alice", "POST", "/a", "k"}, {"bob", "POST", "/a", "k"}, {"alice", "PUT", "/a", "k"},
		{"alice", "POST", "/b", "k"}, {"alice", "POST", "/a", "K"}, {"alice", "POST", "/ak", "k"}, {"alice", "POST", "/a", "kk"},
		{"alice", "POST", "/a%2Fb", "k"}, {"alice", "POST", "/a/b", "k"}, {"alice", "PATCH", "/a", "k"}, {"alice", "DELETE", "/a", "k"},
	} {
		req := httptest.NewRequest(r.method, r.path, strings.NewReader("{}"))
		req.Header.Set("X-Test-User", r.user)
		req.Header.Set("Idempotency-Key", r.key)
		n++
		wantAnswer(t, send(h, req), http.StatusCreated, fmt.Sprint("run ", n))
	}
}

func TestKeyMissing(t *testing.T) {
	t.Parallel()
	s := newService(t)
	byKey := s.guard.Replay(http.HandlerFunc(s.run), guard.IdempotencyKey())
	for _, key := range []string{"", "a b", "ä", strings.Repeat("x", 256)} {
		r := keyed(key, "{}")
		p := wantProblem(t, send(byKey, r), 400, wire.CodeInvalidRequest, client.NextFix)
		if p.Field != "Idempotency-Key" {
			t.Errorf("field %q", p.Field)
		}
	}
	none, twice := submission("application/json", "{}"), keyed("a", "{}")
	twice.Header.Add("Idempotency-Key", "b")
	wantProblem(t, send(byKey, none), 400, wire.CodeInvalidRequest, client.NextFix)
	wantProblem(t, send(byKey, twice), 400, wire.CodeInvalidRequest, client.NextFix)
	wantProblem(t, send(s.guard.Replay(http.HandlerFunc(s.run)), form("")), 400, guard.CodeTokenMissing, client.NextReissue)
	// A key does not stand in for a token.
	wantProblem(t, send(s.guard.Replay(http.HandlerFunc(s.run)), keyed("k", "{}")), 400, guard.CodeTokenMissing, client.NextReissue)
	s.wantRuns(0)
	optional := s.guard.Replay(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := errors.Join(guard.Commit(r.Context()), guard.Release(r.Context())); err != nil {
			t.Error(err)
		}
		s.run(w, r)
	}), guard.IdempotencyKey(), guard.Optional())
	for i := range 2 {
		wantAnswer(t, send(optional, submission("application/json", "{}")), http.StatusCreated, fmt.Sprint("run ", i+1))
	}
}

// A callback without a login: its event is the key, and whoever it belongs to the user. What
// changes between resends is not part of the digest.
func TestCallback(t *testing.T) {
	t.Parallel()
	s := newService(t)
	type event struct {
		ID, Account string
		Amount      json.Number
		Sent        int
	}
	read := func(body []byte) (e event, err error) { return e, json.Unmarshal(body, &e) }
	h := s.guard.Replay(http.HandlerFunc(s.run),
		guard.KeyFunc(func(r *http.Request, body []byte) (string, error) { e, err := read(body); return e.ID, err }),
		guard.UserFunc(func(r *http.Request, body []byte) (string, error) {
			e, err := read(body)
			if e.Account == "" {
				return "", err
			}
			return "stripe:" + e.Account, err
		}),
		guard.DigestFunc(func(r *http.Request, body []byte) ([]byte, error) { e, err := read(body); return []byte(e.Amount), err }))
	callback := func(body string) *http.Request { return submission("application/json", body) }
	first := send(h, callback(`{"ID":"e1","Account":"a1","Amount":1,"Sent":1}`))
	wantAnswer(t, first, http.StatusCreated, "run 1")
	wantReplay(t, send(h, callback(`{"ID":"e1","Account":"a1","Amount":1,"Sent":2}`)), first)
	wantAnswer(t, send(h, callback(`{"ID":"e1","Account":"a2","Amount":1,"Sent":2}`)), http.StatusCreated, "run 2")
	wantProblem(t, send(h, callback(`{"ID":"e1","Account":"a1","Amount":2}`)), 422, wire.CodeIdempotencyKeyReused, client.NextFix)
	wantProblem(t, send(h, callback(`{"Account":"a1"}`)), 400, wire.CodeInvalidRequest, client.NextFix)
	wantProblem(t, send(h, callback(`{"ID":"e1"}`)), 401, wire.CodeUnauthenticated, client.NextFix)
	wantProblem(t, send(h, callback(`{`)), 400, wire.CodeInvalidRequest, client.NextFix)
}

// Each of these is another request than the first, or the same one.
func TestDigest(t *testing.T) {
	t.Parallel()
	type request struct{ query, contentType, body string }
	jsonType, formType := "application/json", "application/x-www-form-urlencoded"
	multi := func(boundary string, nameValue ...string) request {
		contentType, body := parts(t, boundary, nameValue...)
		return request{"", contentType, body}
	}
	long := strings.Repeat("x", 1<<20-10)
	anyOrder, without := []guard.Option{guard.JSONAnyOrder()}, []guard.Option{guard.DigestWithout("csrf")}
	for _, tt := range []struct {
		name          string
		first, second request
		opts          []guard.Option
		same          bool
	}{
		{"query", request{"a=1", jsonType, "{}"}, request{"a=2", jsonType, "{}"}, nil, false},
		{"type", request{"", jsonType, "{}"}, request{"", "text/plain", "{}"}, nil, false},
		{"type's parameters", request{"", jsonType, "{}"}, request{"", jsonType + "; charset=utf-8", "{}"}, nil, true},
		{"no body", request{"", jsonType, ""}, request{"", jsonType, ""}, nil, true},
		{"the last byte of many", request{"", "text/plain", long + "a"}, request{"", "text/plain", long + "b"}, nil, false},
		{"big numbers", request{"", jsonType, `{"n":9007199254740993}`}, request{"", jsonType, `{"n":9007199254740992}`}, nil, false},
		{"big numbers in any order", request{"", jsonType, `{"n":9007199254740993}`}, request{"", jsonType, `{"n":9007199254740992}`}, anyOrder, false},
		{"members", request{"", jsonType, `{"a":1,"b":2}`}, request{"", jsonType, `{"b":2,"a":1}`}, nil, false},
		{"members in any order", request{"", jsonType, `{"a":1,"b":{"c":[1,2],"d":"\""}}`}, request{"", jsonType, `{ "b":{"d":"\"","c":[1, 2]}, "a":1}`}, anyOrder, true},
		{"elements in another order", request{"", jsonType, `[1,2]`}, request{"", jsonType, `[2,1]`}, anyOrder, false},
		{"a member twice", request{"", jsonType, `{"a":1,"a":2}`}, request{"", jsonType, `{"a":2}`}, anyOrder, false},
		{"a member twice, swapped", request{"", jsonType, `{"a":1,"a":2}`}, request{"", jsonType, `{"a":2,"a":1}`}, anyOrder, false},
		{"invalid UTF-8", request{"", jsonType, "{\"a\":\"\xff\"}"}, request{"", jsonType, "{\"a\":\"\xfe\"}"}, anyOrder, false},
		{"lone surrogates", request{"", jsonType, `{"a":"\ud800"}`}, request{"", jsonType, `{"a":"\ud801"}`}, anyOrder, false},
		{"not JSON", request{"", jsonType, `{"a":1,}`}, request{"", jsonType, `{"a":1 ,}`}, anyOrder, false},
		{"boundary", multi("B1", "a", "1", "f/x.txt", "2"), multi("B2", "a", "1", "f/x.txt", "2"), nil, true},
		{"part's value", multi("B", "a", "1"), multi("B", "a", "2"), nil, false},
		{"part's name", multi("B", "a", "1"), multi("B", "b", "1"), nil, false},
		{"part's file name", multi("B", "f/a", "1"), multi("B", "f/b", "1"), nil, false},
		{"parts' lengths", multi("B", "a", "12", "b", "3"), multi("B", "a", "1", "b", "23"), nil, false},
		{"another part", multi("B", "a", "1"), multi("B", "a", "1", "a", "1"), nil, false},
		{"field", request{"", formType, "a=1&csrf=x"}, request{"", formType, "a=1&csrf=y"}, nil, false},
		{"field that is left out", request{"", formType, "a=1&csrf=x"}, request{"", formType, "a=1&%63srf=y"}, without, true},
		{"field beside it", request{"", formType, "a=1&csrf=x"}, request{"", formType, "a=2&csrf=x"}, without, false},
		{"part that is left out", multi("B", "a", "1", "csrf", "x"), multi("B", "a", "1", "csrf", "y"), without, true},
		{"part beside it", multi("B", "a", "1", "csrf", "x"), multi("B", "a", "2", "csrf", "x"), without, false},
	} {
		s := newService(t, append([]guard.Option{guard.IdempotencyKey(), guard.BodyLimit(1 << 20)}, tt.opts...)...)
		h := s.guard.Replay(http.HandlerFunc(s.run))
		ask := func(q request) *httptest.ResponseRecorder {
			r := submission(q.contentType, q.body)
			r.URL.RawQuery = q.query
			r.Header.Set("Idempotency-Key", "k")
			return send(h, r)
		}
		wantAnswer(t, ask(tt.first), http.StatusCreated, "run 1")
		want := 422
		if tt.same {
			want = 201
		}
		if w := ask(tt.second); w.Code != want {
			t.Errorf("%s: %d %s, want %d", tt.name, w.Code, w.Body, want)
		}
		s.wantRuns(1)
	}
}

// A body is read whole or not at all.
func TestReplayBodies(t *testing.T) {
	t.Parallel()
	s := newService(t, guard.IdempotencyKey(), guard.BodyLimit(100))
	h := s.guard.Replay(http.HandlerFunc(s.run))
	big := keyed("k", strings.Repeat("x", 101))
	wantProblem(t, send(h, big), 413, wire.CodeBodyTooLarge, client.NextFix)
	chunked := keyed("k", strings.Repeat("x", 101))
	chunked.ContentLength = -1
	wantProblem(t, send(h, chunked), 413, wire.CodeBodyTooLarge, client.NextFix)
	limited := keyed("k", strings.Repeat("x", 50))
	limited.Body = http.MaxBytesReader(nil, limited.Body, 10)
	wantProblem(t, send(h, limited), 413, wire.CodeBodyTooLarge, client.NextFix)
	cut := keyed("k", "xx")
	cut.Body = io.NopCloser(io.MultiReader(strings.NewReader("x"), errReader{}))
	wantProblem(t, send(h, cut), 400, wire.CodeInvalidRequest, client.NextFix)
	_, body := parts(t, "B", "a", "b")
	for _, broken := range []*http.Request{
		submission("multipart/form-data; boundary=B", body[:len(body)/2]),
		submission("multipart/form-data; boundary=B", body[:len(body)-6]),
		submission("multipart/form-data", "x"),
	} {
		broken.Header.Set("Idempotency-Key", "k")
		wantProblem(t, send(h, broken), 400, wire.CodeInvalidRequest, client.NextFix)
	}
	gone := keyed("k", "xx")
	io.Copy(io.Discard, gone.Body)
	wantProblem(t, send(h, gone), 500, wire.CodeInternal, client.NextWait)
	wantAnswer(t, send(h, keyed("k", strings.Repeat("x", 100))), http.StatusCreated, "run 1")
}

// Something before the guard, against cross-site requests say, may have parsed the form: what
// it has found stands for the body, files and all.
func TestReplayParsedBefore(t *testing.T) {
	t.Parallel()
	urlencoded := func(body string) func() *http.Request {
		return func() *http.Request { return submission("application/x-www-form-urlencoded", body) }
	}
	multi := func(nameValue ...string) func() *http.Request {
		return func() *http.Request { return submission(parts(t, "B", nameValue...)) }
	}
	for name, tt := range map[string]struct {
		first, second func() *http.Request
		same          bool
	}{
		"same":             {urlencoded("a=1&b=2&csrf=x"), urlencoded("b=2&a=1&csrf=y"), true},
		"value":            {urlencoded("a=1&b=2"), urlencoded("a=1&b=3"), false},
		"values":           {urlencoded("a=1&a=2"), urlencoded("a=2&a=1"), false},
		"name and value":   {urlencoded("a=value&b=1"), urlencoded("a=b&value=1"), false},
		"the same parts":   {multi("a", "1", "f/x", "2", "csrf", "x"), multi("a", "1", "f/x", "2", "csrf", "y"), true},
		"part":             {multi("a", "1", "f/x", "2"), multi("a", "2", "f/x", "2"), false},
		"file":             {multi("a", "1", "f/x", "2"), multi("a", "1", "f/x", "3"), false},
		"file's name":      {multi("a", "1", "f/x", "2"), multi("a", "1", "f/y", "2"), false},
		"files one by one": {multi("f/x", "2", "f/y", "3"), multi("f/x", "23", "f/y", ""), false},
	} {
		s := newService(t, guard.IdempotencyKey(), guard.DigestWithout("csrf"))
		h := s.guard.Replay(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if len(r.PostForm) == 0 && r.MultipartForm == nil {
				t.Errorf("%s: the form is gone", name)
			}
			s.run(w, r)
		}))
		want := 422
		if tt.same {
			want = 201
		}
		for i, make := range []func() *http.Request{tt.first, tt.second} {
			r := make()
			r.Header.Set("Idempotency-Key", "k")
			r.ParseMultipartForm(1 << 20)
			if w := send(h, r); i == 0 && w.Code != 201 || i == 1 && w.Code != want {
				t.Errorf("%s, request %d: %d %s, want %d", name, i, w.Code, w.Body, want)
			}
		}
		s.wantRuns(1)
	}
	s := newService(t)
	r := form(s.token())
	r.ParseForm()
	wantAnswer(t, send(s.guard.Replay(http.HandlerFunc(s.run)), r), http.StatusCreated, "run 1")
}

type errReader struct{}

func (errReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestReplayRefusals(t *testing.T) {
	t.Parallel()
	s := newService(t)
	h := s.guard.Replay(http.HandlerFunc(s.run))
	foreign, err := s.forms.Issue(t.Context(), "bob")
	if err != nil {
		t.Fatal(err)
	}
	used, expired := s.token(), s.token()
	if _, err := s.forms.Consume(t.Context(), user, used); err != nil {
		t.Fatal(err)
	}
	wantProblem(t, send(h, form("ott_x")), 400, wire.CodeTokenInvalid, client.NextStop)
	wantProblem(t, send(h, form(foreign.Value)), 403, wire.CodeWrongUser, client.NextStop)
	wantProblem(t, send(h, form(used)), 409, wire.CodeTokenUsed, client.NextStop)
	s.tokend.Advance(5 * time.Minute)
	wantProblem(t, send(h, form(expired)), 410, wire.CodeTokenExpired, client.NextReissue)
	nobody := form(s.token())
	nobody.Header.Del("X-Test-User")
	wantProblem(t, send(h, nobody), 401, wire.CodeUnauthenticated, client.NextFix)
	token := s.token()
	s.tokend.Down(true)
	wantProblem(t, send(h, form(token)), 503, wire.CodeStoreUnavailable, client.NextWait)
	s.wantRuns(0)
	open := s.guard.Replay(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := guard.Commit(r.Context()); err != nil || guard.Fence(r.Context()) != 0 {
			t.Error(err)
		}
		s.run(w, r)
	}), guard.FailOpen())
	wantAnswer(t, send(open, form(token)), http.StatusCreated, "run 1")
	s.tokend.Down(false)
	wantAnswer(t, send(h, form(token)), http.StatusCreated, "run 2")
	s.tokend.Close()
	wantProblem(t, send(h, form(token)), 503, wire.CodeStoreUnavailable, client.NextWait)
}

// A claim that has no result, one that is completed elsewhere say, is one that was used.
func TestCompletedWithoutResult(t *testing.T) {
	t.Parallel()
	s := newService(t)
	token := s.token()
	cl, _, err := s.forms.Client().Claim(t.Context(), s.forms.Token(user, token))
	if err != nil {
		t.Fatal(err)
	}
	if err := cl.Complete(t.Context(), client.Result{}); err != nil {
		t.Fatal(err)
	}
	p := wantProblem(t, send(s.guard.Replay(http.HandlerFunc(s.run)), form(token)), 409, wire.CodeTokenUsed, client.NextStop)
	if p.Ref == "" {
		t.Error("no ref")
	}
	wantProblem(t, send(s.guard.Once(http.HandlerFunc(s.work)), form(token)), 409, wire.CodeTokenUsed, client.NextStop)
}

// orderWriter notes what the token's state was when the first byte came.
type orderWriter struct {
	*httptest.ResponseRecorder
	first func()
	once  sync.Once
}

func (w *orderWriter) WriteHeader(status int) {
	w.once.Do(w.first)
	w.ResponseRecorder.WriteHeader(status)
}

// What becomes of the claim is settled before anybody hears of it.
func TestCompletePrecedesTheFirstByte(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 100)
	for name, tt := range map[string]struct {
		h    http.HandlerFunc
		want string
	}{
		"kept":      {func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "ok") }, "completed"},
		"empty":     {func(w http.ResponseWriter, r *http.Request) {}, "completed"},
		"released":  {func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(422) }, "issued"},
		"failed":    {func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(500) }, "issued"},
		"too long":  {func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, long) }, "claimed, committed"},
		"flushed":   {func(w http.ResponseWriter, r *http.Request) { w.(http.Flusher).Flush() }, "claimed, committed"},
		"long 422":  {func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(422); io.WriteString(w, long) }, "issued"},
		"long mend": {func(w http.ResponseWriter, r *http.Request) { guard.Release(r.Context()); io.WriteString(w, long) }, "issued"},
	} {
		s := newService(t)
		token := s.token()
		h := s.guard.Replay(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			tt.h(w, r)
			if r.Context().Err() != nil {
				t.Errorf("%s: %v", name, context.Cause(r.Context()))
			}
		}), guard.ResultLimit(99))
		w := &orderWriter{ResponseRecorder: httptest.NewRecorder()}
		w.first = func() {
			got := string(s.state(token))
			if got == "claimed" {
				got += committedOf(t, s, token)
			}
			if got != tt.want {
				t.Errorf("%s: the token is %s when the answer begins, want %s", name, got, tt.want)
			}
		}
		h.ServeHTTP(w, form(token))
		w.once.Do(func() { t.Errorf("%s: nothing was written", name) })
	}
}

// committedOf tells whether nobody takes a claim over whose lease has ended.
func committedOf(t *testing.T, s *service, token string) string {
	t.Helper()
	s.tokend.Advance(31 * time.Second)
	_, err := s.forms.Consume(t.Context(), user, token)
	if errors.Is(err, client.ErrUnfinished) {
		return ", committed"
	}
	return fmt.Sprint(err)
}

// What is handed on as it is written is kept when it ends: whole if it fits, and without its
// body if not.
func TestStreams(t *testing.T) {
	t.Parallel()
	s := newService(t, guard.IdempotencyKey(), guard.ResultLimit(100))
	mux := http.NewServeMux()
	long := strings.Repeat("x", 60)
	replayed := func(f http.HandlerFunc) http.Handler {
		return s.guard.Replay(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.ran(); f(w, r) }))
	}
	mux.Handle("/short", replayed(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "one ")
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		io.WriteString(w, "two")
	}))
	mux.Handle("/long", replayed(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/csv")
		w.Header().Set("Location", "/x")
		io.WriteString(w, long)
		io.WriteString(w, long)
	}))
	mux.Handle("/hijack", replayed(func(w http.ResponseWriter, r *http.Request) {
		c, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		rw.WriteString("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 3\r\n\r\nraw")
		rw.Flush()
	}))
	srv := httptest.NewServer(mux)
	defer srv.Close()
	ask := func(path string) string {
		r, err := http.NewRequest(http.MethodPost, srv.URL+path, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Test-User", user)
		r.Header.Set("Idempotency-Key", "k1")
		resp, err := srv.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Error(err)
		}
		return fmt.Sprintf("%d %s %q %s", resp.StatusCode, body, resp.Header.Get(guard.HeaderBodyOmitted), resp.Header.Get("Location"))
	}
	for path, want := range map[string][2]string{
		"/short": {`200 one two "" `, `200 one two "" `},
		"/long":  {`200 ` + long + long + ` "" /x`, `200  "true" /x`},
	} {
		for i := range want {
			if got := ask(path); got != want[i] {
				t.Errorf("%s, request %d: %s, want %s", path, i, got, want[i])
			}
		}
	}
	if got := ask("/hijack"); got != `200 raw "" ` {
		t.Error(got)
	}
	for !strings.Contains(ask("/hijack"), `"code":"token_used"`) { // once its handler has returned
		if s.Failed() || s.Context().Err() != nil {
			break
		}
	}
	s.wantRuns(3)
}

// Where the result cannot be kept at once the sender gets its answer, and it is kept later.
func TestKeptLate(t *testing.T) {
	t.Parallel()
	s := newService(t, guard.RetryAtOnce())
	h := s.guard.Replay(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.tokend.Down(true)
		s.run(w, r)
	}))
	token := s.token()
	first := send(h, form(token))
	wantAnswer(t, first, http.StatusCreated, "run 1")
	s.wantEvents(guard.EventNotKept)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.guard.Drain(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("Drain: %v", err)
	}
	s.tokend.Down(false)
	if err := s.guard.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	wantReplay(t, send(h, form(token)), first)
	s.wantRuns(1)
	s.wantEvents(guard.EventNotKept, guard.EventKeptLate, guard.EventReplayed)
	if err := s.guard.Drain(t.Context()); err != nil {
		t.Error(err)
	}
}

// The same for a release: the sender can mend the form when tokend is back.
func TestReleasedLate(t *testing.T) {
	t.Parallel()
	s := newService(t, guard.RetryAtOnce())
	fail := true
	h := s.guard.Replay(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if fail {
			s.tokend.Down(true)
			w.WriteHeader(http.StatusUnprocessableEntity)
			return
		}
		s.run(w, r)
	}))
	token := s.token()
	wantAnswer(t, send(h, form(token)), 422, "")
	s.wantEvents(guard.EventNotReleased)
	s.tokend.Down(false)
	if err := s.guard.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	fail = false
	wantAnswer(t, send(h, form(token)), http.StatusCreated, "run 1")
}

// hijackable has a Hijack that nothing comes to.
type hijackable struct{ http.ResponseWriter }

func (hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return nil, nil, errors.New("this was not to be hijacked")
}

// A commit that fails stops the handler: nothing was done, and what is said depends on
// whether that is sure.
func TestCommitFails(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 200)
	for name, commit := range map[string]func(w http.ResponseWriter, r *http.Request) error{
		"commit": func(w http.ResponseWriter, r *http.Request) error { return guard.Commit(r.Context()) },
		"write": func(w http.ResponseWriter, r *http.Request) error {
			_, err := io.WriteString(w, long)
			if err == nil || r.Context().Err() == nil || !errors.Is(context.Cause(r.Context()), err) {
				t.Errorf("%v; the context: %v", err, context.Cause(r.Context()))
			}
			return err
		},
		"flush": func(w http.ResponseWriter, r *http.Request) error { return http.NewResponseController(w).Flush() },
		"hijack": func(w http.ResponseWriter, r *http.Request) error {
			_, _, err := http.NewResponseController(w).Hijack()
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t, guard.RetryAtOnce(), guard.Wait(0), guard.ResultLimit(99))
			var lose, gateway int
			guarded := s.guard.Replay(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				s.tokend.BadGateway(gateway)
				if s.tokend.LoseReplies(lose); lose < 0 {
					s.tokend.Down(true)
				}
				if err := commit(w, r); err == nil {
					t.Error("no error")
				} else if _, ok := errors.AsType[*guard.Refused](err); !ok {
					t.Errorf("error %v", err)
				}
			}))
			h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { guarded.ServeHTTP(hijackable{w}, r) })
			// All three tries of the commit are carried out, and none is heard of.
			lose = 3
			token := s.token()
			wantProblem(t, send(h, form(token)), 503, wire.CodeOutcomeUnknown, client.NextVerify)
			s.tokend.Advance(31 * time.Second)
			wantProblem(t, send(h, form(token)), 409, wire.CodeClaimUnfinished, client.NextVerify)
			// No try got further than a gateway, and the release tells so.
			lose, gateway = 0, 3
			token = s.token()
			wantProblem(t, send(h, form(token)), 503, wire.CodeStoreUnavailable, client.NextWait)
			s.wantState(token, client.StateIssued)
			gateway = 0
			// tokend is away: neither a commit nor a release, for now.
			lose = -1
			token = s.token()
			wantProblem(t, send(h, form(token)), 503, wire.CodeOutcomeUnknown, client.NextVerify)
			s.tokend.Down(false)
			if err := s.guard.Drain(t.Context()); err != nil {
				t.Error(err)
			}
			s.wantState(token, client.StateIssued)
		})
	}
}

// A run whose claim has gone to another hears of it at the commit; if it has done its work,
// the other's answer counts.
func TestSuperseded(t *testing.T) {
	t.Parallel()
	for _, commit := range []bool{true, false} {
		s := newService(t)
		var second *httptest.ResponseRecorder
		var h http.Handler
		var token string
		h = s.guard.Replay(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if guard.Fence(r.Context()) == 1 {
				s.tokend.Advance(31 * time.Second) // this one is stalled
				second = send(h, form(token))
				if commit {
					if err := guard.Commit(r.Context()); !errors.Is(err, client.ErrSuperseded) && !errors.Is(err, client.ErrClaimEnded) {
						t.Errorf("Commit: %v", err)
					}
					return
				}
				io.WriteString(w, "two at once")
				return
			}
			s.run(w, r)
		}))
		token = s.token()
		wantProblem(t, send(h, form(token)), 409, wire.CodeRequestInProgress, client.NextWait)
		wantAnswer(t, second, http.StatusCreated, "run 1")
		wantReplay(t, send(h, form(token)), second)
	}
}

// A caller that hangs up ends the context until the commit, and undoes nothing.
func TestReplayHangUp(t *testing.T) {
	t.Parallel()
	s := newService(t)
	for _, commit := range []bool{false, true} {
		ctx, hangUp := context.WithCancel(t.Context())
		h := s.guard.Replay(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if commit {
				if err := guard.Commit(r.Context()); err != nil {
					t.Error(err)
				}
			}
			hangUp()
			s.state(s.token()) // which takes longer than a context to end
			if !commit {
				<-r.Context().Done()
			} else if r.Context().Err() != nil {
				t.Error("after Commit the context ended with its caller")
			}
			w.WriteHeader(http.StatusCreated)
			io.WriteString(w, "done all the same")
		}))
		token := s.token()
		first := send(h, form(token).WithContext(ctx))
		wantReplay(t, send(h, form(token)), first)
	}
}

// Who hangs up while the claim is made leaves none behind that would block the repeat: a
// browser does so that sends a form twice.
func TestHangUpDuringClaim(t *testing.T) {
	t.Parallel()
	tokend := clienttest.New(t)
	s := newServiceOn(t, tokend)
	ctx, hangUp := context.WithCancel(t.Context())
	transport := new(http.Transport)
	defer transport.CloseIdleConnections()
	forms := tokend.Client(client.HTTPClient(&http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		resp, err := transport.RoundTrip(r.WithContext(context.WithoutCancel(r.Context())))
		hangUp()
		if err == nil && r.Context().Err() != nil { // it ends the call, too
			resp.Body.Close()
			return nil, r.Context().Err()
		}
		return resp, err
	})})).Purpose(purpose)
	h := guard.New(forms, guard.User(sessionUser), guard.Wait(0)).Replay(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	token := s.token()
	send(h, form(token).WithContext(ctx))
	wantAnswer(t, send(s.guard.Replay(http.HandlerFunc(s.run), guard.Wait(0)), form(token)), http.StatusCreated, "run 1")
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// FailOpen lets nothing through that is known to be at work: a repeat that waits while tokend
// goes away is a repeat.
func TestFailOpenWhileWaiting(t *testing.T) {
	t.Parallel()
	tokend := clienttest.New(t)
	s := newServiceOn(t, tokend)
	transport := new(http.Transport)
	defer transport.CloseIdleConnections()
	forms := tokend.Client(client.HTTPClient(&http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		if r.URL.Path == wire.PathClaims {
			body, err := io.ReadAll(r.Body)
			if err != nil || strings.Contains(string(body), `"wait"`) {
				return nil, errors.New("tokend is away")
			}
			r.Body = io.NopCloser(strings.NewReader(string(body)))
		}
		return transport.RoundTrip(r)
	})})).Purpose(purpose)
	var h http.Handler
	var token string
	h = guard.New(forms, guard.User(sessionUser), guard.FailOpen()).Replay(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.ran() == 1 {
			wantProblem(t, send(h, form(token)), 409, wire.CodeRequestInProgress, client.NextWait)
		}
	}))
	token = s.token()
	send(h, form(token))
	s.wantRuns(1)
}

// FailOpen is for outages: a repeat whose caller hangs up while it waits is none.
func TestHangUpIsNoOutage(t *testing.T) {
	t.Parallel()
	tokend := clienttest.New(t)
	seen := make(chan struct{}, 10)
	transport := new(http.Transport)
	defer transport.CloseIdleConnections()
	forms := tokend.Client(client.HTTPClient(&http.Client{Transport: at{wire.PathClaims, seen, transport}})).Purpose(purpose)
	s := newServiceOn(t, tokend)
	g := guard.New(forms, guard.User(sessionUser), guard.FailOpen(), guard.Observe(s.observe))
	token := s.token()
	var h http.Handler
	h = g.Replay(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.ran() > 1 {
			return
		}
		<-seen
		ctx, hangUp := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); send(h, form(token).WithContext(ctx)) }()
		<-seen
		<-seen
		hangUp()
		<-ended
	}))
	send(h, form(token))
	s.wantRuns(1)
	s.wantEvents()
}

func TestReplayPassThrough(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.tokend.Close()
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace} {
		r, w := httptest.NewRequest(method, "/", nil), httptest.NewRecorder()
		var same bool
		s.guard.Replay(http.HandlerFunc(func(gotW http.ResponseWriter, gotR *http.Request) {
			same = gotR == r && gotW == http.ResponseWriter(w)
			for _, err := range []error{guard.Commit(gotR.Context()), guard.Release(gotR.Context())} {
				if !errors.Is(err, guard.ErrNotGuarded) {
					t.Error(err)
				}
			}
			if guard.Fence(gotR.Context()) != 0 {
				t.Error("a fence")
			}
		})).ServeHTTP(w, r)
		if !same {
			t.Errorf("%s was touched", method)
		}
	}
}

// A repeat is answered by the guard, and so not before somebody has let its sender in.
func TestReplayAfterAuthorisation(t *testing.T) {
	t.Parallel()
	s := newService(t)
	guarded := s.guard.Replay(http.HandlerFunc(s.run))
	allowed := true
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !allowed {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		guarded.ServeHTTP(w, r)
	})
	token := s.token()
	wantAnswer(t, send(h, form(token)), http.StatusCreated, "run 1")
	allowed = false
	wantAnswer(t, send(h, form(token)), http.StatusForbidden, "")
	bob := form(token)
	bob.Header.Set("X-Test-User", "bob")
	wantProblem(t, send(guarded, bob), 403, wire.CodeWrongUser, client.NextStop)
}

// Handlers of the wrong kind do not go on.
func TestWrongKind(t *testing.T) {
	t.Parallel()
	s := newService(t)
	once := s.guard.Once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := guard.Commit(r.Context()); !errors.Is(err, guard.ErrNotGuarded) {
			t.Error(err)
		}
		w.WriteHeader(http.StatusTeapot)
	}))
	replay := s.guard.Replay(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := guard.Consume(r.Context()); !errors.Is(err, guard.ErrNotGuarded) {
			t.Error(err)
		}
		w.WriteHeader(http.StatusTeapot)
	}))
	for _, h := range []http.Handler{once, replay} {
		wantAnswer(t, send(h, form(s.token())), http.StatusTeapot, "")
	}
}

func TestReplayOptions(t *testing.T) {
	t.Parallel()
	var p client.Purpose
	for name, o := range map[string]guard.Option{
		"Wait": guard.Wait(time.Millisecond), "Lease": guard.Lease(0), "ResultLimit": guard.ResultLimit(-1),
		"Headers": guard.Headers("set-cookie"), "Headers: \"a b\"": guard.Headers("a b"), "KeyFunc": guard.KeyFunc(nil), "UserFunc": guard.UserFunc(nil), "DigestFunc": guard.DigestFunc(nil),
	} {
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.Contains(got, name) {
					t.Errorf("%s: panic %s", name, got)
				}
			}()
			guard.New(p, guard.User(sessionUser), o)
		}()
	}
}

// What tokend does not keep, because its own limit is lower, is not run again for that.
func TestResultTooLargeForTokend(t *testing.T) {
	t.Parallel()
	s := newService(t, guard.ResultLimit(1<<20))
	h := s.guard.Replay(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.ran()
		w.Header().Set("Location", "/orders/1")
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, strings.Repeat("x", 300<<10))
	}))
	token := s.token()
	if w := send(h, form(token)); w.Code != 201 || w.Body.Len() != 300<<10 {
		t.Errorf("%d with %d bytes", w.Code, w.Body.Len())
	}
	w := send(h, form(token))
	if w.Code != 201 || w.Body.Len() != 0 || w.Header().Get("Location") != "/orders/1" || w.Header().Get(guard.HeaderBodyOmitted) != "true" {
		t.Errorf("%d %v with %d bytes", w.Code, w.Header(), w.Body.Len())
	}
	s.wantRuns(1)
}

// A token that somebody has claimed passes Once's check, which may be out of date, and is
// refused at Consume.
func TestOnceWhileClaimed(t *testing.T) {
	t.Parallel()
	s := newService(t)
	token := s.token()
	cl, _, err := s.forms.Client().Claim(t.Context(), s.forms.Token(user, token))
	if err != nil {
		t.Fatal(err)
	}
	h := s.guard.Once(http.HandlerFunc(s.work))
	wantProblem(t, send(h, form(token)), 409, wire.CodeRequestInProgress, client.NextWait)
	if err := cl.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantAnswer(t, send(h, form(token)), http.StatusCreated, "run 1")
}

// Under Echo an error that the handler returns is its answer, like any other.
func TestReplayUnderEcho(t *testing.T) {
	t.Parallel()
	s := newService(t)
	e := echo.New()
	var answer func(echo.Context) error
	e.POST("/orders", func(c echo.Context) error { s.ran(); return answer(c) },
		echoMiddleware(func(h http.Handler) http.Handler { return s.guard.Replay(h) }))
	token := s.token()
	for _, status := range []int{422, 500, 503} {
		answer = func(echo.Context) error { return echo.NewHTTPError(status, "no") }
		if w := send(e, form(token)); w.Code != status {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	}
	answer = func(c echo.Context) error { return errors.New("no status") }
	if w := send(e, form(token)); w.Code != 500 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	answer = func(c echo.Context) error { return c.JSON(http.StatusCreated, "done") }
	first := send(e, form(token))
	if first.Code != 201 {
		t.Errorf("%d %s", first.Code, first.Body)
	}
	wantReplay(t, send(e, form(token)), first)
	s.wantRuns(5)
}

// Where tokend stays away keeping is given up: the sender has its answer, and it is said that
// repeats do not.
func TestNeverKept(t *testing.T) {
	t.Parallel()
	s := newService(t, guard.RetryAtOnce(), guard.GiveUpAfter(0))
	h := s.guard.Replay(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.tokend.Down(true)
		s.run(w, r)
	}))
	token := s.token()
	wantAnswer(t, send(h, form(token)), http.StatusCreated, "run 1")
	if err := s.guard.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	s.wantEvents(guard.EventNotKept, guard.EventLost)
	s.tokend.Down(false)
	s.tokend.Advance(30 * time.Second)
	s.wantState(token, "claimed") // as after a crash: the next one takes over
	if strings.Contains(s.log.String(), token) {
		t.Errorf("the token is in %s", s.log)
	}
}

func TestBackOff(t *testing.T) {
	t.Parallel()
	for n := 1; n < 100; n++ {
		if d := guard.BackOff(n); d < 250*time.Millisecond || d > 5*time.Second {
			t.Errorf("try %d waits %v", n, d)
		}
	}
}

// A claim that ended while the work was done, by a revocation say, has nobody else's answer.
func TestClaimEndedMeanwhile(t *testing.T) {
	t.Parallel()
	s := newService(t)
	token := s.token()
	h := s.guard.Replay(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := s.forms.Revoke(r.Context(), user, token); err != nil {
			t.Error(err)
		}
		s.run(w, r)
	}))
	wantAnswer(t, send(h, form(token)), http.StatusCreated, "run 1")
	s.wantEvents(guard.EventLost)
	wantProblem(t, send(h, form(token)), 410, wire.CodeTokenRevoked, client.NextStop)
}

// Of a claim that commits at once nobody can tell after a fault: it may block for good.
func TestCommitFirstUnanswered(t *testing.T) {
	t.Parallel()
	s := newService(t, guard.CommitFirst())
	h := s.guard.Replay(http.HandlerFunc(s.run))
	token := s.token()
	s.tokend.LoseReplies(3)
	wantProblem(t, send(h, form(token)), 503, wire.CodeOutcomeUnknown, client.NextVerify)
	s.wantRuns(0)
}

// The wait is over, and the first one still at work.
func TestWaitIsOver(t *testing.T) {
	t.Parallel()
	s := newService(t, guard.Wait(time.Second))
	var h http.Handler
	var token string
	h = s.guard.Replay(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		wantProblem(t, send(h, form(token)), 409, wire.CodeRequestInProgress, client.NextWait)
		s.run(w, r)
	}))
	token = s.token()
	wantAnswer(t, send(h, form(token)), http.StatusCreated, "run 1")
}

// The writer that a handler of Replay sees behaves as net/http's.
func TestReplayWriter(t *testing.T) {
	t.Parallel()
	s := newService(t)
	var hijacked sync.WaitGroup // the server does not wait for it
	defer hijacked.Wait()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hijacked.Add(1)
		defer hijacked.Done()
		s.guard.Replay(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := guard.Commit(r.Context()); err != nil {
				t.Error(err)
			}
			rc := http.NewResponseController(w)
			if err := rc.SetWriteDeadline(time.Now().Add(time.Minute)); err != nil {
				t.Error(err)
			}
			switch r.URL.Path {
			case "/odd":
				w.WriteHeader(700)
			case "/none":
				w.WriteHeader(http.StatusEarlyHints)
				w.WriteHeader(http.StatusNoContent)
				w.WriteHeader(http.StatusTeapot)
				if _, err := io.WriteString(w, "x"); !errors.Is(err, http.ErrBodyNotAllowed) {
					t.Error(err)
				}
			case "/trailer":
				io.WriteString(w, "body")
				w.(http.Flusher).Flush()
				w.Header().Set(http.TrailerPrefix+"X-Sum", "1")
			case "/hijack":
				c, _, err := rc.Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				io.WriteString(c, "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
				c.Close()
				if _, err := io.WriteString(w, "x"); !errors.Is(err, http.ErrHijacked) {
					t.Error(err)
				}
			}
		})).ServeHTTP(w, r)
	}))
	defer srv.Close()
	for path, want := range map[string]string{"/odd": "700  ", "/none": "204  ", "/trailer": "200 body 1", "/hijack": "204  "} {
		r, err := http.NewRequest(http.MethodPost, srv.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Test-User", user)
		r.Header.Set(guard.HeaderToken, s.token())
		resp, err := srv.Client().Do(r)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if got := fmt.Sprint(resp.StatusCode, " ", string(body), " ", resp.Trailer.Get("X-Sum")); got != want || err != nil {
			t.Errorf("%s: %q, %v, want %q", path, got, err, want)
		}
	}
	s.wantEvents()

	// No Flush is made up where there is none, and none finds its way around the guard.
	bare := struct{ http.ResponseWriter }{httptest.NewRecorder()}
	s.guard.Replay(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, ok := w.(http.Flusher); ok {
			t.Error("a Flusher over a writer without")
		}
		if err := http.NewResponseController(w).Flush(); !errors.Is(err, http.ErrNotSupported) {
			t.Error(err)
		}
	})).ServeHTTP(bare, form(s.token()))
}

// A page that is shown instead of the handler's answer offers what can be sent: the same token
// where it is good, and a fresh one where nobody can tell.
func TestPageAfterCommitFailed(t *testing.T) {
	t.Parallel()
	s := newService(t, guard.Page(func(w http.ResponseWriter, r *http.Request, no *guard.Refused) {
		fmt.Fprintf(w, "%s %s", no.Next, guard.Token(r.Context()))
	}))
	var fault func(n int)
	h := s.guard.Replay(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fault(3)
		if err := guard.Commit(r.Context()); err == nil {
			t.Error("no error")
		}
	}))
	for next, f := range map[client.Next]func(int){client.NextWait: s.tokend.BadGateway, client.NextVerify: s.tokend.LoseReplies} {
		fault = f
		token := s.token()
		r := form(token)
		r.Header.Set("Accept", "text/html")
		w := send(h, r)
		words := strings.Fields(w.Body.String())
		if w.Code != 503 || len(words) != 2 || words[0] != string(next) || w.Header().Get("Cache-Control") != "no-store" {
			t.Fatalf("%d %v %s", w.Code, w.Header(), w.Body)
		}
		if (words[1] == token) != (next == client.NextWait) || s.state(words[1]) != client.StateIssued {
			t.Errorf("%s: the page offers %s", next, words[1])
		}
	}
}
