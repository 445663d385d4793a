package httpapi_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/tokend/httpapi"
	"example.com/tokend/httpapi/wire"
	"example.com/tokend/token"
)

// claim claims with the members pairs; user is alice where none is named.
func (h *harness) claim(pairs ...any) answer {
	h.t.Helper()
	return h.do(request{path: wire.PathClaims, body: body(append([]any{"user", "alice"}, pairs...)...)})
}

// claimed claims, or fails the test.
func (h *harness) claimed(pairs ...any) wire.Claimed {
	h.t.Helper()
	var got wire.Claimed
	a := h.claim(pairs...)
	a.decode(h.t, &got)
	if a.status != 201 {
		h.t.Fatalf("claim: %d %s", a.status, a.body)
	}
	return got
}

// replayed claims, and returns the result that it is answered with.
func (h *harness) replayed(pairs ...any) *wire.Result {
	h.t.Helper()
	var got wire.Replay
	a := h.claim(pairs...)
	a.decode(h.t, &got)
	if a.status != 200 || got.State != "completed" || !got.Replayed || a.header.Get("Idempotent-Replayed") != "true" {
		h.t.Fatalf("replay: %d %s, %v", a.status, a.body, a.header)
	}
	return got.Result
}

func (h *harness) commit(claim string) answer {
	return h.do(request{path: wire.PathCommit(claim)})
}

func (h *harness) renew(claim string, pairs ...any) answer {
	return h.do(request{path: wire.PathRenew(claim), body: body(pairs...)})
}

func (h *harness) complete(claim string, pairs ...any) answer {
	b := `{}`
	if len(pairs) > 0 {
		b = body("result", json.RawMessage(body(pairs...)))
	}
	return h.do(request{method: "PUT", path: wire.PathResult(claim), body: b})
}

func (h *harness) release(claim string) answer {
	return h.do(request{method: "DELETE", path: wire.PathClaim(claim)})
}

// claimStatus asks after what the members pairs name.
func (h *harness) claimStatus(pairs ...any) (got wire.ClaimStatusResponse) {
	h.t.Helper()
	h.do(request{path: wire.PathClaimStatus, body: body(append([]any{"user", "alice"}, pairs...)...)}).decode(h.t, &got)
	return got
}

// is fails the test unless a is the problem code.
func (a answer) is(t *testing.T, what string, code wire.Code) {
	t.Helper()
	if a.Code != code {
		t.Errorf("%s: %d %s, want %s", what, a.status, a.body, code)
	}
}

// TestClaimsTable plays the rows of the contract's table that are about claims.
func TestClaimsTable(t *testing.T) {
	h := newHarness(t)
	tok := h.issue(`{}`)
	first := h.claimed("token", tok.Token, "attempt", "a", "digest", "d")
	want := wire.Claimed{
		State: "claimed", Claim: first.Claim, Ref: tok.Ref, Fence: 1, LeaseExpiresAt: wire.TimeOf(h.now.Add(30 * time.Second).Truncate(time.Millisecond)),
	}
	if first != want || !strings.HasPrefix(first.Claim, "otc_") {
		t.Errorf("claimed: %+v, want %+v", first, want)
	}
	if want.Replayed = true; h.claimed("token", tok.Token, "attempt", "a", "digest", "d") != want {
		t.Error("the same attempt again is answered with another claim")
	}
	for left, retry := range map[time.Duration]string{28500 * time.Millisecond: "5", 1500 * time.Millisecond: "2", 300 * time.Millisecond: "1"} {
		tok := h.issue(`{}`)
		h.claimed("token", tok.Token, "lease", 29)
		h.advance(29*time.Second - left)
		a := h.claim("token", tok.Token)
		a.is(t, "in progress", wire.CodeRequestInProgress)
		if a.header.Get("Retry-After") != retry || a.LeaseExpiresAt.IsZero() || a.Ref != tok.Ref || a.ExpiresAt != tok.ExpiresAt {
			t.Errorf("%v of the lease left: Retry-After %q, %s", left, a.header.Get("Retry-After"), a.body)
		}
	}
	tok = h.issue(`{}`)
	first = h.claimed("token", tok.Token, "attempt", "a", "digest", "d", "lease", 10)
	consume := func(attempt string) answer {
		return h.do(request{path: wire.PathConsume, body: body("token", tok.Token, "user", "alice", "attempt", attempt)})
	}
	consume("a").is(t, "consume of what is claimed", wire.CodeRequestInProgress)
	h.claim("token", tok.Token, "digest", "other").is(t, "another request", wire.CodeIdempotencyKeyReused)
	h.claim("token", tok.Token, "user", "bob").is(t, "another user", wire.CodeWrongUser)
	h.claim("token", tok.Token, "purpose", "p").is(t, "another purpose", wire.CodeWrongPurpose)
	h.advance(10 * time.Second)
	second := h.claimed("token", tok.Token, "attempt", "b", "commit", true, "lease", 10)
	if second.Fence != 2 || !second.Takeover || !second.Committed {
		t.Errorf("taken over: %+v", second)
	}
	for what, a := range map[string]answer{
		"commit": h.commit(first.Claim), "renew": h.renew(first.Claim), "complete": h.complete(first.Claim), "release": h.release(first.Claim),
	} {
		a.is(t, what+" of what was taken over", wire.CodeClaimSuperseded)
	}
	h.release(second.Claim).is(t, "release of what is committed", wire.CodeClaimCommitted)
	h.advance(10 * time.Second)
	for what, a := range map[string]answer{
		"claim": h.claim("token", tok.Token), "the same attempt": h.claim("token", tok.Token, "attempt", "b"), "consume": consume("c"),
	} {
		a.is(t, what+" of what is unfinished", wire.CodeClaimUnfinished)
		if a.UsedBy != token.Attempt("b").Hash().Ref() || a.header.Get("Retry-After") != "" {
			t.Errorf("%s: %s", what, a.body)
		}
	}
	third := h.claimed("token", tok.Token, "resolve", true)
	if third.Fence != 3 || !third.Takeover || !third.Committed {
		t.Errorf("resolved: %+v", third)
	}
	if a := h.release(third.Claim); a.status != 204 || a.body != "" || a.header.Get("Content-Type") != "" {
		t.Errorf("release: %d %q, %v", a.status, a.body, a.header)
	}
	if a := h.release(third.Claim); a.status != 204 {
		t.Errorf("release twice: %d %s", a.status, a.body)
	}
	h.complete(third.Claim).is(t, "complete of what is released", wire.CodeClaimEnded)
	if a := consume("c"); a.status != 200 {
		t.Errorf("consume of what is released: %s", a.body)
	}
	h.claim("token", tok.Token, "attempt", "c").is(t, "claim of what is used", wire.CodeTokenUsed)

	tok = h.issue(`{"ttl":1}`)
	h.advance(2 * time.Second)
	h.claim("token", tok.Token).is(t, "expired", wire.CodeTokenExpired)
	h.advance(2 * time.Hour)
	h.claim("token", tok.Token).is(t, "stale", wire.CodeTokenStale)
	tok = h.issue(`{}`)
	var revoked wire.RevokeResponse
	ours := h.claimed("token", tok.Token)
	h.do(request{path: wire.PathRevoke, body: body("token", tok.Token, "user", "alice")}).decode(t, &revoked)
	if revoked.State != "revoked" {
		t.Errorf("revoke of what is claimed: %+v", revoked)
	}
	h.commit(ours.Claim).is(t, "commit of what is revoked", wire.CodeClaimEnded)
	h.claim("token", tok.Token).is(t, "revoked", wire.CodeTokenRevoked)
	tok = h.issue(`{}`)
	h.redis.FlushAll()
	h.claim("token", tok.Token).is(t, "lost", wire.CodeTokenLost)
	h.claim("token", forge(tok.Token)).is(t, "forged", wire.CodeTokenInvalid)
}

