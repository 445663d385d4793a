package httpapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"example.com/tokend/httpapi"
	"example.com/tokend/httpapi/auth"
	"example.com/tokend/httpapi/wire"
	"example.com/tokend/token"
)

// headers makes a header of name, value, …; a name may stand twice.
func headers(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}

// with returns h with the headers of more in place of its own; one without a value is taken
// away.
func with(h http.Header, more http.Header) http.Header {
	h = h.Clone()
	maps.Copy(h, more)
	for name, values := range h {
		if len(values) == 1 && values[0] == "" {
			delete(h, name)
		}
	}
	return h
}

// asking is what a gateway that sets no header but its key sends about a POST of alice's.
func (h *harness) asking(tok string) http.Header {
	return headers(
		wire.HeaderGatewayKey, "Bearer "+serviceJWT(h.t, "tokend.consume"),
		wire.HeaderToken, tok,
		wire.HeaderForwardedMethod, "POST",
		"Authorization", "Bearer "+userJWT(h.t, "alice"),
	)
}

// ask asks as a gateway does, and holds the answer to the form that gateways go by.
func (h *harness) ask(method, path string, header http.Header) answer {
	h.t.Helper()
	req, err := http.NewRequestWithContext(h.t.Context(), method, h.http.URL+path, nil)
	if err != nil {
		h.t.Fatal(err)
	}
	req.Header = header
	a := h.exchange(req)
	if a.status < 300 {
		if a.body != "" || a.header.Get(wire.HeaderCode) != "" {
			h.t.Errorf("let through with %v %q", a.header, a.body)
		}
		return a
	}
	if method != http.MethodHead {
		if err := json.Unmarshal([]byte(a.body), &a.Problem); err != nil || a.header.Get("Content-Type") != wire.TypeProblem {
			h.t.Fatalf("%d %v %s", a.status, a.header, a.body)
		}
		kind, _ := wire.KindOf(a.Code)
		next := kind.Next
		if next == wire.NextRetry {
			next = wire.NextWait
		}
		want := http.StatusForbidden
		if kind.Fault {
			want = http.StatusServiceUnavailable
		}
		retry := ""
		if a.RetryAfter > 0 {
			retry = strconv.FormatInt(a.RetryAfter, 10)
		}
		if a.status != want || a.Status != kind.Status || a.Title != kind.Title || a.Next != next || a.Detail == "" ||
			a.RequestID != a.header.Get("X-Request-Id") || a.header.Get("Retry-After") != retry ||
			a.header.Get(wire.HeaderStatus) != strconv.Itoa(kind.Status) || a.header.Get(wire.HeaderCode) != string(a.Code) ||
			a.header.Get(wire.HeaderNext) != string(next) || a.header.Get(wire.HeaderRef) != a.Ref {
			h.t.Errorf("a denial that does not agree with the table of codes: %d %v %s", a.status, a.header, a.body)
		}
	}
	if a.header.Get("Www-Authenticate") != "" {
		h.t.Errorf("a 403 that asks for a bearer: %v", a.header)
	}
	return a
}

// TestGateway asks with every method, and on paths below, which some gateways append.
func TestGateway(t *testing.T) {
	h := newHarness(t, func(_ *httpapi.Options, o *token.Options) { o.Rate.PerMinute = 0 })
	for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "BREW"} {
		for _, below := range []string{"", "/", "/orders", "/orders/7/items", "/a%2Fb/../../v1/tokens", "//x", "/orders?" + wire.HeaderForwardedMethod + "=GET"} {
			tok := h.issue(`{"ttl":60}`)
			a := h.ask(method, wire.PathGateway+below, h.asking(tok.Token))
			if a.status != http.StatusNoContent || a.header.Get(wire.HeaderRef) != tok.Ref {
				t.Errorf("%s %q: %d %s %v", method, below, a.status, a.body, a.header)
			}
			a = h.ask(method, wire.PathGateway+below, h.asking(tok.Token))
			if a.status != 403 || a.header.Get(wire.HeaderCode) != "token_used" || a.header.Get(wire.HeaderStatus) != "409" || a.header.Get(wire.HeaderRef) != tok.Ref {
				t.Errorf("%s %q again: %d %v", method, below, a.status, a.header)
			}
		}
	}
	for _, path := range []string{wire.PathGateway + "x", wire.PathGateway + "*", "/v1/gateway", "/v1/gateway/"} {
		if a := h.do(request{path: path}); a.Code != wire.CodeNotFound {
			t.Errorf("%s: %d", path, a.status)
		}
	}
}

