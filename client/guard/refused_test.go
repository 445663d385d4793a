package guard_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"example.com/tokend/client/guard"
	"example.com/tokend/httpapi/wire"
)

// A refusal's status is the refusal's, whatever the page does, unless it says another.
func TestPageStatus(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		page func(http.ResponseWriter)
		want int
		body string
	}{
		"nothing":                {func(http.ResponseWriter) {}, 400, ""},
		"a header alone":         {func(w http.ResponseWriter) { w.Header().Set("X-Page", "1") }, 400, ""},
		"a write":                {func(w http.ResponseWriter) { io.WriteString(w, "no") }, 400, "no"},
		"an empty write":         {func(w http.ResponseWriter) { w.Write(nil) }, 400, ""},
		"a status":               {func(w http.ResponseWriter) { w.WriteHeader(418); io.WriteString(w, "no") }, 418, "no"},
		"early hints alone":      {func(w http.ResponseWriter) { w.WriteHeader(http.StatusEarlyHints) }, 400, ""},
		"early hints":            {func(w http.ResponseWriter) { w.WriteHeader(http.StatusEarlyHints); io.WriteString(w, "no") }, 400, "no"},
		"a copy":                 {func(w http.ResponseWriter) { io.Copy(w, http.NoBody) }, 400, ""},
		"a flush":                {func(w http.ResponseWriter) { w.(http.Flusher).Flush() }, 400, ""},
		"a controller's flush":   {func(w http.ResponseWriter) { http.NewResponseController(w).Flush(); io.WriteString(w, "no") }, 400, "no"},
		"a flush after a status": {func(w http.ResponseWriter) { w.WriteHeader(418); w.(http.Flusher).Flush() }, 418, ""},
		"hijacked": {func(w http.ResponseWriter) {
			c, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			io.WriteString(c, "HTTP/1.1 421 Misdirected Request\r\nContent-Length: 2\r\n\r\nno")
			c.Close()
		}, 421, "no"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t, guard.Page(func(w http.ResponseWriter, _ *http.Request, _ *guard.Refused) { tt.page(w) }))
			for _, h := range []http.Handler{s.guard.Once(http.HandlerFunc(s.work)), s.guard.Replay(http.HandlerFunc(s.run))} {
				srv := httptest.NewServer(h)
				defer srv.Close()
				r := form("")
				r.RequestURI = ""
				r.URL.Scheme, r.URL.Host = "http", srv.Listener.Addr().String()
				r.Header.Set("Accept", "text/html")
				resp, err := srv.Client().Do(r)
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if err != nil || resp.StatusCode != tt.want || string(body) != tt.body {
					t.Errorf("%d %q, %v, want %d %q", resp.StatusCode, body, err, tt.want, tt.body)
				}
			}
		})
	}
}

// A page finds no Flush where there is none, and its status is not lost by asking for it.
func TestPageWithoutFlush(t *testing.T) {
	t.Parallel()
	s := newService(t, guard.Page(func(w http.ResponseWriter, _ *http.Request, _ *guard.Refused) {
		if _, ok := w.(http.Flusher); ok {
			t.Error("there is a Flush")
		}
		if err := http.NewResponseController(w).Flush(); !errors.Is(err, http.ErrNotSupported) {
			t.Errorf("flushing: %v", err)
		}
		if _, _, err := http.NewResponseController(w).Hijack(); !errors.Is(err, http.ErrNotSupported) {
			t.Errorf("hijacking: %v", err)
		}
	}))
	r := form("")
	r.Header.Set("Accept", "text/html")
	w := httptest.NewRecorder()
	s.guard.Once(http.HandlerFunc(s.work)).ServeHTTP(struct{ http.ResponseWriter }{w}, r)
	wantAnswer(t, w, 400, "")
}

