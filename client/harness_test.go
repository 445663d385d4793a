package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"example.com/tokend/httpapi/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	testKey   = "SERVICE-KEY-TEXT"
	testToken = "ott_TOKEN-TEXT"
	testUser  = "alice"
	testRef   = "t_00112233445566778899aabbccddeeff"
)

var (
	issuedAt  = time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC)
	expiresAt = issuedAt.Add(5 * time.Minute)
)

// step is how the fake tokend treats one try.
type step func(w http.ResponseWriter, r *http.Request)

// fake is a tokend that treats its n-th request as its n-th step says, behind a
// network that lives in a synctest bubble.
type fake struct {
	t     *testing.T
	steps []step
	pipes chan net.Conn

	mu    sync.Mutex
	tries []tryMade
	began time.Time
}

type tryMade struct {
	at     time.Duration // since the fake began
	bearer string
	body   string
}

// noWait is a [Backoff].
func noWait(int, time.Duration) time.Duration { return 0 }

// inBubble runs f with a fake tokend and a client of it. Jitter is always what it can
// be at most. Steps that were not taken, and tries beyond them, fail the test.
func inBubble(t *testing.T, steps []step, f func(*testing.T, *Client, *fake), opts ...Option) {
	t.Helper()
	inBubbleAs(t, ServiceKey(testKey), steps, f, opts...)
}

func inBubbleAs(t *testing.T, cr Credential, steps []step, f func(*testing.T, *Client, *fake), opts ...Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		fk := &fake{t: t, steps: steps, pipes: make(chan net.Conn), began: time.Now()}
		fk.listen(t, fk, cr, func(c *Client) { f(t, c, fk) }, opts...)
		if got := len(fk.made()); got != len(steps) {
			t.Errorf("%d tries, want %d", got, len(steps))
		}
	})
}

// listen serves h behind f's network for as long as do goes on, which calls with a client.
func (f *fake) listen(t *testing.T, h http.Handler, cr Credential, do func(*Client), opts ...Option) {
	srv := &http.Server{Handler: h}
	go srv.Serve(f)
	defer srv.Close()
	transport := &http.Transport{DialContext: f.dial, ExpectContinueTimeout: time.Second}
	defer transport.CloseIdleConnections()

	most := func(n int, retryAfter time.Duration) time.Duration { return retryAfter + backoff(n) }
	opts = append([]Option{HTTPClient(&http.Client{Transport: transport}), Backoff(most)}, opts...)
	c, err := New("http://tokend.test/base/", cr, opts...)
	if err != nil {
		t.Fatal(err)
	}
	do(c)
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	at := time.Since(f.began)
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // never whole: nothing tokend would act on
	}
	f.mu.Lock()
	n := len(f.tries)
	f.tries = append(f.tries, tryMade{at, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), string(body)})
	f.mu.Unlock()

	if r.Method != "POST" || r.Header.Get("Content-Type") != wire.TypeJSON || r.URL.RawQuery != "" ||
		r.ContentLength != int64(len(body)) || !strings.HasPrefix(r.URL.Path, "/base/v1/tokens") {
		f.t.Errorf("try %d is %s %s (%d bytes of %s)", n, r.Method, r.URL, r.ContentLength, r.Header.Get("Content-Type"))
	}
	if _, has := r.Header[wire.HeaderIdempotencyKey]; has {
		f.t.Errorf("try %d has an %s", n, wire.HeaderIdempotencyKey)
	}
	if n >= len(f.steps) {
		f.t.Errorf("try %d was not to be made", n)
		return
	}
	f.steps[n](w, r)
}

func (f *fake) made() []tryMade {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.tries)
}

// at returns when each try reached the fake.
func (f *fake) at() []time.Duration {
	var at []time.Duration
	for _, m := range f.made() {
		at = append(at, m.at)
	}
	return at
}

