package httpapi_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"example.com/tokend/httpapi"
	"example.com/tokend/httpapi/wire"
	"example.com/tokend/token"
)

func TestIssueBatch(t *testing.T) {
	h := newHarness(t) // the rate lets 10 through at once
	a := h.do(request{path: wire.PathBatch, auth: userJWT(t, "alice"), body: `{"count":8,"purpose":"p","ttl":60}`})
	if a.status != http.StatusCreated {
		t.Fatalf("%d %s", a.status, a.body)
	}
	var got wire.IssueBatchResponse
	a.decode(t, &got)
	seen := map[string]bool{}
	for _, tok := range got.Tokens {
		if seen[tok.Token] || tok.User != "alice" || tok.Purpose != "p" || tok.TTL != 60 || tok.ExpiresAt != got.Tokens[0].ExpiresAt {
			t.Errorf("%+v", tok)
		}
		seen[tok.Token] = true
	}
	if len(seen) != 8 {
		t.Errorf("%d different tokens, want 8", len(seen))
	}
	if lines := h.log.lines(t); len(lines) != 8 || lines[3]["ref"] != got.Tokens[3].Ref || lines[3]["code"] != "issued" || lines[3]["status"] != 201.0 {
		t.Errorf("%d lines, the fourth %v; want one for each token", len(lines), lines[3])
	}
	if a := h.do(request{path: wire.PathBatch, auth: userJWT(t, "alice"), body: `{"count":3}`}); a.Code != wire.CodeRateLimited || a.header.Get("Retry-After") != "1" {
		t.Errorf("3 where 2 are left: %s", a.body)
	}
	if a := h.do(request{path: wire.PathBatch, auth: userJWT(t, "alice"), body: `{"count":11}`}); a.Code != wire.CodeInvalidRequest || a.Field != "count" {
		t.Errorf("more than the burst: %s", a.body)
	}
	if a := h.do(request{path: wire.PathBatch, auth: userJWT(t, "alice"), body: `{"count":2}`}); a.status != 201 {
		t.Errorf("the last 2: %s", a.body)
	}
	if a := h.do(request{path: wire.PathBatch, body: `{"count":100,"user":"alice"}`}); a.status != 201 {
		t.Errorf("a service, which is not limited: %s", a.body)
	}
}

