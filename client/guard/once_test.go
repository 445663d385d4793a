package guard_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/tokend/client"
	"example.com/tokend/client/clienttest"
	"example.com/tokend/client/guard"
	"example.com/tokend/httpapi/wire"
)

func TestOnce(t *testing.T) {
	t.Parallel()
	s := newService(t)
	h := s.guard.Once(http.HandlerFunc(s.work))
	token := s.token()
	wantAnswer(t, send(h, form(token)), http.StatusCreated, "run 1")
	p := wantProblem(t, send(h, form(token)), http.StatusConflict, wire.CodeTokenUsed, client.NextStop)
	if p.Ref == "" || p.UsedAt.IsZero() {
		t.Errorf("the first submission cannot be found: %+v", p)
	}
	s.wantRuns(1)
	s.wantEvents()
}

// A form with mistakes keeps its token, which the page that is shown again carries.
func TestOnceMended(t *testing.T) {
	t.Parallel()
	s := newService(t)
	h := s.guard.Once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.PostFormValue("item") == "" {
			w.Header().Set("Cache-Control", "max-age=60")
			w.WriteHeader(http.StatusUnprocessableEntity)
			io.WriteString(w, string(guard.Field(r.Context())))
			return
		}
		s.work(w, r)
	}))
	token := s.token()
	w := send(h, form(token))
	if w.Code != 422 || !strings.Contains(w.Body.String(), token) || w.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
	wantAnswer(t, send(h, form(token, "item", "tea")), http.StatusCreated, "run 1")
	s.wantEvents()
}

// After Consume the page that is shown again carries a fresh token.
func TestFieldAfterConsume(t *testing.T) {
	t.Parallel()
	s := newService(t)
	h := s.guard.Once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := guard.Consume(r.Context()); err == nil {
			io.WriteString(w, guard.Token(r.Context()))
		}
	}))
	first := s.token()
	second := send(h, form(first)).Body.String()
	if second == first || s.state(second) != client.StateIssued {
		t.Errorf("after its token was used the page carries %q", second)
	}
}

func TestOnceAtTheSameTime(t *testing.T) {
	t.Parallel()
	s := newService(t)
	for name, h := range map[string]http.Handler{
		"handler": s.guard.Once(http.HandlerFunc(s.work)),
		"first":   s.guard.Once(http.HandlerFunc(s.work), guard.ConsumeFirst()),
	} {
		s.runs = 0
		for round := range 5 {
			token := s.token()
			var wg sync.WaitGroup
			for range 20 {
				wg.Go(func() { send(h, form(token)) })
			}
			wg.Wait()
			if s.wantRuns(round + 1); t.Failed() {
				t.Fatal(name)
			}
		}
	}
}

// What a browser sends is never the attempt, whatever it is called.
func TestBrowsersKeyIsNoAttempt(t *testing.T) {
	t.Parallel()
	s := newService(t)
	for name, h := range map[string]http.Handler{
		"handler": s.guard.Once(http.HandlerFunc(s.work)),
		"first":   s.guard.Once(http.HandlerFunc(s.work), guard.ConsumeFirst()),
	} {
		s.runs = 0
		token := s.token()
		for i, want := range []int{http.StatusCreated, http.StatusConflict} {
			r := form(token, "attempt", "a1")
			r.Header.Set("Idempotency-Key", "k1")
			r.Header.Set("X-Request-Id", "r1")
			if w := send(h, r); w.Code != want {
				t.Errorf("%s, request %d: %d %s", name, i, w.Code, w.Body)
			}
		}
		s.wantRuns(1)
	}
}

func TestConsumeFirst(t *testing.T) {
	t.Parallel()
	s := newService(t)
	h := s.guard.Once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if guard.Ref(r.Context()) == "" {
			t.Error("no ref")
		}
		fmt.Fprintf(w, "run %d", s.ran())
	}), guard.ConsumeFirst())
	token := s.token()
	wantAnswer(t, send(h, form(token)), http.StatusOK, "run 1")
	wantProblem(t, send(h, form(token)), http.StatusConflict, wire.CodeTokenUsed, client.NextStop)
	s.wantEvents()
}

