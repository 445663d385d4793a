package main

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"example.com/tokend/internal/demo"
)

// Nobody has its own name lead to what only this machine can reach.
func TestDevIsAtHome(t *testing.T) {
	r := startCommand(t, nil, "dev")
	_, port, _ := strings.Cut(strings.TrimPrefix(r.url, "http://"), ":")
	_, adminPort, _ := strings.Cut(strings.TrimPrefix(r.adminURL, "http://"), ":")
	for host, want := range map[string]int{
		"127.0.0.1:" + port: 200, "localhost:" + port: 200, "LocalHost": 200, "localhost.": 200, "demo.localhost:1": 200, "[::1]:" + port: 200, "[::1]": 200, "192.0.2.1": 200,
		"evil.example": 421, "evil.example:" + port: 421, "localhost.evil.example": 421, "127.0.0.1.evil.example:" + port: 421, "notlocalhost": 421, "127.1": 421, "0x7f000001": 421,
	} {
		for _, at := range []string{r.url + demo.Path, r.url + demo.Path + "demo.js", r.adminURL + "/metrics"} {
			req, err := http.NewRequestWithContext(t.Context(), "GET", at, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Host = strings.Replace(host, ":"+port, ":"+adminPort, 1)
			if strings.HasPrefix(at, r.url) {
				req.Host = host
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != want || want != http.StatusOK && len(resp.Cookies()) > 0 {
				t.Errorf("%s for %s: %s", at, req.Host, resp.Status)
			}
		}
	}
	// Where it is open to others, it has names that it does not know.
	open := &listener{Listener: fakeListener{&net.TCPAddr{IP: net.IPv4zero, Port: 8080}}}
	w := httptest.NewRecorder()
	open.atHome(http.NotFoundHandler()).ServeHTTP(w, httptest.NewRequest("GET", "http://shop.example/", nil))
	if w.Code != http.StatusNotFound {
		t.Errorf("open to others: %d", w.Code)
	}
}

type fakeListener struct{ addr net.Addr }

func (fakeListener) Accept() (net.Conn, error) { return nil, net.ErrClosed }
func (fakeListener) Close() error              { return nil }
func (f fakeListener) Addr() net.Addr          { return f.addr }

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