// A service whose errors have a form of their own gives them that; who takes HTML gets the
// page all the same.
func TestProblem(t *testing.T) {
	t.Parallel()
	s := newService(t,
		guard.Problem(func(w http.ResponseWriter, _ *http.Request, no *guard.Refused) {
			w.Header().Set("Content-Type", "text/plain")
			io.WriteString(w, "problem "+string(no.Code))
		}),
		guard.Page(func(w http.ResponseWriter, _ *http.Request, no *guard.Refused) {
			io.WriteString(w, "page "+string(no.Code))
		}))
	for _, h := range []http.Handler{s.guard.Once(http.HandlerFunc(s.work)), s.guard.Replay(http.HandlerFunc(s.run))} {
		for accept, want := range map[string]string{"": "problem token_missing", "application/json": "problem token_missing", "text/html": "page token_missing"} {
			r := form("")
			r.Header.Set("Accept", accept)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			wantAnswer(t, w, 400, want)
			if got := w.Header().Get("Content-Type"); accept != "text/html" && got != "text/plain" {
				t.Errorf("the problem's type is %q", got)
			}
		}
	}
	s.wantRuns(0)
}

// A page is not held to the header of the answer that the handler had begun to describe.
func TestPageAfterHeaders(t *testing.T) {
	t.Parallel()
	s := newService(t, guard.Page(func(w http.ResponseWriter, _ *http.Request, _ *guard.Refused) {
		if _, err := io.WriteString(w, "sent before"); err != nil {
			t.Error(err)
		}
	}))
	token := s.token()
	srv := httptest.NewServer(s.guard.Once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "/orders/1")
		w.Header().Set("Etag", `"1"`)
		w.Header().Set("Content-Length", "1")
		s.forms.Consume(r.Context(), user, token)
		guard.Consume(r.Context())
	})))
	defer srv.Close()
	r := form(token)
	r.RequestURI = ""
	r.URL.Scheme, r.URL.Host = "http", srv.Listener.Addr().String()
	r.Header.Set("Accept", "text/html")
	resp, err := srv.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 409 || string(body) != "sent before" {
		t.Errorf("%d %q, %v", resp.StatusCode, body, err)
	}
	if h := resp.Header; h.Get("Location") != "" || h.Get("Etag") != "" {
		t.Errorf("header %v", h)
	}
}

// Details are shown to people as they are.
func TestDetailsAreSentences(t *testing.T) {
	t.Parallel()
	for code, detail := range guard.Details {
		if first := detail[0]; first < 'A' || 'Z' < first || !strings.HasSuffix(detail, ".") {
			t.Errorf("%s: %q is no sentence", code, detail)
		}
	}
	s := newService(t, guard.BodyLimit(1<<10))
	for name, r := range map[string]*http.Request{
		"a form":      submission("application/x-www-form-urlencoded", "a=%zz"),
		"JSON":        submission("application/json", "{"),
		"no string":   submission("application/json", `{"tokend_token":1}`),
		"parts":       submission("multipart/form-data", "x"),
		"too large":   submission("application/json", strings.Repeat(" ", 2<<10)),
		"not whole":   submission("multipart/form-data; boundary=B", "--B\r\n"),
		"no token":    submission("application/json", "{}"),
		"no such":     form("x"),
		"nobody":      httptest.NewRequest(http.MethodPost, "/orders", nil),
		"two keys":    withKeys("a", "b"),
		"no key":      withKeys(),
		"a blank key": withKeys(" "),
	} {
		h := s.guard.Once(http.HandlerFunc(s.work))
		if strings.HasSuffix(name, "key") || strings.HasSuffix(name, "keys") {
			h = s.guard.Replay(http.HandlerFunc(s.run), guard.IdempotencyKey())
		}
		var p wire.Problem
		w := send(h, r)
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
			t.Fatalf("%s: %d %s", name, w.Code, w.Body)
		}
		if first, _ := utf8.DecodeRuneInString(p.Detail); !unicode.IsUpper(first) && p.Field != guard.FieldToken || !strings.HasSuffix(p.Detail, ".") {
			t.Errorf("%s: %q is no sentence", name, p.Detail)
		}
	}
	s.wantRuns(0)
}

// withKeys returns a submission with these keys.
func withKeys(keys ...string) *http.Request {
	r := form("", "item", "tea")
	r.Header["Idempotency-Key"] = keys
	return r
}