// Each refusal of tokend, by the check, by Consume in the handler and before it.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]guard.Option{"check": nil, "first": {guard.ConsumeFirst()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t, opts...)
			h := s.guard.Once(http.HandlerFunc(s.work))
			foreign, err := s.forms.Issue(t.Context(), "bob")
			if err != nil {
				t.Fatal(err)
			}
			other, err := s.tokend.Client().Purpose("other").Issue(t.Context(), user)
			if err != nil {
				t.Fatal(err)
			}
			revoked := s.token()
			if _, err := s.forms.Revoke(t.Context(), user, revoked); err != nil {
				t.Fatal(err)
			}
			wantProblem(t, send(h, form("")), 400, guard.CodeTokenMissing, client.NextReissue)
			wantProblem(t, send(h, form("ott_x")), 400, wire.CodeTokenInvalid, client.NextStop)
			wantProblem(t, send(h, form(strings.Repeat("x", 1000))), 400, wire.CodeTokenInvalid, client.NextStop)
			wantProblem(t, send(h, form(foreign.Value)), 403, wire.CodeWrongUser, client.NextStop)
			wantProblem(t, send(h, form(other.Value)), 403, wire.CodeWrongPurpose, client.NextStop)
			wantProblem(t, send(h, form(revoked)), 410, wire.CodeTokenRevoked, client.NextStop)

			expired := s.token()
			s.tokend.Advance(5 * time.Minute)
			wantProblem(t, send(h, form(expired)), 410, wire.CodeTokenExpired, client.NextReissue)
			lost := s.token()
			s.tokend.LoseData()
			wantProblem(t, send(h, form(lost)), 410, wire.CodeTokenLost, client.NextVerify)
			s.tokend.Advance(25 * time.Hour)
			wantProblem(t, send(h, form(expired)), 410, wire.CodeTokenStale, client.NextVerify)
			s.wantRuns(0)
			s.wantEvents()
		})
	}
}

// A refusal that comes after the check, while the handler looks at the form.
func TestUsedBetweenCheckAndConsume(t *testing.T) {
	t.Parallel()
	s := newService(t)
	token := s.token()
	var again []error
	h := s.guard.Once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := s.forms.Consume(r.Context(), user, token); err != nil {
			t.Error(err)
		}
		for range 2 {
			again = append(again, guard.Consume(r.Context()))
		}
	}))
	wantProblem(t, send(h, form(token)), http.StatusConflict, wire.CodeTokenUsed, client.NextStop)
	for _, err := range again {
		if _, ok := errors.AsType[*guard.Refused](err); !ok || !errors.Is(err, client.ErrUsed) {
			t.Errorf("Consume returned %v", err)
		}
	}
	s.wantEvents()
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]guard.Option{"check": nil, "first": {guard.ConsumeFirst()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t, opts...)
			h := s.guard.Once(http.HandlerFunc(s.work))
			token := s.token()
			s.tokend.Close()
			wantProblem(t, send(h, form(token)), 503, wire.CodeStoreUnavailable, client.NextWait)
			s.wantRuns(0)
		})
	}
}

// tokend answers, but its store does not: a check has done nothing, and of a consume nobody
// can tell.
func TestStoreDown(t *testing.T) {
	t.Parallel()
	s := newService(t)
	h := s.guard.Once(http.HandlerFunc(s.work))
	first := s.guard.Once(http.HandlerFunc(s.work), guard.ConsumeFirst())
	token := s.token()
	s.tokend.Down(true)
	wantProblem(t, send(h, form(token)), 503, wire.CodeStoreUnavailable, client.NextWait)
	wantProblem(t, send(first, form(token)), 503, wire.CodeOutcomeUnknown, client.NextVerify)
	s.wantRuns(0)
	s.tokend.Down(false)
	wantAnswer(t, send(h, form(token)), http.StatusCreated, "run 1")
}

