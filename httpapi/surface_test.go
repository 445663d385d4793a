package httpapi_test

import (
	"bufio"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/tokend/httpapi"
	"example.com/tokend/httpapi/wire"
	"example.com/tokend/token"
)

// metric returns the value of the line of /metrics that begins with series.
func (h *harness) metric(series string) float64 {
	h.t.Helper()
	for line := range strings.Lines(h.metrics()) {
		if text, ok := strings.CutPrefix(line, series+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
			if err != nil {
				h.t.Fatal(err)
			}
			return v
		}
	}
	return 0
}

func (h *harness) metrics() string {
	h.t.Helper()
	w := httptest.NewRecorder()
	h.m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 {
		h.t.Fatalf("/metrics: %d %s", w.Code, w.Body)
	}
	if w.Header().Get("Cache-Control") != "no-store" || w.Header().Get("X-Request-Id") == "" {
		h.t.Errorf("/metrics: %v", w.Header())
	}
	return w.Body.String()
}

func TestUnrouted(t *testing.T) {
	h := newHarness(t)
	for _, path := range []string{"/", "/nope", "/v1/tokens/", "/v1//tokens", "/v1/tokens/../tokens", "/V1/tokens", "/v1%2Ftokens", "/metrics", "/v1/tokens/consume/x"} {
		if a := h.do(request{path: path, body: `{}`}); a.Code != wire.CodeNotFound {
			t.Errorf("POST %s: %d %s, want not_found", path, a.status, a.body)
		}
	}
	for _, method := range []string{"GET", "PUT", "DELETE", "PATCH", "BREW"} {
		a := h.do(request{method: method, path: wire.PathConsume})
		if a.Code != wire.CodeMethodNotAllowed || !strings.Contains(a.header.Get("Allow"), "POST") {
			t.Errorf("%s: %d %s, Allow %q", method, a.status, a.body, a.header.Get("Allow"))
		}
	}
	if a := h.do(request{method: "HEAD", path: wire.PathConsume}); a.status != 405 || a.body != "" {
		t.Errorf("HEAD: %d %q", a.status, a.body)
	}
	if a := h.do(request{method: "POST", path: wire.PathLivez}); a.status != 405 || a.header.Get("Allow") == "" {
		t.Errorf("POST %s: %d", wire.PathLivez, a.status)
	}
}

func TestProbes(t *testing.T) {
	h := newHarness(t)
	for _, method := range []string{"GET", "HEAD"} {
		for _, path := range []string{wire.PathLivez, wire.PathReadyz} {
			if a := h.do(request{method: method, path: path, auth: "-"}); a.status != 200 {
				t.Errorf("%s %s: %d, want 200", method, path, a.status)
			}
		}
	}
	h.redis.Close()
	for range 3 { // the last answer stands for a moment
		if a := h.do(request{method: "GET", path: wire.PathLivez, auth: "-"}); a.status != 200 {
			t.Errorf("livez while Redis is down: %d, want 200", a.status)
		}
	}
	for h.do(request{method: "GET", path: wire.PathReadyz, auth: "-"}).status != 503 {
	}
	if err := h.redis.Restart(); err != nil {
		t.Fatal(err)
	}
	for h.do(request{method: "GET", path: wire.PathReadyz, auth: "-"}).status != 200 {
	}
	h.srv.Drain()
	if a := h.do(request{method: "GET", path: wire.PathReadyz, auth: "-"}); a.status != 503 {
		t.Errorf("readyz while draining: %d, want 503", a.status)
	}
	h.issue(`{}`) // requests are served all the same
}

