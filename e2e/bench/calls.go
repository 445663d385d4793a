package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/valyala/fasthttp"

	"example.com/tokend/token"
	"example.com/tokend/token/redisstore"
)

// Everybody's tokens are one user's, for one purpose.
const (
	user    = token.User("alice")
	purpose = token.Purpose("order.create")
)

// newClient returns a client of s that costs little: it shares the machine with s.
func newClient(s *server) *fasthttp.HostClient {
	return &fasthttp.HostClient{Addr: s.addr, MaxConns: 1024}
}

// post sends body to path with a header, where its name is not empty, and hands a good
// answer's body to read, which may be nil.
func post(c *fasthttp.HostClient, path, header, value, body string, want int, read func([]byte) error) error {
	req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(req)
	defer fasthttp.ReleaseResponse(resp)
	req.SetRequestURI("http://" + c.Addr + path)
	req.Header.SetMethod(fasthttp.MethodPost)
	req.Header.SetContentType("application/json")
	if header != "" {
		req.Header.Set(header, value)
	}
	req.SetBodyString(body)
	if err := c.Do(req, resp); err != nil {
		return err
	}
	if resp.StatusCode() != want {
		return fmt.Errorf("%s was answered %d: %s", path, resp.StatusCode(), resp.Body())
	}
	if read == nil {
		return nil
	}
	return read(resp.Body())
}

// greeter calls the bare handler.
type greeter struct{ client *fasthttp.HostClient }

func (g *greeter) call() (int64, error) {
	return 1, post(g.client, "/", "", "", `{"user":"alice"}`, fasthttp.StatusOK, nil)
}

// pairs issues a token and consumes it: two requests, of which each answer is checked.
type pairs struct {
	user string
	consumer
}

func newPairs(s *server) *pairs {
	return &pairs{bearer("alice", ""), *newConsumer(s, nil)}
}

func (p *pairs) call() (int64, error) {
	var text string
	err := post(p.client, "/v1/tokens", "Authorization", p.user, `{"purpose":"order.create"}`, fasthttp.StatusCreated, func(body []byte) error {
		_, rest, _ := bytes.Cut(body, []byte(`"token":"`))
		got, _, ok := bytes.Cut(rest, []byte(`"`))
		if !ok {
			return fmt.Errorf("no token in %s", body)
		}
		text = string(got)
		return nil
	})
	if err != nil {
		return 0, err
	}
	return 2, p.consume(text)
}

// consumer has tokend consume tokens out of a stock.
type consumer struct {
	client  *fasthttp.HostClient
	service string
	stock   *stock
}

func newConsumer(s *server, from *stock) *consumer {
	return &consumer{newClient(s), bearer("svc", "tokend.consume"), from}
}

func (c *consumer) call() (int64, error) {
	text, err := c.stock.take()
	if err != nil {
		return 0, err
	}
	return 1, c.consume(text)
}

func (c *consumer) consume(text string) error {
	return post(c.client, "/v1/tokens/consume", "Authorization", c.service,
		`{"token":"`+text+`","user":"alice","purpose":"order.create"}`, fasthttp.StatusOK, func(body []byte) error {
			if !bytes.Contains(body, []byte(`"replayed":false`)) {
				return fmt.Errorf("a first consume was answered %s", body)
			}
			return nil
		})
}

// submitter submits a form with a token out of a stock.
type submitter struct {
	client *fasthttp.HostClient
	stock  *stock
}

func (s *submitter) call() (int64, error) {
	text, err := s.stock.take()
	if err != nil {
		return 0, err
	}
	return 1, post(s.client, "/orders", "Tokend-Token", text, `{"item":"book"}`, fasthttp.StatusOK, created)
}

// idempotent submits a form with an idempotency key that nobody has had, of the 36
// characters that Fiber wants.
type idempotent struct {
	client *fasthttp.HostClient
	prefix string
	last   atomic.Int64
}

func newIdempotent(s *server) *idempotent {
	return &idempotent{client: newClient(s), prefix: rand.Text()[:26]}
}

func (i *idempotent) call() (int64, error) {
	key := fmt.Sprintf("%s%010d", i.prefix, i.last.Add(1))
	return 1, post(i.client, "/orders", "X-Idempotency-Key", key, `{"item":"book"}`, fasthttp.StatusOK, created)
}

func created(body []byte) error {
	if string(body) != submission {
		return fmt.Errorf("a submission was answered %q", body)
	}
	return nil
}

// direct issues and consumes by go-redis, in this process.
type direct struct{ tokens *token.Service }

func newDirect(redis *server) (*direct, error) {
	tokens, err := newTokens(redisstore.New(newRedis(redis.addr), redisstore.Options{NoBatching: true}))
	return &direct{tokens}, err
}

func (d *direct) call() (int64, error) {
	ctx := context.Background()
	t, err := d.tokens.Issue(ctx, token.IssueRequest{User: user, Purpose: purpose})
	if err != nil {
		return 0, err
	}
	opened, err := d.tokens.Open(token.Use{Text: t.Text, User: user, Purpose: purpose})
	if err != nil {
		return 1, err
	}
	_, err = d.tokens.Consume(ctx, token.Consumption{User: user, Token: opened, Attempt: token.NewAttempt()})
	return 2, err
}

// stock is tokens for consumes alone: issued before a turn, so that the turn does not
// measure that.
type stock struct {
	tokens *token.Service
	texts  []string
	taken  atomic.Int64
}

func newStock(redis *server) (*stock, error) {
	tokens, err := newTokens(redisstore.New(newRedis(redis.addr), redisstore.Options{}))
	return &stock{tokens: tokens}, err
}

// fill replaces what is left by n new tokens or a few more.
func (s *stock) fill(n int) error {
	s.texts = s.texts[:0]
	s.taken.Store(0)
	for len(s.texts) < n {
		batch, err := s.tokens.IssueBatch(context.Background(), token.IssueRequest{User: user, Purpose: purpose}, 100)
		if err != nil {
			return err
		}
		for _, t := range batch {
			s.texts = append(s.texts, t.Text)
		}
	}
	return nil
}

func (s *stock) take() (string, error) {
	i := s.taken.Add(1) - 1
	if i >= int64(len(s.texts)) {
		return "", errDry
	}
	return s.texts[i], nil
}

func bearer(sub, scope string) string {
	claims := jwt.MapClaims{"sub": sub, "exp": time.Now().Add(24 * time.Hour).Unix()}
	if scope != "" {
		claims["scope"] = scope
	}
	text, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString([]byte(jwtSecret))
	fatal(err)
	return "Bearer " + text
}
