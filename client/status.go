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
	StateGone    State = "gone"    // used or expired: delete mode cannot tell
)

// Status is a token's state, with the times that belong to it; the others are zero.
// All are by Redis's clock.
type Status struct {
	State     State
	Ref       string    // the token's, for logs and tickets
	ExpiresAt time.Time // always
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
	if no := checkUser(user); no != nil {
		return Status{}, no
	}
	if no := checkToken(token); no != nil {
		return Status{}, no
	}
	req := wire.StatusRequest{Token: &token, User: userMember(user), Purpose: &p.name}
	got, err := call(ctx, p.client, statusCall, req, func(a *wire.StatusResponse) bool {
		return a.State != "" && a.Ref != "" && !a.ExpiresAt.IsZero()
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