// One lost reply is not noticed; a consume that is given up is said to be unknown, and may
// be asked about again within the request.
func TestLostReplies(t *testing.T) {
	t.Parallel()
	s := newService(t)
	lose := 1
	var again error
	h := s.guard.Once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.tokend.LoseReplies(lose)
		if err := guard.Consume(r.Context()); err == nil {
			s.ran()
			return
		}
		s.tokend.LoseReplies(0)
		if again != nil {
			again = guard.Consume(r.Context())
		}
	}))
	if w := send(h, form(s.token())); w.Code != 200 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	s.wantRuns(1)
	lose = 3
	token := s.token()
	wantProblem(t, send(h, form(token)), 503, wire.CodeOutcomeUnknown, client.NextVerify)
	s.wantState(token, client.StateUsed)
	again = errors.New("to be asked for")
	send(h, form(s.token()))
	if again != nil {
		t.Errorf("the same attempt again: %v", again)
	}
}

func TestFailOpen(t *testing.T) {
	t.Parallel()
	s := newService(t, guard.FailOpen())
	h := s.guard.Once(http.HandlerFunc(s.work))
	used, token := s.token(), s.token()
	wantAnswer(t, send(h, form(used)), http.StatusCreated, "run 1")
	wantProblem(t, send(h, form(used)), http.StatusConflict, wire.CodeTokenUsed, client.NextStop)
	wantProblem(t, send(h, form("")), http.StatusBadRequest, guard.CodeTokenMissing, client.NextReissue)
	s.tokend.Close()
	wantAnswer(t, send(h, form(token)), http.StatusCreated, "run 2")
	s.wantEvents(guard.EventOpen, guard.EventOpen) // the check and Consume
	if !strings.Contains(s.log.String(), "let through") {
		t.Errorf("the log says %s", s.log)
	}
	ctx, hangUp := context.WithCancel(t.Context())
	hangUp() // which is no outage
	send(h, form(token).WithContext(ctx))
	s.wantRuns(2)
	page := s.guard.Issue(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a form without a token") }))
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("X-Test-User", user)
	wantProblem(t, send(page, r), 503, wire.CodeStoreUnavailable, client.NextWait)
}

// Whoever answers well without Consume has forgotten it; who refuses has not.
func TestUnconsumedIsLoud(t *testing.T) {
	t.Parallel()
	for status, loud := range map[int]bool{0: true, 200: true, 204: true, 303: true, 400: false, 422: false, 500: false} {
		s := newService(t)
		h := s.guard.Once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if status != 0 {
				w.WriteHeader(status)
			}
		}))
		token := s.token()
		w := send(h, form(token))
		if w.Code != max(status, 200) {
			t.Errorf("status %d became %d", status, w.Code)
		}
		s.wantState(token, client.StateIssued)
		if loud {
			s.wantEvents(guard.EventUnconsumed)
		} else {
			s.wantEvents()
		}
		if got := strings.Contains(s.log.String(), `"level":"ERROR"`); got != loud {
			t.Errorf("status %d: the log says %s", status, s.log)
		}
		if strings.Contains(s.log.String(), token) {
			t.Errorf("the token is in %s", s.log)
		}
	}
}

func TestNobody(t *testing.T) {
	t.Parallel()
	s := newService(t)
	token := s.token()
	for name, h := range map[string]http.Handler{
		"once":    s.guard.Once(http.HandlerFunc(s.work)),
		"handler": s.guard.IssueHandler(),
	} {
		r := form(token)
		r.Header.Del("X-Test-User")
		t.Log(name)
		wantProblem(t, send(h, r), 401, wire.CodeUnauthenticated, client.NextFix)
	}
	s.wantRuns(0)
	s.wantState(token, client.StateIssued)
}

// Whatever decides who may call stands around the guard, and is asked for repeats too.
func TestAuthorisationComesFirst(t *testing.T) {
	t.Parallel()
	s := newService(t)
	allowed := true
	guarded := s.guard.Once(http.HandlerFunc(s.work))
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !allowed {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		guarded.ServeHTTP(w, r)
	})
	token := s.token()
	allowed = false
	wantAnswer(t, send(h, form(token)), http.StatusForbidden, "")
	s.wantState(token, client.StateIssued)
	allowed = true
	wantAnswer(t, send(h, form(token)), http.StatusCreated, "run 1")
	allowed = false
	wantAnswer(t, send(h, form(token)), http.StatusForbidden, "")
}

