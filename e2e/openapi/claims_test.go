package openapi_test

import (
	"context"
	"encoding/base64"
	"net/http"
	"slices"
	"strings"
	"time"

	"example.com/tokend/httpapi/wire"
	"example.com/tokend/token"
)

const (
	claimOne    = "POST " + wire.PathClaims
	claimStatus = "POST " + wire.PathClaimStatus
	commitOne   = "POST /v1/claims/{claim}/commit"
	renewOne    = "POST /v1/claims/{claim}/renew"
	completeOne = "PUT /v1/claims/{claim}/result"
	releaseOne  = "DELETE /v1/claims/{claim}"
)

// A history is what became of a token or key of alice's. It returns the claim that it is
// about.
type history func(*service, token.Subject) token.Claimed

// first is what the histories begin with: the attempt "first" claims, for the digest "one".
func first(sub token.Subject) token.ClaimRequest {
	return token.ClaimRequest{Subject: sub, Purpose: token.DefaultPurpose, Attempt: "first", Digest: "one", Lease: 30 * time.Second}
}

func claimed(s *service, sub token.Subject) token.Claimed { return s.claim(first(sub)) }

func committed(s *service, sub token.Subject) token.Claimed {
	req := first(sub)
	req.Commit = true
	return s.claim(req)
}

// lapsed is h and that the lease is over.
func lapsed(h history) history {
	return func(s *service, sub token.Subject) token.Claimed {
		got := h(s, sub)
		s.redis.Advance(time.Minute)
		return got
	}
}

func superseded(s *service, sub token.Subject) token.Claimed {
	got := lapsed(claimed)(s, sub)
	req := first(sub)
	req.Attempt = "second"
	s.claim(req)
	return got
}

// consumedSince is a claim whose token was consumed after the lease.
func consumedSince(s *service, sub token.Subject) token.Claimed {
	got := lapsed(claimed)(s, sub)
	_, err := s.tokens.Consume(context.Background(), token.Consumption{User: sub.User, Token: sub.Token, Attempt: "second"})
	s.must(err)
	return got
}

func resolved(s *service, sub token.Subject) token.Claimed {
	lapsed(committed)(s, sub)
	req := first(sub)
	req.Attempt, req.Resolve = "second", true
	return s.claim(req)
}

// completed is a claim that was completed with r.
func completed(r *token.Result) history {
	return func(s *service, sub token.Subject) token.Claimed {
		got := claimed(s, sub)
		_, err := s.tokens.Complete(context.Background(), got.Handle, r)
		s.must(err)
		return got
	}
}

var (
	done        = completed(&token.Result{Status: 201, Headers: map[string]string{"Location": "/orders/7"}, Body: []byte(`{"id":7}`)})
	doneNoBody  = completed(&token.Result{Status: 204})
	doneOmitted = completed(&token.Result{Status: 200, BodyOmitted: true})
	doneNothing = completed(nil)
)

func released(s *service, sub token.Subject) token.Claimed {
	got := claimed(s, sub)
	s.must(s.tokens.Release(context.Background(), got.Handle))
	return got
}

// forgotten is a claim whose record is gone.
func forgotten(s *service, sub token.Subject) token.Claimed {
	got := claimed(s, sub)
	s.redis.Mini().FlushAll()
	return got
}

func claimedRevoked(s *service, sub token.Subject) token.Claimed {
	got := claimed(s, sub)
	_, err := s.tokens.Revoke(context.Background(), sub)
	s.must(err)
	return got
}

func (s *service) claim(req token.ClaimRequest) token.Claimed {
	got, err := s.tokens.Claim(context.Background(), req)
	s.must(err)
	return got
}

// with is a token with the history h.
func with(h history) state {
	return func(s *service) token.IssuedToken {
		tok, _ := s.with(h)
		return tok
	}
}

// handleOf is the handle of a claim of a token with the history h.
func handleOf(h history) func(*service) string {
	return func(s *service) string {
		_, got := s.with(h)
		return got.Text
	}
}

