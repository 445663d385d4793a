package httpapi_test

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"example.com/tokend/httpapi/wire"
)

func TestOpenAPIIsServed(t *testing.T) {
	h := newHarness(t)
	want, err := os.ReadFile("openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for method, want := range map[string]string{"GET": string(want), "HEAD": ""} {
		a := h.do(request{method: method, path: wire.PathOpenAPI, auth: "-"})
		if a.status != 200 || a.header.Get("Content-Type") != "application/yaml" || a.body != want {
			t.Errorf("%s: %d %s, %d bytes, want %d", method, a.status, a.header.Get("Content-Type"), len(a.body), len(want))
		}
	}
}

// TestProblemPages asks for every code's page in both forms, and holds it to the one table.
func TestProblemPages(t *testing.T) {
	h := newHarness(t)
	style := regexp.MustCompile(`(?s)<style>(.*?)</style>`)
	for _, kind := range wire.Kinds() {
		path := wire.ProblemTypePrefix + string(kind.Code)
		for accept, typ := range map[string]string{
			"text/html,application/xhtml+xml,*/*;q=0.8": "text/html; charset=utf-8",
			"*/*": "text/plain; charset=utf-8",
		} {
			ask := request{method: "GET", path: path, auth: "-", header: http.Header{"Accept": {accept}}}
			a := h.do(ask)
			if a.status != 200 || a.header.Get("Content-Type") != typ || a.header.Get("Vary") != "Accept" {
				t.Errorf("%s for %s: %d %v", path, accept, a.status, a.header)
			}
			for _, want := range []string{string(kind.Code), kind.Title, string(kind.Next)} {
				if !strings.Contains(a.body, strings.ReplaceAll(want, "'", escaped(typ))) {
					t.Errorf("%s for %s does not say %q:\n%s", path, accept, want, a.body)
				}
			}
			if strings.Contains(a.body, "{{") || strings.Contains(a.body, "<no value>") {
				t.Errorf("%s for %s is half made:\n%s", path, accept, a.body)
			}
			policy := a.header.Get("Content-Security-Policy")
			if strings.HasPrefix(typ, "text/html") {
				css := style.FindStringSubmatch(a.body)
				sum := sha256.Sum256([]byte(css[1]))
				if !strings.HasPrefix(policy, "default-src 'none'; style-src 'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'; ") {
					t.Errorf("%s: the policy %q does not let the page's own style in", path, policy)
				}
				if regexp.MustCompile(`(?i)<script|<img|<link|style="|https?:|url\(|@import`).MatchString(a.body) {
					t.Errorf("%s: the page fetches or runs something:\n%s", path, a.body)
				}
			}
			ask.method = "HEAD"
			if head := h.do(ask); head.status != 200 || head.body != "" || head.header.Get("Content-Type") != typ ||
				head.header.Get("Content-Length") != a.header.Get("Content-Length") {
				t.Errorf("HEAD %s for %s: %d %v", path, accept, head.status, head.header)
			}
		}
	}
	if lines := h.log.lines(t); len(lines) != 0 {
		t.Errorf("pages are logged: %v", lines[0])
	}
}

// escaped returns the apostrophe as it stands in typ.
func escaped(typ string) string {
	if strings.HasPrefix(typ, "text/html") {
		return "&#39;"
	}
	return "'"
}

func TestProblemPageForm(t *testing.T) {
	h := newHarness(t)
	for accept, want := range map[string]string{
		"":                              "text/plain",
		"*/*":                           "text/plain",
		"text/*":                        "text/plain",
		"text/plain":                    "text/plain",
		"application/json":              "text/plain",
		"application/json, */*":         "text/plain",
		"text/html":                     "text/html",
		"text/html;q=0.9, */*;q=0.8":    "text/html",
		"text/html;q=0.5, text/plain":   "text/plain",
		"text/plain;q=0.5, text/html":   "text/html",
		"application/xhtml+xml":         "text/plain",
		"garbage;;,,/":                  "text/plain",
		strings.Repeat("text/x,", 1000): "text/plain",
	} {
		header := http.Header{"Accept": {accept}}
		if accept == "" {
			header = nil
		}
		a := h.do(request{method: "GET", path: "/problems/token_used", auth: "-", header: header})
		if got := a.header.Get("Content-Type"); !strings.HasPrefix(got, want+";") {
			t.Errorf("Accept %.40q is answered with %s, want %s", accept, got, want)
		}
	}
}

func TestNoSuchProblemPage(t *testing.T) {
	h := newHarness(t)
	for _, path := range []string{"/problems", "/problems/", "/problems/nope", "/problems/TOKEN_USED", "/problems/token%5Fused",
		"/problems/token_used/", "/problems/token_used/x", "/problems/%3Cscript%3E", "/problems/..%2Flivez"} {
		a := h.do(request{method: "GET", path: path, auth: "-"})
		if a.Code != wire.CodeNotFound || strings.Contains(a.body, "script") {
			t.Errorf("%s: %d %s, want not_found", path, a.status, a.body)
		}
	}
	if a := h.do(request{path: "/problems/token_used"}); a.Code != wire.CodeMethodNotAllowed {
		t.Errorf("POST: %d %s", a.status, a.body)
	}
}
