package guard_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"example.com/tokend/client"
	"example.com/tokend/client/guard"
	"example.com/tokend/httpapi/wire"
)

func get(method string) *http.Request {
	r := httptest.NewRequest(method, "/orders/new", nil)
	r.Header.Set("X-Test-User", user)
	return r
}

// fieldPage answers with the page's field, and would have it cached.
func fieldPage(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "public, max-age=60")
	io.WriteString(w, string(guard.Field(r.Context()))+string(guard.Field(r.Context())))
}

func TestIssue(t *testing.T) {
	t.Parallel()
	s := newService(t, guard.IssueWith(client.TTL(time.Hour)))
	page := s.guard.Issue(http.HandlerFunc(fieldPage))
	h := s.guard.Once(http.HandlerFunc(s.work))
	w := send(page, get(http.MethodGet))
	var first, second string
	if _, err := fmt.Sscanf(strings.ReplaceAll(w.Body.String(), ">", " >"),
		`<input type="hidden" name="tokend_token" autocomplete="off" value=%q ><input type="hidden" name="tokend_token" autocomplete="off" value=%q >`,
		&first, &second); err != nil || first != second {
		t.Fatalf("%v: the page is %s", err, w.Body)
	}
	if w.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("Cache-Control is %q", w.Header().Get("Cache-Control"))
	}
	s.tokend.Advance(59 * time.Minute)
	wantAnswer(t, send(h, form(first)), http.StatusCreated, "run 1")
}

// Two tabs have two tokens, good in any order, and one form does not spend another's.
func TestIssueSeveral(t *testing.T) {
	t.Parallel()
	s := newService(t)
	h := s.guard.Once(http.HandlerFunc(s.work))
	var tokens []string
	page := s.guard.Issue(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for i := range 3 {
			tokens = append(tokens, guard.TokenOf(r.Context(), i))
		}
		if got := guard.TokenOf(r.Context(), 3) + guard.TokenOf(r.Context(), -1); got != "" {
			t.Errorf("a fourth token: %s", got)
		}
	}), guard.Forms(3))
	for range 2 {
		send(page, get(http.MethodGet))
	}
	for i := len(tokens) - 1; i >= 0; i-- {
		wantAnswer(t, send(h, form(tokens[i])), http.StatusCreated, fmt.Sprint("run ", len(tokens)-i))
	}
}

// HEAD and OPTIONS cost no token, nor does a POST through Issue whose handler asks for none.
func TestIssueMethods(t *testing.T) {
	t.Parallel()
	s := newService(t)
	once := s.guard.Once(http.HandlerFunc(s.work))
	both := s.guard.Issue(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			once.ServeHTTP(w, r)
		}
	}))
	token := s.token()
	wantAnswer(t, send(both, form(token)), http.StatusCreated, "run 1")
	s.tokend.Close()
	for _, method := range []string{http.MethodHead, http.MethodOptions} {
		wantAnswer(t, send(both, get(method)), http.StatusOK, "")
	}
	wantProblem(t, send(both, get(http.MethodGet)), 503, wire.CodeStoreUnavailable, client.NextWait)
	r := get(http.MethodGet)
	r.Header.Del("X-Test-User")
	wantProblem(t, send(both, r), 401, wire.CodeUnauthenticated, client.NextFix)
}

// Even a token that may exist is nothing to look for: nobody knows it.
func TestIssueStoreDown(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.tokend.Down(true)
	wantProblem(t, send(s.guard.Issue(http.HandlerFunc(fieldPage)), get(http.MethodGet)), 503, wire.CodeStoreUnavailable, client.NextWait)
	wantProblem(t, send(s.guard.IssueHandler(), get(http.MethodPost)), 503, wire.CodeStoreUnavailable, client.NextWait)
	post := s.guard.Issue(http.HandlerFunc(fieldPage))
	if w := send(post, get(http.MethodPost)); !strings.Contains(w.Body.String(), `value=""`) {
		t.Errorf("the page is %s", w.Body)
	}
	s.wantEvents(guard.EventNoToken, guard.EventNoToken)
}

func TestIssueHandler(t *testing.T) {
	t.Parallel()
	s := newService(t)
	h := s.guard.IssueHandler()
	r := get(http.MethodPost)
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	w := send(h, r)
	var got struct {
		Token, Ref string
		ExpiresAt  time.Time `json:"expires_at"`
		TTL        int64
	}
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != 201 || got.TTL != 300 || got.Ref == "" || got.ExpiresAt.IsZero() {
		t.Fatalf("%v: %d %s", err, w.Code, w.Body)
	}
	if w.Header().Get("Cache-Control") != "no-store" || w.Header().Get("Content-Type") != wire.TypeJSON || strings.Contains(w.Body.String(), user) {
		t.Errorf("%v %s", w.Header(), w.Body)
	}
	s.wantState(got.Token, client.StateIssued)

	for name, header := range map[string][2]string{
		"another site":      {"Sec-Fetch-Site", "cross-site"},
		"another subdomain": {"Sec-Fetch-Site", "same-site"},
		"another origin":    {"Origin", "https://evil.example"},
	} {
		r := get(http.MethodPost)
		r.Header.Set(header[0], header[1])
		t.Log(name)
		wantProblem(t, send(h, r), 403, wire.CodeForbidden, client.NextFix)
	}
	w = send(h, get(http.MethodGet))
	wantProblem(t, w, 405, wire.CodeMethodNotAllowed, client.NextFix)
	if w.Header().Get("Allow") != http.MethodPost {
		t.Errorf("Allow is %q", w.Header().Get("Allow"))
	}
}
