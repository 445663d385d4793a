package openapi_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/pb33f/libopenapi-validator/config"
	"github.com/pb33f/libopenapi-validator/schema_validation"

	"example.com/tokend/httpapi"
	"example.com/tokend/httpapi/auth"
	"example.com/tokend/httpapi/wire"
	"example.com/tokend/token"
)

// exchange is a request to a service of its own, and what is answered.
type exchange struct {
	operation string // as it is described
	path      string // where it is not the operation's
	name      string

	handle  func(*service) string // the claim in the path; none where nil
	arrange func(*service)        // what happens before; may be nil
	caller  string                // the bearer; none where empty
	header  http.Header           // more headers
	headers func(*service) http.Header
	options func(*httpapi.Options) // of the service; may be nil
	body    func(*service) string  // none where nil

	status int
	words  []string // see [answer]
	holds  string   // what stands in the answer's body
	// refusable says that the document alone tells that the request will be refused: it
	// must, where this is set, and must not, where it is not.
	refusable bool
}

const (
	issueOne     = "POST " + wire.PathTokens
	issueBatch   = "POST " + wire.PathBatch
	consumeOne   = "POST " + wire.PathConsume
	consumeBatch = "POST " + wire.PathConsumeBatch
	askStatus    = "POST " + wire.PathStatus
	revokeOne    = "POST " + wire.PathRevoke
	problemPage  = "GET /problems/{code}"
	problemHead  = "HEAD /problems/{code}"
)

var (
	issuer   = withScope(wire.ScopeIssue)
	consumer = withScope(wire.ScopeConsume)
)

func text(body string) func(*service) string { return func(*service) string { return body } }

// of is a body about a token of alice's in the state st.
func of(st state, pairs ...any) func(*service) string {
	return func(s *service) string {
		return encode(members(append([]any{"token", st(s).Text, "user", "alice"}, pairs...)...))
	}
}

// byRef is a body that names such a token by its ref.
func byRef(st state) func(*service) string {
	return func(s *service) string { return encode(members("ref", st(s).ID.Ref(), "user", "alice")) }
}

// items is the body of a batch of such bodies.
func items(bodies ...func(*service) string) func(*service) string {
	return func(s *service) string {
		list := make([]json.RawMessage, len(bodies))
		for i, body := range bodies {
			list[i] = json.RawMessage(body(s))
		}
		return encode(members("items", list))
	}
}

func says(words ...wire.Code) []string {
	s := make([]string, len(words))
	for i, w := range words {
		s[i] = string(w)
	}
	return s
}

// common are the answers that every call with a body gives: good is a body that it takes
// from caller, who lacks nothing, and stranger may not call it.
func common(operation, caller, stranger string, good func(*service) string) []exchange {
	breakTokens := func(err error) func(*service) { return func(s *service) { s.faults.ofTokens = err } }
	tooMuch := 70000
	if operation == completeOne { // which takes a result besides
		tooMuch = 420000
	}
	all := []exchange{
		{name: "no bearer", body: good, status: 401, words: says(wire.CodeUnauthenticated), refusable: true},
		{name: "bad bearer", caller: "x.y.z", body: good, status: 401, words: says(wire.CodeUnauthenticated)},
		{name: "keys unavailable", caller: caller, body: good, status: 503, words: says(wire.CodeStoreUnavailable),
			arrange: func(s *service) { s.faults.ofCallers = &auth.Fault{Err: errOther} }},
		{name: "not for such a caller", caller: stranger, body: good, status: 403, words: says(wire.CodeForbidden)},
		{name: "service claim missing", caller: caller, body: good, status: 403, words: says(wire.CodeForbidden),
			arrange: func(s *service) { s.faults.ofCallers = &auth.Refusal{Reason: auth.ErrServiceClaim} }},
		{name: "unknown member", caller: caller, body: text(`{"nope":1}`), status: 400, words: says(wire.CodeInvalidRequest), refusable: true},
		{name: "not an object", caller: caller, body: text(`[]`), status: 400, words: says(wire.CodeInvalidRequest), refusable: true},
		{name: "not JSON", caller: caller, body: text(`{`), status: 400, words: says(wire.CodeInvalidRequest), refusable: true},
		{name: "too large", caller: caller, status: 413, words: says(wire.CodeBodyTooLarge),
			body: func(s *service) string { return good(s) + strings.Repeat(" ", tooMuch) }},
		{name: "not called JSON", caller: caller, body: good, status: 415, words: says(wire.CodeUnsupportedMediaType), refusable: true,
			header: http.Header{"Content-Type": {"text/plain"}}},
		{name: "something unforeseen", caller: caller, body: good, arrange: breakTokens(errOther), status: 500, words: says(wire.CodeInternal)},
	}
	if operation != consumeBatch { // which tells of each item by itself
		all = append(all, exchange{name: "store down", caller: caller, body: good, status: 503, words: says(wire.CodeStoreUnavailable),
			arrange: breakTokens(errStore)})
	}
	for i := range all {
		all[i].operation = operation
	}
	return all
}