func TestRequestID(t *testing.T) {
	h := newHarness(t)
	for _, id := range []string{"a", "A-b_c.9", strings.Repeat("x", 64)} {
		if a := h.do(request{path: "/nope", header: http.Header{"X-Request-Id": {id}}}); a.RequestID != id {
			t.Errorf("request id %q was answered as %q", id, a.RequestID)
		}
	}
	for _, ids := range [][]string{{""}, {"a b"}, {"é"}, {strings.Repeat("x", 65)}, {"a", "b"}, {`"`}} {
		a := h.do(request{path: "/nope", header: http.Header{"X-Request-Id": ids}})
		if !regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`).MatchString(a.RequestID) || a.RequestID == ids[0] {
			t.Errorf("request ids %q were answered as %q", ids, a.RequestID)
		}
	}
}

// brokenTokens is a token service in which everything fails as told.
type brokenTokens struct {
	httpapi.Tokens
	err   error
	panic any
}

func (b brokenTokens) Issue(context.Context, token.IssueRequest) (token.IssuedToken, error) {
	if b.panic != nil {
		panic(b.panic)
	}
	return token.IssuedToken{}, b.err
}

func TestFaultsShowNothing(t *testing.T) {
	tests := []struct {
		name   string
		broken brokenTokens
		want   wire.Code
	}{
		{"store fault", brokenTokens{err: &token.Fault{Op: "issue", Err: errors.New("canary")}}, wire.CodeStoreUnavailable},
		{"unknown error", brokenTokens{err: errors.New("canary")}, wire.CodeInternal},
		{"unknown refusal", brokenTokens{err: &token.Refusal{Reason: new(token.Reason)}}, wire.CodeInternal},
		{"panic", brokenTokens{panic: "canary"}, wire.CodeInternal},
		{"panic with an error", brokenTokens{panic: errors.New("canary")}, wire.CodeInternal},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newHarness(t, func(o *httpapi.Options, _ *token.Options) { o.Tokens, o.Outcomes = tt.broken, httpapi.LogNone })
			a := h.do(request{path: wire.PathTokens, body: `{"user":"alice"}`})
			if a.Code != tt.want || a.Next != wire.NextRetry || strings.Contains(a.body, "canary") {
				t.Errorf("%s, want %s without the cause", a.body, tt.want)
			}
			if (a.status == 503) != (a.header.Get("Retry-After") != "") {
				t.Errorf("status %d with Retry-After %q", a.status, a.header.Get("Retry-After"))
			}
			lines := h.log.lines(t)
			if len(lines) != 1 || lines[0]["level"] != "ERROR" || lines[0]["error"] == nil {
				t.Errorf("log: %v, want one line with the cause", lines)
			}
			if n := h.metric(`tokend_outcomes_total{code="` + string(tt.want) + `",op="issue"}`); n != 1 {
				t.Errorf("counted %v times", n)
			}
		})
	}
}

func TestStoreDown(t *testing.T) {
	h := newHarness(t)
	tok := h.issue(`{}`)
	h.redis.Close()
	for _, e := range endpoints {
		a := h.do(request{path: e.path, body: e.good(tok.Token)})
		if a.Code != wire.CodeStoreUnavailable || a.Next != wire.NextRetry || a.header.Get("Retry-After") != "1" {
			t.Errorf("%s while Redis is down: %s", e.path, a.body)
		}
		if issues := e.path == wire.PathTokens || e.path == wire.PathBatch; (a.Ref != tok.Ref) != issues {
			t.Errorf("%s while Redis is down names %q, the token is %s", e.path, a.Ref, tok.Ref)
		}
	}
	// What needs no store is told all the same.
	if a := h.do(request{path: wire.PathConsume, body: body("token", tok.Token, "user", "bob")}); a.Code != wire.CodeWrongUser {
		t.Errorf("wrong user while Redis is down: %s", a.body)
	}
}

func TestOutcomeLine(t *testing.T) {
	h := newHarness(t)
	tok := h.issue(`{"purpose":"order.create"}`)
	for _, attempt := range []string{"winner", "loser"} {
		h.do(request{path: wire.PathConsume, body: body("token", tok.Token, "user", "alice", "purpose", "order.create", "attempt", attempt),
			header: http.Header{"X-Request-Id": {attempt}, "Traceparent": {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}}})
	}
	lines := h.log.lines(t)
	if len(lines) != 3 {
		t.Fatalf("%d lines, want one for each outcome", len(lines))
	}
	for _, line := range lines {
		delete(line, "time")
		if ms, ok := line["ms"].(float64); !ok || ms <= 0 {
			t.Errorf("ms is %v", line["ms"])
		}
		delete(line, "ms")
	}
	if lines[0]["op"] != "issue" || lines[0]["code"] != "issued" || lines[0]["caller"] != "user" || lines[0]["status"] != 201.0 {
		t.Errorf("issue: %v", lines[0])
	}
	winner := map[string]any{
		"level": "INFO", "msg": "outcome", "op": "consume", "code": "consumed", "next": "", "status": 200.0,
		"request_id": "winner", "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736", "caller": "jwt:form-svc",
		"purpose": "order.create", "ref": tok.Ref, "user_ref": token.User("alice").Hash().String(),
		"attempt_ref": token.Attempt("winner").Hash().Ref(), "used_by": "", "takeover": false, "fence": 0.0,
		"expires_at": tok.ExpiresAt.String(),
	}
	if diff := cmp.Diff(winner, lines[1]); diff != "" {
		t.Errorf("winner's line (-want +got):\n%s", diff)
	}
	loser := winner
	loser["code"], loser["next"], loser["status"], loser["request_id"] = "token_used", "stop", 409.0, "loser"
	loser["attempt_ref"], loser["used_by"] = token.Attempt("loser").Hash().Ref(), token.Attempt("winner").Hash().Ref()
	if diff := cmp.Diff(loser, lines[2]); diff != "" {
		t.Errorf("loser's line (-want +got):\n%s", diff)
	}
	if log := h.log.String(); strings.Contains(log, "alice") || strings.Contains(log, tok.Token[30:]) {
		t.Errorf("the log shows the user or the token:\n%s", log)
	}
}

func TestLogChoices(t *testing.T) {
	run := func(o httpapi.Outcomes, u httpapi.LogUser) (lines []map[string]any) {
		h := newHarness(t, func(opts *httpapi.Options, _ *token.Options) { opts.Outcomes, opts.LogUser = o, u })
		h.issue(`{}`)
		h.do(request{path: wire.PathConsume, body: body("token", "x", "user", "alice\u2028{\"")})
		return h.log.lines(t)
	}
	if lines := run(httpapi.LogRefusals, httpapi.UserHash); len(lines) != 1 || lines[0]["code"] != "token_invalid" || lines[0]["reason"] != "malformed" {
		t.Errorf("refusals: %v", lines)
	}
	if lines := run(httpapi.LogNone, httpapi.UserHash); len(lines) != 0 {
		t.Errorf("none: %v", lines)
	}
	if lines := run(httpapi.LogAll, httpapi.UserPlain); lines[0]["user"] != "alice" || lines[1]["user"] != "alice\u2028{\"" {
		t.Errorf("plain: %v", lines)
	}
	if lines := run(httpapi.LogAll, httpapi.UserNone); lines[0]["user"] != nil || lines[0]["user_ref"] != "" {
		t.Errorf("none: %v", lines)
	}
}

// TestMetricNames pins the names of the metrics, and their labels.
func TestMetricNames(t *testing.T) {
	h := newHarness(t)
	tok := h.issue(`{}`)
	h.do(request{path: wire.PathConsume, body: body("token", tok.Token, "user", "alice")})
	h.do(request{path: "/" + strings.Repeat("x", 100)})
	for _, series := range []string{
		`tokend_outcomes_total{code="issued",op="issue"}`,
		`tokend_outcomes_total{code="consumed",op="consume"}`,
		`tokend_outcomes_total{code="not_found",op="none"}`,
		`tokend_http_request_seconds_count{op="consume",status="200"}`,
		`tokend_redis_seconds_count{op="consume"}`,
		`tokend_redis_pool{state="idle"}`,
		`tokend_build_info{go_version="go",version="test"}`,
	} {
		if got := h.metric(series); got != 1 {
			t.Errorf("%s is %v, want 1", series, got)
		}
	}
	if got := h.metric(`tokend_key_uses_total{key_id="k1"}`); got != 2 {
		t.Errorf("key uses: %v, want 2", got)
	}
	all := h.metrics()
	for _, name := range []string{"tokend_takeovers_total 0", "tokend_unfinished_total 0"} {
		if !strings.Contains(all, name) {
			t.Errorf("no %s", name)
		}
	}
	sc := bufio.NewScanner(strings.NewReader(all))
	for sc.Scan() {
		if strings.Contains(sc.Text(), "xxxx") {
			t.Errorf("a path in a label: %s", sc.Text())
		}
	}
}