func TestCommitAndRenew(t *testing.T) {
	h := newHarness(t)
	c := h.claimed("key", "k", "lease", 10)
	held := func(a answer) (got wire.HeldResponse) {
		t.Helper()
		a.decode(t, &got)
		if a.status != 200 || got.State != "claimed" || got.Ref != c.Ref || got.Fence != 1 {
			t.Errorf("%d %s", a.status, a.body)
		}
		return got
	}
	if got := held(h.renew(c.Claim, "lease", 3600)); got.Committed || got.LeaseExpiresAt != wire.TimeOf(h.now.Add(time.Hour).Truncate(time.Millisecond)) {
		t.Errorf("renewed: %+v", got)
	}
	renewed := held(h.do(request{path: wire.PathRenew(c.Claim)})) // no body: 30 s, which does not shorten
	if got := held(h.commit(c.Claim)); !got.Committed || got.LeaseExpiresAt != renewed.LeaseExpiresAt {
		t.Errorf("committed: %+v", got)
	}
	if got := held(h.do(request{path: wire.PathCommit(c.Claim), body: `{}`})); !got.Committed {
		t.Errorf("committed twice: %+v", got)
	}
	h.release(c.Claim).is(t, "release", wire.CodeClaimCommitted)
	short := h.claimed("key", "short", "lease", 1)
	h.advance(time.Minute)
	var got wire.HeldResponse
	h.renew(short.Claim).decode(t, &got)
	if got.LeaseExpiresAt != wire.TimeOf(h.now.Add(30*time.Second).Truncate(time.Millisecond)) {
		t.Errorf("renewed after the lease's end: %+v", got)
	}
}