// TestGatewayMethods tells which original methods use no token.
func TestGatewayMethods(t *testing.T) {
	const forwarded, original = wire.HeaderForwardedMethod, wire.HeaderOriginalMethod
	tests := []struct {
		name   string
		header http.Header
		own    string // the setting
		passes bool
	}{
		{"GET", headers(forwarded, "GET"), "", true},
		{"HEAD", headers(forwarded, "HEAD"), "", true},
		{"OPTIONS", headers(original, "OPTIONS"), "", true},
		{"both safe", headers(forwarded, "GET", original, "HEAD"), "", true},
		{"none", headers(), "", false},
		{"empty", headers(forwarded, ""), "", false},
		{"POST", headers(forwarded, "POST"), "", false},
		{"original POST", headers(original, "POST"), "", false},
		{"TRACE", headers(forwarded, "TRACE"), "", false},
		{"lower case", headers(forwarded, "get"), "", false},
		{"spaces between", headers(forwarded, "GET, POST"), "", false},
		{"the client adds the other", headers(original, "POST", forwarded, "GET"), "", false},
		{"the client adds the other, the other way round", headers(original, "GET", forwarded, "POST"), "", false},
		{"the client adds a second", headers(forwarded, "GET", forwarded, "POST"), "", false},
		{"another header", headers("X-Http-Method-Override", "GET", "X-Original-Method-", "GET", "X-Method", "GET"), "", false},
		{"own", headers(original, "GET"), "x-original-method", true},
		{"own, and the client's other", headers(original, "POST", forwarded, "GET"), "x-original-method", false},
		{"own safe, and the client's other", headers(original, "GET", forwarded, "POST"), "x-original-method", true},
		{"own twice", headers(original, "GET", original, "GET"), "x-original-method", false},
		{"own missing", headers(forwarded, "GET"), "x-original-method", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newHarness(t, func(o *httpapi.Options, _ *token.Options) { o.Gateway.MethodHeader = tt.own })
			tok := h.issue("{}")
			header := h.asking(tok.Token)
			header.Del(forwarded)
			maps.Copy(header, tt.header)
			header.Del(wire.HeaderGatewayKey) // passes without it, and is refused for it
			for _, method := range []string{"GET", "POST"} {
				a := h.ask(method, wire.PathGateway, header)
				if passed := a.status == http.StatusNoContent; passed != tt.passes || !passed && a.Code != wire.CodeUnauthenticated {
					t.Errorf("%s: %d %s, want it to pass: %v", method, a.status, a.body, tt.passes)
				}
			}
			header = with(h.asking(tok.Token), headers(forwarded, "POST", original, "POST"))
			if a := h.ask("GET", wire.PathGateway, header); a.status != http.StatusNoContent || a.header.Get(wire.HeaderRef) != tok.Ref {
				t.Errorf("the token was not good any more: %d %s", a.status, a.body)
			}
		})
	}
}

