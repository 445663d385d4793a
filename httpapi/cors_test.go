package httpapi_test

import (
	"context"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/tokend/httpapi"
	"example.com/tokend/httpapi/wire"
	"example.com/tokend/token"
)

const shop = "https://shop.example"

func corsHarness(t *testing.T, origins ...string) *harness {
	return newHarness(t, func(o *httpapi.Options, _ *token.Options) { o.CORSOrigins = origins })
}

// cors returns what a says to browsers about other origins.
func cors(a answer) map[string]string {
	said := make(map[string]string)
	for name, values := range a.header {
		if strings.HasPrefix(name, "Access-Control-") || name == "Vary" {
			said[name] = strings.Join(values, ", ")
		}
	}
	return said
}

var (
	notLetIn = map[string]string{"Vary": "Origin"}
	letIn    = map[string]string{
		"Vary":                          "Origin",
		"Access-Control-Allow-Origin":   shop,
		"Access-Control-Expose-Headers": "Retry-After,Idempotent-Replayed,X-Request-Id",
	}
	preflighted = map[string]string{
		"Vary":                         "Origin, Access-Control-Request-Method, Access-Control-Request-Headers",
		"Access-Control-Allow-Origin":  shop,
		"Access-Control-Allow-Methods": "OPTIONS, POST",
		"Access-Control-Allow-Headers": "Authorization,Content-Type",
		"Access-Control-Max-Age":       "600",
	}
)

func TestCORSOrigins(t *testing.T) {
	h := corsHarness(t, "https://other.example:8443", shop, "null", "*")
	for _, tt := range []struct {
		origin string
		in     bool
	}{
		{shop, true},
		{"https://other.example:8443", true},
		{"", false},
		{"null", false},
		{"*", false},
		{"https://shop.example:443", false},
		{"https://SHOP.example", false},
		{"https://shop.example/", false},
		{"http://shop.example", false},
		{"https://evil.example", false},
		{"https://shop.example.evil.example", false},
		{"https://evil-shop.example", false},
		{"https://a.shop.example", false},
		{"https://other.example", false},
	} {
		header := http.Header{}
		if tt.origin != "" {
			header.Set("Origin", tt.origin)
		}
		want := notLetIn
		if tt.in {
			want = maps.Clone(letIn)
			want["Access-Control-Allow-Origin"] = tt.origin
		}
		a := h.do(request{path: wire.PathTokens, auth: userJWT(t, "alice"), header: header})
		if diff := cmp.Diff(want, cors(a)); diff != "" {
			t.Errorf("origin %q (-want +got):\n%s", tt.origin, diff)
		}
	}
}