// TestResultsComeBack keeps results byte for byte, with every member.
func TestResultsComeBack(t *testing.T) {
	h := newHarness(t)
	raw := []byte(`{"id":15947634569000323,"e":[],"z":1.0,"n":null}` + "\x00\xff\n")
	tests := []struct {
		name  string
		pairs []any
		want  *wire.Result
	}{
		{"none", nil, nil},
		{"status alone", []any{"status", 303}, &wire.Result{Status: 303, Headers: map[string]string{}, Body: []byte{}}},
		{"all", []any{"status", 201, "headers", map[string]string{"Location": "/orders/7", "x": ""}, "body", base64.StdEncoding.EncodeToString(raw)},
			&wire.Result{Status: 201, Headers: map[string]string{"Location": "/orders/7", "x": ""}, Body: raw}},
		{"empty body", []any{"status", 100, "headers", map[string]string{}, "body", ""}, &wire.Result{Status: 100, Headers: map[string]string{}, Body: []byte{}}},
		{"omitted", []any{"status", 599, "body_omitted", true}, &wire.Result{Status: 599, Headers: map[string]string{}, Body: []byte{}, BodyOmitted: true}},
		{"not omitted", []any{"status", 200, "body", "AA==", "body_omitted", false}, &wire.Result{Status: 200, Headers: map[string]string{}, Body: []byte{0}}},
	}
	for _, tt := range tests {
		c := h.claimed("key", "k-"+strings.ReplaceAll(tt.name, " ", "-"), "attempt", "a")
		var done, again wire.CompleteResponse
		h.complete(c.Claim, tt.pairs...).decode(t, &done)
		if done.State != "completed" || done.Ref != c.Ref || done.Replayed || done.CompletedAt.IsZero() {
			t.Errorf("%s: completed %+v", tt.name, done)
		}
		h.complete(c.Claim, "status", 500).decode(t, &again)
		if done.Replayed = true; again != done {
			t.Errorf("%s: completed twice %+v, want %+v", tt.name, again, done)
		}
		key := "k-" + strings.ReplaceAll(tt.name, " ", "-")
		if diff := cmp.Diff(tt.want, h.replayed("key", key)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
		a := h.claim("key", key)
		for _, member := range []string{`"status":`, `"headers":{`, `"body":"`, `"body_omitted":`} {
			if tt.want != nil && !strings.Contains(a.body, member) || tt.want == nil && !strings.Contains(a.body, `"result":null`) {
				t.Errorf("%s: %s has no %s", tt.name, a.body, member)
			}
		}
		st := h.claimStatus("key", key)
		if diff := cmp.Diff(tt.want, st.Result); diff != "" || st.State != "completed" || st.UsedBy != token.Attempt("a").Hash().Ref() || st.CompletedAt != done.CompletedAt {
			t.Errorf("%s: status %+v", tt.name, st)
		}
	}
}

// TestResultLimit: a body above the limit is 413 and changes nothing, and one at it is kept.
func TestResultLimit(t *testing.T) {
	const limit = 70000
	h := newHarness(t, func(o *httpapi.Options, _ *token.Options) { o.ResultBytes = limit })
	c := h.claimed("key", "k")
	body64 := func(n int) string { return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{0xa5}, n)) }
	for _, n := range []int{limit + 1, limit + 40000, 1 << 20} {
		a := h.complete(c.Claim, "status", 200, "body", body64(n))
		a.is(t, "too large a result", wire.CodeBodyTooLarge)
		if n == limit+1 && (a.Field != "result.body" || !strings.Contains(a.Detail, "70000") || a.status != 413) {
			t.Errorf("%s", a.body)
		}
	}
	h.claim("key", "k").is(t, "after that", wire.CodeRequestInProgress)
	if a := h.complete(c.Claim, "status", 200, "body", body64(limit), "headers", map[string]string{"X": strings.Repeat("h", 60000)}); a.status != 200 {
		t.Errorf("as large as may be: %s", a.body)
	}
	if got := h.replayed("key", "k"); len(got.Body) != limit || len(got.Headers["X"]) != 60000 {
		t.Errorf("%d bytes came back", len(got.Body))
	}
	// Other calls have no more room for that.
	a := h.do(request{path: wire.PathClaims, body: body("key", "x", "user", "alice") + strings.Repeat(" ", 70000)})
	a.is(t, "a claim as long as a result", wire.CodeBodyTooLarge)
}

func TestClaimStatus(t *testing.T) {
	h := newHarness(t)
	if st := h.claimStatus("key", "k"); st.State != "unknown" || !strings.HasPrefix(st.Ref, "k_") || st.Result != nil {
		t.Errorf("a key never claimed: %+v", st)
	}
	c := h.claimed("key", "k")
	no := false
	want := wire.StatusResponse{State: "claimed", Ref: c.Ref, LeaseExpiresAt: c.LeaseExpiresAt, Fence: 1, Committed: &no}
	if diff := cmp.Diff(want, h.claimStatus("key", "k").StatusResponse, cmp.AllowUnexported(wire.Time{})); diff != "" {
		t.Errorf("claimed (-want +got):\n%s", diff)
	}
	var byRef wire.StatusResponse
	h.do(request{path: wire.PathStatus, body: body("ref", c.Ref, "user", "alice")}).decode(t, &byRef)
	if diff := cmp.Diff(want, byRef, cmp.AllowUnexported(wire.Time{})); diff != "" {
		t.Errorf("by ref (-want +got):\n%s", diff)
	}
	h.do(request{path: wire.PathRevoke, body: body("ref", c.Ref, "user", "alice")}).is(t, "revoke of a key", wire.CodeInvalidRequest)
	h.release(c.Claim)
	if st := h.claimStatus("key", "k"); st.State != "unknown" {
		t.Errorf("released: %+v", st)
	}
	h.do(request{path: wire.PathStatus, body: body("ref", "k_"+strings.Repeat("0", 32), "user", "alice")}).decode(t, &byRef)
	if byRef.State != "gone" {
		t.Errorf("a key's ref without a record: %+v", byRef)
	}

	tok := h.issue(`{}`)
	for _, path := range []string{wire.PathStatus, wire.PathClaimStatus} {
		ask := func() answer { return h.do(request{path: path, body: body("token", tok.Token, "user", "alice")}) }
		tok = h.issue(`{}`)
		if a := ask(); !strings.Contains(a.body, `"state":"issued"`) || strings.Contains(a.body, `"result":null`) != (path == wire.PathClaimStatus) {
			t.Errorf("%s of an issued token: %s", path, a.body)
		}
		c := h.claimed("token", tok.Token)
		if a := ask(); !strings.Contains(a.body, `"committed":false`) || !strings.Contains(a.body, `"fence":1`) || !strings.Contains(a.body, `"issued_at"`) || !strings.Contains(a.body, `"expires_at"`) {
			t.Errorf("%s of a claimed token: %s", path, a.body)
		}
		h.complete(c.Claim, "status", 200)
		if a := ask(); !strings.Contains(a.body, `"state":"completed"`) || !strings.Contains(a.body, `"completed_at"`) || strings.Contains(a.body, `"result":{`) != (path == wire.PathClaimStatus) {
			t.Errorf("%s of a completed token: %s", path, a.body)
		}
	}
}

func TestKeysAreScoped(t *testing.T) {
	h := newHarness(t, func(_ *httpapi.Options, o *token.Options) { o.KeysRetention = time.Hour })
	h.complete(h.claimed("key", "k", "purpose", "p").Claim, "status", 201)
	h.claimed("key", "k", "purpose", "p", "user", "bob")
	h.claimed("key", "k", "purpose", "q")
	h.claimed("key", "K", "purpose", "p")
	h.replayed("key", "k", "purpose", "p")
	h.advance(time.Hour + time.Second)
	if c := h.claimed("key", "k", "purpose", "p"); c.Fence != 1 || c.Takeover {
		t.Errorf("after keys.retention: %+v", c)
	}
}

