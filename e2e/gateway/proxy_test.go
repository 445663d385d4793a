package gateway_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"testing"

	"go.yaml.in/yaml/v3"

	"example.com/tokend/e2e/internal/topology"
)

// readFile reads the file of deploy at path into v, with changes of its text.
func readFile(t *testing.T, path string, changes replace, v any) {
	t.Helper()
	text, err := os.ReadFile("../../deploy/" + path)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal([]byte(changes.in(t, string(text))), v); err != nil {
		t.Fatal(err)
	}
}

// before puts a gateway before s: ask asks tokend about a request, and returns its answer
// where the request is to be refused, or nil where it, as ask has changed it, is let through.
func (s *site) before(ask func(*http.Request) *http.Response) {
	target, err := url.Parse(s.orders.URL)
	if err != nil {
		s.t.Fatal(err)
	}
	to := httputil.NewSingleHostReverseProxy(target)
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		refusal := ask(r)
		if refusal == nil {
			to.ServeHTTP(w, r)
			return
		}
		defer refusal.Body.Close()
		for name, values := range refusal.Header {
			w.Header()[name] = values
		}
		w.WriteHeader(refusal.StatusCode)
		io.Copy(w, refusal.Body)
	}))
	s.t.Cleanup(gateway.Close)
	s.url = gateway.URL
}

// direct asks tokend, and follows nobody.
var direct = &http.Client{
	Transport:     &http.Transport{DisableKeepAlives: true, DisableCompression: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	Timeout:       topology.Patience,
}

// empty is an answer of the gateway's own.
func empty(status int) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(nil))}
}