func (s *service) with(h history) (token.IssuedToken, token.Claimed) {
	tok := fresh(s)
	return tok, h(s, token.TokenSubject(tok.User, s.open(s.tokens, tok)))
}

var key = token.KeySubject("alice", token.DefaultPurpose, "evt_1")

// ofKey is a body about the key with the history h; never claimed where h is nil.
func ofKey(h history, pairs ...any) func(*service) string {
	return func(s *service) string {
		if h != nil {
			h(s, key)
		}
		return encode(members(append([]any{"key", "evt_1", "user", "alice"}, pairs...)...))
	}
}

// byKeysRef is a body that names that key by its ref.
func byKeysRef(h history) func(*service) string {
	return func(s *service) string {
		h(s, key)
		return encode(members("ref", key.Ref(), "user", "alice"))
	}
}

// result is the body that completes a claim with a result of these members.
func result(pairs ...any) func(*service) string {
	return text(encode(members("result", members(pairs...))))
}

func toDeleteMode(s *service) { s.faults.Tokens = s.deleting }

func claimExchanges() []exchange {
	var (
		isClaimed   = []string{wire.StateClaimed}
		isCompleted = []string{wire.StateCompleted}
		isUnknown   = []string{string(token.StateUnknown)}
		invalid     = says(wire.CodeInvalidRequest)
		inProgress  = says(wire.CodeRequestInProgress)
		unfinished  = says(wire.CodeClaimUnfinished)
		tooBig      = base64.StdEncoding.EncodeToString(make([]byte, 262145))
		browsersKey = http.Header{wire.HeaderIdempotencyKey: {"k"}}
	)
	own := []exchange{
		{operation: claimOne, name: "a token", body: of(fresh, "purpose", "default", "attempt", "a", "digest", "d", "lease", 60, "wait", 1, "commit", false, "resolve", false),
			status: 201, words: isClaimed, holds: `"fence":1,"takeover":false,"committed":false`},
		{operation: claimOne, name: "a key", body: ofKey(nil), status: 201, words: isClaimed, holds: `"ref":"k_`},
		{operation: claimOne, name: "and commit", body: ofKey(nil, "commit", true), status: 201, words: isClaimed, holds: `"committed":true`},
		{operation: claimOne, name: "the same attempt", body: of(with(claimed), "attempt", "first"), status: 201, words: isClaimed, holds: `"replayed":true`},
		{operation: claimOne, name: "the same attempt, committed", body: ofKey(committed, "attempt", "first"), status: 201, words: isClaimed, holds: `"committed":true`},
		{operation: claimOne, name: "lease over", body: of(with(lapsed(claimed)), "wait", 30), status: 201, words: isClaimed, holds: `"fence":2,"takeover":true`},
		{operation: claimOne, name: "resolve", body: ofKey(lapsed(committed), "resolve", true), status: 201, words: isClaimed, holds: `"takeover":true,"committed":true`},
		{operation: claimOne, name: "resolve, never claimed", body: ofKey(nil, "resolve", true), status: 201, words: isClaimed, holds: `"takeover":false,"committed":false`},
		{operation: claimOne, name: "released", body: of(with(released), "digest", "two"), status: 201, words: isClaimed, holds: `"fence":2,"takeover":false`},
		{operation: claimOne, name: "completed", body: of(with(done)), status: 200, words: isCompleted,
			holds: `{"status":201,"headers":{"Location":"/orders/7"},"body":"eyJpZCI6N30=","body_omitted":false}`},
		{operation: claimOne, name: "completed, a key", body: ofKey(doneNoBody), status: 200, words: isCompleted, holds: `"headers":{},"body":""`},
		{operation: claimOne, name: "completed, body omitted", body: ofKey(doneOmitted), status: 200, words: isCompleted, holds: `"body_omitted":true`},
		{operation: claimOne, name: "completed without a result", body: of(with(doneNothing)), status: 200, words: isCompleted, holds: `"result":null`},

		{operation: claimOne, name: "in progress", body: of(with(claimed)), status: 409, words: inProgress, holds: `"retry_after":5`},
		{operation: claimOne, name: "in progress, a key", body: ofKey(claimed, "resolve", true), status: 409, words: inProgress},
		{operation: claimOne, name: "in progress, shutting down", body: ofKey(committed, "wait", 30), arrange: func(s *service) { s.api.Drain() }, status: 409, words: inProgress},
		{operation: claimOne, name: "unfinished", body: of(with(lapsed(committed))), status: 409, words: unfinished},
		{operation: claimOne, name: "unfinished, a key", body: ofKey(lapsed(committed)), status: 409, words: unfinished},
		{operation: claimOne, name: "used", body: of(used), status: 409, words: says(wire.CodeTokenUsed)},
		{operation: claimOne, name: "another request, claimed", body: of(with(claimed), "attempt", "first", "digest", "two"), status: 422, words: says(wire.CodeIdempotencyKeyReused)},
		{operation: claimOne, name: "another request, completed", body: ofKey(done, "digest", "two"), status: 422, words: says(wire.CodeIdempotencyKeyReused)},
		{operation: claimOne, name: "another request, used", body: of(used, "digest", "two"), status: 422, words: says(wire.CodeIdempotencyKeyReused)},
		{operation: claimOne, name: "expired", body: of(expired), status: 410, words: says(wire.CodeTokenExpired)},
		{operation: claimOne, name: "stale", body: of(stale), status: 410, words: says(wire.CodeTokenStale)},
		{operation: claimOne, name: "lost", body: of(lost), status: 410, words: says(wire.CodeTokenLost)},
		{operation: claimOne, name: "revoked", body: of(revoked), status: 410, words: says(wire.CodeTokenRevoked)},
		{operation: claimOne, name: "revoked while claimed", body: of(with(claimedRevoked)), status: 410, words: says(wire.CodeTokenRevoked)},

		{operation: claimOne, name: "lease 0", body: ofKey(nil, "lease", 0), status: 400, words: invalid, refusable: true},
		{operation: claimOne, name: "lease too long", body: ofKey(nil, "lease", 3601), status: 400, words: invalid, refusable: true},
		{operation: claimOne, name: "a fraction", body: ofKey(nil, "lease", 1.5), status: 400, words: invalid, refusable: true},
		{operation: claimOne, name: "wait below 0", body: ofKey(nil, "wait", -1), status: 400, words: invalid, refusable: true},
		{operation: claimOne, name: "wait too long", body: ofKey(nil, "wait", 31), status: 400, words: invalid, refusable: true},
		{operation: claimOne, name: "bad digest", body: ofKey(nil, "digest", ""), status: 400, words: invalid, refusable: true},
		{operation: claimOne, name: "bad attempt", body: ofKey(nil, "attempt", "a b"), status: 400, words: invalid, refusable: true},
		{operation: claimOne, name: "bad commit", body: ofKey(nil, "commit", 1), status: 400, words: invalid, refusable: true},
		{operation: claimOne, name: "bad resolve", body: ofKey(nil, "resolve", "true"), status: 400, words: invalid, refusable: true},
		{operation: claimOne, name: "a browser's key", body: ofKey(nil), header: browsersKey, status: 400, words: invalid, refusable: true},

		{operation: claimStatus, name: "never claimed", body: ofKey(nil), status: 200, words: isUnknown, holds: `"result":null`},
		{operation: claimStatus, name: "released, a key", body: ofKey(released), status: 200, words: isUnknown},
		{operation: claimStatus, name: "claimed", body: of(with(claimed), "purpose", "default"), status: 200, words: isClaimed, holds: `"committed":false`},
		{operation: claimStatus, name: "claimed, a key", body: ofKey(lapsed(committed)), status: 200, words: isClaimed, holds: `"committed":true`},
		{operation: claimStatus, name: "completed", body: of(with(done)), status: 200, words: isCompleted, holds: `"body":"eyJpZCI6N30="`},
		{operation: claimStatus, name: "completed, a key", body: ofKey(doneOmitted), status: 200, words: isCompleted, holds: `"body_omitted":true`},
		{operation: claimStatus, name: "completed without a result", body: of(with(doneNothing)), status: 200, words: isCompleted, holds: `"result":null`},
		{operation: claimStatus, name: "released", body: of(with(released)), status: 200, words: []string{"issued"}},
		{operation: claimStatus, name: "another user's key", body: ofKey(done, "user", "bob"), status: 200, words: isUnknown},

		{operation: commitOne, handle: handleOf(claimed), status: 200, words: isClaimed, holds: `"committed":true`},
		{operation: commitOne, name: "lease over", handle: handleOf(lapsed(claimed)), body: text(`{}`), status: 200, words: isClaimed},
		{operation: commitOne, name: "twice", handle: handleOf(committed), status: 200, words: isClaimed},
		{operation: commitOne, name: "completed", handle: handleOf(done), status: 409, words: says(wire.CodeClaimEnded)},
		{operation: commitOne, name: "released", handle: handleOf(released), status: 409, words: says(wire.CodeClaimEnded)},
		{operation: renewOne, handle: handleOf(claimed), status: 200, words: isClaimed, holds: `"committed":false`},
		{operation: renewOne, name: "lease over", handle: handleOf(lapsed(committed)), body: text(`{"lease":3600}`), status: 200, words: isClaimed},
		{operation: renewOne, name: "completed", handle: handleOf(done), status: 409, words: says(wire.CodeClaimEnded)},
		{operation: renewOne, name: "released", handle: handleOf(released), status: 409, words: says(wire.CodeClaimEnded)},
		{operation: renewOne, name: "lease 0", handle: handleOf(claimed), body: text(`{"lease":0}`), status: 400, words: invalid, refusable: true},
		{operation: renewOne, name: "lease too long", handle: handleOf(claimed), body: text(`{"lease":3601}`), status: 400, words: invalid, refusable: true},

		{operation: completeOne, handle: handleOf(claimed), status: 200, words: isCompleted, holds: `"replayed":false`},
		{operation: completeOne, name: "with a result", handle: handleOf(lapsed(committed)), status: 200, words: isCompleted,
			body: result("status", 599, "headers", members("Location", "/orders/7"), "body", "eyJpZCI6N30=", "body_omitted", false)},
		{operation: completeOne, name: "body omitted", handle: handleOf(resolved), body: result("status", 100, "body_omitted", true), status: 200, words: isCompleted},
		{operation: completeOne, name: "twice", handle: handleOf(done), body: result("status", 500), status: 200, words: isCompleted, holds: `"replayed":true`},
		{operation: completeOne, name: "released", handle: handleOf(released), status: 409, words: says(wire.CodeClaimEnded)},
		{operation: completeOne, name: "result too big", handle: handleOf(claimed), body: result("status", 200, "body", tooBig), status: 413, words: says(wire.CodeBodyTooLarge), holds: `"field":"result.body"`},
		{operation: completeOne, name: "no status", handle: handleOf(claimed), body: result("body", ""), status: 400, words: invalid, refusable: true},
		{operation: completeOne, name: "status too low", handle: handleOf(claimed), body: result("status", 99), status: 400, words: invalid, refusable: true},
		{operation: completeOne, name: "status too high", handle: handleOf(claimed), body: result("status", 600), status: 400, words: invalid, refusable: true},
		{operation: completeOne, name: "a null", handle: handleOf(claimed), body: text(`{"result":null}`), status: 400, words: invalid, refusable: true},
		{operation: completeOne, name: "no base64", handle: handleOf(claimed), body: result("status", 200, "body", "eyJpZCI6N30"), status: 400, words: invalid, refusable: true},
		{operation: completeOne, name: "body, and omitted", handle: handleOf(claimed), body: result("status", 200, "body", "", "body_omitted", true), status: 400, words: invalid},
		{operation: completeOne, name: "no header name", handle: handleOf(claimed), body: result("status", 200, "headers", members("a b", "")), status: 400, words: invalid, refusable: true},
		{operation: completeOne, name: "bad header value", handle: handleOf(claimed), body: result("status", 200, "headers", members("a", "b\r\nc")), status: 400, words: invalid, refusable: true},
		{operation: completeOne, name: "a header twice", handle: handleOf(claimed), body: result("status", 200, "headers", members("a", "", "A", "")), status: 400, words: invalid},

		{operation: releaseOne, handle: handleOf(claimed), status: 204},
		{operation: releaseOne, name: "lease over", handle: handleOf(lapsed(claimed)), body: text(`{}`), status: 204},
		{operation: releaseOne, name: "twice", handle: handleOf(released), status: 204},
		{operation: releaseOne, name: "resolved", handle: handleOf(resolved), status: 204},
		{operation: releaseOne, name: "committed", handle: handleOf(committed), status: 409, words: says(wire.CodeClaimCommitted)},
		{operation: releaseOne, name: "completed", handle: handleOf(done), status: 409, words: says(wire.CodeClaimEnded)},

		{operation: consumeOne, name: "in progress", body: of(with(claimed)), status: 409, words: inProgress},
		{operation: consumeOne, name: "unfinished", body: of(with(lapsed(committed))), status: 409, words: unfinished},
		{operation: consumeOne, name: "lease over", body: of(with(lapsed(claimed))), status: 200, words: []string{wire.OutcomeConsumed}, holds: `"takeover":true`},
		{operation: consumeOne, name: "released", body: of(with(released)), status: 200, words: []string{wire.OutcomeConsumed}, holds: `"takeover":false`},
		{operation: consumeOne, name: "completed", body: of(with(done)), status: 409, words: says(wire.CodeTokenUsed)},
		{operation: consumeOne, name: "claimed for another request", body: of(with(claimed), "digest", "two"), status: 422, words: says(wire.CodeIdempotencyKeyReused)},
		{operation: consumeBatch, name: "claims", body: items(of(with(lapsed(committed))), of(with(claimed)), of(with(done))), status: 200,
			words: says(wire.CodeTokenUsed, wire.CodeRequestInProgress, wire.CodeClaimUnfinished)},

		{operation: askStatus, name: "claimed", body: of(with(claimed)), status: 200, words: isClaimed, holds: `"committed":false`},
		{operation: askStatus, name: "completed", body: of(with(done)), status: 200, words: isCompleted},
		{operation: askStatus, name: "claimed, by ref", body: byRef(with(committed)), status: 200, words: isClaimed, holds: `"committed":true`},
		{operation: askStatus, name: "a key claimed, by ref", body: byKeysRef(claimed), status: 200, words: isClaimed},
		{operation: askStatus, name: "a key completed, by ref", body: byKeysRef(done), status: 200, words: isCompleted},
		{operation: askStatus, name: "a key released, by ref", body: byKeysRef(released), status: 200, words: isUnknown},
		{operation: askStatus, name: "a key forgotten, by ref", body: byKeysRef(forgotten), status: 200, words: []string{"gone"}},
		{operation: revokeOne, name: "claimed", body: of(with(claimed)), status: 200, words: []string{"revoked"}},
		{operation: revokeOne, name: "committed", body: of(with(committed)), status: 200, words: isClaimed},
		{operation: revokeOne, name: "completed, by ref", body: byRef(with(done)), status: 200, words: isCompleted},
		{operation: revokeOne, name: "a key, by ref", body: byKeysRef(claimed), status: 400, words: invalid, holds: `"ref":"k_`},
	}
	for word, st := range map[string]state{"issued": fresh, "used": used, "revoked": revoked, "expired": expired, "stale": stale, "lost": lost} {
		own = append(own, exchange{operation: claimStatus, name: word, body: of(st), status: 200, words: []string{word}})
	}
	for _, operation := range []string{claimOne, claimStatus} {
		own = append(own,
			exchange{operation: operation, name: "in delete mode", body: of(deleteMode), status: 409, words: says(wire.CodeModeUnsupported)},
			exchange{operation: operation, name: "a key, in delete mode", body: ofKey(nil), arrange: toDeleteMode, status: 409, words: says(wire.CodeModeUnsupported)},
			exchange{operation: operation, name: "another user's", body: of(fresh, "user", "bob"), status: 403, words: says(wire.CodeWrongUser)},
			exchange{operation: operation, name: "for another purpose", body: of(fresh, "purpose", "other"), status: 403, words: says(wire.CodeWrongPurpose)},
			exchange{operation: operation, name: "no token", body: text(`{"token":"ott_nonsense","user":"alice"}`), status: 400, words: says(wire.CodeTokenInvalid)},
			exchange{operation: operation, name: "no body", status: 400, words: invalid, refusable: true},
			exchange{operation: operation, name: "neither token nor key", body: text(`{"user":"alice"}`), status: 400, words: invalid, refusable: true},
			exchange{operation: operation, name: "token and key", body: of(fresh, "key", "evt_1"), status: 400, words: invalid, refusable: true},
			exchange{operation: operation, name: "bad key", body: ofKey(nil, "key", "a b"), status: 400, words: invalid, refusable: true},
			exchange{operation: operation, name: "a null", body: ofKey(nil, "key", nil), status: 400, words: invalid, refusable: true},
			exchange{operation: operation, name: "no user", body: text(`{"key":"evt_1"}`), status: 400, words: invalid, refusable: true},
			exchange{operation: operation, name: "bad user", body: ofKey(nil, "user", ""), status: 400, words: invalid, refusable: true},
			exchange{operation: operation, name: "bad purpose", body: ofKey(nil, "purpose", "Order"), status: 400, words: invalid, refusable: true},
		)
	}
	steps := map[string]string{commitOne: `{}`, renewOne: `{"lease":60}`, completeOne: `{"result":{"status":200}}`, releaseOne: `{}`}
	for operation := range steps {
		status, words := 200, isClaimed
		switch operation {
		case completeOne:
			words = isCompleted
		case releaseOne:
			status, words = 204, nil
		}
		own = append(own,
			exchange{operation: operation, name: "of a key", handle: func(s *service) string { return claimed(s, key).Text }, status: status, words: words},
			exchange{operation: operation, name: "in delete mode", handle: handleOf(claimed), arrange: toDeleteMode, status: status, words: words},
			exchange{operation: operation, name: "taken over", handle: handleOf(superseded), status: 409, words: says(wire.CodeClaimSuperseded)},
			exchange{operation: operation, name: "taken over by a consume", handle: handleOf(consumedSince), status: 409, words: says(wire.CodeClaimSuperseded)},
			exchange{operation: operation, name: "revoked", handle: handleOf(claimedRevoked), status: 409, words: says(wire.CodeClaimEnded)},
			exchange{operation: operation, name: "forgotten", handle: handleOf(forgotten), status: 409, words: says(wire.CodeClaimEnded)},
			exchange{operation: operation, name: "no handle", handle: text("nope"), status: 400, words: invalid, holds: `"field":"claim"`, refusable: true},
			exchange{operation: operation, name: "a forged handle", handle: text("otc_" + strings.Repeat("A", 91)), status: 400, words: invalid, holds: `"field":"claim"`},
		)
	}
	for i := range own {
		own[i].caller = consumer
	}
	all := slices.Concat(own, common(claimOne, consumer, user("alice"), of(fresh)), common(claimStatus, consumer, user("alice"), of(fresh)))
	for operation, body := range steps {
		for _, x := range common(operation, consumer, issuer, text(body)) {
			x.handle = handleOf(claimed)
			all = append(all, x)
		}
	}
	return all
}
