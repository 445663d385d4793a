package openapi_test

import (
	"net/http"

	"example.com/tokend/httpapi"
	"example.com/tokend/httpapi/auth"
	"example.com/tokend/httpapi/wire"
	"example.com/tokend/token"
)

const (
	askGateway = "GET " + wire.PathGateway
	askBelow   = "POST " + wire.PathGateway + "/{path}"
)

// ofGateway are the headers about a POST with a token in the state st, or without a token;
// pairs replace some.
func ofGateway(st state, pairs ...string) func(*service) http.Header {
	return func(s *service) http.Header {
		h := http.Header{}
		h.Set(wire.HeaderGatewayKey, "Bearer "+consumer)
		h.Set(wire.HeaderForwardedMethod, "POST")
		if st != nil {
			h.Set(wire.HeaderToken, st(s).Text)
		}
		for i := 0; i < len(pairs); i += 2 {
			h.Set(pairs[i], pairs[i+1])
		}
		return h
	}
}

// twice sends the token twice.
func twice(headers func(*service) http.Header) func(*service) http.Header {
	return func(s *service) http.Header {
		h := headers(s)
		h.Add(wire.HeaderToken, h.Get(wire.HeaderToken))
		return h
	}
}

func forAnotherPurpose(s *service) token.IssuedToken {
	tok, err := s.tokens.Issue(s.t.Context(), token.IssueRequest{User: "alice", Purpose: "other"})
	s.must(err)
	return tok
}

// ofEnvoy has what a gateway is told be what Envoy goes by.
func ofEnvoy(o *httpapi.Options) { o.Gateway.Allowed = http.StatusOK }

func gatewayExchanges() (all []exchange) {
	alice := user("alice")
	breakTokens := func(err error) func(*service) { return func(s *service) { s.faults.ofTokens = err } }
	own := []exchange{
		{name: "a GET", headers: ofGateway(nil, wire.HeaderForwardedMethod, "GET"), status: 204},
		{name: "a GET, where Envoy asks", headers: ofGateway(nil, wire.HeaderForwardedMethod, "GET"), status: 200, options: ofEnvoy},
		{name: "fresh", headers: ofGateway(fresh), status: 204},
		{name: "fresh, where Envoy asks", headers: ofGateway(fresh), status: 200, options: ofEnvoy},
		{name: "no key", headers: ofGateway(fresh, wire.HeaderGatewayKey, ""), status: 403, words: says(wire.CodeUnauthenticated)},
		{name: "a user for a gateway", headers: ofGateway(fresh, wire.HeaderGatewayKey, "Bearer "+alice), status: 403, words: says(wire.CodeForbidden)},
		{name: "no token", headers: ofGateway(nil), status: 403, words: says(wire.CodeTokenMissing)},
		{name: "not a token", headers: ofGateway(nil, wire.HeaderToken, "ott_nonsense"), status: 403, words: says(wire.CodeTokenInvalid)},
		{name: "another user", caller: user("bob"), headers: ofGateway(fresh), status: 403, words: says(wire.CodeWrongUser)},
		{name: "another purpose", headers: ofGateway(forAnotherPurpose), status: 403, words: says(wire.CodeWrongPurpose)},
		{name: "two tokens", headers: twice(ofGateway(fresh)), status: 403, words: says(wire.CodeInvalidRequest)},
		{name: "used", headers: ofGateway(used), status: 403, words: says(wire.CodeTokenUsed)},
		{name: "claimed", headers: ofGateway(with(claimed)), status: 403, words: says(wire.CodeRequestInProgress)},
		{name: "unfinished", headers: ofGateway(with(lapsed(committed))), status: 403, words: says(wire.CodeClaimUnfinished)},
		{name: "expired", headers: ofGateway(expired), status: 403, words: says(wire.CodeTokenExpired)},
		{name: "stale", headers: ofGateway(stale), status: 403, words: says(wire.CodeTokenStale)},
		{name: "lost", headers: ofGateway(lost), status: 403, words: says(wire.CodeTokenLost)},
		{name: "gone", headers: ofGateway(gone), status: 403, words: says(wire.CodeTokenGone)},
		{name: "revoked", headers: ofGateway(revoked), status: 403, words: says(wire.CodeTokenRevoked)},
		{name: "store down", headers: ofGateway(fresh), arrange: breakTokens(errStore), status: 503, words: says(wire.CodeStoreUnavailable)},
		{name: "keys unavailable", headers: ofGateway(fresh), status: 503, words: says(wire.CodeStoreUnavailable),
			arrange: func(s *service) { s.faults.ofCallers = &auth.Fault{Err: errOther} }},
		{name: "reply lost", headers: ofGateway(deleteMode), arrange: breakTokens(errUnknown), status: 503, words: says(wire.CodeOutcomeUnknown)},
		{name: "something unforeseen", headers: ofGateway(fresh), arrange: breakTokens(errOther), status: 503, words: says(wire.CodeInternal)},
	}
	for _, x := range own {
		if x.caller == "" {
			x.caller = alice
		}
		x.operation = askGateway
		all = append(all, x)
		x.operation, x.path = askBelow, wire.PathGateway+"/orders"
		all = append(all, x)
	}
	return all
}
