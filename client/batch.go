package client

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"

	"example.com/tokend/httpapi/wire"
)

// BatchMax is how many tokens one call issues or consumes at most.
const BatchMax = wire.BatchMax

// Item is one token of a [Purpose.ConsumeBatch]. Printed or logged it shows nothing, since
// Token is a secret until it is used.
type Item struct {
	User    string `json:"-"`
	Token   string `json:"-"`
	Digest  string `json:"-"` // as [Digest] says; none where empty
	Attempt string `json:"-"` // as [Attempt] says; made up where empty
}

// Format writes the type's name, whatever the verb.
func (Item) Format(f fmt.State, _ rune) { io.WriteString(f, "client.Item") }

// LogValue returns the type's name.
func (Item) LogValue() slog.Value { return slog.StringValue("client.Item") }

// Outcome is what became of one Item, as [Purpose.Consume] would return it.
type Outcome struct {
	Consumed       // zero where Err is not nil
	Err      error // nil, a *Refusal or a *Fault
}

var consumeBatchCall = endpoint{
	op: "consume_batch", path: wire.PathConsumeBatch, success: http.StatusOK, changes: true, once: true,
}

// ConsumeBatch consumes 1 to [BatchMax] tokens, each by itself: the outcomes stand in the
// order of items, and one Err says nothing of the others. Each item has an attempt of its
// own, the same in all tries of the call. A try after the first sends only the items that
// have no answer yet; what an item was answered is kept, whatever becomes of the others.
//
// An error, beside no outcomes, is about the call as a whole, and of the same two kinds
// as everywhere. A [*Refusal] granted nothing: among them are [ErrInvalidRequest], for no
// items or too many ("items"), and [ErrBodyTooLarge], which long users and digests can
// bring about. After a [*Fault] with MaybeDone nothing is known of any item.
//
// An item that cannot be sent is refused as Consume refuses it, and the others are sent.
func (p Purpose) ConsumeBatch(ctx context.Context, items []Item) ([]Outcome, error) {
	// More would meet tokend's body limit, which does not tell what is wrong.
	if len(items) < 1 || len(items) > BatchMax {
		return nil, refuse(wire.CodeInvalidRequest, "items", fmt.Sprintf("items must be 1 to %d", BatchMax))
	}
	b := p.newBatch(items)
	if len(b.open) == 0 {
		return b.outcomes, nil
	}
	if err := p.client.run(ctx, consumeBatchCall, b); err != nil {
		if !b.answered {
			return nil, err
		}
		for _, i := range b.open {
			b.outcomes[i].Err = err
		}
	}
	return b.outcomes, nil
}

// batch is the exchange of a ConsumeBatch.
type batch struct {
	requests []wire.ConsumeRequest
	outcomes []Outcome
	open     []int // the items that the next try sends, in their order
	answered bool  // a try was
}

func (p Purpose) newBatch(items []Item) *batch {
	b := &batch{requests: make([]wire.ConsumeRequest, len(items)), outcomes: make([]Outcome, len(items))}
	for i, it := range items {
		no := checkUser(it.User)
		if no == nil {
			no = checkToken(it.Token)
		}
		if no != nil {
			b.outcomes[i].Err = no
			continue
		}
		req := wire.ConsumeRequest{Token: &it.Token, User: userMember(it.User), Purpose: &p.name, Attempt: &it.Attempt}
		if it.Attempt == "" {
			req.Attempt = new(rand.Text())
		}
		if it.Digest != "" {
			req.Digest = &it.Digest
		}
		b.requests[i] = req
		b.open = append(b.open, i)
	}
	return b
}

func (b *batch) request() any {
	req := wire.ConsumeBatchRequest{Items: make([]wire.ConsumeRequest, len(b.open))}
	for k, i := range b.open {
		req.Items[k] = b.requests[i]
	}
	return req
}

// take keeps the items' answers. Every item that is still open was in every try so far,
// so the call's history is the item's too.
func (b *batch) take(a *answer, sofar Fault) *miss {
	var got wire.ConsumeBatchResponse
	if json.Unmarshal(a.body, &got) != nil || !b.answeredBy(got.Results) {
		return a.unreadable(consumeBatchCall)
	}
	b.answered = true
	var open []int
	var left *miss
	for k, i := range b.open {
		r, o, history := got.Results[k], &b.outcomes[i], sofar
		if r.Consumed != nil {
			o.Consumed = consumed(r.Consumed)
			continue
		}
		switch no, m := a.weigh(r.Problem); {
		case no != nil:
			o.Err = history.orRefusal(consumeBatchCall, no)
		case m.final:
			history.add(consumeBatchCall, m)
			o.Err = &history
		default:
			open, left = append(open, i), left.and(m)
		}
	}
	b.open = open
	return left
}

// answeredBy tells whether results are what tokend answers to the open items.
func (b *batch) answeredBy(results []wire.ConsumeResult) bool {
	if len(results) != len(b.open) {
		return false
	}
	for k, i := range b.open {
		r := results[k]
		if r.Consumed != nil && !grants(r.Consumed, &b.requests[i]) ||
			r.Consumed == nil && (r.Problem.Code == "" || r.Problem.Status == 0) {
			return false
		}
	}
	return true
}

// and returns the miss of a try that m, which may be nil, and o are both part of.
func (m *miss) and(o *miss) *miss {
	if m == nil {
		return o
	}
	m.retryAfter = max(m.retryAfter, o.retryAfter)
	if m.code != o.code {
		m.code, m.err = "", errors.New("no answer to some of the items, for more than one reason")
	}
	return m
}
