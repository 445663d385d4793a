package httpapi

import (
	"net/http"
	"time"

	"example.com/tokend/httpapi/wire"
	"example.com/tokend/token"
)

// issue handles POST /v1/tokens.
func (s *Server) issue(c *call, req *wire.IssueRequest) (wire.IssueResponse, error) {
	ask, err := c.order(req.User, req.Purpose, req.TTL)
	if err != nil {
		return wire.IssueResponse{}, err
	}
	got, err := s.opts.Tokens.Issue(c.ctx(), ask)
	if err != nil {
		return wire.IssueResponse{}, err
	}
	c.success = http.StatusCreated
	return c.issued(&c.outcome, got), nil
}

// issueBatch handles POST /v1/tokens/batch.
func (s *Server) issueBatch(c *call, req *wire.IssueBatchRequest) (wire.IssueBatchResponse, error) {
	ask, err := c.order(req.User, req.Purpose, req.TTL)
	if err != nil {
		return wire.IssueBatchResponse{}, err
	}
	if req.Count == nil || *req.Count < 1 || *req.Count > wire.BatchMax {
		return wire.IssueBatchResponse{}, &token.InvalidError{Field: "count", Rule: "must be a whole number from 1 to " + itoa(wire.BatchMax)}
	}
	got, err := s.opts.Tokens.IssueBatch(c.ctx(), ask, int(*req.Count))
	if err != nil {
		return wire.IssueBatchResponse{}, err
	}
	c.success = http.StatusCreated
	resp := wire.IssueBatchResponse{Tokens: make([]wire.IssueResponse, len(got))}
	c.items = make([]outcome, len(got))
	for i := range got {
		c.items[i] = c.outcome
		c.items[i].status = c.success
		resp.Tokens[i] = c.issued(&c.items[i], got[i])
	}
	return resp, nil
}

// order reads whom and what tokens are asked for.
func (c *call) order(user, purpose *string, ttl *int64) (ask token.IssueRequest, err error) {
	ask.Limited = c.caller.IsUser()
	if ask.User, err = c.ownUser(user); err != nil {
		return ask, err
	}
	if ask.Purpose, err = c.purpose(purpose); err != nil {
		return ask, err
	}
	ask.TTL, err = lifetime(ttl)
	return ask, err
}

// lifetime reads the ttl asked for; 0 where none is.
func lifetime(ttl *int64) (time.Duration, error) {
	const most = 1 << 32 // seconds; what the configuration allows is less
	if ttl == nil {
		return 0, nil
	}
	if *ttl < 1 || *ttl > most {
		return 0, &token.InvalidError{Field: "ttl", Rule: "must be a whole number of seconds, at least 1 and at most the longest life allowed"}
	}
	return time.Duration(*ttl) * time.Second, nil
}

// issued returns the answer that got is, and notes it in o.
func (c *call) issued(o *outcome, got token.IssuedToken) wire.IssueResponse {
	ref := string(got.ID.Ref())
	c.srv.opts.Metrics.keyUsed(got.KeyID)
	o.code, o.ref, o.expiresAt = codeIssued, ref, got.ExpiresAt
	return wire.IssueResponse{
		Token: got.Text, Ref: ref, User: string(got.User), Purpose: string(got.Purpose),
		IssuedAt: wire.TimeOf(got.IssuedAt), ExpiresAt: wire.TimeOf(got.ExpiresAt), TTL: int64(got.TTL / time.Second),
	}
}
