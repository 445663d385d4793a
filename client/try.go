package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"example.com/tokend/httpapi/wire"
)

// maxAnswer bounds what is read of an answer. tokend's have a few hundred bytes; the
// rest is room.
const maxAnswer = 1 << 20

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
	ctx, cancel := context.WithTimeout(ctx, c.tryTimeout)
	defer cancel()

	out := &payload{data: body}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+e.path, out.open())
	if err != nil {
		return nil, &miss{err: err}
	}
	req.ContentLength = int64(len(body))
	req.GetBody = func() (io.ReadCloser, error) { return out.open(), nil }
	req.Header.Set("Authorization", "Bearer "+bearer)
	req.Header.Set("Content-Type", wire.TypeJSON)
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
	head.body, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, head.miss(fmt.Errorf("the answer broke off: %w", err))
	case len(head.body) > maxAnswer:
		return nil, head.miss(errors.New("the answer is too long"))
	}
	return head.judge(e, take)
}
