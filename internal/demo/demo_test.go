package demo

import (
	"context"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/tokend/client"
	"example.com/tokend/client/clienttest"
)

// visitor is a browser without scripts.
type visitor struct {
	t    *testing.T
	http *http.Client
	url  string
	page string // the last one
	code int
}

func newVisitor(t *testing.T, edit func(*Options)) *visitor {
	t.Helper()
	s := clienttest.New(t)
	opts := Options{URL: s.URL, Credential: client.ServiceKey(s.ServiceKey), Purpose: "order.create", MaxTTL: time.Hour, Claims: true, Log: slog.New(slog.DiscardHandler)}
	if edit != nil {
		edit(&opts)
	}
	d, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	web := httptest.NewServer(d)
	t.Cleanup(web.Close)
	return &visitor{t: t, http: &http.Client{Jar: newJar(t)}, url: web.URL}
}

func newJar(t *testing.T) http.CookieJar {
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return jar
}

func (v *visitor) do(method, path string, form url.Values, header ...string) {
	v.t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), method, v.url+path, strings.NewReader(form.Encode()))
	if err != nil {
		v.t.Fatal(err)
	}
	req.Header.Set("Accept", "text/html")
	if form != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := v.http.Do(req)
	if err != nil {
		v.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		v.t.Fatal(err)
	}
	v.page, v.code = string(body), resp.StatusCode
}

var tokenField = regexp.MustCompile(`name="tokend_token" autocomplete="off" value="([^"]*)"`)

// token returns the token of the page's form.
func (v *visitor) token() string {
	v.t.Helper()
	m := tokenField.FindStringSubmatch(v.page)
	if m == nil {
		v.t.Fatalf("no form:\n%s", v.page)
	}
	return m[1]
}

func (v *visitor) order(token string) {
	v.t.Helper()
	v.do("POST", "/demo/orders", url.Values{"item": {"tea"}, "quantity": {"1"}, "tokend_token": {token}})
}

func (v *visitor) sees(parts ...string) {
	v.t.Helper()
	for _, part := range parts {
		if !strings.Contains(v.page, part) {
			v.t.Errorf("the page (%d) does not show %q:\n%s", v.code, part, v.page)
		}
	}
}

// Both languages say the same things, and the page says nothing that has no words.
func TestWords(t *testing.T) {
	en, zh := slices.Sorted(maps.Keys(languages["en"])), slices.Sorted(maps.Keys(languages["zh"]))
	only := func(of []string, also ...[]string) (left []string) {
		for _, key := range of {
			if !strings.HasPrefix(key, "code.") && !slices.ContainsFunc(also, func(a []string) bool { return slices.Contains(a, key) }) {
				left = append(left, key)
			}
		}
		return left
	}
	if diff := cmp.Diff(only(en, zh), only(zh, en)); diff != "" {
		t.Errorf("only in English, only in Chinese:\n%s", diff)
	}
	half := regexp.MustCompile(`\p{Han}[ ]?[,.:;!?]|[,.:;!?][ ]?\p{Han}`)
	for key, text := range languages["zh"] {
		if half.MatchString(text) {
			t.Errorf("%s mixes punctuation of two widths: %q", key, text)
		}
	}
	for _, step := range steps {
		if languages["en"]["step."+step] == "" {
			t.Errorf("the step %s has no words", step)
		}
	}
	key := regexp.MustCompile(`T "([a-z.0-9-]+)"`)
	for _, name := range []string{"page.html", "board.html"} {
		source, err := sources.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		found := key.FindAllStringSubmatch(string(source), -1)
		if len(found) < 10 {
			t.Errorf("%s: %d texts", name, len(found))
		}
		for _, m := range found {
			if languages["en"][m[1]] == "" {
				t.Errorf("%s: there are no words for %q", name, m[1])
			}
		}
	}
	for _, k := range scriptWords {
		if languages["en"][k] == "" {
			t.Errorf("the script: there are no words for %q", k)
		}
	}
}

