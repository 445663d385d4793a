package gateway_test

import (
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// traefik is what is read of Traefik's dynamic configuration.
type traefik struct {
	HTTP struct {
		Routers map[string]struct {
			Rule, Service string
			Middlewares   []string
		}
		Middlewares map[string]struct {
			Headers *struct {
				CustomRequestHeaders map[string]string `yaml:"customRequestHeaders"`
			}
			ForwardAuth *forwardAuth `yaml:"forwardAuth"`
		}
	}
}

type forwardAuth struct {
	Address               string
	TrustForwardHeader    bool     `yaml:"trustForwardHeader"`
	AuthRequestHeaders    []string `yaml:"authRequestHeaders"`
	AuthResponseHeaders   []string `yaml:"authResponseHeaders"`
	preserveRequestMethod bool
}

// ofTraefik are tokend's settings that deploy/traefik/tokend.yaml goes with.
var ofTraefik = []string{"GATEWAY_METHOD_HEADER=X-Forwarded-Method", "GATEWAY_PURPOSE_HEADER=Tokend-Purpose"}

// traefik puts before s what asks as Traefik does, by the file of deploy/traefik as edit
// leaves it.
func (s *site) traefik(edit func(*forwardAuth)) {
	s.t.Helper()
	s.flat = true
	var file traefik
	readFile(s.t, "traefik/tokend.yaml", replace{
		`{{ env "TOKEND_GATEWAY_KEY" }}`: program.ServiceKey(),
		"http://tokend:8080":             s.tokend.URL,
	}, &file)
	router := file.HTTP.Routers["orders"]
	if router.Rule != "PathPrefix(`/orders`)" || router.Service != "orders" {
		s.t.Fatalf("the router is %+v", router)
	}
	asks := 0
	for _, name := range router.Middlewares {
		m, ok := file.HTTP.Middlewares[name]
		if !ok || (m.Headers == nil) == (m.ForwardAuth == nil) {
			s.t.Fatalf("the middleware %s is %+v", name, m)
		}
		if m.ForwardAuth != nil {
			asks++
			edit(m.ForwardAuth)
		}
	}
	if asks != 1 {
		s.t.Fatalf("it asks %d times", asks)
	}
	s.before(func(r *http.Request) *http.Response {
		for _, name := range router.Middlewares {
			m := file.HTTP.Middlewares[name]
			if m.ForwardAuth != nil {
				if refusal := m.ForwardAuth.ask(r); refusal != nil {
					return refusal
				}
				continue
			}
			for header, value := range m.Headers.CustomRequestHeaders {
				if value == "" {
					r.Header.Del(header)
				} else {
					r.Header.Set(header, value)
				}
			}
		}
		return nil
	})
}

// hopByHop are the headers that are one connection's.
var hopByHop = []string{"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

// ask asks about r as Traefik's ForwardAuth does: by GET, without a body, with the headers of r
// that are let through, and X-Forwarded- headers of its own.
func (f *forwardAuth) ask(r *http.Request) (refusal *http.Response) {
	method := http.MethodGet
	if f.preserveRequestMethod {
		method = r.Method
	}
	req, err := http.NewRequestWithContext(r.Context(), method, f.Address, nil)
	if err != nil {
		return empty(http.StatusInternalServerError)
	}
	for name, values := range r.Header {
		allowed := len(f.AuthRequestHeaders) == 0 || slices.ContainsFunc(f.AuthRequestHeaders, func(a string) bool { return strings.EqualFold(a, name) })
		if allowed && !slices.Contains(hopByHop, name) {
			req.Header[name] = slices.Clone(values)
		}
	}
	ip, _, _ := net.SplitHostPort(r.RemoteAddr)
	for name, value := range map[string]string{
		"X-Forwarded-For": ip, "X-Forwarded-Method": r.Method, "X-Forwarded-Proto": "http",
		"X-Forwarded-Host": r.Host, "X-Forwarded-Uri": r.URL.RequestURI(),
	} {
		if !f.TrustForwardHeader || r.Header.Get(name) == "" {
			req.Header.Set(name, value)
		} else {
			req.Header.Set(name, r.Header.Get(name))
		}
	}
	resp, err := direct.Do(req)
	if err != nil {
		return empty(http.StatusInternalServerError)
	}
	if resp.StatusCode < 200 || resp.StatusCode >= 300 {
		return resp
	}
	resp.Body.Close()
	for _, name := range f.AuthResponseHeaders {
		r.Header.Del(name)
		if values := resp.Header.Values(name); len(values) > 0 {
			r.Header[http.CanonicalHeaderKey(name)] = values
		}
	}
	return nil
}

// TestTraefik asks as Traefik does: as the file has it, as releases do that keep the method,
// and as those do that know no list of headers.
func TestTraefik(t *testing.T) {
	for name, edit := range map[string]func(*forwardAuth){
		"as the file has it": func(*forwardAuth) {},
		"with the method":    func(f *forwardAuth) { f.preserveRequestMethod = true },
		"with every header":  func(f *forwardAuth) { f.AuthRequestHeaders = nil },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, ofTraefik...)
			s.traefik(edit)
			s.sendsOnce(t, "POST", "PUT", "PATCH", "DELETE")
			s.takesADoubleClick(t)
			s.isNotFooled(t)
			s.refusesTwoTokens("invalid_request", "fix")
			tok := s.token("alice")
			s.redis.Kill()
			s.stopped(s.send("POST", "/orders", headers("Tokend-Token", tok.Value)), 503, "store_unavailable", "wait")
			s.tokend.Close()
			if a := s.send("POST", "/orders", headers("Tokend-Token", tok.Value)); a.status < 500 || len(s.orders.take()) != 0 {
				t.Errorf("without tokend: %v", a)
			}
		})
	}
}