// GET and its like are handed on as they are: the same request, the same writer, no call of
// tokend.
func TestPassThrough(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.tokend.Close()
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace} {
		r, w := httptest.NewRequest(method, "/?tokend_token=ott_x", nil), httptest.NewRecorder()
		var same bool
		s.guard.Once(http.HandlerFunc(func(gotW http.ResponseWriter, gotR *http.Request) {
			same = gotR == r && gotW == http.ResponseWriter(w)
			if err := guard.Consume(gotR.Context()); !errors.Is(err, guard.ErrNotGuarded) {
				t.Errorf("Consume: %v", err)
			}
		})).ServeHTTP(w, r)
		if !same {
			t.Errorf("%s was touched", method)
		}
	}
	if guard.Ref(t.Context()) != "" || guard.Token(t.Context()) != "" {
		t.Error("there is something where no guard stands")
	}
}

// parts returns a multipart/form-data body.
func parts(t *testing.T, boundary string, nameValue ...string) (contentType, body string) {
	t.Helper()
	var b bytes.Buffer
	m := multipart.NewWriter(&b)
	if err := m.SetBoundary(boundary); err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(nameValue); i += 2 {
		var p io.Writer
		var err error
		if name, file, ok := strings.Cut(nameValue[i], "/"); ok {
			p, err = m.CreateFormFile(name, file)
		} else {
			p, err = m.CreateFormField(name)
		}
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(p, nameValue[i+1])
	}
	m.Close()
	return m.FormDataContentType(), b.String()
}

// The token is found wherever it may stand, and the handler reads all of the body.
func TestBodies(t *testing.T) {
	t.Parallel()
	s := newService(t)
	field := guard.FieldToken
	long := strings.Repeat("x", 20_000)
	form1, multi := "application/x-www-form-urlencoded", "multipart/form-data; boundary=B"
	_, early := parts(t, "B", field, "TOKEN", "upload/a.txt", long)
	_, late := parts(t, "B", "upload/a.txt", long, field, "TOKEN")
	_, fits := parts(t, "B", "a", "b", "upload/a.txt", "short", field, "TOKEN")
	_, file := parts(t, "B", field+"/a.txt", "TOKEN")
	_, none := parts(t, "B", "a", "b")
	tests := []struct {
		name, contentType, body, header string
		code                            client.Code // "" is done
	}{
		{"form", form1, "item=tea&" + field + "=TOKEN", "", ""},
		{"no form", form1, "", "", guard.CodeTokenMissing},
		{"form, broken", form1, "a=%zz", "", wire.CodeInvalidRequest},
		{"form, empty token", form1, field + "=", "", guard.CodeTokenMissing},
		{"form too large", form1, "a=" + long + "&" + field + "=TOKEN", "", wire.CodeBodyTooLarge},
		{"JSON", "application/json", `{"n": 9007199254740993, "` + field + `": "TOKEN"}`, "", ""},
		{"JSON of a type", "application/vnd.o+json", `{"` + field + `": "TOKEN"}`, "", ""},
		{"JSON, other case", "application/json", `{"Tokend_Token": "TOKEN"}`, "", guard.CodeTokenMissing},
		{"JSON, deeper", "application/json", `{"a": {"` + field + `": "TOKEN"}}`, "", guard.CodeTokenMissing},
		{"JSON, no object", "application/json", `["TOKEN"]`, "", guard.CodeTokenMissing},
		{"JSON, a number", "application/json", `{"` + field + `": 1}`, "", wire.CodeInvalidRequest},
		{"JSON, broken", "application/json", `{"` + field + `": "TOKEN"`, "", wire.CodeInvalidRequest},
		{"JSON too large", "application/json", `{"a":"` + long + `","` + field + `": "TOKEN"}`, "", wire.CodeBodyTooLarge},
		{"parts", multi, fits, "", ""},
		{"parts, the token first", multi, early, "", ""},
		{"parts, the token last", multi, late, "", wire.CodeBodyTooLarge},
		{"parts, a file", multi, file, "", guard.CodeTokenMissing},
		{"parts, none", multi, none, "", guard.CodeTokenMissing},
		{"parts, cut", multi, fits[:len(fits)/3], "", wire.CodeInvalidRequest},
		{"parts, no boundary", "multipart/form-data", fits, "", wire.CodeInvalidRequest},
		{"text", "text/plain", field + "=TOKEN", "", guard.CodeTokenMissing},
		{"no type", "", field + "=TOKEN", "", guard.CodeTokenMissing},
		{"header", "text/csv", long, "TOKEN", ""},
		{"header before field", form1, field + "=ott_x", "TOKEN", ""},
	}
	for _, tt := range tests {
		for _, length := range []bool{true, false} {
			token := s.token()
			body := strings.ReplaceAll(tt.body, "TOKEN", token)
			h := s.guard.Once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if got, err := io.ReadAll(r.Body); string(got) != body || err != nil {
					t.Errorf("%s: the handler read %d bytes, %v, want %d", tt.name, len(got), err, len(body))
				}
				s.work(w, r)
			}), guard.BodyLimit(10_000))
			r := submission(tt.contentType, body)
			if !length {
				r.ContentLength = -1
			}
			if tt.header != "" {
				r.Header.Set(guard.HeaderToken, strings.ReplaceAll(tt.header, "TOKEN", token))
			}
			w := send(h, r)
			if tt.code == "" && w.Code != http.StatusCreated || tt.code != "" && !strings.Contains(w.Body.String(), `"`+string(tt.code)+`"`) {
				t.Errorf("%s: %d %s, want %q", tt.name, w.Code, w.Body, tt.code)
			}
			if tt.code != "" {
				s.wantState(token, client.StateIssued)
			}
		}
	}
}

