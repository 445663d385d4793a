package httpapi_test

import (
	"testing"

	"example.com/tokend/client/browser"
	"example.com/tokend/httpapi/wire"
)

func TestScript(t *testing.T) {
	h := corsHarness(t, shop)
	for path, want := range map[string][]byte{wire.PathScript: browser.Module(), wire.PathScriptGlobal: browser.Global()} {
		for method, body := range map[string]string{"GET": string(want), "HEAD": ""} {
			a := h.do(request{method: method, path: path, auth: "-", header: map[string][]string{"Origin": {shop}}})
			if a.status != 200 || a.body != body {
				t.Errorf("%s %s: %d, %d bytes, want %d", method, path, a.status, len(a.body), len(body))
			}
			for name, value := range map[string]string{
				"Content-Type":                "text/javascript; charset=utf-8",
				"Cache-Control":               "no-store",
				"X-Content-Type-Options":      "nosniff",
				"Access-Control-Allow-Origin": shop, // a module is fetched as CORS has it
			} {
				if got := a.header.Get(name); got != value {
					t.Errorf("%s %s: %s is %q, want %q", method, path, name, got, value)
				}
			}
			if a.header.Get(wire.HeaderRequestID) == "" {
				t.Errorf("%s %s: no %s", method, path, wire.HeaderRequestID)
			}
		}
	}
}