// TestClaimPurposes: where purposes are configured, only these may be claimed by key, each
// with its own retention; tokens are claimed whatever is configured now.
func TestClaimPurposes(t *testing.T) {
	var elsewhere token.Options
	h := newHarness(t, func(_ *httpapi.Options, o *token.Options) {
		elsewhere = *o
		o.Purposes = map[token.Purpose]token.Settings{"short": {TTL: time.Minute, MaxTTL: time.Minute, KeysRetention: 10 * time.Second}}
	})
	for _, pairs := range [][]any{{"key", "k"}, {"key", "k", "purpose", "other"}} {
		if a := h.claim(pairs...); a.Code != wire.CodeInvalidRequest || a.Field != "purpose" {
			t.Errorf("%v: %s", pairs, a.body)
		}
	}
	h.complete(h.claimed("key", "k", "purpose", "short", "lease", 1).Claim)
	h.advance(9 * time.Second)
	h.replayed("key", "k", "purpose", "short")
	h.advance(2 * time.Second)
	if st := h.claimStatus("key", "k", "purpose", "short"); st.State != "unknown" {
		t.Errorf("after the purpose's own retention: %+v", st)
	}
	ring, err := token.NewRing(signingKey)
	if err != nil {
		t.Fatal(err)
	}
	tok := ring.Sign(token.Grant{ID: token.NewID(), User: "alice", Purpose: "gone", Mode: token.Record, ExpiresAt: h.now.Add(time.Minute), Retention: elsewhere.Retention})
	h.claim("token", tok, "purpose", "gone").is(t, "a token of a purpose that is not configured any more", wire.CodeTokenLost)
}

// TestDeleteModeHasNoClaims: a token's own mode decides, and for keys the configured one; a
// handle works whatever the mode is now.
func TestDeleteModeHasNoClaims(t *testing.T) {
	record := newHarness(t)
	deletes := newHarness(t, func(_ *httpapi.Options, o *token.Options) { o.Mode = token.Delete })
	tok, deleted := record.issue(`{}`), deletes.issue(`{}`)
	c := record.claimed("key", "k")
	for what, a := range map[string]answer{
		"claim": record.claim("token", deleted.Token), "claim there": deletes.claim("token", deleted.Token),
		"claim of a key":  deletes.claim("key", "k"),
		"status":          deletes.do(request{path: wire.PathClaimStatus, body: body("token", deleted.Token, "user", "alice")}),
		"status of a key": deletes.do(request{path: wire.PathClaimStatus, body: body("key", "k", "user", "alice")}),
	} {
		a.is(t, what, wire.CodeModeUnsupported)
		if a.Next != wire.NextFix || a.Ref == "" {
			t.Errorf("%s: %s", what, a.body)
		}
	}
	deletes.claim("token", deleted.Token, "user", "bob").is(t, "user before mode", wire.CodeWrongUser)
	deletes.claim("token", deleted.Token, "purpose", "p").is(t, "purpose before mode", wire.CodeWrongPurpose)
	deletes.claim("token", tok.Token).is(t, "a record mode token, whose record is elsewhere", wire.CodeTokenLost)
	deletes.commit(c.Claim).is(t, "a handle, whose record is elsewhere", wire.CodeClaimEnded)
}

