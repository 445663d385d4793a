package httpapi

import (
	"context"
	"net/http"
	"time"

	"example.com/tokend/httpapi/wire"
	"example.com/tokend/token"
)

// What a claim's later steps are called in log lines and metrics; a claim's own is the
// state that it came to.
const (
	codeCommitted = "committed"
	codeRenewed   = "renewed"
	codeReleased  = "released"
)

// claim handles POST /v1/claims.
func (s *Server) claim(c *call, req *wire.ClaimRequest) (resp wire.ClaimResponse, err error) {
	if err := c.refuseBrowsersKey(); err != nil {
		return resp, err
	}
	ask, err := c.claimRequest(req)
	if err != nil {
		return resp, err
	}
	ctx, stop := c.waiting(ask.Wait)
	defer stop()
	got, err := s.opts.Tokens.Claim(ctx, ask)
	if err != nil {
		return resp, err
	}
	return c.claimed(ask.Subject, got), nil
}

// claimStatus handles POST /v1/claims/status.
func (s *Server) claimStatus(c *call, req *wire.ClaimStatusRequest) (wire.ClaimStatusResponse, error) {
	sub, _, err := c.claimable(req.Token, req.Key, req.User, req.Purpose)
	if err != nil {
		return wire.ClaimStatusResponse{}, err
	}
	got, err := s.opts.Tokens.ClaimStatus(c.ctx(), sub)
	if err != nil {
		return wire.ClaimStatusResponse{}, err
	}
	c.outcome.found(got)
	return wire.ClaimStatusResponse{StatusResponse: statusOf(sub, got), Result: resultOf(got.Result)}, nil
}

// commit handles POST /v1/claims/{claim}/commit.
func (s *Server) commit(c *call, _ *wire.CommitRequest) (wire.HeldResponse, error) {
	h, err := c.handle()
	if err != nil {
		return wire.HeldResponse{}, err
	}
	got, err := s.opts.Tokens.Commit(c.ctx(), h)
	return c.held(codeCommitted, h, got), err
}

// renew handles POST /v1/claims/{claim}/renew.
func (s *Server) renew(c *call, req *wire.RenewRequest) (wire.HeldResponse, error) {
	h, err := c.handle()
	if err != nil {
		return wire.HeldResponse{}, err
	}
	lease, err := leaseOf(req.Lease)
	if err != nil {
		return wire.HeldResponse{}, err
	}
	got, err := s.opts.Tokens.Renew(c.ctx(), h, lease)
	return c.held(codeRenewed, h, got), err
}

// complete handles PUT /v1/claims/{claim}/result.
func (s *Server) complete(c *call, req *wire.CompleteRequest) (wire.CompleteResponse, error) {
	h, err := c.handle()
	if err != nil {
		return wire.CompleteResponse{}, err
	}
	result, err := s.result(req.Result)
	if err != nil {
		return wire.CompleteResponse{}, err
	}
	got, err := s.opts.Tokens.Complete(c.ctx(), h, result)
	c.outcome.code = wire.StateCompleted
	return wire.CompleteResponse{
		State: wire.StateCompleted, Ref: string(h.Ref()), CompletedAt: wire.TimeOf(got.At), Replayed: got.Replayed,
	}, err
}

// release handles DELETE /v1/claims/{claim}.
func (s *Server) release(c *call, _ *wire.ReleaseRequest) (none struct{}, err error) {
	h, err := c.handle()
	if err != nil {
		return none, err
	}
	c.success, c.outcome.code = http.StatusNoContent, codeReleased
	return none, s.opts.Tokens.Release(c.ctx(), h)
}

// claimRequest reads what is to be claimed, and how. The token is looked at last.
func (c *call) claimRequest(req *wire.ClaimRequest) (ask token.ClaimRequest, err error) {
	ask.Commit, ask.Resolve = flag(req.Commit), flag(req.Resolve)
	if ask.Lease, err = leaseOf(req.Lease); err != nil {
		return ask, err
	}
	if ask.Wait, err = secondsIn("wait", req.Wait, 0, wire.WaitMax, 0); err != nil {
		return ask, err
	}
	if ask.Digest, err = optional(req.Digest, token.ParseDigest); err != nil {
		return ask, err
	}
	if ask.Attempt, err = attempt(&c.outcome, req.Attempt); err != nil {
		return ask, err
	}
	ask.Subject, ask.Purpose, err = c.claimable(req.Token, req.Key, req.User, req.Purpose)
	return ask, err
}