func TestConsumeBatch(t *testing.T) {
	h := newHarness(t)
	first, second, bobs := h.issue(`{}`), h.issue(`{}`), h.issue(`{}`)
	item := func(tok string, pairs ...any) string {
		return body(append([]any{"token", tok, "user", "alice"}, pairs...)...)
	}
	items := []string{
		item(first.Token, "attempt", "a"),
		item(second.Token),
		item(first.Token, "attempt", "b"),
		item(first.Token, "attempt", "a"),
		item("junk"),
		body("token", bobs.Token, "user", "bob"),
		`{}`,
		item(bobs.Token, "digest", ""),
		item(bobs.Token, "purpose", "other"),
	}
	a := h.do(request{path: wire.PathConsumeBatch, body: `{"items":[` + strings.Join(items, ",") + `]}`})
	var got wire.ConsumeBatchResponse
	a.decode(t, &got)
	want := []struct {
		code     wire.Code // none is a success
		replayed bool
		field    string
	}{
		{}, {}, {code: wire.CodeTokenUsed}, {replayed: true}, {code: wire.CodeTokenInvalid}, {code: wire.CodeWrongUser},
		{code: wire.CodeInvalidRequest, field: "token"}, {code: wire.CodeInvalidRequest, field: "digest"}, {code: wire.CodeWrongPurpose},
	}
	if len(got.Results) != len(want) {
		t.Fatalf("%d results to %d items", len(got.Results), len(want))
	}
	lines := h.log.lines(t)[3:]
	if len(lines) != len(want) {
		t.Errorf("%d lines, want one for each item", len(lines))
	}
	for i, w := range want {
		r := got.Results[i]
		switch {
		case w.code == "":
			if r.Consumed == nil || r.Consumed.Replayed != w.replayed || r.Consumed.UsedAt.IsZero() {
				t.Errorf("item %d: %+v, want a success", i, r)
			}
		case r.Problem == nil || r.Problem.Code != w.code || r.Problem.Field != w.field || r.Problem.RequestID != a.header.Get("X-Request-Id"):
			t.Errorf("item %d: %+v, want %s", i, r.Problem, w.code)
		default:
			kind, _ := wire.KindOf(w.code)
			if r.Problem.Status != kind.Status || lines[i]["status"] != float64(kind.Status) || lines[i]["code"] != string(w.code) {
				t.Errorf("item %d: %+v, line %v", i, r.Problem, lines[i])
			}
		}
	}
	if used := got.Results[2].Problem; used.UsedBy != token.Attempt("a").Hash().Ref() || used.UsedAt != got.Results[0].Consumed.UsedAt || used.Ref != first.Ref {
		t.Errorf("the loser: %+v", used)
	}
	if n := h.metric(`tokend_outcomes_total{code="consumed",op="consume_batch"}`); n != 3 {
		t.Errorf("consumed is counted %v times, want 3", n)
	}
	if a := h.do(request{path: wire.PathConsumeBatch, body: `{"items":[{}]}`, header: http.Header{"Idempotency-Key": {"k"}}}); a.Code != wire.CodeInvalidRequest || a.Field != "Idempotency-Key" {
		t.Errorf("with a browser's key: %s", a.body)
	}
	if a := h.do(request{path: wire.PathConsumeBatch, auth: userJWT(t, "alice"), body: `{"items":[{}]}`}); a.Code != wire.CodeForbidden {
		t.Errorf("by a user: %s", a.body)
	}
	h.redis.Close()
	a = h.do(request{path: wire.PathConsumeBatch, body: `{"items":[` + item(bobs.Token) + `,` + item("junk") + `]}`})
	a.decode(t, &got)
	if p := got.Results[0].Problem; p == nil || p.Code != wire.CodeStoreUnavailable || p.RetryAfter != 1 || got.Results[1].Problem.Code != wire.CodeTokenInvalid {
		t.Errorf("while Redis is down: %s", a.body)
	}
}