// TestClaimMembers sends every bad value of every member: none changes anything.
func TestClaimMembers(t *testing.T) {
	h := newHarness(t)
	tok := h.issue(`{}`)
	c := h.claimed("key", "held")
	claim := func(pairs ...any) request {
		return request{path: wire.PathClaims, body: body(append([]any{"user", "alice"}, pairs...)...)}
	}
	raw := func(path, b string) request { return request{path: path, body: b} }
	result := func(b string) request {
		return request{method: "PUT", path: wire.PathResult(c.Claim), body: `{"result":` + b + `}`}
	}
	tests := []struct {
		req   request
		field string
	}{
		{claim(), "token"},
		{claim("token", tok.Token, "key", "k"), "token"},
		{claim("key", "new", "lease", 0), "lease"},
		{claim("key", "new", "lease", -1), "lease"},
		{claim("key", "new", "lease", 3601), "lease"},
		{claim("key", "new", "lease", "30"), "lease"},
		{claim("key", "new", "lease", 1.5), "lease"},
		{claim("key", "new", "lease", int64(9223372036854775807)), "lease"},
		{claim("key", "new", "lease", nil), "lease"},
		{claim("key", "new", "wait", -1), "wait"},
		{claim("key", "new", "wait", 31), "wait"},
		{claim("key", "new", "wait", "1"), "wait"},
		{claim("key", "new", "wait", 0.5), "wait"},
		{claim("key", "new", "commit", "true"), "commit"},
		{claim("key", "new", "commit", 1), "commit"},
		{claim("key", "new", "resolve", nil), "resolve"},
		{claim("key", "new", "resolve", "yes"), "resolve"},
		{claim("key", "new", "digest", ""), "digest"},
		{claim("key", "new", "attempt", "a b"), "attempt"},
		{claim("key", "new", "purpose", "P"), "purpose"},
		{claim("key", "new", "user", ""), "user"},
		{claim("key", "new", "result", 1), "result"},
		{claim("key", ""), "key"},
		{claim("key", strings.Repeat("a", 256)), "key"},
		{claim("key", "a\n"), "key"},
		{claim("key", "a b"), "key"},
		{claim("key", "é"), "key"},
		{claim("key", nil), "key"},
		{claim("key", 7), "key"},
		{raw(wire.PathClaims, `{"key":"new"}`), "user"},
		{raw(wire.PathClaimStatus, `{"user":"alice"}`), "token"},
		{raw(wire.PathClaimStatus, body("user", "alice", "key", "a", "token", tok.Token)), "token"},
		{raw(wire.PathClaimStatus, body("user", "alice", "key", "a b")), "key"},
		{raw(wire.PathClaimStatus, body("user", "alice", "key", "a", "lease", 1)), "lease"},
		{raw(wire.PathRenew(c.Claim), `{"lease":0}`), "lease"},
		{raw(wire.PathRenew(c.Claim), `{"lease":3601}`), "lease"},
		{raw(wire.PathRenew(c.Claim), `{"lease":null}`), "lease"},
		{raw(wire.PathRenew(c.Claim), `{"wait":1}`), "wait"},
		{raw(wire.PathCommit(c.Claim), `{"lease":1}`), "lease"},
		{raw(wire.PathCommit(c.Claim), `[]`), "body"},
		{request{method: "DELETE", path: wire.PathClaim(c.Claim), body: `{"x":1}`}, "x"},
		{result(`null`), "result"},
		{result(`7`), "result"},
		{result(`{}`), "result.status"},
		{result(`{"status":99}`), "result.status"},
		{result(`{"status":600}`), "result.status"},
		{result(`{"status":-200}`), "result.status"},
		{result(`{"status":"200"}`), "result.status"},
		{result(`{"status":200.0}`), "result.status"},
		{result(`{"status":null}`), "result.status"},
		{result(`{"status":200,"status":201}`), "result.status"},
		{result(`{"status":200,"text":""}`), "result.text"},
		{result(`{"status":200,"Body":""}`), "result.Body"},
		{result(`{"status":200,"body":"***"}`), "result.body"},
		{result(`{"status":200,"body":"AA="}`), "result.body"},
		{result(`{"status":200,"body":"AA"}`), "result.body"},
		{result(`{"status":200,"body":"AB=="}`), "result.body"},     // bits that say nothing
		{result(`{"status":200,"body":"A\nA==\r"}`), "result.body"}, // Go's decoder skips these
		{result(`{"status":200,"body":"_-=="}`), "result.body"},
		{result(`{"status":200,"body":["a"]}`), "result.body"},
		{result(`{"status":200,"body":null}`), "result.body"},
		{result(`{"status":200,"body_omitted":1}`), "result.body_omitted"},
		{result(`{"status":200,"body":"","body_omitted":true}`), "result.body_omitted"},
		{result(`{"status":200,"headers":[]}`), "result.headers"},
		{result(`{"status":200,"headers":{"A":1}}`), "result.headers.A"},
		{result(`{"status":200,"headers":{"A":null}}`), "result.headers.A"},
		{result(`{"status":200,"headers":{"A":["x"]}}`), "result.headers.A"},
		{result(`{"status":200,"headers":{"A":"x","A":"y"}}`), "result.headers.A"},
		{result(`{"status":200,"headers":{"A":"x","a":"y"}}`), "result.headers"},
		{result(`{"status":200,"headers":{"":"x"}}`), "result.headers"},
		{result(`{"status":200,"headers":{"A B":"x"}}`), "result.headers"},
		{result(`{"status":200,"headers":{"A:":"x"}}`), "result.headers"},
		{result(`{"status":200,"headers":{"É":"x"}}`), "result.headers"},
		{result(`{"status":200,"headers":{"A\r\nB":"x"}}`), "result.headers"},
		{result(`{"status":200,"headers":{"A":"x\r\nSet-Cookie: y"}}`), "result.headers"},
		{result(`{"status":200,"headers":{"A":"x\u0000"}}`), "result.headers"},
		{result(`{"status":200,"headers":{"A":"x\ty"}}`), "result.headers"},
		{result(`{"status":200,"headers":{"A":"\u007f"}}`), "result.headers"},
		{result(`{"status":200,"headers":{"A":"\u0085"}}`), "result.headers"},
		{request{method: "PUT", path: wire.PathResult(c.Claim), body: `{"status":200}`}, "status"},
	}
	for _, tt := range tests {
		a := h.do(tt.req)
		if a.Code != wire.CodeInvalidRequest || a.Field != tt.field {
			t.Errorf("%s %.30s… %s: %s, want invalid_request naming %s", tt.req.method, tt.req.path, tt.req.body, a.body, tt.field)
		}
	}
	for key, want := range map[string]string{"new": "unknown", "held": "claimed"} {
		if st := h.claimStatus("key", key); st.State != want {
			t.Errorf("after all that %s is %+v", key, st)
		}
	}
	if st := h.claimStatus("token", tok.Token); st.State != "issued" {
		t.Errorf("after all that the token is %+v", st)
	}
	if a := h.complete(c.Claim, "status", 599, "headers", map[string]string{"!#$%&'*+-.^_`|~09azAZ": "~ é\u00a0"}, "body", "AAA="); a.status != 200 {
		t.Errorf("what is allowed: %s", a.body)
	}
	if c := h.claimed("key", strings.Repeat("~", 255), "attempt", strings.Repeat("~", 255), "digest", strings.Repeat("!", 128), "lease", 3600, "wait", 30); c.Fence != 1 {
		t.Errorf("the longest: %+v", c)
	}
}