func leaseOf(value *int64) (time.Duration, error) {
	return secondsIn("lease", value, 1, wire.LeaseMax, wire.LeaseDefault)
}

// claimable reads which token or key a call is about, and opens the token. It is noted.
func (c *call) claimable(text, key, user, purpose *string) (sub token.Subject, p token.Purpose, err error) {
	if (text == nil) == (key == nil) {
		return sub, p, &token.InvalidError{Field: "token", Rule: "or key must stand, and not both"}
	}
	if key == nil {
		use, err := c.use(&c.outcome, text, user, purpose)
		if err != nil {
			return sub, p, err
		}
		t, err := c.open(&c.outcome, use)
		if err != nil {
			return sub, p, err
		}
		return token.TokenSubject(use.User, t), use.Purpose, nil
	}
	k, err := token.ParseIdempotencyKey(*key)
	if err != nil {
		return sub, p, err
	}
	u, err := c.ownUser(user)
	if err != nil {
		return sub, p, err
	}
	if p, err = c.purpose(purpose); err != nil {
		return sub, p, err
	}
	sub = token.KeySubject(u, p, k)
	c.outcome.ref = string(sub.Ref())
	return sub, p, nil
}

// waiting returns the context of a call that may wait for as long as wait: it ends when the
// caller hangs up, or the service shuts down. Until stop the call counts as one that waits,
// and not among those that are answered.
func (c *call) waiting(wait time.Duration) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(c.ctx())
	if wait == 0 {
		return ctx, cancel
	}
	// The server's own read deadline bounds how long a body takes to come. Past it, net/http
	// would take a caller that has nothing more to say for one that has hung up.
	http.NewResponseController(c.echo.Response()).SetReadDeadline(time.Time{})
	if c.srv.waiting.Add(1) > maxWaiting {
		cancel() // it is answered without waiting
	}
	c.srv.busy.Add(-1)
	unlink := context.AfterFunc(c.srv.draining, cancel)
	return ctx, func() {
		unlink()
		cancel()
		c.srv.busy.Add(1)
		c.srv.waiting.Add(-1)
	}
}

// maxWaiting bounds the calls that wait for a claim to end: each holds a connection and a
// little memory, and asks the store once a second.
const maxWaiting = 8192

// claimed returns the answer that got is, and notes it.
func (c *call) claimed(sub token.Subject, got token.Claimed) wire.ClaimResponse {
	ref := string(sub.Ref())
	c.outcome.code, c.outcome.replayed = string(got.State), got.Replayed
	if got.State == token.StateCompleted {
		c.echo.Response().Header()[wire.HeaderIdempotentReplayed] = isTrue
		return wire.ClaimResponse{Completed: &wire.Replay{
			State: wire.StateCompleted, Ref: ref, Replayed: true, Result: resultOf(got.Result),
		}}
	}
	c.srv.opts.Metrics.keyUsed(got.KeyID)
	c.success = http.StatusCreated
	c.outcome.takeover, c.outcome.fence = got.Takeover, got.Handle.Fence
	return wire.ClaimResponse{Claimed: &wire.Claimed{
		State: wire.StateClaimed, Claim: got.Text, Ref: ref, Fence: int64(got.Handle.Fence), Takeover: got.Takeover,
		Committed: got.Committed, LeaseExpiresAt: wire.TimeOf(got.LeaseExpiresAt), Replayed: got.Replayed,
	}}
}

// handle reads the handle in the path, and notes what it says: before what the body's members
// say is looked at, so that a refusal of that tells which claim it is about.
func (c *call) handle() (token.Handle, error) {
	h, keyID, err := c.srv.opts.Tokens.OpenHandle(c.echo.Param("claim"))
	if err != nil {
		return h, err
	}
	c.srv.opts.Metrics.keyUsed(keyID)
	c.outcome.handle, c.outcome.ref, c.outcome.fence = &h, string(h.Ref()), h.Fence
	return h, nil
}

// held returns the answer that got is, and notes it as code.
func (c *call) held(code string, h token.Handle, got token.Held) wire.HeldResponse {
	c.outcome.code = code
	return wire.HeldResponse{
		State: wire.StateClaimed, Ref: string(h.Ref()), Fence: int64(h.Fence),
		Committed: got.Committed, LeaseExpiresAt: wire.TimeOf(got.LeaseExpiresAt),
	}
}