// TestGatewayRefuses sends what is not let through, and then shows that the token is as good
// as before.
func TestGatewayRefuses(t *testing.T) {
	h := newHarness(t)
	bob := headers("Authorization", "Bearer "+userJWT(t, "bob"))
	key := func(scopes string) string { return "Bearer " + serviceJWT(t, scopes) }
	tests := []struct {
		name  string
		more  http.Header
		code  wire.Code
		field string
	}{
		{"no key", headers(wire.HeaderGatewayKey, ""), wire.CodeUnauthenticated, wire.HeaderGatewayKey},
		{"a wrong key", headers(wire.HeaderGatewayKey, "Bearer tsk_x"), wire.CodeUnauthenticated, wire.HeaderGatewayKey},
		{"two keys", headers(wire.HeaderGatewayKey, "Bearer tsk_x", wire.HeaderGatewayKey, key("tokend.consume")), wire.CodeUnauthenticated, wire.HeaderGatewayKey},
		{"a key without the scope", headers(wire.HeaderGatewayKey, key("tokend.issue")), wire.CodeForbidden, ""},
		{"the user's own JWT for a key", headers(wire.HeaderGatewayKey, "Bearer "+userJWT(t, "alice")), wire.CodeForbidden, ""},
		{"the key where the user's JWT is due", headers("Authorization", key("tokend.consume")), wire.CodeForbidden, "Authorization"},
		{"no user", headers("Authorization", ""), wire.CodeUnauthenticated, "Authorization"},
		{"a forged JWT", headers("Authorization", "Bearer "+userJWT(t, "alice")+"x"), wire.CodeUnauthenticated, "Authorization"},
		{"an old JWT", headers("Authorization", "Bearer "+sign(t, jwt.MapClaims{"sub": "alice", "exp": 1})), wire.CodeUnauthenticated, "Authorization"},
		{"two JWTs", headers("Authorization", "Bearer "+userJWT(t, "alice"), "Authorization", "Bearer "+userJWT(t, "bob")), wire.CodeUnauthenticated, "Authorization"},
		{"a user in headers of its own making", with(bob, headers("X-User", "alice", "Tokend-User", "alice", "X-Forwarded-User", "alice")), wire.CodeWrongUser, ""},
		{"another user", bob, wire.CodeWrongUser, ""},
		{"no token", headers(wire.HeaderToken, ""), wire.CodeTokenMissing, wire.HeaderToken},
		{"an empty token", http.Header{wire.HeaderToken: {" "}}, wire.CodeTokenMissing, wire.HeaderToken},
		{"no token, but a cookie and others", headers(wire.HeaderToken, "", "Cookie", "tokend_token=TOKEN", "X-Tokend-Token", "TOKEN"), wire.CodeTokenMissing, wire.HeaderToken},
		{"two tokens", http.Header{wire.HeaderToken: {"TOKEN", "TOKEN"}}, wire.CodeInvalidRequest, wire.HeaderToken},
		{"two tokens, joined", headers(wire.HeaderToken, "TOKEN, TOKEN"), wire.CodeTokenInvalid, ""},
		{"no token's text", headers(wire.HeaderToken, "ott_x"), wire.CodeTokenInvalid, ""},
		{"a purpose of the client's", headers("Tokend-Purpose", "other", wire.HeaderToken, "OTHER"), wire.CodeWrongPurpose, ""},
	}
	tok, other := h.issue("{}"), h.issue(`{"purpose":"other"}`)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			header := with(h.asking(tok.Token), tt.more)
			for _, values := range header {
				for i := range values {
					values[i] = strings.NewReplacer("TOKEN", tok.Token, "OTHER", other.Token).Replace(values[i])
				}
			}
			a := h.ask("GET", wire.PathGateway, header)
			if a.Code != tt.code || a.Field != tt.field {
				t.Errorf("%d %s, want %s naming %q", a.status, a.body, tt.code, tt.field)
			}
		})
	}
	if a := h.ask("GET", wire.PathGateway, h.asking(tok.Token)); a.status != http.StatusNoContent {
		t.Errorf("the token is not good any more: %d %s", a.status, a.body)
	}
}

