package httpapi_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/tokend/httpapi"
	"example.com/tokend/httpapi/wire"
	"example.com/tokend/token"
)

func TestIssueAndConsume(t *testing.T) {
	h := newHarness(t)
	a := h.do(request{path: wire.PathTokens, auth: userJWT(t, "alice"), body: `{"purpose":"order.create","ttl":60}`})
	if a.status != 201 {
		t.Fatalf("issue: %d %s", a.status, a.body)
	}
	var tok wire.IssueResponse
	a.decode(t, &tok)
	if tok.User != "alice" || tok.Purpose != "order.create" || tok.TTL != 60 ||
		tok.ExpiresAt.Time().Sub(tok.IssuedAt.Time()) != time.Minute {
		t.Errorf("issued %+v", tok)
	}
	if !regexp.MustCompile(`^ott_[A-Za-z0-9_-]{1,124}$`).MatchString(tok.Token) || !regexp.MustCompile(`^t_[0-9a-f]{32}$`).MatchString(tok.Ref) {
		t.Errorf("token %q, ref %q", tok.Token, tok.Ref)
	}
	if !regexp.MustCompile(`"issued_at":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"`).MatchString(a.body) {
		t.Errorf("issued_at is not RFC 3339 in UTC with milliseconds: %s", a.body)
	}

	consume := func(pairs ...any) answer {
		return h.do(request{path: wire.PathConsume, body: body(append([]any{"token", tok.Token, "user", "alice", "purpose", "order.create"}, pairs...)...)})
	}
	for _, untouched := range []struct {
		user, purpose string
		code          wire.Code
	}{{"bob", "order.create", wire.CodeWrongUser}, {"bob", "other", wire.CodeWrongUser}, {"alice", "other", wire.CodeWrongPurpose}} {
		a := h.do(request{path: wire.PathConsume, body: body("token", tok.Token, "user", untouched.user, "purpose", untouched.purpose)})
		if a.Code != untouched.code || a.Ref != tok.Ref {
			t.Errorf("consume as %s for %s: %s, want %s", untouched.user, untouched.purpose, a.body, untouched.code)
		}
	}

	var first, again wire.ConsumeResponse
	consume("attempt", "a1").decode(t, &first)
	want := wire.ConsumeResponse{Outcome: "consumed", Ref: tok.Ref, User: "alice", Purpose: "order.create", UsedAt: first.UsedAt}
	if first != want || first.UsedAt.IsZero() {
		t.Errorf("consumed %+v, want %+v", first, want)
	}
	consume("attempt", "a1").decode(t, &again)
	if want.Replayed = true; again != want {
		t.Errorf("the same attempt again: %+v, want %+v", again, want)
	}
	for _, pairs := range [][]any{{"attempt", "a2"}, {}} {
		a := consume(pairs...)
		if a.Code != wire.CodeTokenUsed || a.UsedAt != first.UsedAt || a.UsedBy != token.Attempt("a1").Hash().Ref() || a.Ref != tok.Ref {
			t.Errorf("another attempt %v: %s", pairs, a.body)
		}
	}
}

func TestStatus(t *testing.T) {
	h := newHarness(t)
	used, unused := h.issue(`{"ttl":60}`), h.issue(`{"ttl":60}`)
	status := func(tok wire.IssueResponse) (got wire.StatusResponse) {
		t.Helper()
		h.do(request{path: wire.PathStatus, body: body("token", tok.Token, "user", "alice")}).decode(t, &got)
		return got
	}
	issued := wire.StatusResponse{State: "issued", Ref: used.Ref, ExpiresAt: used.ExpiresAt, IssuedAt: used.IssuedAt}
	if got := status(used); got != issued {
		t.Errorf("issued: %+v, want %+v", got, issued)
	}
	var consumed wire.ConsumeResponse
	h.do(request{path: wire.PathConsume, body: body("token", used.Token, "user", "alice", "attempt", "a")}).decode(t, &consumed)
	want := issued
	want.State, want.UsedAt, want.UsedBy = "used", consumed.UsedAt, token.Attempt("a").Hash().Ref()
	for range 2 { // telling changes nothing
		if got := status(used); got != want {
			t.Errorf("used: %+v, want %+v", got, want)
		}
	}
	h.advance(2 * time.Minute)
	if got := status(used); got != want {
		t.Errorf("used, past its expiry: %+v, want %+v", got, want)
	}
	if got, want := status(unused), (wire.StatusResponse{State: "expired", Ref: unused.Ref, ExpiresAt: unused.ExpiresAt}); got != want {
		t.Errorf("expired: %+v, want %+v", got, want)
	}
	h.advance(2 * time.Hour)
	for _, tok := range []wire.IssueResponse{used, unused} {
		if got := status(tok).State; got != "stale" {
			t.Errorf("past expiry and retention: %q, want stale", got)
		}
	}
	tok := h.issue(`{}`)
	h.redis.FlushAll()
	if got := status(tok).State; got != "lost" {
		t.Errorf("record gone: %q, want lost", got)
	}
}

