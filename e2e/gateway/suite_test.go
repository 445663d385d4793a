package gateway_test

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// sendsOnce sends forms, each by another method, and then again.
func (s *site) sendsOnce(t *testing.T, methods ...string) {
	for _, method := range []string{"GET", "HEAD", "OPTIONS"} { // the page, before there is a token
		if a := s.send(method, "/orders/new?a=1", http.Header{}); a.status != http.StatusCreated {
			t.Errorf("%s: %v", method, a)
		}
		if got := s.orders.take(); len(got) != 1 || got[0].method != method || got[0].path != "/orders/new?a=1" {
			t.Errorf("%s: %+v", method, got)
		}
	}
	for _, method := range methods {
		tok := s.token("alice")
		got := s.through(s.send(method, "/orders", headers("Tokend-Token", tok.Value, "Content-Type", "application/json")))
		if got.method != method || got.body != `{"item":"tea"}` || got.header.Get("Content-Type") != "application/json" {
			t.Errorf("%s did not come through whole: %+v", method, got)
		}
		if got.header.Get("Tokend-Ref") != tok.Ref || got.header.Get("Tokend-Token") != "" || got.header.Get("Tokend-Authorization") != "" {
			t.Errorf("%s: the service is told %v", method, got.header)
		}
		a := s.send(method, "/orders", headers("Tokend-Token", tok.Value))
		s.stopped(a, 409, "token_used", "stop")
		if a.Ref != tok.Ref || a.Type != "/problems/token_used" || a.Status != 409 {
			t.Errorf("%s again: %v", method, a)
		}
	}
}

// takesADoubleClick has a form sent many times at the same time.
func (s *site) takesADoubleClick(t *testing.T) {
	for range 2 {
		header := headers("Tokend-Token", s.token("alice").Value)
		var taken atomic.Int64
		var wg sync.WaitGroup
		for range 12 {
			wg.Go(func() {
				switch a, err := s.try("POST", "/orders", header); {
				case err != nil:
					t.Error(err)
				case a.status == http.StatusCreated:
					taken.Add(1)
				case !s.refused(a, http.StatusConflict) || a.Code != "token_used":
					t.Errorf("%v", a)
				}
			})
		}
		wg.Wait()
		if got := s.orders.take(); taken.Load() != 1 || len(got) != 1 {
			t.Errorf("%d were told that theirs was taken, %d came through", taken.Load(), len(got))
		}
	}
}

// isNotFooled has clients send every header that means something between gateways and tokend.
func (s *site) isNotFooled(t *testing.T) {
	safe := []string{ // none of which makes a POST pass
		"X-Original-Method", "GET", "X-Forwarded-Method", "GET", "X-Http-Method-Override", "GET", "X-Method-Override", "GET",
	}
	own := []string{ // none of which is an attempt, a gateway or a ref
		"Tokend-Attempt", "mine", "X-Request-Id", "mine", "Idempotency-Key", "mine",
		"Tokend-Authorization", "Bearer " + program.ServiceKey(), "Tokend-Ref", "t_00000000000000000000000000000000",
		"X-Original-Uri", "/elsewhere", "X-Forwarded-Uri", "/elsewhere", "X-Accel-Redirect", "/orders",
		"Connection", "Tokend-Ref", // which has a proxy take it away
	}
	for _, c := range "!#$%&'*+.^_`|~" {
		own = append(own, "Tokend"+string(c)+"Ref", "t_00000000000000000000000000000000")
	}
	forged := headers(append(safe, own...)...)
	with := func(pairs ...string) http.Header {
		h := forged.Clone()
		for name, values := range headers(pairs...) {
			h[name] = values
		}
		return h
	}

	s.stopped(s.send("POST", "/orders", forged), 400, "token_missing", "reissue")

	tok := s.token("alice")
	got := s.through(s.send("POST", "/orders", with("Tokend-Token", tok.Value)))
	if refs := refsOf(got.header); len(refs) != 1 || refs[0] != tok.Ref {
		t.Errorf("the service is told the refs %q, want %s: %v", refs, tok.Ref, got.header)
	}
	if got.header.Get("Tokend-Authorization") != "" || got.header.Get("Tokend-Token") != "" {
		t.Errorf("the service is told %v", got.header)
	}
	s.stopped(s.send("POST", "/orders", with("Tokend-Token", tok.Value)), 409, "token_used", "stop")
	if got := s.through(s.send("GET", "/orders/1", forged)); len(refsOf(got.header)) > 0 {
		t.Errorf("a GET tells the service %v", got.header)
	}

	bobs := s.token("bob").Value
	other := s.tokenFor(s.tokend.Client().Purpose("other"), "alice").Value
	for name, tt := range map[string]struct {
		header http.Header
		status int
		code   string
		next   string
	}{
		"another user's token": {with("Tokend-Token", bobs), 403, "wrong_user", "stop"},
		"and that user's name": {with("Tokend-Token", bobs, "Tokend-User", "bob", "X-User", "bob", "X-Forwarded-User", "bob", "Remote-User", "bob"), 403, "wrong_user", "stop"},
		"another purpose":      {with("Tokend-Token", other, "Tokend-Purpose", "other"), 403, "wrong_purpose", "stop"},
		"no user":              {with("Tokend-Token", bobs, "Authorization", ""), 401, "unauthenticated", "fix"},
		"a service for a user": {with("Tokend-Token", bobs, "Authorization", "Bearer "+program.ServiceKey()), 403, "forbidden", "fix"},
		"a forged token":       {with("Tokend-Token", strings.ToUpper(bobs)), 400, "token_invalid", "stop"},
		"two names for it":     {with("Tokend_token", bobs, "X-Tokend-Token", bobs, "Cookie", "tokend_token="+bobs), 400, "token_missing", "reissue"},
	} {
		t.Run(name, func(t *testing.T) {
			s := *s
			s.t = t
			s.stopped(s.send("POST", "/orders", tt.header), tt.status, tt.code, tt.next)
		})
	}
	s.stopped(s.send("POST", "/orders?tokend_token="+bobs, forged), 400, "token_missing", "reissue")

	// Of two tokens one is used at most, and the request comes through at most once with each.
	one, two := s.token("alice").Value, s.token("alice").Value
	pair := with("Tokend-Token", one, "Tokend-Token", two)
	came := 0
	for range 4 {
		s.send("POST", "/orders", pair)
		came += len(s.orders.take())
	}
	if came > 1 {
		t.Errorf("a pair of tokens came through %d times", came)
	}
	s.through(s.send("POST", "/orders", headers("Tokend-Token", two)))
}

// refsOf returns what a service takes for the ref that reads headers as CGI, WSGI and PHP do: to
// it a hyphen is what any other mark is.
func refsOf(h http.Header) (refs []string) {
	marks := func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}
	for name, values := range h {
		if strings.Map(marks, strings.ToLower(name)) == "tokend_ref" {
			refs = append(refs, values...)
		}
	}
	return refs
}

// refusesTwoTokens sends two tokens with one request. The service behind might go by either.
func (s *site) refusesTwoTokens(code, next string) {
	s.t.Helper()
	one, two := s.token("alice").Value, s.token("alice").Value
	s.stopped(s.send("POST", "/orders", headers("Tokend-Token", one, "Tokend-Token", two)), http.StatusBadRequest, code, next)
	s.through(s.send("POST", "/orders", headers("Tokend-Token", one)))
	s.through(s.send("POST", "/orders", headers("Tokend-Token", two)))
}
