package httpapi

import (
	"example.com/tokend/httpapi/wire"
)

// status handles POST /v1/tokens/status.
func (s *Server) status(c *call, req *wire.StatusRequest) (wire.StatusResponse, error) {
	use, err := c.use(req.Token, req.User, req.Purpose)
	if err != nil {
		return wire.StatusResponse{}, err
	}
	t, err := c.open(use)
	if err != nil {
		return wire.StatusResponse{}, err
	}
	got, err := s.opts.Tokens.Status(c.ctx(), use.User, t)
	if err != nil {
		return wire.StatusResponse{}, err
	}
	c.outcome.code, c.outcome.usedBy = string(got.State), got.UsedBy
	return wire.StatusResponse{
		State: string(got.State), Ref: string(t.Ref()), ExpiresAt: wire.TimeOf(got.ExpiresAt),
		IssuedAt: wire.TimeOf(got.IssuedAt), UsedAt: wire.TimeOf(got.UsedAt), UsedBy: got.UsedBy,
		RevokedAt: wire.TimeOf(got.RevokedAt),
	}, nil
}
