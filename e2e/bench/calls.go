package main

import (
	"bytes"
	"fmt"

	"github.com/valyala/fasthttp"
)

// greeter calls the bare handler.
type greeter struct{ client *fasthttp.HostClient }

func (g *greeter) call() (int64, error) {
	_, err := post(g.client, "/", "", `{"user":"alice"}`, fasthttp.StatusOK)
	return 1, err
}

// pairs issues a token and consumes it: two requests, of which each answer is checked.
type pairs struct {
	client        *fasthttp.HostClient
	user, service string
}

func (p *pairs) call() (int64, error) {
	body, err := post(p.client, "/v1/tokens", p.user, `{"purpose":"order.create"}`, fasthttp.StatusCreated)
	if err != nil {
		return 0, err
	}
	_, rest, _ := bytes.Cut(body, []byte(`"token":"`))
	token, _, ok := bytes.Cut(rest, []byte(`"`))
	if !ok {
		return 0, fmt.Errorf("no token in %s", body)
	}
	body, err = post(p.client, "/v1/tokens/consume", p.service,
		`{"token":"`+string(token)+`","user":"alice","purpose":"order.create"}`, fasthttp.StatusOK)
	if err == nil && !bytes.Contains(body, []byte(`"replayed":false`)) {
		err = fmt.Errorf("a first consume was answered %s", body)
	}
	return 2, err
}

func post(c *fasthttp.HostClient, path, auth, body string, want int) ([]byte, error) {
	req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(req)
	defer fasthttp.ReleaseResponse(resp)
	req.SetRequestURI("http://" + c.Addr + path)
	req.Header.SetMethod(fasthttp.MethodPost)
	req.Header.SetContentType("application/json")
	if auth != "" {
		req.Header.Set("Authorization", auth)
	}
	req.SetBodyString(body)
	if err := c.Do(req, resp); err != nil {
		return nil, err
	}
	if resp.StatusCode() != want {
		return nil, fmt.Errorf("%s was answered %d: %s", path, resp.StatusCode(), resp.Body())
	}
	return bytes.Clone(resp.Body()), nil
}