// TestGatewayAttempt holds that nothing that a client sent is an attempt: who could choose it
// would be let through twice.
func TestGatewayAttempt(t *testing.T) {
	h := newHarness(t)
	forged := headers("X-Request-Id", "one", wire.HeaderIdempotencyKey, "one", "Tokend-Attempt", "one", "Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	tok := h.issue("{}").Token
	if a := h.ask("GET", wire.PathGateway, with(h.asking(tok), forged)); a.status != http.StatusNoContent {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if a := h.ask("GET", wire.PathGateway, with(h.asking(tok), forged)); a.Code != wire.CodeTokenUsed {
		t.Errorf("the same headers again: %d %s", a.status, a.body)
	}

	h = newHarness(t, func(o *httpapi.Options, _ *token.Options) { o.Gateway.AttemptHeader = "tokend-attempt" })
	tok = h.issue("{}").Token
	for _, tt := range []struct {
		attempts []string
		code     wire.Code
	}{
		{nil, wire.CodeInvalidRequest},
		{[]string{"a", "a"}, wire.CodeInvalidRequest},
		{[]string{"a b"}, wire.CodeInvalidRequest},
		{[]string{"a"}, ""},
		{[]string{"a"}, ""}, // asked again after a lost answer
		{[]string{"b"}, wire.CodeTokenUsed},
	} {
		header := with(h.asking(tok), forged)
		header["Tokend-Attempt"] = tt.attempts
		a := h.ask("GET", wire.PathGateway, header)
		if a.Code != tt.code || tt.code == wire.CodeInvalidRequest && a.Field != "Tokend-Attempt" {
			t.Errorf("attempts %q: %d %s", tt.attempts, a.status, a.body)
		}
	}
}

// TestGatewaySettings has user and purpose come from headers that the gateway sets.
func TestGatewaySettings(t *testing.T) {
	h := newHarness(t, func(o *httpapi.Options, _ *token.Options) {
		o.Gateway = httpapi.Gateway{UserHeader: "x-user", PurposeHeader: "X-Purpose", Allowed: 200}
	})
	tok := h.issue(`{"purpose":"order.create"}`)
	good := with(h.asking(tok.Token), headers("X-User", "alice", "X-Purpose", "order.create", "Authorization", "Basic YTpi"))
	for _, tt := range []struct {
		name  string
		more  http.Header
		code  wire.Code
		field string
	}{
		{"no user", headers("X-User", "", "Authorization", "Bearer "+userJWT(t, "alice")), wire.CodeUnauthenticated, "X-User"},
		{"two users", headers("X-User", "alice", "X-User", "alice"), wire.CodeInvalidRequest, "X-User"},
		{"no UTF-8", headers("X-User", "a\xff"), wire.CodeInvalidRequest, "X-User"},
		{"another user, whatever the JWT says", headers("X-User", "bob", "Authorization", "Bearer "+userJWT(t, "alice")), wire.CodeWrongUser, ""},
		{"no purpose", headers("X-Purpose", ""), wire.CodeInvalidRequest, "X-Purpose"},
		{"two purposes", headers("X-Purpose", "order.create", "X-Purpose", "other"), wire.CodeInvalidRequest, "X-Purpose"},
		{"no purpose's text", headers("X-Purpose", "Order"), wire.CodeInvalidRequest, "X-Purpose"},
		{"another purpose", headers("X-Purpose", "other"), wire.CodeWrongPurpose, ""},
	} {
		if a := h.ask("GET", wire.PathGateway, with(good, tt.more)); a.Code != tt.code || a.Field != tt.field {
			t.Errorf("%s: %d %s, want %s naming %q", tt.name, a.status, a.body, tt.code, tt.field)
		}
	}
	if a := h.ask("GET", wire.PathGateway, good); a.status != http.StatusOK || a.header.Get(wire.HeaderRef) != tok.Ref {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := h.ask("GET", wire.PathGateway, headers(wire.HeaderForwardedMethod, "GET")); a.status != http.StatusOK {
		t.Errorf("a GET: %d %s", a.status, a.body)
	}
}

// TestGatewayOneWinner has many ask for one token at the same time.
func TestGatewayOneWinner(t *testing.T) {
	h := newHarness(t)
	header := h.asking(h.issue("{}").Token)
	var through atomic.Int64
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if a := h.ask("GET", wire.PathGateway, header.Clone()); a.status == http.StatusNoContent {
				through.Add(1)
			} else if a.Code != wire.CodeTokenUsed {
				t.Errorf("%d %s", a.status, a.body)
			}
		})
	}
	wg.Wait()
	if n := through.Load(); n != 1 {
		t.Errorf("%d were let through", n)
	}
}

// TestGatewayStates asks with tokens that are good no more.
func TestGatewayStates(t *testing.T) {
	h := newHarness(t)
	short := h.issue(`{"ttl":1}`).Token
	claimed := h.issue("{}").Token
	h.do(request{path: wire.PathClaims, body: body("token", claimed, "user", "alice")})
	if a := h.ask("GET", wire.PathGateway, h.asking(claimed)); a.Code != wire.CodeRequestInProgress || a.RetryAfter < 1 {
		t.Errorf("a claimed token: %s", a.body)
	}
	h.advance(2 * time.Second)
	if a := h.ask("GET", wire.PathGateway, h.asking(short)); a.Code != wire.CodeTokenExpired || a.Next != wire.NextReissue {
		t.Errorf("an expired token: %s", a.body)
	}
	h.advance(time.Minute)
	if a := h.ask("GET", wire.PathGateway, h.asking(claimed)); a.status != http.StatusNoContent {
		t.Errorf("a claim whose lease is over is not taken over: %s", a.body)
	}
}

// failingTokens opens tokens, and fails to consume them.
type failingTokens struct {
	httpapi.Tokens
	err error
}

func (f failingTokens) Consume(context.Context, token.Consumption) (token.Consumed, error) {
	return token.Consumed{}, f.err
}

// failingCallers cannot tell who is calling.
type failingCallers struct{ err error }

func (f failingCallers) Authenticate(context.Context, []string) (auth.Identity, error) {
	return auth.Identity{}, f.err
}

