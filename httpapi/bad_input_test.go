package httpapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"example.com/tokend/httpapi/wire"
)

// endpoints are the calls with a body, each with a body that is good, given a token.
var endpoints = []struct {
	path string
	good func(token string) string
}{
	{wire.PathTokens, func(string) string { return `{"user":"alice"}` }},
	{wire.PathConsume, func(tok string) string { return body("token", tok, "user", "alice") }},
	{wire.PathStatus, func(tok string) string { return body("token", tok, "user", "alice") }},
	{wire.PathRevoke, func(tok string) string { return body("token", tok, "user", "alice") }},
	{wire.PathBatch, func(string) string { return `{"user":"alice","count":1}` }},
	{wire.PathClaims, func(tok string) string { return body("token", tok, "user", "alice") }},
	{wire.PathClaimStatus, func(tok string) string { return body("token", tok, "user", "alice") }},
}

// TestStrictJSON sends every kind of body that is not the one expected to every call.
func TestStrictJSON(t *testing.T) {
	h := newHarness(t)
	tok := h.issue(`{}`)
	for _, e := range endpoints {
		good := e.good(tok.Token)
		rest := strings.TrimPrefix(good, "{")
		tests := []struct{ name, body, field string }{
			{"unknown member", `{"nope":1,` + rest, "nope"},
			{"unknown member with an object that repeats a name", `{"nope":{"a":1,"a":2},` + rest, "nope"},
			{"other case", `{"User":"bob",` + rest, "User"},
			{"folded case", "{\"u\u017fer\":\"bob\"," + rest, "a member"},
			{"duplicate member", `{"user":"bob",` + rest, "user"},
			{"duplicate member, escaped", `{"us\u0065r":"bob",` + rest, "user"},
			{"null", `{"purpose":null,` + rest, "purpose"},
			{"null user", `{"user":null}`, "user"},
			{"null document", `null`, "body"},
			{"array", `[` + good + `]`, "body"},
			{"string", `"x"`, "body"},
			{"number", `7`, "body"},
			{"trailing object", good + `{}`, "body"},
			{"trailing word", good + ` x`, "body"},
			{"cut short", good[:len(good)-1], ""},
			{"not JSON", `user=alice`, "body"},
			{"single quotes", `{'user':'alice'}`, "body"},
			{"comment", good + `//`, "body"},
			{"trailing comma", good[:len(good)-1] + `,}`, "body"},
			{"byte order mark", "\ufeff" + good, "body"},
			{"invalid UTF-8", "{\"purpose\":\"\xff\"," + rest, "purpose"},
			{"lone surrogate", `{"purpose":"\ud800",` + rest, "purpose"},
			{"number for a string", `{"purpose":1,` + rest, "purpose"},
			{"object for a string", `{"purpose":{},` + rest, "purpose"},
			{"array for a string", `{"purpose":["a"],` + rest, "purpose"},
			{"deep", `{"nope":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `,` + rest, "nope"},
			{"bad purpose", `{"purpose":"Order",` + rest, "purpose"},
			{"empty purpose", `{"purpose":"",` + rest, "purpose"},
			{"long purpose", `{"purpose":"` + strings.Repeat("a", 65) + `",` + rest, "purpose"},
		}
		for _, tt := range tests {
			t.Run(e.path+"/"+tt.name, func(t *testing.T) {
				a := h.do(request{path: e.path, body: tt.body})
				if a.Code != wire.CodeInvalidRequest || a.Next != wire.NextFix || tt.field != "" && a.Field != tt.field {
					t.Errorf("%s\nwant invalid_request naming %q", a.body, tt.field)
				}
			})
		}
		for _, user := range []string{"", strings.Repeat("u", 257), "a\nb", "a\u0085b", "\x00", "\x7f"} {
			t.Run(fmt.Sprintf("%s/user %.10q", e.path, user), func(t *testing.T) {
				a := h.do(request{path: e.path, body: body("token", tok.Token, "user", user)})
				if e.path == wire.PathTokens || e.path == wire.PathBatch {
					a = h.do(request{path: e.path, body: body("user", user)})
				}
				if a.Code != wire.CodeInvalidRequest || a.Field != "user" || strings.Contains(a.Detail, "\n") {
					t.Errorf("%s, want invalid_request naming user", a.body)
				}
			})
		}
	}
	if a := h.do(request{path: wire.PathConsume, body: body("token", tok.Token, "user", "alice")}); a.status != 200 {
		t.Errorf("after the bad bodies the token is spent: %s", a.body)
	}
}

func TestMembers(t *testing.T) {
	h := newHarness(t)
	tok := h.issue(`{}`)
	tests := []struct{ path, body, field string }{
		{wire.PathTokens, `{"user":"a","ttl":0}`, "ttl"},
		{wire.PathTokens, `{"user":"a","ttl":-1}`, "ttl"},
		{wire.PathTokens, `{"user":"a","ttl":3601}`, "ttl"},
		{wire.PathTokens, `{"user":"a","ttl":1.0}`, "ttl"},
		{wire.PathTokens, `{"user":"a","ttl":1e1}`, "ttl"},
		{wire.PathTokens, `{"user":"a","ttl":"60"}`, "ttl"},
		{wire.PathTokens, `{"user":"a","ttl":true}`, "ttl"},
		{wire.PathTokens, `{"user":"a","ttl":9223372036854775807}`, "ttl"},
		{wire.PathTokens, `{"user":"a","ttl":92233720368547758070}`, "ttl"},
		{wire.PathTokens, `{"user":"a","ttl":18446744073}`, "ttl"}, // overflows a Duration
		{wire.PathTokens, `{"user":"a","ttl":null}`, "ttl"},
		{wire.PathConsume, `{}`, "token"},
		{wire.PathConsume, ``, "token"},
		{wire.PathConsume, body("token", tok.Token), "user"},
		{wire.PathConsume, body("token", tok.Token, "user", "alice", "attempt", ""), "attempt"},
		{wire.PathConsume, body("token", tok.Token, "user", "alice", "attempt", "a b"), "attempt"},
		{wire.PathConsume, body("token", tok.Token, "user", "alice", "attempt", "é"), "attempt"},
		{wire.PathConsume, body("token", tok.Token, "user", "alice", "attempt", strings.Repeat("a", 256)), "attempt"},
		{wire.PathConsume, body("token", tok.Token, "user", "alice", "digest", ""), "digest"},
		{wire.PathConsume, body("token", tok.Token, "user", "alice", "digest", "a\tb"), "digest"},
		{wire.PathConsume, body("token", tok.Token, "user", "alice", "digest", strings.Repeat("d", 129)), "digest"},
		{wire.PathConsume, body("token", tok.Token, "user", "alice", "ttl", 1), "ttl"},
		{wire.PathStatus, `{}`, "token"},
		{wire.PathStatus, body("ref", tok.Ref), "user"},
		{wire.PathStatus, body("ref", "x", "user", "alice"), "ref"},
		{wire.PathStatus, body("ref", strings.ToUpper(tok.Ref), "user", "alice"), "ref"},
		{wire.PathStatus, body("ref", tok.Ref, "token", tok.Token, "user", "alice"), "ref"},
		{wire.PathStatus, body("ref", tok.Ref, "purpose", "default", "user", "alice"), "purpose"},
		{wire.PathRevoke, body("ref", "", "user", "alice"), "ref"},
		{wire.PathBatch, `{"user":"a"}`, "count"},
		{wire.PathBatch, `{"user":"a","count":0}`, "count"},
		{wire.PathBatch, `{"user":"a","count":101}`, "count"},
		{wire.PathBatch, `{"user":"a","count":-1}`, "count"},
		{wire.PathBatch, `{"user":"a","count":1.5}`, "count"},
		{wire.PathBatch, `{"user":"a","count":"1"}`, "count"},
		{wire.PathBatch, `{"user":"a","count":1,"ttl":0}`, "ttl"},
		{wire.PathConsumeBatch, `{}`, "items"},
		{wire.PathConsumeBatch, `{"items":[]}`, "items"},
		{wire.PathConsumeBatch, `{"items":{}}`, "items"},
		{wire.PathConsumeBatch, `{"items":null}`, "items"},
		{wire.PathConsumeBatch, `{"items":[` + strings.Repeat(`{},`, 100) + `{}]}`, "items"},
		{wire.PathConsumeBatch, `{"items":[{"token":"x","user":"a"},{"nope":1}]}`, "items[1].nope"},
		{wire.PathConsumeBatch, `{"items":[{"token":"x","token":"y"}]}`, "items[0].token"},
		{wire.PathConsumeBatch, `{"items":[{"token":7}]}`, "items[0].token"},
		{wire.PathConsumeBatch, `{"items":[{"token":null}]}`, "items[0].token"},
		{wire.PathConsumeBatch, `{"items":["x"]}`, "items[0]"},
		{wire.PathConsumeBatch, `{"items":[null]}`, "items[0]"},
		{wire.PathConsumeBatch, `{"items":[{}],"more":1}`, "more"},
	}
	for _, tt := range tests {
		a := h.do(request{path: tt.path, body: tt.body})
		if a.Code != wire.CodeInvalidRequest || a.Field != tt.field || !strings.Contains(a.Detail, tt.field) {
			t.Errorf("%s %.100s: %s, want invalid_request naming %s", tt.path, tt.body, a.body, tt.field)
		}
	}
	if a := h.do(request{path: wire.PathConsume, body: body("token", tok.Token, "user", "alice",
		"attempt", strings.Repeat("~", 255), "digest", strings.Repeat("!", 128))}); a.status != 200 {
		t.Errorf("the longest attempt and digest: %s", a.body)
	}
}

func TestContentType(t *testing.T) {
	h := newHarness(t)
	tests := []struct {
		typ, body string
		want      int
	}{
		{"application/json", `{}`, 201},
		{"application/json; charset=utf-8", `{}`, 201},
		{"application/json; charset=UTF-8", `{}`, 201},
		{"Application/JSON", `{}`, 201},
		{"-", ``, 201},
		{"application/json", ``, 201},
		{"-", `{}`, 415},
		{"text/plain", `{}`, 415},
		{"text/plain", ``, 415},
		{"application/x-www-form-urlencoded", `{}`, 415},
		{"application/json; charset=latin1", `{}`, 415},
		{"application/json; x=y", `{}`, 415},
		{"application/json;", `{}`, 201},
		{"application/jsonx", `{}`, 415},
		{"application/merge-patch+json", `{}`, 415},
		{"application/json, text/plain", `{}`, 415},
	}
	for _, tt := range tests {
		a := h.do(request{path: wire.PathTokens, auth: userJWT(t, t.Name()+tt.typ), typ: tt.typ, body: tt.body})
		if a.status != tt.want || tt.want == 415 && (a.Code != wire.CodeUnsupportedMediaType || a.Next != wire.NextFix) {
			t.Errorf("%q with %q: %d %s, want %d", tt.typ, tt.body, a.status, a.body, tt.want)
		}
	}
	for name, values := range map[string][]string{
		"Content-Encoding": {"gzip"},
		"Content-Type":     {"application/json", "application/json"},
	} {
		a := h.do(request{path: wire.PathTokens, typ: "-", body: `{"user":"a"}`, header: http.Header{
			"Content-Type": {"application/json"}, name: values,
		}})
		if a.Code != wire.CodeUnsupportedMediaType {
			t.Errorf("%s %q: %s, want unsupported_media_type", name, values, a.body)
		}
	}
}

// TestBodyLimit sends bodies whose JSON is good and comes first, and which are too long.
func TestBodyLimit(t *testing.T) {
	h := newHarness(t)
	tok := h.issue(`{}`)
	for _, e := range endpoints {
		good := e.good(tok.Token)
		for _, chunk := range []bool{false, true} {
			fits := good + strings.Repeat(" ", 65536-len(good))
			if a := h.do(request{path: e.path, body: fits + " ", chunk: chunk}); a.Code != wire.CodeBodyTooLarge || !strings.Contains(a.Detail, "65536") {
				t.Errorf("%s, chunked %v, a byte too long: %s", e.path, chunk, a.body)
			}
			if a := h.do(request{path: e.path, body: fits + strings.Repeat(" ", 1<<20), chunk: chunk}); a.Code != wire.CodeBodyTooLarge {
				t.Errorf("%s, chunked %v, a MiB too long: %s", e.path, chunk, a.body)
			}
			if e.path == wire.PathConsume || e.path == wire.PathRevoke || e.path == wire.PathClaims {
				continue // it would change the token
			}
			if a := h.do(request{path: e.path, body: fits, chunk: chunk}); a.status >= 300 {
				t.Errorf("%s, chunked %v, as long as may be: %s", e.path, chunk, a.body)
			}
		}
	}
	if a := h.do(request{path: wire.PathConsume, body: body("token", tok.Token, "user", "alice")}); a.status != 200 {
		t.Errorf("after the long bodies the token is spent: %s", a.body)
	}
}

func TestBrowsersKeyIsNoAttempt(t *testing.T) {
	h := newHarness(t)
	tok := h.issue(`{}`)
	for _, values := range [][]string{{"k"}, {""}, {"k", "l"}} {
		a := h.do(request{path: wire.PathConsume, body: body("token", tok.Token, "user", "alice"),
			header: http.Header{"Idempotency-Key": values}})
		if a.Code != wire.CodeInvalidRequest || a.Field != "Idempotency-Key" {
			t.Errorf("Idempotency-Key %q: %s", values, a.body)
		}
	}
	if a := h.do(request{path: wire.PathStatus, body: body("token", tok.Token, "user", "alice")}); !strings.Contains(a.body, `"issued"`) {
		t.Errorf("after that: %s, want issued", a.body)
	}
}

// TestNothingFromTheQuery sends in the query what belongs in the body.
func TestNothingFromTheQuery(t *testing.T) {
	h := newHarness(t)
	tok := h.issue(`{}`)
	a := h.do(request{path: wire.PathConsume + "?token=" + tok.Token + "&user=alice"})
	if a.Code != wire.CodeInvalidRequest || a.Field != "token" {
		t.Errorf("token in the query: %s", a.body)
	}
	a = h.do(request{path: wire.PathConsume + "?purpose=other&attempt=x", body: body("token", tok.Token, "user", "alice")})
	if a.status != 200 {
		t.Errorf("other purpose in the query: %s, want it passed over", a.body)
	}
}
