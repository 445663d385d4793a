package httpapi

import (
	"net/http"
	"time"

	"example.com/tokend/httpapi/wire"
	"example.com/tokend/token"
)

// issue handles POST /v1/tokens.
func (s *Server) issue(c *call, req *wire.IssueRequest) (wire.IssueResponse, error) {
	user, err := c.ownUser(req.User)
	if err != nil {
		return wire.IssueResponse{}, err
	}
	ask := token.IssueRequest{User: user, Limited: c.caller.IsUser()}
	if ask.Purpose, err = c.purpose(req.Purpose); err != nil {
		return wire.IssueResponse{}, err
	}
	if ask.TTL, err = lifetime(req.TTL); err != nil {
		return wire.IssueResponse{}, err
	}
	got, err := s.opts.Tokens.Issue(c.ctx(), ask)
	if err != nil {
		return wire.IssueResponse{}, err
	}
	s.opts.Metrics.keyUsed(got.KeyID)
	c.success = http.StatusCreated
	c.outcome.code, c.outcome.ref, c.outcome.expiresAt = codeIssued, string(got.ID.Ref()), got.ExpiresAt
	return wire.IssueResponse{
		Token: got.Text, Ref: string(got.ID.Ref()), User: string(got.User), Purpose: string(got.Purpose),
		IssuedAt: wire.TimeOf(got.IssuedAt), ExpiresAt: wire.TimeOf(got.ExpiresAt), TTL: int64(got.TTL / time.Second),
	}, nil
}

// lifetime reads the ttl asked for; 0 where none is.
func lifetime(ttl *int64) (time.Duration, error) {
	const most = 1 << 32 // seconds; what the configuration allows is far less
	if ttl == nil {
		return 0, nil
	}
	if *ttl < 1 || *ttl > most {
		return 0, &token.InvalidError{Field: "ttl", Rule: "must be a whole number of seconds, at least 1 and at most the longest life allowed"}
	}
	return time.Duration(*ttl) * time.Second, nil
}