func exchanges() []exchange {
	alice := user("alice")
	spend := func(s *service) { // all that alice may be issued at once
		_, err := s.tokens.IssueBatch(s.t.Context(), token.IssueRequest{User: "alice", Purpose: "default", Limited: true}, burst)
		s.must(err)
	}
	invalid := text(`{"token":"ott_nonsense","user":"alice"}`)
	html := http.Header{"Accept": {"text/html"}}

	own := []exchange{
		{operation: issueOne, name: "a user, no body", caller: alice, status: 201},
		{operation: issueOne, name: "a user", caller: alice, body: text(`{"purpose":"order.create","ttl":60,"user":"alice"}`), status: 201},
		{operation: issueOne, name: "a service", caller: issuer, body: text(`{"user":"bob"}`), status: 201},
		{operation: issueOne, name: "for another user", caller: alice, body: text(`{"user":"bob"}`), status: 403, words: says(wire.CodeForbidden)},
		{operation: issueOne, name: "ttl 0", caller: alice, body: text(`{"ttl":0}`), status: 400, words: says(wire.CodeInvalidRequest), refusable: true},
		{operation: issueOne, name: "ttl above what is allowed", caller: alice, body: text(`{"ttl":4000}`), status: 400, words: says(wire.CodeInvalidRequest)},
		{operation: issueOne, name: "bad purpose", caller: alice, body: text(`{"purpose":"Order"}`), status: 400, words: says(wire.CodeInvalidRequest), refusable: true},
		{operation: issueOne, name: "a null", caller: alice, body: text(`{"purpose":null}`), status: 400, words: says(wire.CodeInvalidRequest), refusable: true},
		{operation: issueOne, name: "too often", caller: alice, arrange: spend, status: 429, words: says(wire.CodeRateLimited)},

		{operation: issueBatch, name: "a user", caller: alice, body: text(`{"count":3}`), status: 201},
		{operation: issueBatch, name: "a service", caller: issuer, body: text(`{"count":100,"user":"bob","purpose":"p","ttl":1}`), status: 201},
		{operation: issueBatch, name: "none", caller: issuer, body: text(`{"count":0,"user":"bob"}`), status: 400, words: says(wire.CodeInvalidRequest), refusable: true},
		{operation: issueBatch, name: "above the burst", caller: alice, body: text(`{"count":4}`), status: 400, words: says(wire.CodeInvalidRequest)},
		{operation: issueBatch, name: "too often", caller: alice, body: text(`{"count":1}`), arrange: spend, status: 429, words: says(wire.CodeRateLimited)},

		{operation: consumeOne, name: "fresh", caller: consumer, body: of(fresh, "attempt", "a", "digest", "d", "purpose", "default"), status: 200, words: []string{wire.OutcomeConsumed}},
		{operation: consumeOne, name: "fresh, in delete mode", caller: consumer, body: of(deleteMode), status: 200, words: []string{wire.OutcomeConsumed}},
		{operation: consumeOne, name: "the same attempt", caller: consumer, body: of(used, "attempt", "first"), status: 200, words: []string{wire.OutcomeConsumed}},
		{operation: consumeOne, name: "used", caller: consumer, body: of(used), status: 409, words: says(wire.CodeTokenUsed)},
		{operation: consumeOne, name: "used, in delete mode", caller: consumer, body: of(usedInDeleteMode), status: 409, words: says(wire.CodeTokenUsed)},
		{operation: consumeOne, name: "another request", caller: consumer, body: of(used, "attempt", "first", "digest", "two"), status: 422, words: says(wire.CodeIdempotencyKeyReused)},
		{operation: consumeOne, name: "expired", caller: consumer, body: of(expired), status: 410, words: says(wire.CodeTokenExpired)},
		{operation: consumeOne, name: "stale", caller: consumer, body: of(stale), status: 410, words: says(wire.CodeTokenStale)},
		{operation: consumeOne, name: "lost", caller: consumer, body: of(lost), status: 410, words: says(wire.CodeTokenLost)},
		{operation: consumeOne, name: "gone", caller: consumer, body: of(gone), status: 410, words: says(wire.CodeTokenGone)},
		{operation: consumeOne, name: "revoked", caller: consumer, body: of(revoked), status: 410, words: says(wire.CodeTokenRevoked)},
		{operation: consumeOne, name: "another user's", caller: consumer, body: of(fresh, "user", "bob"), status: 403, words: says(wire.CodeWrongUser)},
		{operation: consumeOne, name: "for another purpose", caller: consumer, body: of(fresh, "purpose", "other"), status: 403, words: says(wire.CodeWrongPurpose)},
		{operation: consumeOne, name: "no token", caller: consumer, body: invalid, status: 400, words: says(wire.CodeTokenInvalid)},
		{operation: consumeOne, name: "no body", caller: consumer, status: 400, words: says(wire.CodeInvalidRequest), refusable: true},
		{operation: consumeOne, name: "bad user", caller: consumer, body: of(fresh, "user", "a\nb"), status: 400, words: says(wire.CodeInvalidRequest), refusable: true},
		{operation: consumeOne, name: "bad attempt", caller: consumer, body: of(fresh, "attempt", "a b"), status: 400, words: says(wire.CodeInvalidRequest), refusable: true},
		{operation: consumeOne, name: "a browser's key", caller: consumer, body: of(fresh), status: 400, words: says(wire.CodeInvalidRequest), refusable: true,
			header: http.Header{wire.HeaderIdempotencyKey: {"k"}}},
		{operation: consumeOne, name: "answer lost", caller: consumer, body: of(deleteMode), status: 503, words: says(wire.CodeOutcomeUnknown),
			arrange: func(s *service) { s.faults.ofTokens = errUnknown }},

		{operation: consumeBatch, name: "one of each state", caller: consumer, status: 200,
			body: items(of(stale), of(expired), of(gone), of(fresh), of(used), of(used, "digest", "two"), of(revoked),
				of(fresh, "user", "bob"), of(fresh, "purpose", "other"), invalid, of(fresh, "user", ""), text(`{}`)),
			words: append(says(wire.CodeTokenStale, wire.CodeTokenExpired, wire.CodeTokenGone, wire.CodeTokenUsed, wire.CodeIdempotencyKeyReused,
				wire.CodeTokenRevoked, wire.CodeWrongUser, wire.CodeWrongPurpose, wire.CodeTokenInvalid, wire.CodeInvalidRequest), wire.OutcomeConsumed)},
		{operation: consumeBatch, name: "lost", caller: consumer, body: items(of(lost)), status: 200, words: says(wire.CodeTokenLost)},
		{operation: consumeBatch, name: "every fault", caller: consumer, body: items(of(fresh), of(fresh), of(fresh)), status: 200,
			arrange: func(s *service) { s.faults.ofItems = []error{errStore, errUnknown, errOther} },
			words:   says(wire.CodeStoreUnavailable, wire.CodeOutcomeUnknown, wire.CodeInternal)},
		{operation: consumeBatch, name: "no items", caller: consumer, body: items(), status: 400, words: says(wire.CodeInvalidRequest), refusable: true},
		{operation: consumeBatch, name: "a browser's key", caller: consumer, body: items(of(fresh)), status: 400, words: says(wire.CodeInvalidRequest), refusable: true,
			header: http.Header{wire.HeaderIdempotencyKey: {"k"}}},

		{operation: askStatus, name: "a user's own", caller: alice, status: 200, words: []string{"issued"},
			body: func(s *service) string { return encode(members("token", fresh(s).Text)) }},
		{operation: askStatus, name: "by ref, gone", caller: consumer, body: byRef(lost), status: 200, words: []string{"gone"}},
		{operation: askStatus, name: "by ref, in delete mode", caller: consumer, body: byRef(deleteMode), status: 200, words: []string{"issued"}},
		{operation: askStatus, name: "gone", caller: consumer, body: of(gone), status: 200, words: []string{"gone"}},
		{operation: askStatus, name: "issued in delete mode", caller: consumer, body: of(deleteMode), status: 200, words: []string{"issued"}},
		{operation: askStatus, name: "used in delete mode", caller: consumer, body: of(usedInDeleteMode), status: 200, words: []string{"used"}},
		{operation: revokeOne, name: "fresh", caller: consumer, body: of(fresh), status: 200, words: []string{"revoked"}},
		{operation: revokeOne, name: "by ref", caller: consumer, body: byRef(fresh), status: 200, words: []string{"revoked"}},
		{operation: revokeOne, name: "by ref, gone", caller: consumer, body: byRef(lost), status: 200, words: []string{"gone"}},
		{operation: revokeOne, name: "in delete mode", caller: consumer, body: of(deleteMode), status: 409, words: says(wire.CodeModeUnsupported)},
		{operation: revokeOne, name: "by ref, in delete mode", caller: consumer, body: byRef(deleteMode), status: 409, words: says(wire.CodeModeUnsupported)},

		{operation: "GET /livez", status: 200, words: []string{"text/plain"}},
		{operation: "HEAD /livez", status: 200},
		{operation: "GET /readyz", status: 200, words: []string{"text/plain"}},
		{operation: "HEAD /readyz", status: 200},
		{operation: "GET /readyz", name: "shutting down", arrange: func(s *service) { s.api.Drain() }, status: 503, words: []string{"text/plain"}},
		{operation: "HEAD /readyz", name: "shutting down", arrange: func(s *service) { s.api.Drain() }, status: 503},
		{operation: "GET /openapi.yaml", status: 200, words: []string{"application/yaml"}},
		{operation: "HEAD /openapi.yaml", status: 200},
		{operation: "GET /tokend.js", status: 200, words: []string{"text/javascript"}},
		{operation: "HEAD /tokend.js", status: 200},
		{operation: "GET /tokend.global.js", status: 200, words: []string{"text/javascript"}},
		{operation: "HEAD /tokend.global.js", status: 200},
		{operation: problemPage, path: "/problems/token_used", name: "plain", status: 200, words: []string{"text/plain"}},
		{operation: problemPage, path: "/problems/token_used", name: "HTML", header: html, status: 200, words: []string{"text/html"}},
		{operation: problemPage, path: "/problems/nope", name: "unknown code", status: 404, words: says(wire.CodeNotFound)},
		{operation: problemHead, path: "/problems/token_used", header: html, status: 200},
		{operation: problemHead, path: "/problems/nope", name: "unknown code", status: 404},
	}
	for _, operation := range []string{askStatus, revokeOne} {
		if operation == askStatus {
			own = append(own, exchange{operation: operation, name: "issued", caller: consumer, body: of(fresh), status: 200, words: []string{"issued"}})
		}
		for word, st := range map[string]state{"used": used, "revoked": revoked, "expired": expired, "stale": stale, "lost": lost} {
			own = append(own, exchange{operation: operation, name: word, caller: consumer, body: of(st), status: 200, words: []string{word}})
			if word != "lost" && word != "stale" {
				by := word
				if word == "expired" {
					by = "gone" // the record went with the token's life
				}
				own = append(own, exchange{operation: operation, name: word + ", by ref", caller: consumer, body: byRef(st), status: 200, words: []string{by}})
			}
		}
		own = append(own,
			exchange{operation: operation, name: "another user's", caller: user("bob"), status: 403, words: says(wire.CodeWrongUser),
				body: func(s *service) string { return encode(members("token", fresh(s).Text)) }},
			exchange{operation: operation, name: "for another purpose", caller: consumer, body: of(fresh, "purpose", "other"), status: 403, words: says(wire.CodeWrongPurpose)},
			exchange{operation: operation, name: "no token", caller: consumer, body: invalid, status: 400, words: says(wire.CodeTokenInvalid)},
			exchange{operation: operation, name: "a user by ref", caller: alice, body: byRef(fresh), status: 403, words: says(wire.CodeForbidden)},
			exchange{operation: operation, name: "token and ref", caller: consumer, body: of(fresh, "ref", "t_3f2a9c0d5b7e4816a1c2d3e4f5061728"), status: 400,
				words: says(wire.CodeInvalidRequest), refusable: true},
			exchange{operation: operation, name: "no ref", caller: consumer, body: text(`{"ref":"t_x","user":"alice"}`), status: 400,
				words: says(wire.CodeInvalidRequest), refusable: true},
		)
	}
	return slices.Concat(own,
		common(issueOne, issuer, consumer, text(`{"user":"alice"}`)),
		common(issueBatch, issuer, consumer, text(`{"user":"alice","count":2}`)),
		common(consumeOne, consumer, user("alice"), of(fresh)),
		common(consumeBatch, consumer, issuer, items(of(fresh))),
		common(askStatus, consumer, issuer, of(fresh)),
		common(revokeOne, consumer, issuer, of(fresh)),
		claimExchanges(),
		gatewayExchanges(),
	)
}