func TestWithoutScript(t *testing.T) {
	v := newVisitor(t, nil)
	v.do("GET", "/demo/", nil)
	first := v.token()
	v.do("POST", "/demo/orders", url.Values{"item": {"rum"}, "quantity": {"0"}, "tokend_token": {first}})
	v.sees("Please choose what you want.", "Please order 1 to 9.")
	if v.code != http.StatusUnprocessableEntity || v.token() != first {
		t.Errorf("mistakes: %d, with another token", v.code)
	}
	v.order(first)
	v.sees("Made: order 1", `data-orders="1"`)
	v.order(first) // the answer is a redirect to the first one's order
	v.sees("Made: order 1", `data-orders="1"`, "first answer again")
	v.do("POST", "/demo/settings", url.Values{"protection": {"once"}, "user": {"bob"}, "life": {"5"}})
	v.sees(`data-user="bob"`, `data-protection="once"`, `data-life="5"`)
	bobs := v.token()
	v.do("POST", "/demo/settings", url.Values{"user": {"alice"}})
	v.order(bobs)
	v.sees("wrong_user", `data-orders="1"`)
	v.order(v.token())
	v.sees("Made: order 2")
	v.do("POST", "/demo/settings", url.Values{"protection": {"off"}})
	v.order(first)
	v.order(first)
	v.sees(`data-orders="4"`, "duplicate")
	v.do("POST", "/demo/clear", url.Values{})
	v.sees(`data-orders="0"`)
}

// What a page of another site sends, and what nobody can choose, changes nothing.
func TestRefused(t *testing.T) {
	v := newVisitor(t, nil)
	v.do("POST", "/demo/orders", url.Values{"item": {"tea"}, "quantity": {"1"}})
	v.sees(`data-orders="0"`) // of the session that begins with the page
	for _, form := range []url.Values{{"protection": {"none"}}, {"life": {"7"}}, {"life": {"x"}}, {"user": {"root"}}, {"lang": {"xx"}}} {
		v.do("POST", "/demo/settings", form)
		if v.code != http.StatusBadRequest {
			t.Errorf("%v: %d", form, v.code)
		}
	}
	v.do("POST", "/demo/crash", url.Values{"when": {"now"}})
	if v.code != http.StatusBadRequest {
		t.Errorf("crash: %d", v.code)
	}
	v.do("POST", "/demo/clear", url.Values{}, "Sec-Fetch-Site", "cross-site")
	if v.code != http.StatusForbidden {
		t.Errorf("another site's: %d", v.code)
	}
	v.http.Jar = newJar(t)
	v.do("GET", "/demo/board", nil)
	if v.code != http.StatusUnauthorized {
		t.Errorf("without a session: %d", v.code)
	}
}

// What is sent is read to a bound, and written nowhere.
func TestBodiesAreBounded(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	v := newVisitor(t, nil)
	v.do("GET", "/demo/", nil)
	token := v.token()
	// As much as would go into a file, of text and of files; and all of a form that is short.
	for name, tt := range map[string]struct {
		part   string
		size   int
		status int
	}{
		"a long file":     {`name="x"; filename="x"`, 48 << 20, http.StatusRequestEntityTooLarge},
		"a long field":    {`name="x"`, 48 << 20, http.StatusRequestEntityTooLarge},
		"above the bound": {`name="x"; filename="x"`, maxBody, http.StatusRequestEntityTooLarge},
		"below the bound": {`name="x"; filename="x"`, maxBody / 2, http.StatusOK},
	} {
		for path, fields := range map[string]string{
			"settings": "--b\r\nContent-Disposition: form-data; name=\"user\"\r\n\r\nbob\r\n",
			"crash":    "--b\r\nContent-Disposition: form-data; name=\"when\"\r\n\r\nbefore\r\n",
			"clear":    "",
			"orders":   "--b\r\nContent-Disposition: form-data; name=\"tokend_token\"\r\n\r\n" + token + "\r\n",
		} {
			body := io.MultiReader(strings.NewReader(fields+"--b\r\nContent-Disposition: form-data; "+tt.part+"\r\n\r\n"),
				io.LimitReader(zeros{}, int64(tt.size)), strings.NewReader("\r\n--b--\r\n"))
			req, err := http.NewRequest("POST", v.url+Path+path, body)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "multipart/form-data; boundary=b")
			req.Header.Set("Accept", "text/html")
			// The server may end the connection while it is still being sent to.
			if resp, err := v.http.Do(req); err == nil {
				resp.Body.Close()
				if path != "orders" && resp.StatusCode != tt.status {
					t.Errorf("%s to %s: %s, want %d", name, path, resp.Status, tt.status)
				}
			} else if tt.status == http.StatusOK {
				t.Errorf("%s to %s: %v", name, path, err)
			}
			left, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range left {
				t.Errorf("%s to %s leaves %s", name, path, f.Name())
			}
		}
	}
}