// TestBadHandles presents what is no handle to every step: Redis is not asked.
func TestBadHandles(t *testing.T) {
	h := newHarness(t)
	tok := h.issue(`{}`)
	c := h.claimed("token", tok.Token)
	ring, err := token.NewRing(token.Key{ID: "k2"})
	if err != nil {
		t.Fatal(err)
	}
	asked := h.redis.CommandCount()
	for _, claim := range []string{
		"junk", "otc_", c.Claim + "A", c.Claim[:len(c.Claim)-1], forge(c.Claim), strings.ToUpper(c.Claim), tok.Token,
		"%20" + c.Claim, "%6F" + c.Claim[1:], c.Claim + "%0A", c.Claim + "=", strings.Repeat("A", 2000), "%00",
		ring.SignHandle(token.Handle{Fence: 1}), "status",
	} {
		for _, req := range []request{
			{path: wire.PathCommit(claim)}, {path: wire.PathRenew(claim)},
			{method: "PUT", path: wire.PathResult(claim)}, {method: "DELETE", path: wire.PathClaim(claim)},
		} {
			if a := h.do(req); a.Code != wire.CodeInvalidRequest || a.Field != "claim" || a.Ref != "" || len(claim) > 10 && strings.Contains(a.body, claim) {
				t.Errorf("%s %.40s: %d %s", req.method, req.path, a.status, a.body)
			}
		}
	}
	if got := h.redis.CommandCount(); got != asked {
		t.Errorf("Redis was asked %d times about handles that are none", got-asked)
	}
	for _, req := range []request{
		{path: wire.PathRenew("junk"), body: `{"wait":1}`}, {path: wire.PathCommit("junk"), body: `{"wait":1}`},
		{method: "PUT", path: wire.PathResult("junk"), body: `{"wait":1}`},
	} {
		if a := h.do(req); a.Field != "wait" {
			t.Errorf("the handle is looked at before what the body is: %s", a.body)
		}
	}
	for _, req := range []request{
		{path: wire.PathRenew("junk"), body: `{"lease":0}`},
		{method: "PUT", path: wire.PathResult("junk"), body: `{"result":{"status":0}}`},
	} {
		if a := h.do(req); a.Field != "claim" {
			t.Errorf("the handle is looked at after what the members say: %s", a.body)
		}
	}
}

// TestBadMembersOfAClaim: which claim a request is about is known, and said, though what it
// asks for is refused.
func TestBadMembersOfAClaim(t *testing.T) {
	h := newHarness(t, func(o *httpapi.Options, _ *token.Options) { o.ResultBytes = 2 })
	c := h.claimed("key", "k", "attempt", "one")
	skip := len(h.log.lines(t))
	reqs := []request{
		{path: wire.PathRenew(c.Claim), body: `{"lease":0}`},
		{path: wire.PathRenew(c.Claim), body: `{"lease":3601}`},
		{method: "PUT", path: wire.PathResult(c.Claim), body: `{"result":{"status":99}}`},
		{method: "PUT", path: wire.PathResult(c.Claim), body: `{"result":{"status":200,"headers":{"A B":"x"}}}`},
		{method: "PUT", path: wire.PathResult(c.Claim), body: `{"result":{"status":200,"body":"***"}}`},
		{method: "PUT", path: wire.PathResult(c.Claim), body: `{"result":{"status":200,"body":"AAAA"}}`},
	}
	for _, req := range reqs {
		if a := h.do(req); a.status != 400 && a.Code != wire.CodeBodyTooLarge || a.Field == "claim" || a.Ref != c.Ref {
			t.Errorf("%s %.60s: %d %s", req.path, req.body, a.status, a.body)
		}
	}
	lines := h.log.lines(t)[skip:]
	if len(lines) != len(reqs) {
		t.Fatalf("%d lines, want %d", len(lines), len(reqs))
	}
	for i, line := range lines {
		if line["ref"] != c.Ref || line["fence"] != 1.0 || line["attempt_ref"] != token.Attempt("one").Hash().Ref() {
			t.Errorf("line %d: %v", i, line)
		}
	}
	if st := h.claimStatus("key", "k"); st.State != "claimed" {
		t.Errorf("after all that it is %+v", st)
	}
}

func TestWhoMayClaim(t *testing.T) {
	h := newHarness(t)
	tok := h.issue(`{}`)
	c := h.claimed("key", "k")
	for _, req := range []request{
		{path: wire.PathClaims, body: body("key", "k", "user", "alice")},
		{path: wire.PathClaims, body: body("token", tok.Token, "user", "alice")},
		{path: wire.PathClaimStatus, body: body("token", tok.Token)},
		{path: wire.PathCommit(c.Claim)},
		{path: wire.PathRenew(c.Claim)},
		{method: "PUT", path: wire.PathResult(c.Claim), body: `{}`},
		{method: "DELETE", path: wire.PathClaim(c.Claim)},
	} {
		for _, bearer := range []string{userJWT(t, "alice"), serviceJWT(t, "tokend.issue")} {
			req.auth = bearer
			a := h.do(req)
			if a.is(t, req.path, wire.CodeForbidden); !strings.Contains(a.Detail, "tokend.consume") {
				t.Errorf("%s: %s", req.path, a.body)
			}
		}
		req.auth = "-"
		h.do(req).is(t, req.path, wire.CodeUnauthenticated)
	}
	if st := h.claimStatus("key", "k"); st.State != "claimed" || *st.Committed {
		t.Errorf("after all that: %+v", st)
	}
}

func TestBrowsersKeyClaimsNothing(t *testing.T) {
	h := newHarness(t)
	for _, values := range [][]string{{"k"}, {""}, {"k", "l"}} {
		a := h.do(request{path: wire.PathClaims, body: body("key", "k", "user", "alice"), header: http.Header{"Idempotency-Key": values}})
		if a.Code != wire.CodeInvalidRequest || a.Field != "Idempotency-Key" {
			t.Errorf("%q: %s", values, a.body)
		}
	}
	if st := h.claimStatus("key", "k"); st.State != "unknown" {
		t.Errorf("after that: %+v", st)
	}
}

func TestClaimsWhileStoreIsDown(t *testing.T) {
	h := newHarness(t)
	tok := h.issue(`{}`)
	c := h.claimed("key", "k")
	h.redis.Close()
	for _, req := range []request{
		{path: wire.PathClaims, body: body("key", "k", "user", "alice")},
		{path: wire.PathClaims, body: body("token", tok.Token, "user", "alice", "wait", 10)},
		{path: wire.PathClaimStatus, body: body("key", "k", "user", "alice")},
		{path: wire.PathCommit(c.Claim)},
		{path: wire.PathRenew(c.Claim)},
		{method: "PUT", path: wire.PathResult(c.Claim), body: `{}`},
		{method: "DELETE", path: wire.PathClaim(c.Claim)},
	} {
		a := h.do(req)
		if a.Code != wire.CodeStoreUnavailable || a.Next != wire.NextRetry || a.header.Get("Retry-After") != "1" || a.Ref == "" {
			t.Errorf("%s while Redis is down: %s", req.path, a.body)
		}
	}
}