// attempts returns the attempt of each try.
func (f *fake) attempts() []string {
	var as []string
	for _, m := range f.made() {
		var req wire.ConsumeRequest
		if err := json.Unmarshal([]byte(m.body), &req); err != nil || req.Attempt == nil {
			f.t.Fatalf("no attempt in %s", m.body)
		}
		as = append(as, *req.Attempt)
	}
	return as
}

func (f *fake) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case f.pipes <- theirs:
		return ours, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept, Close and Addr make a net.Listener of f.
func (f *fake) Accept() (net.Conn, error) {
	if c, ok := <-f.pipes; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (f *fake) Close() error {
	close(f.pipes)
	return nil
}

func (f *fake) Addr() net.Addr { return &net.UnixAddr{Name: "fake", Net: "unix"} }

func answerWith(status int, contentType, body string, header ...string) step {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
		io.WriteString(w, body)
	}
}

// problemWith answers with p, whose status and next are its code's where not given.
func problemWith(p wire.Problem, header ...string) step {
	kind, _ := wire.KindOf(p.Code)
	if p.Status == 0 {
		p.Status = kind.Status
	}
	if p.Next == "" {
		p.Next = kind.Next
	}
	body, err := json.Marshal(p)
	if err != nil {
		panic(err)
	}
	return answerWith(p.Status, wire.TypeProblem, string(body), header...)
}

func problemOf(code wire.Code) step { return problemWith(wire.Problem{Code: code}) }

// granted answers any call as tokend does when all is well.
func granted(w http.ResponseWriter, r *http.Request) { grantedWith(nil)(w, r) }

// grantedWith answers as granted, but for the members in change; nil takes one away.
func grantedWith(change map[string]any) step {
	return func(w http.ResponseWriter, r *http.Request) {
		status, body := http.StatusOK, map[string]any{"ref": testRef, "user": testUser, "purpose": "default", "new": "member"}
		switch path.Base(r.URL.Path) {
		case "tokens":
			status = http.StatusCreated
			body["token"], body["ttl"] = testToken, 300
			body["issued_at"], body["expires_at"] = wire.TimeOf(issuedAt), wire.TimeOf(expiresAt)
		case "consume":
			body["outcome"], body["used_at"] = "consumed", wire.TimeOf(issuedAt)
			body["takeover"], body["replayed"] = false, false
		case "status":
			body["state"] = "issued"
			body["issued_at"], body["expires_at"] = wire.TimeOf(issuedAt), wire.TimeOf(expiresAt)
		}
		for k, v := range change {
			if body[k] = v; v == nil {
				delete(body, k)
			}
		}
		b, _ := json.Marshal(body)
		answerWith(status, wire.TypeJSON, string(b))(w, r)
	}
}

// dropped reads the request and loses the reply.
func dropped(w http.ResponseWriter, _ *http.Request) {
	c, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err)
	}
	c.Close()
}

// cutShort loses the reply midway.
func cutShort(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", wire.TypeJSON)
	w.Header().Set("Content-Length", "1000")
	io.WriteString(w, `{"outcome":"consumed",`)
	panic(http.ErrAbortHandler)
}

// silent keeps the caller waiting until it goes away.
func silent(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// consumeOnce makes the call that most tests are about.
func consumeOnce(ctx context.Context, c *Client) error {
	_, err := c.Consume(ctx, testUser, testToken)
	return err
}

// refuseDials returns a client that no connection is made for.
func refuseDials(t *testing.T, dial func(context.Context, string, string) (net.Conn, error), opts ...Option) *Client {
	t.Helper()
	opts = append([]Option{HTTPClient(&http.Client{Transport: &http.Transport{DialContext: dial}})}, opts...)
	c, err := New("http://tokend.test", ServiceKey(testKey), opts...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

var errRefused = &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", fmt.Errorf("connection refused"))}

var discard = log.New(io.Discard, "", 0)

// decodeConsume returns the attempt of r's body.
func decodeConsume(t *testing.T, r *http.Request) string {
	var req wire.ConsumeRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil || req.Attempt == nil || *req.Attempt == "" {
		t.Errorf("no attempt: %v", err)
		return ""
	}
	return *req.Attempt
}