// zeros is without an end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// A tokend that can do less than the page would like is enough.
func TestLess(t *testing.T) {
	v := newVisitor(t, func(o *Options) { o.Claims, o.MaxTTL = false, 3*time.Second })
	v.do("GET", "/demo/", nil)
	v.sees(`data-protection="once"`, `data-life="3"`)
	if strings.Contains(v.page, `value="replay"`) {
		t.Error("it offers what needs claims")
	}
	v.order(v.token())
	v.sees("Made: order 1")
	v.do("POST", "/demo/settings", url.Values{"protection": {"replay"}})
	if v.code != http.StatusBadRequest {
		t.Errorf("replay: %d", v.code)
	}
}

func TestSessionsAreBounded(t *testing.T) {
	var ss sessions
	w, r := httptest.NewRecorder(), httptest.NewRequest("GET", Path, nil)
	first := ss.begin(w, r, choices{})
	kept := ss.begin(w, r, choices{})
	cookie := func(s *session) *http.Request {
		r := httptest.NewRequest("GET", Path, nil)
		r.AddCookie(&http.Cookie{Name: cookieName, Value: s.id})
		return r
	}
	for range maxSessions - 1 {
		ss.of(cookie(kept))
		ss.begin(w, r, choices{})
	}
	if len(ss.byID) != maxSessions || ss.queue.Len() != maxSessions {
		t.Errorf("%d and %d sessions", len(ss.byID), ss.queue.Len())
	}
	if ss.of(cookie(first)) != nil || ss.of(cookie(kept)) != kept {
		t.Error("it is not the one that nobody came by with that is gone")
	}
	for range 10 * maxEntries {
		kept.add(&entry{kind: ofOrder, token: kept.letter(time.Now().String())})
		kept.create(order{})
	}
	if len(kept.entries) > maxEntries || len(kept.orders) > maxOrders || len(kept.letters) > maxTokens {
		t.Errorf("%d entries, %d orders, %d tokens", len(kept.entries), len(kept.orders), len(kept.letters))
	}
	if b := kept.board("en"); b.Requests != 10*maxEntries || b.Made != 10*maxEntries {
		t.Errorf("counted: %d requests, %d orders", b.Requests, b.Made)
	}
}

func TestLanguageOf(t *testing.T) {
	for accept, want := range map[string]string{
		"": "en", "zh": "zh", "zh-CN,zh;q=0.9,en;q=0.8": "zh", "en-GB,zh;q=0.5": "en", "fr, zh-TW;q=0.3": "zh", "de": "en",
		"en;q=0.1, zh;q=0.7": "zh", "zh;q=0": "en", "*": "en", ";;q=,": "en",
	} {
		r := httptest.NewRequest("GET", Path, nil)
		r.Header.Set("Accept-Language", accept)
		if got := languageOf(r, choices{}); got != want {
			t.Errorf("%q: %s, want %s", accept, got, want)
		}
		if got := languageOf(r, choices{lang: "zh"}); got != "zh" {
			t.Errorf("%q, where Chinese is chosen: %s", accept, got)
		}
	}
}

// The page runs and loads nothing but what this origin serves.
func TestPolicy(t *testing.T) {
	v := newVisitor(t, nil)
	resp, err := v.http.Get(v.url + Path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"Content-Security-Policy": policy, "Cache-Control": "no-store", "Referrer-Policy": "no-referrer"} {
		if got := resp.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if !strings.HasPrefix(policy, "default-src 'none'; ") || strings.Contains(policy, "unsafe") || strings.Contains(policy, "*") {
		t.Errorf("the policy is %q", policy)
	}
	if found := regexp.MustCompile(`(?i)<style| style=| on[a-z]+=|https?://|javascript:|@import`).FindAllString(string(body), -1); found != nil {
		t.Errorf("the page has %q", found)
	}
	for _, script := range regexp.MustCompile(`<script[^>]*>`).FindAllString(string(body), -1) {
		if !strings.Contains(script, ` src="/`) && !strings.Contains(script, `type="application/json"`) {
			t.Errorf("the page has %s", script)
		}
	}
	for _, path := range []string{"demo.js", "demo.css", "icon.svg"} {
		source, err := files.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if found := regexp.MustCompile(`https?://[^w]|url\(|@import`).FindAllString(string(source), -1); found != nil {
			t.Errorf("%s has %q", path, found)
		}
	}
}