func TestClaimOutcomes(t *testing.T) {
	h := newHarness(t)
	tok := h.issue(`{}`)
	c := h.claimed("token", tok.Token, "attempt", "one", "lease", 10, "commit", true)
	h.renew(c.Claim)
	h.commit(c.Claim)
	h.claim("token", tok.Token, "attempt", "two")
	h.advance(time.Minute)
	h.claim("token", tok.Token, "attempt", "two")
	r := h.claimed("token", tok.Token, "attempt", "three", "resolve", true)
	h.claimed("token", tok.Token, "attempt", "three", "resolve", true) // a re-send is no second takeover
	h.commit(c.Claim)
	h.complete(r.Claim, "status", 200)
	h.claim("token", tok.Token, "attempt", "four")
	h.claimStatus("token", tok.Token)
	k := h.claimed("key", "k", "attempt", "five")
	h.release(k.Claim)
	hash := func(a token.Attempt) string { return a.Hash().Ref() }
	want := []map[string]any{
		{"op": "issue", "code": "issued", "status": 201.0},
		{"op": "claim", "code": "claimed", "status": 201.0, "attempt_ref": hash("one"), "fence": 1.0, "purpose": "default"},
		{"op": "renew", "code": "renewed", "status": 200.0, "attempt_ref": hash("one"), "fence": 1.0},
		{"op": "commit", "code": "committed", "status": 200.0, "attempt_ref": hash("one"), "fence": 1.0},
		{"op": "claim", "code": "request_in_progress", "next": "wait", "status": 409.0, "attempt_ref": hash("two"), "used_by": hash("one"), "purpose": "default"},
		{"op": "claim", "code": "claim_unfinished", "next": "verify", "status": 409.0, "attempt_ref": hash("two"), "used_by": hash("one"), "purpose": "default"},
		{"op": "claim", "code": "claimed", "status": 201.0, "attempt_ref": hash("three"), "fence": 2.0, "takeover": true, "purpose": "default"},
		{"op": "claim", "code": "claimed", "status": 201.0, "attempt_ref": hash("three"), "fence": 2.0, "takeover": true, "purpose": "default"},
		{"op": "commit", "code": "claim_superseded", "next": "stop", "status": 409.0, "attempt_ref": hash("one"), "fence": 1.0},
		{"op": "complete", "code": "completed", "status": 200.0, "attempt_ref": hash("three"), "fence": 2.0},
		{"op": "claim", "code": "completed", "status": 200.0, "attempt_ref": hash("four"), "purpose": "default"},
		{"op": "claim_status", "code": "completed", "status": 200.0, "used_by": hash("three"), "purpose": "default"},
		{"op": "claim", "code": "claimed", "status": 201.0, "attempt_ref": hash("five"), "fence": 1.0, "ref": k.Ref, "purpose": "default"},
		{"op": "release", "code": "released", "status": 204.0, "attempt_ref": hash("five"), "fence": 1.0, "ref": k.Ref},
	}
	lines := h.log.lines(t)
	if len(lines) != len(want) {
		t.Fatalf("%d lines, want %d", len(lines), len(want))
	}
	for i, line := range lines {
		got := map[string]any{}
		for _, name := range []string{"op", "code", "next", "status", "attempt_ref", "used_by", "takeover", "fence", "ref", "purpose"} {
			if v := line[name]; v != "" && v != false && v != 0.0 {
				got[name] = v
			}
		}
		if want[i]["ref"] == nil {
			want[i]["ref"] = tok.Ref
		}
		if i == 0 {
			want[i]["purpose"] = "default"
		}
		if diff := cmp.Diff(want[i], got); diff != "" {
			t.Errorf("line %d (-want +got):\n%s", i, diff)
		}
		if line["user_ref"] != token.User("alice").Hash().String() {
			t.Errorf("line %d: user_ref is %v", i, line["user_ref"])
		}
	}
	if log := h.log.String(); strings.Contains(log, "alice") || strings.Contains(log, tok.Token[30:]) {
		t.Errorf("the log shows the user or the token:\n%s", log)
	}
	for series, want := range map[string]float64{
		"tokend_takeovers_total":                                       1,
		"tokend_unfinished_total":                                      1,
		`tokend_outcomes_total{code="claimed",op="claim"}`:             4,
		`tokend_outcomes_total{code="claim_superseded",op="commit"}`:   1,
		`tokend_redis_seconds_count{op="complete"}`:                    1,
		`tokend_http_request_seconds_count{op="release",status="204"}`: 1,
	} {
		if got := h.metric(series); got != want {
			t.Errorf("%s is %v, want %v", series, got, want)
		}
	}
}

// TestConsumeTakesOver: the answer, its repeat, the log and the metric say so, once.
func TestConsumeTakesOver(t *testing.T) {
	h := newHarness(t)
	tok := h.issue(`{}`)
	h.claimed("token", tok.Token, "lease", 1)
	h.advance(2 * time.Second)
	for _, replayed := range []bool{false, true} {
		var got wire.ConsumeResponse
		h.do(request{path: wire.PathConsume, body: body("token", tok.Token, "user", "alice", "attempt", "a")}).decode(t, &got)
		if !got.Takeover || got.Replayed != replayed {
			t.Errorf("consumed: %+v", got)
		}
	}
	if line := h.log.lines(t)[2]; line["takeover"] != true || line["fence"] != 2.0 {
		t.Errorf("line: %v", line)
	}
	if n := h.metric("tokend_takeovers_total"); n != 1 {
		t.Errorf("%v takeovers were counted", n)
	}
}

