package httpapi

import (
	"example.com/tokend/httpapi/wire"
	"example.com/tokend/token"
)

// consume handles POST /v1/tokens/consume.
func (s *Server) consume(c *call, req *wire.ConsumeRequest) (wire.ConsumeResponse, error) {
	if err := c.refuseBrowsersKey(); err != nil {
		return wire.ConsumeResponse{}, err
	}
	use, err := c.use(req.Token, req.User, req.Purpose)
	if err != nil {
		return wire.ConsumeResponse{}, err
	}
	digest, err := optional(req.Digest, token.ParseDigest)
	if err != nil {
		return wire.ConsumeResponse{}, err
	}
	attempt, err := c.attempt(req.Attempt)
	if err != nil {
		return wire.ConsumeResponse{}, err
	}
	t, err := c.open(use)
	if err != nil {
		return wire.ConsumeResponse{}, err
	}
	got, err := s.opts.Tokens.Consume(c.ctx(), use.User, t, attempt, digest)
	if err != nil {
		return wire.ConsumeResponse{}, err
	}
	c.outcome.code, c.outcome.takeover = codeConsumed, got.Takeover
	return wire.ConsumeResponse{
		Outcome: wire.OutcomeConsumed, Ref: string(t.Ref()), User: string(use.User), Purpose: string(use.Purpose),
		UsedAt: wire.TimeOf(got.UsedAt), Takeover: got.Takeover, Replayed: got.Replayed,
	}, nil
}
