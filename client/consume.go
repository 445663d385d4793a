package client

import (
	"context"
	"crypto/rand"
	"net/http"
	"time"

	"example.com/tokend/httpapi/wire"
)

// ConsumeOption says more about one consume.
type ConsumeOption interface{ ofConsume(*requestParams) }

// RequestOption says more about the request that a consume or a claim is for.
type RequestOption func(*requestParams)

func (o RequestOption) ofConsume(p *requestParams) { o(p) }
func (o RequestOption) ofClaim(p *claimParams)     { o(&p.requestParams) }

type requestParams struct{ digest, attempt *string }

// Digest binds the token or key to a request: s is the caller's fingerprint of it, 1 to 128
// visible ASCII characters. The same token or key with another digest is [ErrReused].
func Digest(s string) RequestOption {
	return func(p *requestParams) { p.digest = &s }
}

// Attempt names the execution that the call is for, 1 to 255 visible ASCII characters,
// instead of one made up inside. Few need it: it lets a later call go on with an
// execution whose first call ended in a [*Fault], which says its Attempt. Whoever will do the work makes it up,
// fresh for each request that it serves. Taken from what a user sent, or from the
// token, it grants one token twice.
func Attempt(s string) RequestOption {
	return func(p *requestParams) { p.attempt = &s }
}

// Consumed says that the token was granted to this call.
type Consumed struct {
	Ref      string    // the token's, for logs and tickets
	User     string    // as asked for
	Purpose  string    // as asked for
	UsedAt   time.Time // by Redis's clock
	Replayed bool      // a try of this attempt had been granted it before: no reason not to do the work
	Takeover bool      // it had been claimed, and the claim's lease was over
}

var consumeCall = endpoint{op: "consume", path: wire.PathConsume, success: http.StatusOK, changes: true, once: true}

// Consume uses user's token up. Where it returns nil the caller, and no other, is to
// do the work, whether Replayed is set or not. It takes a service with the scope
// tokend.consume.
//
// The refusals about the token are [ErrUsed], [ErrExpired], [ErrStale], [ErrLost],
// [ErrGone], [ErrRevoked], [ErrWrongUser], [ErrWrongPurpose], [ErrInvalidToken] and
// [ErrReused]. None of them granted it to this call, but where Next is [NextVerify]
// tokend cannot tell what became of it, an earlier try of this call included. After a
// [*Fault] with MaybeDone nobody can tell either.
//
// A browser's second click ends the first one's request, and with it the request's context:
// give a context that outlasts it (context.WithoutCancel), or the token may be used for a
// caller that has gone.
//
// Two calls for one token are two attempts, and at most one is granted: do not call
// again after an error, but see Refusal.Next.
func (p Purpose) Consume(ctx context.Context, user, token string, opts ...ConsumeOption) (Consumed, error) {
	params := requestParams{attempt: new(rand.Text())} // before the first try, and the same in all
	for _, o := range opts {
		o.ofConsume(&params)
	}
	if no := checkUser(user); no != nil {
		return Consumed{}, no
	}
	if no := checkToken(token); no != nil {
		return Consumed{}, no
	}
	req := wire.ConsumeRequest{
		Token:   &token,
		User:    userMember(user),
		Purpose: &p.name,
		Digest:  params.digest,
		Attempt: params.attempt,
	}
	got, err := call(ctx, p.client, consumeCall, req, func(a *wire.ConsumeResponse) bool { return grants(a, &req) })
	if err != nil {
		return Consumed{}, madeFor(params.attempt, err)
	}
	return consumed(got), nil
}

// grants tells whether a answers req, and not some other call.
func grants(a *wire.ConsumeResponse, req *wire.ConsumeRequest) bool {
	return a.Outcome == wire.OutcomeConsumed && a.Ref != "" && !a.UsedAt.IsZero() &&
		a.Purpose == *req.Purpose && req.User != nil && a.User == *req.User
}

func consumed(a *wire.ConsumeResponse) Consumed {
	return Consumed{
		Ref:      a.Ref,
		User:     a.User,
		Purpose:  a.Purpose,
		UsedAt:   a.UsedAt.Time(),
		Replayed: a.Replayed,
		Takeover: a.Takeover,
	}
}