// The token is never read from the URL.
func TestTokenInURL(t *testing.T) {
	t.Parallel()
	s := newService(t)
	r := form("", "a", "b")
	r.URL.RawQuery = guard.FieldToken + "=" + s.token()
	wantProblem(t, send(s.guard.Once(http.HandlerFunc(s.work)), r), 400, guard.CodeTokenMissing, client.NextReissue)
}

// Something before the guard may have parsed the form, and read the body by that.
func TestParsedBefore(t *testing.T) {
	t.Parallel()
	s := newService(t)
	h := s.guard.Once(http.HandlerFunc(s.work))
	r := form(s.token())
	r.ParseForm()
	wantAnswer(t, send(h, r), http.StatusCreated, "run 1")
	r = submission(parts(t, "B", guard.FieldToken, s.token()))
	r.ParseMultipartForm(1 << 20)
	wantAnswer(t, send(h, r), http.StatusCreated, "run 2")
	r = form(s.token())
	io.Copy(io.Discard, r.Body)
	wantProblem(t, send(h, r), 500, wire.CodeInternal, client.NextWait)
	s.wantRuns(2)
}

// Files of a form that the handler parses are gone after it, as without a guard.
func TestFormFilesAreRemoved(t *testing.T) {
	t.Parallel()
	s := newService(t)
	var name string
	h := s.guard.Once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := r.ParseMultipartForm(1); err != nil {
			t.Error(err)
			return
		}
		f, err := r.MultipartForm.File["upload"][0].Open()
		if err != nil {
			t.Error(err)
			return
		}
		defer f.Close()
		if file, ok := f.(*os.File); ok {
			name = file.Name()
		}
		s.work(w, r)
	}))
	r := submission(parts(t, "B", guard.FieldToken, s.token(), "upload/a", strings.Repeat("x", 11<<20)))
	wantAnswer(t, send(h, r), http.StatusCreated, "run 1")
	if _, err := os.Stat(name); name == "" || !os.IsNotExist(err) {
		t.Errorf("the file %q: %v", name, err)
	}
}

// A caller that hangs up ends the handler's context until Consume, and not after.
func TestHangUp(t *testing.T) {
	t.Parallel()
	s := newService(t)
	for _, consume := range []bool{false, true} {
		ctx, hangUp := context.WithCancel(t.Context())
		var during, after error
		var inner context.Context
		h := s.guard.Once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			inner = r.Context()
			if consume {
				if err := guard.Consume(r.Context()); err != nil {
					t.Error(err)
				}
				hangUp()
				during = r.Context().Err()
				return
			}
			hangUp()
			<-r.Context().Done()
			during = r.Context().Err()
			w.WriteHeader(499)
		}))
		send(h, form(s.token()).WithContext(ctx))
		after = inner.Err()
		if (during == nil) != consume || after == nil {
			t.Errorf("consumed %t: %v, after it %v", consume, during, after)
		}
	}
}