func TestTimesOfRefusals(t *testing.T) {
	h := newHarness(t)
	tok := h.issue(`{"ttl":1}`)
	consume := func() answer {
		return h.do(request{path: wire.PathConsume, body: body("token", tok.Token, "user", "alice")})
	}
	h.advance(1100 * time.Millisecond)
	if a := consume(); a.Code != wire.CodeTokenExpired || a.Next != wire.NextReissue || a.ExpiresAt != tok.ExpiresAt {
		t.Errorf("expired: %s", a.body)
	}
	h.advance(time.Hour)
	if a := consume(); a.Code != wire.CodeTokenStale || a.Next != wire.NextVerify {
		t.Errorf("stale: %s", a.body)
	}
	tok = h.issue(`{}`)
	h.redis.FlushAll()
	if a := consume(); a.Code != wire.CodeTokenLost || a.Next != wire.NextVerify {
		t.Errorf("lost: %s", a.body)
	}
}

func TestDigest(t *testing.T) {
	h := newHarness(t)
	tok := h.issue(`{}`)
	consume := func(digest string) answer {
		return h.do(request{path: wire.PathConsume, body: body("token", tok.Token, "user", "alice", "attempt", "a", "digest", digest)})
	}
	if a := consume("d1"); a.status != 200 {
		t.Fatal(a.body)
	}
	if a := consume("d2"); a.Code != wire.CodeIdempotencyKeyReused || a.Next != wire.NextFix || a.UsedBy == "" {
		t.Errorf("the same attempt with another digest: %s", a.body)
	}
}

func TestWhoMayCall(t *testing.T) {
	h := newHarness(t)
	tok := h.issue(`{}`)
	use := body("token", tok.Token, "user", "alice")
	tests := []struct {
		name, path, auth, body string
		want                   wire.Code // none is a success
		detail                 string
	}{
		{"a user issues for itself", wire.PathTokens, userJWT(t, "alice"), ``, "", ""},
		{"a user names itself", wire.PathTokens, userJWT(t, "alice"), `{"user":"alice"}`, "", ""},
		{"a user names another", wire.PathTokens, userJWT(t, "alice"), `{"user":"bob"}`, wire.CodeForbidden, "user"},
		{"a service issues", wire.PathTokens, serviceJWT(t, "tokend.issue"), `{"user":"bob"}`, "", ""},
		{"a service names no user", wire.PathTokens, serviceJWT(t, "tokend.issue"), ``, wire.CodeInvalidRequest, "user"},
		{"a consumer issues", wire.PathTokens, serviceJWT(t, "tokend.consume"), `{"user":"bob"}`, wire.CodeForbidden, "tokend.issue"},
		{"a user consumes", wire.PathConsume, userJWT(t, "alice"), use, wire.CodeForbidden, "tokend.consume"},
		{"an issuer consumes", wire.PathConsume, serviceJWT(t, "tokend.issue"), use, wire.CodeForbidden, "tokend.consume"},
		{"scope before body", wire.PathConsume, userJWT(t, "alice"), `{`, wire.CodeForbidden, "tokend.consume"},
		{"caller before body", wire.PathConsume, "-", `{`, wire.CodeUnauthenticated, "Authorization"},
		{"caller before token", wire.PathConsume, "x.y.z", use, wire.CodeUnauthenticated, "JWT"},
		{"an issuer asks", wire.PathStatus, serviceJWT(t, "tokend.issue"), use, wire.CodeForbidden, "tokend.consume"},
		{"a user asks after its own", wire.PathStatus, userJWT(t, "alice"), body("token", tok.Token), "", ""},
		{"a user names another in a question", wire.PathStatus, userJWT(t, "alice"), body("token", tok.Token, "user", "bob"), wire.CodeForbidden, "user"},
		{"a user asks after another's", wire.PathStatus, userJWT(t, "bob"), body("token", tok.Token), wire.CodeWrongUser, "another user"},
		{"a service asks", wire.PathStatus, serviceJWT(t, "tokend.consume"), use, "", ""},
		{"a service asks without user", wire.PathStatus, serviceJWT(t, "tokend.consume"), body("token", tok.Token), wire.CodeInvalidRequest, "user"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := h.do(request{path: tt.path, auth: tt.auth, body: tt.body})
			if a.Code != tt.want || !strings.Contains(a.Detail, tt.detail) {
				t.Errorf("%d %s, want %q naming %q", a.status, a.body, tt.want, tt.detail)
			}
			if (a.status == 401) != (a.header.Get("WWW-Authenticate") != "") && a.status != 403 {
				t.Errorf("status %d with WWW-Authenticate %q", a.status, a.header.Get("WWW-Authenticate"))
			}
		})
	}
	if a := h.do(request{path: wire.PathConsume, body: use}); a.status != 200 {
		t.Errorf("after all that was refused the token is spent: %s", a.body)
	}
}

