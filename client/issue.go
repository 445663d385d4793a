package client

import (
	"context"
	"net/http"
	"time"

	"example.com/tokend/httpapi/wire"
)

// IssueOption says more about the token that is asked for.
type IssueOption func(*issueParams)

type issueParams struct{ ttl *time.Duration }

// TTL asks for a token that is good for d: whole seconds, from 1s to what tokend's
// configuration allows for the purpose. Without it the purpose's own ttl holds.
func TTL(d time.Duration) IssueOption {
	return func(p *issueParams) { p.ttl = &d }
}

var issueCall = endpoint{op: "issue", path: wire.PathTokens, success: http.StatusCreated, changes: true}

// Issue makes a token for user: 1 to 256 bytes of valid UTF-8 without control
// characters, compared byte for byte. It takes a service with the scope tokend.issue,
// or the user's own JWT; with that, user may be empty and is the JWT's.
//
// Among its refusals are [ErrRateLimited], for users' own calls, and
// [ErrInvalidRequest], whose Field is "user", "ttl" or "purpose". After a [*Fault]
// with MaybeDone there may be a token that nobody knows; it expires unused.
func (p Purpose) Issue(ctx context.Context, user string, opts ...IssueOption) (Token, error) {
	req, no := p.issueRequest(user, opts)
	if no != nil {
		return Token{}, no
	}
	got, err := call(ctx, p.client, issueCall, req, func(a *wire.IssueResponse) bool { return issues(a, &req) })
	if err != nil {
		return Token{}, err
	}
	return issued(got), nil
}

var issueBatchCall = endpoint{op: "issue_batch", path: wire.PathBatch, success: http.StatusCreated, changes: true}

// IssueBatch makes n tokens, all or none, in one round trip: 1 to [BatchMax]. All else is
// as for Issue; for users' own calls a batch counts as n, and n above what the rate lets
// through at once is [ErrInvalidRequest], whose Field is "count".
func (p Purpose) IssueBatch(ctx context.Context, user string, n int, opts ...IssueOption) ([]Token, error) {
	one, no := p.issueRequest(user, opts)
	if no != nil {
		return nil, no
	}
	req := wire.IssueBatchRequest{Count: new(int64(n)), Purpose: one.Purpose, TTL: one.TTL, User: one.User}
	got, err := call(ctx, p.client, issueBatchCall, req, func(a *wire.IssueBatchResponse) bool {
		ok := len(a.Tokens) == n
		for i := range a.Tokens {
			ok = ok && issues(&a.Tokens[i], &one)
		}
		return ok
	})
	if err != nil {
		return nil, err
	}
	tokens := make([]Token, n)
	for i := range tokens {
		tokens[i] = issued(&got.Tokens[i])
	}
	return tokens, nil
}

// issueRequest returns what asks for one token, or refuses what cannot be sent.
func (p Purpose) issueRequest(user string, opts []IssueOption) (wire.IssueRequest, *Refusal) {
	var params issueParams
	for _, o := range opts {
		o(&params)
	}
	if no := checkUser(user); no != nil {
		return wire.IssueRequest{}, no
	}
	req := wire.IssueRequest{Purpose: &p.name, User: userMember(user)}
	if d := params.ttl; d != nil {
		if *d%time.Second != 0 {
			return wire.IssueRequest{}, refuse(wire.CodeInvalidRequest, "ttl", "ttl must be whole seconds")
		}
		req.TTL = new(int64(*d / time.Second))
	}
	return req, nil
}

// issues tells whether a answers req, and not some other call.
func issues(a *wire.IssueResponse, req *wire.IssueRequest) bool {
	return a.Token != "" && a.Ref != "" && !a.IssuedAt.IsZero() && !a.ExpiresAt.IsZero() &&
		a.Purpose == *req.Purpose && (req.User == nil || a.User == *req.User)
}

func issued(a *wire.IssueResponse) Token {
	return Token{
		Value:     a.Token,
		Ref:       a.Ref,
		User:      a.User,
		Purpose:   a.Purpose,
		IssuedAt:  a.IssuedAt.Time(),
		ExpiresAt: a.ExpiresAt.Time(),
		TTL:       time.Duration(a.TTL) * time.Second,
	}
}