// TestExchanges holds every exchange of the table to the document, and the document to what
// came up in the table.
func TestExchanges(t *testing.T) {
	d := readDocument(t, newService(t))
	table, ran := exchanges(), 0
	missing := d.answers(t)
	for _, x := range table {
		t.Run(x.operation+"/"+x.name, func(t *testing.T) {
			ran++
			s := newService(t, x.options)
			req, resp := s.do(x)
			got, body := answersOf(t, x.operation, resp)
			if want := x.answers(); !maps.Equal(got, want) {
				t.Fatalf("%d %s, want %d %q", resp.StatusCode, body, x.status, x.words)
			}
			if !strings.Contains(body, x.holds) {
				t.Errorf("%s, want %s in it", body, x.holds)
			}
			for a := range got {
				delete(missing, a)
			}
			if ok, errs := d.ValidateHttpResponse(req(), resp); !ok {
				t.Errorf("the answer is not as described: %s%s", body, why(errs))
			}
			if ok, errs := d.ValidateHttpRequest(req()); ok == x.refusable {
				t.Errorf("the document takes the request: %v, want %v%s", ok, !x.refusable, why(errs))
			}
		})
	}
	if ran != len(table) {
		t.Skip("what comes up is told only where all exchanges run")
	}
	for _, a := range slices.SortedFunc(maps.Keys(missing), compareAnswers) {
		t.Errorf("described, but never seen: %s %d %s", a.operation, a.status, a.word)
	}
}

