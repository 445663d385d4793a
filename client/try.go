package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"example.com/tokend/httpapi/wire"
)

// What is read of an answer at most. tokend's have a few hundred bytes, the rest is room;
// but one with a result has what tokend's configuration lets it keep, which is 64 MiB at
// most, in base64.
const (
	maxAnswer       = 1 << 20
	maxResultAnswer = 64<<20/3*4 + maxAnswer
)

// longBody is the length from which on a body is sent only when it is asked for, so that
// one that is too large is answered, and not cut off.
const longBody = 64 << 10

// miss is a try that was not answered.
type miss struct {
	err        error
	sent       bool          // some of the body may have left
	final      bool          // tokend says that another try is of no use
	retryAfter time.Duration // to be waited at least
	code       Code          // of a problem
	requestID  string
}

// try sends the request once. With neither a Refusal nor a miss take took the answer.
func (c *Client) try(ctx context.Context, e endpoint, body []byte, bearer string, take func(*answer) *miss) (*Refusal, *miss) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(e.tryTimeout, c.tryTimeout)+e.hold)
	defer cancel()

	req, err := http.NewRequestWithContext(ctx, cmp.Or(e.method, http.MethodPost), c.base+e.path, http.NoBody)
	if err != nil {
		return nil, &miss{err: err}
	}
	out := &payload{data: body}
	if body == nil {
		out.state.Store(read) // nothing tells when the headers alone are sent
	} else {
		req.Body, req.ContentLength = out.open(), int64(len(body))
		req.GetBody = func() (io.ReadCloser, error) { return out.open(), nil }
		req.Header.Set("Content-Type", wire.TypeJSON)
	}
	if len(body) > longBody {
		req.Header.Set("Expect", "100-continue")
	}
	req.Header.Set("Authorization", "Bearer "+bearer)
	req.Header.Set("Accept", wire.TypeJSON+", "+wire.TypeProblem)
	req.Header.Set("User-Agent", c.userAgent)

	resp, err := c.http.Do(req)
	if err != nil {
		return nil, &miss{err: err, sent: out.seal()}
	}
	defer resp.Body.Close()
	head := answer{
		status:     resp.StatusCode,
		mediaType:  mediaType(resp.Header),
		retryAfter: retryAfter(resp.Header),
		requestID:  resp.Header.Get(wire.HeaderRequestID),
	}
	// Reading to the end lets the connection serve the next call.
	limit := maxAnswer
	if e.results {
		limit = maxResultAnswer
	}
	head.body, err = io.ReadAll(io.LimitReader(resp.Body, int64(limit)+1))
	switch {
	case err != nil:
		return nil, head.miss(fmt.Errorf("the answer broke off: %w", err))
	case len(head.body) > limit:
		return nil, head.miss(errors.New("the answer is too long"))
	}
	return head.judge(e, take)
}