// TestWait has calls wait over HTTP, past the time that the server gives a request to come.
func TestWait(t *testing.T) {
	h := newHarness(t)
	h.http.Close()
	h.http = httptest.NewUnstartedServer(h.srv)
	h.http.Config.ReadTimeout = 100 * time.Millisecond
	h.http.Start()
	t.Cleanup(h.http.Close)
	wait := func(key string, seconds int) <-chan answer {
		answered := make(chan answer, 1)
		go func() { answered <- h.claim("key", key, "wait", seconds) }()
		return answered
	}
	c := h.claimed("key", "k")
	began := time.Now()
	h.claim("key", "k", "wait", 1).is(t, "the time is up", wire.CodeRequestInProgress)
	if took := time.Since(began); took < time.Second {
		t.Errorf("waited %v, want 1s", took)
	}
	answered := wait("k", 20)
	select {
	case a := <-answered:
		t.Fatalf("did not wait: %s", a.body)
	case <-time.After(300 * time.Millisecond): // longer than the read timeout
	}
	h.complete(c.Claim, "status", 204)
	if a := <-answered; a.status != 200 || a.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("completed: %d %s", a.status, a.body)
	}
	// The connection serves on, and its next request has a deadline again.
	c = h.claimed("key", "l")
	answered = wait("l", 20)
	h.release(c.Claim)
	if a := <-answered; a.status != 201 {
		t.Errorf("released: %d %s", a.status, a.body)
	}
	// Whoever has nothing to wait for is answered at once.
	if c := h.claimed("key", "m", "wait", 30); c.Fence != 1 {
		t.Errorf("free: %+v", c)
	}
}

// TestDrainAnswersWaiters: on shutdown whoever waits is answered at once, and so is whoever
// comes to wait then.
func TestDrainAnswersWaiters(t *testing.T) {
	h := newHarness(t)
	h.claimed("key", "k")
	answered := make(chan answer, 10)
	for range cap(answered) {
		go func() { answered <- h.claim("key", "k", "wait", 30) }()
	}
	for h.redis.PubSubNumSub("tokend:k:" + keyTail("alice", "k"))["tokend:k:"+keyTail("alice", "k")] == 0 {
		time.Sleep(time.Millisecond)
	}
	h.srv.Drain()
	for range cap(answered) {
		a := <-answered
		if a.is(t, "a call that waits", wire.CodeRequestInProgress); a.header.Get("Retry-After") == "" {
			t.Errorf("%s", a.body)
		}
	}
	began := time.Now()
	h.claim("key", "k", "wait", 30).is(t, "a call that comes to wait", wire.CodeRequestInProgress)
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("answered after %v", took)
	}
	if c := h.claimed("key", "other"); c.Fence != 1 {
		t.Errorf("everything else is served: %+v", c)
	}
}

// keyTail returns what stands behind the prefix in the Redis key of u's key k.
func keyTail(u token.User, k token.IdempotencyKey) string {
	id := k.ID(u, token.DefaultPurpose)
	return "{" + u.Hash().String()[:6] + "}" + string(id[:])
}

// TestHangUpWhileWaiting: a call whose caller has gone ends, and claims nothing any more.
func TestHangUpWhileWaiting(t *testing.T) {
	h := newHarness(t)
	c := h.claimed("key", "k")
	ctx, hangUp := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.http.URL+wire.PathClaims,
		strings.NewReader(body("key", "k", "user", "alice", "attempt", "gone", "wait", 30)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+serviceJWT(t, "tokend.consume"))
	req.Header.Set("Content-Type", "application/json")
	gone := make(chan error, 1)
	go func() {
		_, err := http.DefaultClient.Do(req)
		gone <- err
	}()
	channel := "tokend:k:" + keyTail("alice", "k")
	for h.redis.PubSubNumSub(channel)[channel] == 0 {
		time.Sleep(time.Millisecond)
	}
	hangUp()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	for h.redis.PubSubNumSub(channel)[channel] != 0 { // the call has ended
		time.Sleep(time.Millisecond)
	}
	h.release(c.Claim)
	if c := h.claimed("key", "k", "attempt", "next"); c.Fence != 2 {
		t.Errorf("whoever has gone holds the claim: %+v", c)
	}
}

// TestWaitersAreNotBusy has more calls wait than are answered at a time: others are answered
// all the same.
func TestWaitersAreNotBusy(t *testing.T) {
	waiting := heldClaims{held: make(chan struct{}, 3000)}
	h := newHarness(t, func(o *httpapi.Options, _ *token.Options) { o.Tokens, o.Outcomes = waiting, httpapi.LogNone })
	bearer := serviceJWT(t, "tokend.consume")
	answered := make(chan int, cap(waiting.held))
	for range cap(waiting.held) {
		go func() {
			req := httptest.NewRequest(http.MethodPost, wire.PathClaims, strings.NewReader(`{"key":"k","user":"alice","wait":30}`))
			req.Header.Set("Authorization", "Bearer "+bearer)
			req.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			h.srv.ServeHTTP(w, req)
			answered <- w.Code
		}()
	}
	for range cap(waiting.held) {
		<-waiting.held
	}
	h.claim("key", "k").is(t, "a call that does not wait", wire.CodeRequestInProgress)
	h.srv.Drain()
	for range cap(waiting.held) {
		if status := <-answered; status != 409 {
			t.Fatalf("a call that waits: %d", status)
		}
	}
}

// heldClaims has calls wait until their context ends.
type heldClaims struct {
	httpapi.Tokens
	held chan struct{}
}

func (h heldClaims) Claim(ctx context.Context, req token.ClaimRequest) (token.Claimed, error) {
	if req.Wait > 0 {
		h.held <- struct{}{}
		<-ctx.Done()
	}
	return token.Claimed{}, req.Refuse(token.ErrInProgress)
}
