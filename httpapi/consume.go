package httpapi

import (
	"net/http"

	"example.com/tokend/httpapi/wire"
	"example.com/tokend/token"
)

// consume handles POST /v1/tokens/consume.
func (s *Server) consume(c *call, req *wire.ConsumeRequest) (wire.ConsumeResponse, error) {
	if err := c.refuseBrowsersKey(); err != nil {
		return wire.ConsumeResponse{}, err
	}
	item, err := c.consumption(&c.outcome, req)
	if err != nil {
		return wire.ConsumeResponse{}, err
	}
	got, err := s.opts.Tokens.Consume(c.ctx(), item.Consumption)
	if err != nil {
		return wire.ConsumeResponse{}, err
	}
	return item.consumed(&c.outcome, got), nil
}

// consumeBatch handles POST /v1/tokens/consume/batch.
func (s *Server) consumeBatch(c *call, req *wire.ConsumeBatchRequest) (wire.ConsumeBatchResponse, error) {
	if err := c.refuseBrowsersKey(); err != nil {
		return wire.ConsumeBatchResponse{}, err
	}
	n := len(req.Items)
	if n < 1 || n > wire.BatchMax {
		return wire.ConsumeBatchResponse{}, &token.InvalidError{Field: "items", Rule: "must be 1 to " + itoa(wire.BatchMax) + " items"}
	}
	resp := wire.ConsumeBatchResponse{Results: make([]wire.ConsumeResult, n)}
	c.items = make([]outcome, n)
	var items []consumption
	var places []int // of items, in the request
	var cs []token.Consumption
	for i := range req.Items {
		item, err := c.consumption(&c.items[i], &req.Items[i])
		if err != nil {
			resp.Results[i].Problem = c.problem(&c.items[i], err)
			continue
		}
		items, places, cs = append(items, item), append(places, i), append(cs, item.Consumption)
	}
	if len(cs) == 0 {
		return resp, nil
	}
	got, errs := s.opts.Tokens.ConsumeBatch(c.ctx(), cs)
	for j, i := range places {
		if errs[j] != nil {
			resp.Results[i].Problem = c.problem(&c.items[i], errs[j])
			continue
		}
		done := items[j].consumed(&c.items[i], got[j])
		resp.Results[i].Consumed = &done
	}
	return resp, nil
}

// consumption is a token to consume, opened, and its purpose.
type consumption struct {
	token.Consumption
	purpose token.Purpose
}

// consumption reads and opens what req asks to consume, and notes it in o. The token is
// looked at last.
func (c *call) consumption(o *outcome, req *wire.ConsumeRequest) (item consumption, err error) {
	use, err := c.use(o, req.Token, req.User, req.Purpose)
	if err != nil {
		return item, err
	}
	item.User, item.purpose = use.User, use.Purpose
	if item.Digest, err = optional(req.Digest, token.ParseDigest); err != nil {
		return item, err
	}
	if item.Attempt, err = attempt(o, req.Attempt); err != nil {
		return item, err
	}
	item.Token, err = c.open(o, use)
	return item, err
}

// consumed returns the answer that got is, and notes it in o.
func (item *consumption) consumed(o *outcome, got token.Consumed) wire.ConsumeResponse {
	o.code, o.status = codeConsumed, http.StatusOK
	o.takeover, o.replayed, o.fence = got.Takeover, got.Replayed, got.Fence
	return wire.ConsumeResponse{
		Outcome: wire.OutcomeConsumed, Ref: o.ref, User: string(item.User), Purpose: string(item.purpose),
		UsedAt: wire.TimeOf(got.UsedAt), Takeover: got.Takeover, Replayed: got.Replayed,
	}
}
