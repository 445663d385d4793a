package client

import (
	"context"
	"net/http"
	"strings"
	"time"

	"example.com/tokend/httpapi/wire"
)

// State is what became of a token or key. tokend may know more states than stand here.
type State string

// The states of a token, and of a key: a key is claimed, completed, unknown, or by its Ref
// alone gone.
const (
	StateIssued    State = "issued"
	StateClaimed   State = "claimed"
	StateCompleted State = "completed"
	StateUsed      State = "used"
	StateRevoked   State = "revoked"
	StateExpired   State = "expired" // never used
	StateStale     State = "stale"   // past its expiry and retention: too old to tell
	StateLost      State = "lost"    // unexpired, but the store lost it
	StateGone      State = "gone"    // no record, and no way to tell: delete mode, or a Ref alone
	StateUnknown   State = "unknown" // a key that was never claimed, or was released
)

// Status is a token's or key's state, with what belongs to it; the rest is zero. All times
// are by Redis's clock.
type Status struct {
	State       State
	Ref         string    // the token's or key's, for logs and tickets
	ExpiresAt   time.Time // a token's: always, but for StateGone by Ref
	IssuedAt    time.Time // a token's: while tokend has a record
	UsedAt      time.Time // StateUsed
	CompletedAt time.Time // StateCompleted
	UsedBy      string    // StateUsed, StateCompleted: 8 hex digits of the attempt's hash, as in tokend's log
	RevokedAt   time.Time // StateRevoked

	LeaseExpiresAt time.Time // StateClaimed, as the next two
	Fence          int64
	Committed      bool
}

// refOfKey is what a key's Ref begins with.
const refOfKey = "k_"

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
// ticket: whatever its purpose. A key's Ref is as good. The answer is what tokend's record says. Where there is
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
		timeless := req.Ref != nil && (State(a.State) == StateGone || strings.HasPrefix(a.Ref, refOfKey))
		return a.State != "" && names(a.Ref, req) && (timeless || !a.ExpiresAt.IsZero())
	})
	if err != nil {
		return Status{}, err
	}
	return statusOf(got), nil
}

func statusOf(a *wire.StatusResponse) Status {
	return Status{
		State:          State(a.State),
		Ref:            a.Ref,
		ExpiresAt:      a.ExpiresAt.Time(),
		IssuedAt:       a.IssuedAt.Time(),
		UsedAt:         a.UsedAt.Time(),
		CompletedAt:    a.CompletedAt.Time(),
		UsedBy:         a.UsedBy,
		RevokedAt:      a.RevokedAt.Time(),
		LeaseExpiresAt: a.LeaseExpiresAt.Time(),
		Fence:          a.Fence,
		Committed:      a.Committed != nil && *a.Committed,
	}
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
