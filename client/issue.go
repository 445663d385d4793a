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
	var params issueParams
	for _, o := range opts {
		o(&params)
	}
	if no := checkUser(user); no != nil {
		return Token{}, no
	}
	req := wire.IssueRequest{Purpose: &p.name, User: userMember(user)}
	if d := params.ttl; d != nil {
		if *d%time.Second != 0 {
			return Token{}, refuse(wire.CodeInvalidRequest, "ttl", "ttl must be whole seconds")
		}
		req.TTL = new(int64(*d / time.Second))
	}
	got, err := call(ctx, p.client, issueCall, req, func(a *wire.IssueResponse) bool {
		return a.Token != "" && a.Ref != "" && !a.IssuedAt.IsZero() && !a.ExpiresAt.IsZero() &&
			a.Purpose == p.name && (a.User == user || user == "")
	})
	if err != nil {
		return Token{}, err
	}
	return Token{
		Value:     got.Token,
		Ref:       got.Ref,
		User:      got.User,
		Purpose:   got.Purpose,
		IssuedAt:  got.IssuedAt.Time(),
		ExpiresAt: got.ExpiresAt.Time(),
		TTL:       time.Duration(got.TTL) * time.Second,
	}, nil
}
