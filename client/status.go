package client

import (
	"context"
	"net/http"
	"time"

	"example.com/tokend/httpapi/wire"
)

// State is what became of a token. tokend may know more states than stand here.
type State string

// The states of a token.
const (
	StateIssued  State = "issued"
	StateUsed    State = "used"
	StateRevoked State = "revoked"
	StateExpired State = "expired" // never used
	StateStale   State = "stale"   // past its expiry and retention: too old to tell
	StateLost    State = "lost"    // unexpired, but the store lost it
	StateGone    State = "gone"    // no record, and no way to tell: delete mode, or a Ref alone
)

// Status is a token's state, with the times that belong to it; the others are zero.
// All are by Redis's clock.
type Status struct {
	State     State
	Ref       string    // the token's, for logs and tickets
	ExpiresAt time.Time // always, but for StateGone by Ref
	IssuedAt  time.Time // while tokend has a record
	UsedAt    time.Time // StateUsed
	UsedBy    string    // StateUsed: 8 hex digits of the winning attempt's hash, as in tokend's log
	RevokedAt time.Time // StateRevoked
}

var statusCall = endpoint{op: "status", path: wire.PathStatus, success: http.StatusOK}

// Status tells the state of user's token and changes nothing. It is no check before a
// Consume: the state may be another by then. It takes a service with the scope
// tokend.consume, or the user's own JWT; with that, user may be empty.
//
// [ErrInvalidToken], [ErrWrongUser] and [ErrWrongPurpose] are refusals, as for Consume;
// every state is an answer. A [*Fault] never says MaybeDone.
func (p Purpose) Status(ctx context.Context, user, token string) (Status, error) {
	req, no := p.statusRequest(user, token)
	if no != nil {
		return Status{}, no
	}
	return p.client.status(ctx, req)
}

// StatusByRef is Status for a service that knows of the token's Ref alone, from a log or a
// ticket: whatever its purpose. The answer is what tokend's record says. Where there is
// none, which a wrong user brings about too, State is StateGone and no time is known.
func (c *Client) StatusByRef(ctx context.Context, user, ref string) (Status, error) {
	req, no := byRef(user, ref)
	if no != nil {
		return Status{}, no
	}
	return c.status(ctx, req)
}

func (c *Client) status(ctx context.Context, req wire.StatusRequest) (Status, error) {
	got, err := call(ctx, c, statusCall, req, func(a *wire.StatusResponse) bool {
		timeless := req.Ref != nil && State(a.State) == StateGone
		return a.State != "" && names(a.Ref, req) && (timeless || !a.ExpiresAt.IsZero())
	})
	if err != nil {
		return Status{}, err
	}
	return Status{
		State:     State(got.State),
		Ref:       got.Ref,
		ExpiresAt: got.ExpiresAt.Time(),
		IssuedAt:  got.IssuedAt.Time(),
		UsedAt:    got.UsedAt.Time(),
		UsedBy:    got.UsedBy,
		RevokedAt: got.RevokedAt.Time(),
	}, nil
}

// statusRequest names user's token by its text, or refuses what cannot be sent.
func (p Purpose) statusRequest(user, token string) (wire.StatusRequest, *Refusal) {
	no := checkUser(user)
	if no == nil {
		no = checkToken(token)
	}
	return wire.StatusRequest{Token: &token, User: userMember(user), Purpose: &p.name}, no
}

// byRef names user's token by its Ref, or refuses what cannot be sent.
func byRef(user, ref string) (wire.StatusRequest, *Refusal) {
	return wire.StatusRequest{Ref: &ref, User: userMember(user)}, checkUser(user)
}

// names tells whether ref is that of the token that req is about, as far as req says.
func names(ref string, req wire.StatusRequest) bool {
	return ref != "" && (req.Ref == nil || ref == *req.Ref)
}
