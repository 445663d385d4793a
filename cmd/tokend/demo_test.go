package main

import (
	"crypto/tls"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"example.com/tokend/internal/demo"
)

// The demo page is there and takes an order, however tokend dev is set up.
func TestDevDemo(t *testing.T) {
	key := runCommand(t, nil, "", "keygen", "service").stdout
	entry := strings.Fields(key)[len(strings.Fields(key))-1]
	cert := newTestCert(t, "dev")
	file := filepath.Join(t.TempDir(), "tokend.yaml")
	if err := os.WriteFile(file, []byte("purposes:\n  account.delete: {ttl: 20s, max_ttl: 40s}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	at := regexp.MustCompile(`A page to play with: (http\S+)\n`)
	for name, environ := range map[string][]string{
		"all made up":        nil,
		"keys given":         {"TOKEND_AUTH_SERVICE_KEYS=" + entry, "TOKEND_AUTH_JWT_SECRET=" + testSecret, "TOKEND_AUTH_SERVICE_CLAIM=gty=client"},
		"TLS":                {"TOKEND_TLS_CERT_FILE=" + cert.certFile, "TOKEND_TLS_KEY_FILE=" + cert.keyFile},
		"delete mode":        {"TOKEND_TOKENS_MODE=delete"},
		"purposes and times": {"TOKEND_CONFIG=" + file},
		"short lives":        {"TOKEND_TOKENS_MAX_TTL=20s"},
	} {
		t.Run(name, func(t *testing.T) {
			r := startCommand(t, environ, "dev")
			r.until("it says where the page is", func() bool { return at.MatchString(r.stdout.String()) })
			page := at.FindStringSubmatch(r.stdout.String())[1]
			if !strings.HasSuffix(page, demo.Path) {
				t.Fatalf("the page is at %s", page)
			}
			jar, err := cookiejar.New(nil)
			if err != nil {
				t.Fatal(err)
			}
			browser := &http.Client{Jar: jar, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
			t.Cleanup(browser.CloseIdleConnections)
			token := regexp.MustCompile(`value="(ott_[^"]+)"`)
			ask := func(method, path string, form url.Values) string {
				t.Helper()
				req, err := http.NewRequestWithContext(t.Context(), method, page+path, strings.NewReader(form.Encode()))
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("Accept", "text/html")
				req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
				resp, err := browser.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				body, err := io.ReadAll(resp.Body)
				if err != nil {
					t.Fatal(err)
				}
				return string(body)
			}
			shown := ask("GET", "", nil)
			m := token.FindStringSubmatch(shown)
			if m == nil {
				t.Fatalf("the form has no token:\n%s", shown)
			}
			if done := ask("POST", "orders", url.Values{"item": {"tea"}, "quantity": {"1"}, "tokend_token": {m[1]}}); !strings.Contains(done, "Made: order 1") {
				t.Errorf("it takes no order:\n%s", done)
			}
			if status := r.stop(); status != exitOK {
				t.Errorf("status %d:\n%s", status, r.stderr)
			}
		})
	}
}