func compareAnswers(a, b answer) int {
	return cmp.Or(cmp.Compare(a.operation, b.operation), cmp.Compare(a.status, b.status), cmp.Compare(a.word, b.word))
}

// TestUnrouted holds the answers that belong to no operation to their descriptions.
func TestUnrouted(t *testing.T) {
	s := newService(t)
	d := readDocument(t, s)
	for component, x := range map[string]exchange{
		"NotFound":         {operation: "POST /nope", status: 404, words: says(wire.CodeNotFound)},
		"MethodNotAllowed": {operation: "PUT " + wire.PathTokens, status: 405, words: says(wire.CodeMethodNotAllowed)},
	} {
		_, resp := s.do(x)
		got, body := answersOf(t, x.operation, resp)
		if !maps.Equal(got, x.answers()) {
			t.Errorf("%s: %d %s", x.operation, resp.StatusCode, body)
		}
		described := d.Components.Responses.GetOrZero(component)
		schema := described.Content.GetOrZero(wire.TypeProblem).Schema.Schema()
		if ok, errs := schema_validation.NewSchemaValidator(config.WithFormatAssertions()).ValidateSchemaString(schema, body); !ok {
			t.Errorf("%s is not as described: %s%s", x.operation, body, why(errs))
		}
		for name := range described.Headers.FromOldest() {
			if resp.Header.Get(name) == "" {
				t.Errorf("%s: no %s", x.operation, name)
			}
		}
	}
}