func TestPanics(t *testing.T) {
	t.Parallel()
	s := newService(t)
	for _, value := range []any{"boom", http.ErrAbortHandler} {
		h := s.guard.Once(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(value) }))
		token := s.token()
		func() {
			defer func() {
				if got := recover(); got != value {
					t.Errorf("recovered %v, want %v", got, value)
				}
			}()
			send(h, form(token))
		}()
		s.wantState(token, client.StateIssued)
	}
}

// The page is the service's own where a browser shows it, and can offer the form again.
func TestPage(t *testing.T) {
	t.Parallel()
	page := func(w http.ResponseWriter, r *http.Request, no *guard.Refused) {
		fmt.Fprintf(w, "%s %s %s", no.Code, no.Ref, guard.Token(r.Context()))
	}
	s := newService(t, guard.Page(page))
	h := s.guard.Once(http.HandlerFunc(s.work))
	token := s.token()
	send(h, form(token))
	for accept, html := range map[string]bool{"text/html,application/xhtml+xml;q=0.9": true, "*/*": false, "": false, "application/json": false} {
		r := form(token)
		r.Header.Set("Accept", accept)
		w := send(h, r)
		if !html {
			wantProblem(t, w, 409, wire.CodeTokenUsed, client.NextStop)
			continue
		}
		words := strings.Fields(w.Body.String())
		if w.Code != 409 || len(words) != 3 || words[0] != "token_used" || w.Header().Get("Cache-Control") != "no-store" {
			t.Fatalf("%d %v %s", w.Code, w.Header(), w.Body)
		}
		if words[2] == token || s.state(words[2]) != client.StateIssued {
			t.Errorf("the page offers %s", words[2])
		}
	}
	s.wantRuns(1)
	// Where the same may be sent again it is offered again.
	token = s.token()
	s.tokend.Down(true)
	r := form(token)
	r.Header.Set("Accept", "text/html")
	if w := send(h, r); w.Code != 503 || strings.TrimSpace(w.Body.String()) != "store_unavailable  "+token {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// A problem must not pass for the answer that the handler had begun to describe.
func TestProblemAfterHeaders(t *testing.T) {
	t.Parallel()
	s := newService(t)
	token := s.token()
	h := s.guard.Once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "/orders/1")
		w.Header().Set("Content-Length", "1")
		s.forms.Consume(r.Context(), user, token)
		guard.Consume(r.Context())
	}))
	w := send(h, form(token))
	wantProblem(t, w, 409, wire.CodeTokenUsed, client.NextStop)
	if w.Header().Get("Location") != "" {
		t.Errorf("header %v", w.Header())
	}
}

// Whoever goes on although Consume failed is the loudest.
func TestWentOnAfterConsumeFailed(t *testing.T) {
	t.Parallel()
	s := newService(t)
	token := s.token()
	h := s.guard.Once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.forms.Consume(r.Context(), user, token)
		guard.Consume(r.Context())
		io.WriteString(w, "thank you")
	}))
	wantAnswer(t, send(h, form(token)), http.StatusOK, "thank you")
	s.wantEvents(guard.EventUnconsumed)
	if !strings.Contains(s.log.String(), "although Consume failed") {
		t.Errorf("the log says %s", s.log)
	}
}

// A handler may answer by itself, in the guard's words or its own.
func TestRefuse(t *testing.T) {
	t.Parallel()
	s := newService(t)
	token := s.token()
	h := s.guard.Once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.forms.Consume(r.Context(), user, token)
		guard.Refuse(w, r, guard.Consume(r.Context()))
	}))
	wantProblem(t, send(h, form(token)), 409, wire.CodeTokenUsed, client.NextStop)
	unguarded := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		guard.Refuse(w, r, guard.Consume(r.Context()))
	})
	wantProblem(t, send(unguarded, form(token)), 500, wire.CodeInternal, client.NextWait)
}

