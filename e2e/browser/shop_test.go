package browser_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"log/slog"
	"mime"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/tokend/client"
	"example.com/tokend/client/guard"
	"example.com/tokend/httpapi/wire"
)

// shop is a form service of a test's own, behind guard, on tokend dev.
type shop struct {
	t     *testing.T
	url   string
	mux   *http.ServeMux
	guard *guard.Guard

	mu    sync.Mutex
	asked map[string][]sent // by path, in their order
	made  int               // orders
	form  string            // of its page
	opts  string            // of protect, in JavaScript
	lang  string
	plain bool // the page takes the plain build
}

// sent is a request to the shop.
type sent struct {
	method, query, token, auth, mediaType string
	fields                                []string // NAME=VALUE, in their order
	raw                                   string
}

// newShop starts a shop whose page holds form, which protect is called for with opts.
func newShop(t *testing.T, form, opts string, more ...guard.Option) *shop {
	t.Helper()
	s := openShop(t, form, opts, more...)
	server := httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

// newShopLetIn is newShop at the origin that tokend dev lets in.
func newShopLetIn(t *testing.T, form, opts string) *shop {
	t.Helper()
	s := openShop(t, form, opts)
	s.url = letIn.URL
	letInTo.Store(s)
	return s
}

func openShop(t *testing.T, form, opts string, more ...guard.Option) *shop {
	t.Helper()
	s := &shop{t: t, mux: http.NewServeMux(), asked: map[string][]sent{}, form: form, opts: opts, lang: "en"}
	c := dev.client(t)
	s.guard = guard.New(c.Purpose("order.create"), append([]guard.Option{guard.User(userOf), guard.Logger(slog.New(slog.DiscardHandler))}, more...)...)
	s.mux.Handle("GET /{$}", s.guard.Issue(http.HandlerFunc(s.page)))
	s.mux.HandleFunc("GET /cacheable", s.page)
	s.mux.Handle("POST /token", s.guard.IssueHandler())
	for _, path := range []string{wire.PathScript, wire.PathScriptGlobal} {
		script := fetch(t, dev.url+path)
		s.mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/javascript; charset=utf-8")
			io.WriteString(w, script)
		})
	}
	s.mux.HandleFunc("GET /made", func(w http.ResponseWriter, r *http.Request) { show(w, 200, "<h1>Made</h1>") })
	return s
}

// userOf is whose a request is: that of a cookie, which a log-in would set.
func userOf(r *http.Request) string {
	if c, err := r.Cookie("user"); err == nil {
		return c.Value
	}
	return "alice"
}

func show(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	fmt.Fprintf(w, `<!doctype html><html lang="en"><title>shop</title><link rel="icon" href="data:,"><body>%s`, body)
}

// page shows the form. What happens on it is noted in the global events.
func (s *shop) page(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	form, opts, lang, plain := s.form, s.opts, s.lang, s.plain
	s.mu.Unlock()
	form = strings.ReplaceAll(form, "{{field}}", string(guard.Field(r.Context())))
	load, kind := `import { protect } from '`+wire.PathScript+`';`, "module"
	if plain {
		load, kind = `const { protect } = tokend;`, "text/javascript"
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	fmt.Fprintf(w, `<!doctype html><html lang="%s"><title>shop</title><link rel="icon" href="data:,"><body><h1>Order</h1>%s
<script src="%s"></script><script type="%s">%s
const events = window.events = [];
for (const type of ['tokend:progress', 'tokend:outcome', 'tokend:shown']) {
	document.addEventListener(type, (e) => {
		const { response, protection, ...rest } = e.detail;
		if (protection) { window.protection = protection; }
		events.push({ type: type.slice(7), answered: Boolean(response), ...rest });
		if (window.prevents === type) { e.preventDefault(); }
	});
}
const jwt = %s;
window.protection = protect(document.querySelector('#f'), %s);
window.protect = protect;
</script>`, lang, form, html.EscapeString(wire.PathScriptGlobal), kind, load, quote(dev.userJWT), opts)
}

// serve notes the request and serves it.
func (s *shop) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // it was cut off
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	got := sent{method: r.Method, query: r.URL.RawQuery, token: r.Header.Get(wire.HeaderToken), auth: r.Header.Get("Authorization"), raw: string(body)}
	got.read(r.Header.Get("Content-Type"), body)
	s.mu.Lock()
	s.asked[r.URL.Path] = append(s.asked[r.URL.Path], got)
	s.mu.Unlock()
	s.mux.ServeHTTP(w, r)
}