// TestCORSOnEveryAnswer holds that a page can read whatever it is answered: a browser
// shows it nothing of an answer without these headers.
func TestCORSOnEveryAnswer(t *testing.T) {
	page := http.Header{"Origin": {shop}}
	h := corsHarness(t, shop)
	tests := []struct {
		name   string
		ask    request
		status int
	}{
		{"success", request{path: wire.PathTokens, auth: userJWT(t, "alice")}, 201},
		{"unauthenticated", request{path: wire.PathTokens, auth: "-"}, 401},
		{"forbidden", request{path: wire.PathConsume, auth: userJWT(t, "alice")}, 403},
		{"unknown path", request{path: "/nope"}, 404},
		{"wrong method", request{method: "PUT", path: wire.PathTokens}, 405},
		{"too large", request{path: wire.PathTokens, body: strings.Repeat(" ", 70000)}, 413},
		{"not JSON", request{path: wire.PathTokens, body: "{}", typ: "text/plain"}, 415},
	}
	for _, tt := range tests {
		tt.ask.header = page
		a := h.do(tt.ask)
		if a.status != tt.status {
			t.Errorf("%s: %d %s, want %d", tt.name, a.status, a.body, tt.status)
		}
		if diff := cmp.Diff(letIn, cors(a)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}

	for range 10 {
		h.do(request{path: wire.PathTokens, auth: userJWT(t, "bob")})
	}
	a := h.do(request{path: wire.PathTokens, auth: userJWT(t, "bob"), header: page})
	if diff := cmp.Diff(letIn, cors(a)); a.status != 429 || a.header.Get("Retry-After") == "" || diff != "" {
		t.Errorf("rate limited: %d (-want +got):\n%s", a.status, diff)
	}
	h.redis.Close()
	a = h.do(request{path: wire.PathTokens, auth: userJWT(t, "alice"), header: page})
	if diff := cmp.Diff(letIn, cors(a)); a.status != 503 || diff != "" {
		t.Errorf("store down: %d (-want +got):\n%s", a.status, diff)
	}

	h = newHarness(t, func(o *httpapi.Options, _ *token.Options) {
		o.CORSOrigins, o.Tokens = []string{shop}, brokenTokens{panic: "canary"}
	})
	a = h.do(request{path: wire.PathTokens, auth: userJWT(t, "alice"), header: page})
	if diff := cmp.Diff(letIn, cors(a)); a.status != 500 || diff != "" {
		t.Errorf("panic: %d (-want +got):\n%s", a.status, diff)
	}
	a = h.do(request{method: "GET", path: "/problems/token_used", auth: "-", header: page})
	if vary := a.header.Values("Vary"); !cmp.Equal(vary, []string{"Origin", "Accept"}) {
		t.Errorf("a page that varies by itself: Vary is %q", vary)
	}
}

func TestPreflight(t *testing.T) {
	h := corsHarness(t, shop)
	ask := func(origin string) answer {
		// Browsers send no credentials with it: it is answered before anyone is asked for any.
		return h.do(request{method: "OPTIONS", path: wire.PathTokens, auth: "-", header: http.Header{
			"Origin": {origin}, "Access-Control-Request-Method": {"POST"},
			"Access-Control-Request-Headers": {"authorization,content-type,x-evil"},
		}})
	}
	a := ask(shop)
	if diff := cmp.Diff(preflighted, cors(a)); a.status != 204 || a.body != "" || diff != "" {
		t.Errorf("%d %q (-want +got):\n%s", a.status, a.body, diff)
	}
	a = ask("https://evil.example")
	if diff := cmp.Diff(notLetIn, cors(a)); a.status != 204 || diff != "" {
		t.Errorf("another origin's: %d (-want +got):\n%s", a.status, diff)
	}
	if lines := h.log.lines(t); len(lines) != 0 {
		t.Errorf("a preflight is logged: %v", lines)
	}
}

func TestCORSOff(t *testing.T) {
	h := newHarness(t)
	a := h.do(request{path: wire.PathTokens, auth: userJWT(t, "alice"), header: http.Header{"Origin": {shop}}})
	if got := cors(a); a.status != 201 || len(got) != 0 {
		t.Errorf("%d %v, want nothing said about origins", a.status, got)
	}
}

// TestOptions holds that a plain OPTIONS names the methods, with and without CORS.
func TestOptions(t *testing.T) {
	for _, h := range []*harness{newHarness(t), corsHarness(t, shop)} {
		for path, want := range map[string]string{wire.PathTokens: "OPTIONS, POST", wire.PathLivez: "OPTIONS, GET, HEAD", "/problems/x": "OPTIONS, GET, HEAD"} {
			a := h.do(request{method: "OPTIONS", path: path, auth: "-", header: http.Header{"X-Request-Id": {"mine"}}})
			if a.status != 204 || a.header.Get("Allow") != want || a.header.Get("X-Request-Id") != "mine" || a.body != "" {
				t.Errorf("OPTIONS %s: %d %v", path, a.status, a.header)
			}
		}
	}
}

// BenchmarkCORS shows what it costs: nothing where no origins are configured.
func BenchmarkCORS(b *testing.B) {
	for name, origins := range map[string][]string{"off": nil, "on": {shop}} {
		srv := httpapi.New(httpapi.Options{Ping: func(context.Context) error { return nil }, CORSOrigins: origins})
		r := httptest.NewRequest("GET", wire.PathLivez, nil)
		r.Header.Set("Origin", shop)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				srv.ServeHTTP(discard{}, r)
			}
		})
	}
}

// discard is a response that nobody reads.
type discard struct{}

func (discard) Header() http.Header         { return http.Header{} }
func (discard) Write(b []byte) (int, error) { return len(b), nil }
func (discard) WriteHeader(int)             {}