// tokend that refuses the service itself is no fault of the form.
func TestServiceIsRefused(t *testing.T) {
	t.Parallel()
	tokend := clienttest.New(t)
	s := newServiceOn(t, tokend)
	c, err := client.New(tokend.URL, client.ServiceKey("wrong"), client.HTTPClient(&http.Client{Transport: new(http.Transport)}))
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseIdleConnections()
	wrong := guard.New(c.Purpose(purpose), guard.User(sessionUser), guard.Logger(slog.New(slog.NewJSONHandler(s.log, nil))))
	p := wantProblem(t, send(wrong.Once(http.HandlerFunc(s.work)), form(s.token())), 500, wire.CodeInternal, client.NextWait)
	if strings.Contains(p.Detail, "wrong") || !strings.Contains(s.log.String(), "unauthenticated") {
		t.Errorf("said: %s; logged: %s", p.Detail, s.log)
	}
	s.wantRuns(0)
}

// What net/http can do with an answer it can still do behind a guard.
func TestWriterIsWhole(t *testing.T) {
	t.Parallel()
	s := newService(t)
	mux := http.NewServeMux()
	consumed := func(f http.HandlerFunc) http.Handler { return s.guard.Once(f, guard.ConsumeFirst()) }
	mux.Handle("/flush", consumed(func(w http.ResponseWriter, r *http.Request) {
		f, ok := w.(http.Flusher)
		if !ok {
			t.Error("no Flusher")
			return
		}
		io.WriteString(w, "first ")
		f.Flush()
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Error(err)
		}
		io.WriteString(w, "second")
	}))
	mux.Handle("/file", consumed(func(w http.ResponseWriter, r *http.Request) {
		if _, ok := w.(io.ReaderFrom); !ok {
			t.Error("no ReaderFrom")
		}
		io.Copy(w, struct{ io.Reader }{strings.NewReader("file")})
	}))
	mux.Handle("/hijack", s.guard.Once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var conn net.Conn
		var rw *bufio.ReadWriter
		conn, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		rw.WriteString("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 3\r\n\r\nraw")
		rw.Flush()
	})))
	mux.Handle("/hints", consumed(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusTeapot)
	}))
	srv := httptest.NewServer(mux)
	defer srv.Close()
	for path, want := range map[string]string{"/flush": "200 first second", "/file": "200 file", "/hijack": "200 raw", "/hints": "418 "} {
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
		if got := fmt.Sprint(resp.StatusCode, " ", string(body)); got != want || err != nil {
			t.Errorf("%s: %q, %v", path, got, err)
		}
	}
	s.wantEvents()

	// No Flush is made up where there is none.
	bare := struct{ http.ResponseWriter }{httptest.NewRecorder()}
	consumed(func(w http.ResponseWriter, r *http.Request) {
		if _, ok := w.(http.Flusher); ok {
			t.Error("a Flusher over a writer without")
		}
		if err := http.NewResponseController(w).Flush(); !errors.Is(err, http.ErrNotSupported) {
			t.Error(err)
		}
	}).ServeHTTP(bare, form(s.token()))
}

func TestNewPanics(t *testing.T) {
	t.Parallel()
	var p client.Purpose
	for name, f := range map[string]func(){
		"User": func() { guard.New(p).Once(nil) },
		"User ": func() {
			guard.New(p, guard.UserFunc(func(*http.Request, []byte) (string, error) { return "", nil })).Issue(nil)
		},
		"UserFunc":  func() { guard.New(p).Replay(nil) },
		"BodyLimit": func() { guard.New(p, guard.User(sessionUser), guard.BodyLimit(0)) },
		"Forms":     func() { guard.New(p, guard.User(sessionUser), guard.Forms(101)) },
		"Page":      func() { guard.New(p, guard.User(sessionUser)).Once(nil, guard.Page(nil)) },
		"Logger":    func() { guard.New(p, guard.Logger(nil), guard.User(nil)) },
		"Observe":   func() { guard.New(p, guard.Observe(nil)) },
	} {
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.Contains(got, strings.TrimSpace(name)) {
					t.Errorf("%s: panic %s", name, got)
				}
			}()
			f()
		}()
	}
}

// Services pay for what the package imports: nothing but the client.
func TestDependencies(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, dep := range strings.Fields(string(out)) {
		switch dep {
		case "example.com/tokend/client", "example.com/tokend/client/guard", "example.com/tokend/httpapi/wire":
		default:
			t.Errorf("imports %s", dep)
		}
	}
}