func TestRevoke(t *testing.T) {
	h := newHarness(t)
	revoke := func(auth, body string) answer { return h.do(request{path: wire.PathRevoke, auth: auth, body: body}) }
	tok, byRef, own := h.issue(`{}`), h.issue(`{}`), h.issue(`{}`)
	var got wire.RevokeResponse
	for range 2 {
		revoke("", body("token", tok.Token, "user", "alice")).decode(t, &got)
		if want := (wire.RevokeResponse{State: "revoked", Ref: tok.Ref}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	a := h.do(request{path: wire.PathConsume, body: body("token", tok.Token, "user", "alice")})
	if a.Code != wire.CodeTokenRevoked || a.Next != wire.NextStop || a.RevokedAt.IsZero() {
		t.Errorf("consume of a revoked token: %s", a.body)
	}
	revoke("", body("ref", byRef.Ref, "user", "alice")).decode(t, &got)
	revoke(userJWT(t, "alice"), body("token", own.Token)).decode(t, &got)
	for _, tok := range []wire.IssueResponse{byRef, own} {
		if a := h.do(request{path: wire.PathConsume, body: body("token", tok.Token, "user", "alice")}); a.Code != wire.CodeTokenRevoked {
			t.Errorf("consume of a revoked token: %s", a.body)
		}
	}
	used := h.issue(`{}`)
	h.do(request{path: wire.PathConsume, body: body("token", used.Token, "user", "alice")})
	if revoke("", body("token", used.Token, "user", "alice")).decode(t, &got); got.State != "used" {
		t.Errorf("revoke of what is used: %+v", got)
	}
	if a := revoke(userJWT(t, "alice"), body("ref", own.Ref)); a.Code != wire.CodeForbidden {
		t.Errorf("by ref, from a user: %s", a.body)
	}
	if a := revoke(userJWT(t, "bob"), body("token", used.Token)); a.Code != wire.CodeWrongUser {
		t.Errorf("from another user: %s", a.body)
	}
	if a := revoke(serviceJWT(t, "tokend.issue"), body("token", used.Token, "user", "alice")); a.Code != wire.CodeForbidden {
		t.Errorf("from an issuer: %s", a.body)
	}
}

func TestByRef(t *testing.T) {
	h := newHarness(t)
	tok := h.issue(`{}`)
	var byToken, byRef wire.StatusResponse
	h.do(request{path: wire.PathStatus, body: body("token", tok.Token, "user", "alice")}).decode(t, &byToken)
	h.do(request{path: wire.PathStatus, body: body("ref", tok.Ref, "user", "alice")}).decode(t, &byRef)
	if byRef != byToken {
		t.Errorf("by ref %+v, by token %+v", byRef, byToken)
	}
	a := h.do(request{path: wire.PathStatus, body: body("ref", tok.Ref, "user", "bob")})
	if want := fmt.Sprintf(`{"state":"gone","ref":%q}`, tok.Ref); a.body != want {
		t.Errorf("another user's: %s, want %s", a.body, want)
	}
	if a := h.do(request{path: wire.PathStatus, auth: userJWT(t, "alice"), body: body("ref", tok.Ref)}); a.Code != wire.CodeForbidden || a.Field != "ref" {
		t.Errorf("from a user: %s", a.body)
	}
}

func TestDeleteMode(t *testing.T) {
	h := newHarness(t, func(_ *httpapi.Options, o *token.Options) { o.Mode = token.Delete })
	call := func(path string, tok wire.IssueResponse) answer {
		return h.do(request{path: path, body: body("token", tok.Token, "user", "alice")})
	}
	tok, kept := h.issue(`{}`), h.issue(`{"ttl":1}`)
	var done wire.ConsumeResponse
	call(wire.PathConsume, tok).decode(t, &done)
	if done.UsedAt.IsZero() || done.Replayed {
		t.Errorf("%+v", done)
	}
	a := call(wire.PathConsume, tok)
	if a.Code != wire.CodeTokenUsed || strings.Contains(a.body, "used_at") || strings.Contains(a.body, "used_by") {
		t.Errorf("used: %s", a.body)
	}
	if a := call(wire.PathRevoke, h.issue(`{}`)); a.Code != wire.CodeModeUnsupported || a.Next != wire.NextFix {
		t.Errorf("revoke: %s", a.body)
	}
	h.advance(1100 * time.Millisecond)
	if a := call(wire.PathConsume, kept); a.Code != wire.CodeTokenGone || a.Next != wire.NextVerify {
		t.Errorf("gone: %s", a.body)
	}
	if a := call(wire.PathStatus, kept); !strings.Contains(a.body, `"gone"`) {
		t.Errorf("status: %s", a.body)
	}
	// Nobody listens: surely nothing was sent.
	h.redis.Close()
	h.do(request{path: wire.PathStatus, body: body("token", tok.Token, "user", "alice")}) // the pool's connections are dead by now
	if a := call(wire.PathConsume, tok); a.Code != wire.CodeStoreUnavailable || a.header.Get("Retry-After") != "1" {
		t.Errorf("consume while Redis is down: %s", a.body)
	}
}

// TestOutcomeUnknown: a fault that asking again cannot clear up.
func TestOutcomeUnknown(t *testing.T) {
	h := newHarness(t, func(o *httpapi.Options, _ *token.Options) {
		o.Tokens = brokenTokens{err: &token.Fault{Op: "consume", Unknown: true, Err: errors.New("canary")}}
	})
	a := h.do(request{path: wire.PathTokens, body: `{"user":"alice"}`})
	if a.Code != wire.CodeOutcomeUnknown || a.Next != wire.NextVerify || a.header.Get("Retry-After") != "" || strings.Contains(a.body, "retry_after") {
		t.Errorf("%s, Retry-After %q; want outcome_unknown without it", a.body, a.header.Get("Retry-After"))
	}
}