// TestGatewayFaults holds that whatever fails is a 503, and never lets anything through.
func TestGatewayFaults(t *testing.T) {
	h := newHarness(t)
	tok := h.issue("{}").Token
	h.redis.Close()
	if a := h.ask("GET", wire.PathGateway, h.asking(tok)); a.Code != wire.CodeStoreUnavailable || a.RetryAfter < 1 {
		t.Errorf("Redis down: %d %s", a.status, a.body)
	}
	if a := h.ask("GET", wire.PathGateway, with(h.asking(tok), headers(wire.HeaderForwardedMethod, "GET"))); a.status != http.StatusNoContent {
		t.Errorf("a GET while Redis is down: %d %s", a.status, a.body)
	}
	ring, err := token.NewRing(signingKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		tokens  error
		callers error
		code    wire.Code
	}{
		"the answer of delete mode is lost": {tokens: &token.Fault{Op: "consume", Unknown: true, Err: errors.New("x")}, code: wire.CodeOutcomeUnknown},
		"something unforeseen":              {tokens: errors.New("x"), code: wire.CodeInternal},
		"no keys":                           {callers: &auth.Fault{Err: errors.New("x")}, code: wire.CodeStoreUnavailable},
	} {
		h := newHarness(t, func(o *httpapi.Options, topts *token.Options) {
			if tt.tokens != nil {
				o.Tokens = failingTokens{token.NewService(ring, nil, *topts), tt.tokens}
			}
			if tt.callers != nil {
				o.Callers = failingCallers{tt.callers}
			}
		})
		if a := h.ask("GET", wire.PathGateway, h.asking(tok)); a.Code != tt.code {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
}

// TestGatewayOutcomes looks at what is logged and counted: not the requests that pass.
func TestGatewayOutcomes(t *testing.T) {
	h := newHarness(t)
	tok := h.issue("{}")
	h.ask("GET", wire.PathGateway, headers(wire.HeaderForwardedMethod, "GET"))
	before := len(h.log.lines(t))
	h.ask("GET", wire.PathGateway, h.asking(tok.Token))
	h.ask("GET", wire.PathGateway, h.asking(tok.Token))
	lines := h.log.lines(t)[before:]
	if len(lines) != 2 {
		t.Fatalf("%d lines: %v", len(lines), lines)
	}
	for i, want := range []map[string]any{
		{"op": "gateway", "code": "consumed", "status": 204.0, "next": "", "ref": tok.Ref, "purpose": "default", "caller": "jwt:form-svc"},
		{"op": "gateway", "code": "token_used", "status": 409.0, "next": "stop", "ref": tok.Ref, "purpose": "default", "caller": "jwt:form-svc"},
	} {
		for name, v := range want {
			if lines[i][name] != v {
				t.Errorf("line %d: %s is %v, want %v", i, name, lines[i][name], v)
			}
		}
		if lines[i]["user_ref"] == "" || lines[i]["attempt_ref"] == "" {
			t.Errorf("line %d: %v", i, lines[i])
		}
	}
	if lines[1]["used_by"] != lines[0]["attempt_ref"] {
		t.Errorf("the loser's line does not lead to the winner's: %v", lines)
	}
	for _, series := range []string{
		`tokend_outcomes_total{code="passed",op="gateway"}`, `tokend_outcomes_total{code="consumed",op="gateway"}`,
		`tokend_outcomes_total{code="token_used",op="gateway"}`, `tokend_http_request_seconds_count{op="gateway",status="403"}`,
	} {
		if n := h.metric(series); n != 1 {
			t.Errorf("%s is %v", series, n)
		}
	}
	if n := h.metric(`tokend_http_request_seconds_count{op="gateway",status="204"}`); n != 2 {
		t.Errorf("%v were let through", n)
	}
}

// TestGatewayCORS holds that tokend says nothing of origins for the services behind a
// gateway.
func TestGatewayCORS(t *testing.T) {
	h := newHarness(t, func(o *httpapi.Options, _ *token.Options) {
		o.CORSOrigins, o.Gateway.Allowed = []string{"https://shop.example"}, 200
	})
	origin := headers("Origin", "https://shop.example", "Access-Control-Request-Method", "POST", wire.HeaderForwardedMethod, "OPTIONS")
	a := h.ask("OPTIONS", wire.PathGateway+"/orders", origin)
	if a.status != http.StatusOK || a.header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("a preflight: %d %v", a.status, a.header)
	}
}
