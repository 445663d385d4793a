package httpapi

import (
	"example.com/tokend/httpapi/wire"
	"example.com/tokend/token"
)

// status handles POST /v1/tokens/status.
func (s *Server) status(c *call, req *wire.StatusRequest) (wire.StatusResponse, error) {
	sub, err := c.subject(req)
	if err != nil {
		return wire.StatusResponse{}, err
	}
	got, err := s.opts.Tokens.Status(c.ctx(), sub)
	if err != nil {
		return wire.StatusResponse{}, err
	}
	c.outcome.found(got)
	return statusOf(sub, got), nil
}

// statusOf returns what sub's status is on the wire.
func statusOf(sub token.Subject, got token.Status) wire.StatusResponse {
	resp := wire.StatusResponse{
		State: string(got.State), Ref: string(sub.Ref()), ExpiresAt: wire.TimeOf(got.ExpiresAt),
		IssuedAt: wire.TimeOf(got.IssuedAt), UsedAt: wire.TimeOf(got.UsedAt), CompletedAt: wire.TimeOf(got.CompletedAt),
		UsedBy: got.UsedBy, RevokedAt: wire.TimeOf(got.RevokedAt),
	}
	if got.State == token.StateClaimed {
		resp.LeaseExpiresAt, resp.Fence, resp.Committed = wire.TimeOf(got.LeaseExpiresAt), int64(got.Fence), &got.Committed
	}
	return resp
}

// revoke handles POST /v1/tokens/revoke.
func (s *Server) revoke(c *call, req *wire.StatusRequest) (wire.RevokeResponse, error) {
	sub, err := c.subject(req)
	if err == nil && sub.Kind != token.OfToken {
		err = &token.InvalidError{Field: "ref", Rule: "must name a token: keys are not revoked"}
	}
	if err != nil {
		return wire.RevokeResponse{}, err
	}
	got, err := s.opts.Tokens.Revoke(c.ctx(), sub)
	if err != nil {
		return wire.RevokeResponse{}, err
	}
	c.outcome.found(got)
	return wire.RevokeResponse{State: string(got.State), Ref: string(sub.Ref())}, nil
}

// found notes the state that a token or key was found in.
func (o *outcome) found(got token.Status) {
	o.code, o.usedBy, o.expiresAt, o.fence = string(got.State), got.UsedBy, got.ExpiresAt, got.Fence
}

// subject reads which token is asked about: by its text, or, from a service, by its ref.
func (c *call) subject(req *wire.StatusRequest) (token.Subject, error) {
	if req.Ref != nil {
		return c.byRef(req)
	}
	use, err := c.use(&c.outcome, req.Token, req.User, req.Purpose)
	if err != nil {
		return token.Subject{}, err
	}
	t, err := c.open(&c.outcome, use)
	if err != nil {
		return token.Subject{}, err
	}
	return token.TokenSubject(use.User, t), nil
}

func (c *call) byRef(req *wire.StatusRequest) (sub token.Subject, err error) {
	switch {
	case c.caller.IsUser():
		return sub, &problemError{code: wire.CodeForbidden, detail: "only a service with the scope " + wire.ScopeConsume + " may name a token by its ref", field: "ref"}
	case req.Token != nil:
		return sub, &token.InvalidError{Field: "ref", Rule: "must not stand beside token: name the token once"}
	case req.Purpose != nil:
		return sub, &token.InvalidError{Field: "purpose", Rule: "must not stand beside ref, which does not tell it"}
	}
	if sub.Kind, sub.ID, err = token.ParseRef(*req.Ref); err != nil {
		return sub, err
	}
	c.outcome.ref = *req.Ref
	sub.User, err = c.ownUser(req.User)
	return sub, err
}
