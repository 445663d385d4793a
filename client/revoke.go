package client

import (
	"context"
	"net/http"

	"example.com/tokend/httpapi/wire"
)

// Revoked says what a token is once it cannot be used any more.
type Revoked struct {
	State State  // StateRevoked, or what the token was before and stays: StateUsed, StateExpired …
	Ref   string // the token's, for logs and tickets
}

// Revoking anew changes nothing and is answered alike, so no try makes a refusal of a
// later one.
var revokeCall = endpoint{op: "revoke", path: wire.PathRevoke, success: http.StatusOK, changes: true}

// Revoke makes user's token unusable: whoever consumes it hears [ErrRevoked]. What is used
// or past its life stays so, and State says what it is. It takes a service with the scope
// tokend.consume, or the user's own JWT; with that, user may be empty.
//
// [ErrInvalidToken], [ErrWrongUser] and [ErrWrongPurpose] are refusals, as for Consume,
// and [ErrModeUnsupported] is one for a token of delete mode. After any error the token
// may still be good; after a [*Fault], call again.
func (p Purpose) Revoke(ctx context.Context, user, token string) (Revoked, error) {
	req, no := p.statusRequest(user, token)
	if no != nil {
		return Revoked{}, no
	}
	return p.client.revoke(ctx, req)
}

// RevokeByRef is Revoke for a service that knows of the token's Ref alone, from a log or a
// ticket: whatever its purpose. State is StateGone where tokend has no record of it, which
// a wrong user brings about too.
func (c *Client) RevokeByRef(ctx context.Context, user, ref string) (Revoked, error) {
	req, no := byRef(user, ref)
	if no != nil {
		return Revoked{}, no
	}
	return c.revoke(ctx, req)
}

func (c *Client) revoke(ctx context.Context, req wire.StatusRequest) (Revoked, error) {
	got, err := call(ctx, c, revokeCall, req, func(a *wire.RevokeResponse) bool {
		return a.State != "" && names(a.Ref, req)
	})
	if err != nil {
		return Revoked{}, err
	}
	return Revoked{State: State(got.State), Ref: got.Ref}, nil
}