// TestEveryCodeComesUp holds the table complete against the one table of codes.
func TestEveryCodeComesUp(t *testing.T) {
	seen := map[string]bool{string(wire.CodeMethodNotAllowed): true} // in TestUnrouted
	for _, x := range exchanges() {
		for _, word := range x.words {
			seen[word] = true
		}
	}
	for _, kind := range wire.Kinds() {
		if !seen[string(kind.Code)] {
			t.Errorf("%s is in no exchange", kind.Code)
		}
	}
}

// answers returns the answers that x is to have.
func (x exchange) answers() map[answer]bool {
	want := make(map[answer]bool)
	for _, word := range x.words {
		want[answer{x.operation, x.status, word}] = true
	}
	if len(want) == 0 {
		want[answer{x.operation, x.status, ""}] = true
	}
	return want
}

// do sends x's request. The function that it returns makes the request anew, for
// validators read its body.
func (s *service) do(x exchange) (again func() *http.Request, resp *http.Response) {
	s.t.Helper()
	method, path, _ := strings.Cut(x.operation, " ")
	path = cmp.Or(x.path, path)
	if x.handle != nil {
		path = strings.Replace(path, "{claim}", x.handle(s), 1)
	}
	body := ""
	if x.body != nil {
		body = x.body(s)
	}
	var more http.Header
	if x.headers != nil {
		more = x.headers(s)
	}
	if x.arrange != nil {
		x.arrange(s)
	}
	again = func() *http.Request {
		req, err := http.NewRequestWithContext(s.t.Context(), method, s.http.URL+path, strings.NewReader(body))
		s.must(err)
		if x.caller != "" {
			req.Header.Set("Authorization", "Bearer "+x.caller)
		}
		if body != "" {
			req.Header.Set("Content-Type", wire.TypeJSON)
		}
		maps.Copy(req.Header, x.header)
		maps.Copy(req.Header, more)
		return req
	}
	resp, err := http.DefaultClient.Do(again())
	s.must(err)
	s.t.Cleanup(func() { resp.Body.Close() })
	return again, resp
}

// answersOf tells which answers of operation resp is, and returns its body, which may be
// read again.
func answersOf(t *testing.T, operation string, resp *http.Response) (map[answer]bool, string) {
	t.Helper()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body = io.NopCloser(bytes.NewReader(b))
	got := make(map[answer]bool)
	for _, word := range wordsOf(t, resp, b) {
		got[answer{operation, resp.StatusCode, word}] = true
	}
	return got, string(b)
}

func wordsOf(t *testing.T, resp *http.Response, body []byte) (words []string) {
	t.Helper()
	if len(body) == 0 {
		return []string{""}
	}
	typ, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil {
		t.Fatal(err)
	}
	if !isJSON(typ) {
		return []string{typ}
	}
	var said map[string]any
	if err := json.Unmarshal(body, &said); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	results, ok := said["results"].([]any)
	if !ok {
		results = []any{said}
	}
	for _, r := range results {
		for _, name := range tellApart {
			if word, ok := r.(map[string]any)[name]; ok {
				words = append(words, fmt.Sprint(word))
			}
		}
	}
	if len(words) == 0 {
		words = []string{""}
	}
	return words
}