func (g *sent) read(contentType string, body []byte) {
	mediaType, params, _ := mime.ParseMediaType(contentType)
	g.mediaType = mediaType
	add := func(name, value string) {
		if name == wire.FieldToken {
			g.token = value
			name, value = "TOKEN", ""
		}
		g.fields = append(g.fields, name+"="+value)
	}
	switch mediaType {
	case "application/x-www-form-urlencoded":
		for pair := range strings.SplitSeq(string(body), "&") {
			name, value, _ := strings.Cut(pair, "=")
			name, _ = url.QueryUnescape(name)
			value, _ = url.QueryUnescape(value)
			add(name, value)
		}
	case "multipart/form-data":
		form := multipart.NewReader(bytes.NewReader(body), params["boundary"])
		for {
			part, err := form.NextPart()
			if err != nil {
				return
			}
			value, _ := io.ReadAll(part)
			if part.FileName() != "" {
				value = []byte(part.FileName() + ":" + string(value))
			}
			add(part.FormName(), string(value))
		}
	case "application/json":
		var members map[string]any
		if json.Unmarshal(body, &members) == nil {
			if token, ok := members[wire.FieldToken].(string); ok {
				g.token = token
			}
		}
	}
}

// sent returns the requests to path.
func (s *shop) sent(path string) []sent {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]sent(nil), s.asked[path]...)
}

// tokens returns the tokens that came to path: as "a a b" for the first one twice and another.
func (s *shop) tokens(path string) string {
	var names []string
	known := map[string]string{}
	for _, g := range s.sent(path) {
		if g.token == "" {
			names = append(names, "none")
			continue
		}
		if known[g.token] == "" {
			known[g.token] = string(rune('a' + len(known)))
		}
		names = append(names, known[g.token])
	}
	return strings.Join(names, " ")
}

// order makes one.
func (s *shop) order(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.made++
	s.mu.Unlock()
	answer(w, http.StatusCreated, "application/json", `{"order": 1}`)
}

func (s *shop) orders() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.made
}

// once makes orders behind a token that is used up.
func (s *shop) once(opts ...guard.Option) http.Handler {
	return s.guard.Once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if guard.Consume(r.Context()) == nil {
			s.order(w, r)
		}
	}), opts...)
}

// says answers with each of answers in turn, and then with the last one; "cut" is none.
func (s *shop) says(answers ...said) http.Handler {
	n := 0
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		a := answers[min(n, len(answers)-1)]
		n++
		s.mu.Unlock()
		for name, value := range a.header {
			w.Header().Set(name, value)
		}
		if a.status == 0 {
			cutOff(w)
		}
		answer(w, a.status, a.contentType, a.body)
	})
}

// cutOff ends the answer in its middle. Chromium sends again by itself what ends without a byte,
// on a connection that it has used before; the script is to be seen alone.
func cutOff(w http.ResponseWriter) {
	w.Header().Set("Content-Length", "100")
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	panic(http.ErrAbortHandler)
}

func answer(w http.ResponseWriter, status int, contentType, body string) {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	io.WriteString(w, body)
}

// said is what a shop says.
type said struct {
	status            int
	contentType, body string
	header            map[string]string
}

var (
	made   = said{status: 201, contentType: "application/json", body: `{"order": 1}`}
	nobody = said{} // hears anything
)

// refusal is a problem as guard says it.
func refusal(status int, code wire.Code, next client.Next) said {
	return said{status: status, contentType: wire.TypeProblem, body: object(map[string]any{
		"type": "/problems/" + string(code), "title": "x", "status": status, "detail": "The detail of " + string(code) + ".", "code": code, "next": next,
		"request_id": "x",
	})}
}

func (a said) after(seconds string) said {
	a.header = map[string]string{"Retry-After": seconds}
	return a
}

func object(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// visit opens the shop's page.
func (s *shop) visit(l look) *page {
	s.t.Helper()
	p := window(s.t, l)
	s.letIn(p)
	s.open(p)
	return p
}

// visitIn opens the shop's page in p, for s's test.
func (s *shop) visitIn(p *page) {
	s.t.Helper()
	p.on(s.t)
	s.letIn(p)
	s.open(p)
}

func (s *shop) letIn(p *page) {
	p.mu.Lock()
	p.hosts = append(p.hosts, strings.TrimPrefix(s.url, "http://"))
	p.mu.Unlock()
	p.expect(refusals)
}

func (s *shop) open(p *page) {
	s.t.Helper()
	p.open(s.url)
	p.until(`window.protection`)
}

// settled waits until the form's nth submission has come to its end.
func (p *page) settled(n int) {
	p.t.Helper()
	p.until(fmt.Sprintf(`events.filter((e) => e.type === 'outcome').length === %d`, n))
	p.until(`document.querySelector('#f')?.getAttribute('aria-busy') !== 'true'`)
}

// states returns what the page was told, as "fetching sending held outcome".
func (p *page) states() string {
	p.t.Helper()
	return get[string](p, `events.map((e) => e.state ?? e.type).join(' ')`)
}

const simple = `<form id="f" method="post" action="/orders"><input id="item" name="item" value="tea"><button id="go">Order</button></form>`

// slowly has h take its time, so that a second click comes in the middle.
func slowly(h http.Handler, release <-chan struct{}) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-time.After(patience):
		}
		h.ServeHTTP(w, r)
	})
}