func TestRateLimit(t *testing.T) {
	h := newHarness(t) // 10 at once, then one a second
	issue := func(auth, body string) answer { return h.do(request{path: wire.PathTokens, auth: auth, body: body}) }
	alice := userJWT(t, "alice")
	for range 10 {
		if a := issue(alice, ``); a.status != 201 {
			t.Fatal(a.body)
		}
	}
	a := issue(alice, ``)
	if a.Code != wire.CodeRateLimited || a.Next != wire.NextWait || a.header.Get("Retry-After") != "1" || a.RetryAfter != 1 {
		t.Fatalf("above the burst: %s, Retry-After %q", a.body, a.header.Get("Retry-After"))
	}
	keys := len(h.redis.Keys())
	issue(alice, ``)
	if got := len(h.redis.Keys()); got != keys {
		t.Errorf("a refused call left %d keys, want %d", got, keys)
	}
	if a := issue(userJWT(t, "bob"), ``); a.status != 201 {
		t.Errorf("another user: %s", a.body)
	}
	if a := issue("", `{"user":"alice"}`); a.status != 201 {
		t.Errorf("a service, which is not limited: %s", a.body)
	}
	h.advance(time.Second)
	if a := issue(alice, ``); a.status != 201 {
		t.Errorf("after Retry-After: %s", a.body)
	}
}

func TestPurposes(t *testing.T) {
	h := newHarness(t, func(_ *httpapi.Options, o *token.Options) {
		o.Purposes = map[token.Purpose]token.Settings{
			"short": {TTL: 10 * time.Second, MaxTTL: 20 * time.Second, Retention: time.Hour},
		}
	})
	if got := h.issue(`{"purpose":"short"}`); got.TTL != 10 {
		t.Errorf("ttl %d, want the purpose's own 10", got.TTL)
	}
	for _, tt := range []struct{ body, field string }{
		{`{"purpose":"short","ttl":21}`, "ttl"}, {`{"purpose":"other"}`, "purpose"}, {`{}`, "purpose"},
	} {
		a := h.do(request{path: wire.PathTokens, auth: userJWT(t, "alice"), body: tt.body})
		if a.Code != wire.CodeInvalidRequest || a.Field != tt.field {
			t.Errorf("%s: %s, want invalid_request naming %s", tt.body, a.body, tt.field)
		}
	}
}

func TestTokenInvalid(t *testing.T) {
	h := newHarness(t)
	tok := h.issue(`{}`)
	ring, err := token.NewRing(token.Key{ID: "k2"})
	if err != nil {
		t.Fatal(err)
	}
	foreign := ring.Sign(token.Grant{User: "alice", Purpose: "default", Mode: token.Record, ExpiresAt: h.now.Add(time.Minute)})
	commands := h.redis.CommandCount()
	reasons := map[string]string{
		tok.Token[:len(tok.Token)-1] + "!": "malformed",
		tok.Token + "A":                    "malformed",
		tok.Token + "\n":                   "malformed",
		" " + tok.Token:                    "malformed",
		strings.ToUpper(tok.Token):         "malformed",
		"":                                 "malformed",
		"ott_":                             "malformed",
		"ott_" + strings.Repeat("A", 88):   "malformed",
		strings.Repeat("x", 10000):         "malformed",
		foreign:                            "unknown_key",
		forge(tok.Token):                   "forged",
	}
	want := map[string]float64{}
	for text, reason := range reasons {
		for _, path := range []string{wire.PathConsume, wire.PathStatus} {
			a := h.do(request{path: path, body: body("token", text, "user", "alice")})
			if a.Code != wire.CodeTokenInvalid || a.Next != wire.NextStop || a.Ref != "" {
				t.Errorf("%s of %.40q: %s", path, text, a.body)
			}
		}
		want[reason] += 2
	}
	if got := h.redis.CommandCount(); got != commands {
		t.Errorf("Redis was asked %d times about invalid tokens", got-commands)
	}
	got := map[string]float64{}
	for _, op := range []string{"consume", "status"} {
		for _, reason := range []string{"malformed", "forged", "unknown_key"} {
			got[reason] += h.metric(`tokend_outcomes_total{code="token_invalid",op="` + op + `",reason="` + reason + `"}`)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("outcomes by reason (-want +got):\n%s", diff)
	}
	if a := h.do(request{path: wire.PathConsume, body: body("token", tok.Token, "user", "alice")}); a.status != 200 {
		t.Errorf("after the forgeries the token is spent: %s", a.body)
	}
}

// forge changes a character in the middle of the signed part, where it stays base64url.
func forge(text string) string {
	const at = 40
	c := byte('A')
	if text[at] == c {
		c = 'B'
	}
	return text[:at] + string(c) + text[at+1:]
}
