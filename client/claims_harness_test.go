package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/tokend/httpapi/wire"
)

const (
	testHandle = "clm_HANDLE"
	testKeyRef = "k_00112233445566778899aabbccddeeff"
)

var testSubject = Key(testUser, "payment", "K1")

// desk is a fake tokend that grants whatever claims ask for, but for the requests that its
// script says something else of.
type desk struct {
	fake
	script script

	mu        sync.Mutex
	made      []visit
	committed bool
}

// script tells, by call, what comes of its n-th request, which comes at.
type script map[string]func(n int, at time.Duration) turn

// turn is what comes of one request. It is granted where step is nil.
type turn struct {
	step  step
	after time.Duration // it takes so long
	lost  bool          // it is granted, and the reply is lost
}

// turns are those of the first requests.
func turns(ts ...turn) func(int, time.Duration) turn {
	return func(n int, _ time.Duration) turn {
		if n < len(ts) {
			return ts[n]
		}
		return turn{}
	}
}

// steps are turns that have only a step.
func steps(ss ...step) func(int, time.Duration) turn {
	ts := make([]turn, len(ss))
	for i, s := range ss {
		ts[i].step = s
	}
	return turns(ts...)
}

// always is each request's turn.
func always(s step) func(int, time.Duration) turn {
	return func(int, time.Duration) turn { return turn{step: s} }
}

// until is the turn of requests that come before end.
func until(end time.Duration, s step) func(int, time.Duration) turn {
	return func(_ int, at time.Duration) turn {
		if at < end {
			return turn{step: s}
		}
		return turn{}
	}
}

type visit struct {
	op   string
	at   time.Duration // since the desk began
	body map[string]any
}

// atDesk runs f with a desk and a client of it, in a bubble. Jitter between tries is always
// what it can be at most.
func atDesk(t *testing.T, script script, f func(*testing.T, *Client, *desk), opts ...Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := &desk{fake: fake{t: t, pipes: make(chan net.Conn), began: time.Now()}, script: script}
		d.listen(t, d, ServiceKey(testKey), func(c *Client) { f(t, c, d) }, opts...)
	})
}

func (d *desk) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	at := time.Since(d.began)
	v := visit{at: at}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	name, want := path.Base(r.URL.Path), http.MethodPost
	switch name {
	case "claims":
		v.op = "claim"
	case "status":
		v.op = "claim_status"
	case "result":
		v.op, want = "complete", http.MethodPut
	case testHandle:
		v.op, want = "release", http.MethodDelete
	default:
		v.op = name
	}
	if v.op == "release" {
		if len(body) > 0 || r.Header.Get("Content-Type") != "" {
			d.t.Errorf("a release has a body: %s", body)
		}
	} else if json.Unmarshal(body, &v.body) != nil || r.Header.Get("Content-Type") != wire.TypeJSON {
		d.t.Errorf("%s: not JSON: %s", v.op, body)
	}
	if r.Method != want || r.URL.RawQuery != "" || !strings.HasPrefix(r.URL.Path, "/base/v1/claims") ||
		r.Header.Get("Authorization") != "Bearer "+testKey || r.Header.Get(wire.HeaderIdempotencyKey) != "" {
		d.t.Errorf("%s is %s %s", v.op, r.Method, r.URL)
	}
	d.mu.Lock()
	n := 0
	for _, m := range d.made {
		if m.op == v.op {
			n++
		}
	}
	d.made = append(d.made, v)
	d.mu.Unlock()
	var t turn
	if say := d.script[v.op]; say != nil {
		t = say(n, at)
	}
	select {
	case <-time.After(t.after):
	case <-r.Context().Done():
		return
	}
	switch {
	case t.lost:
		d.grant(v.op, nil)(httptest.NewRecorder(), r)
		dropped(w, r)
	case t.step != nil:
		t.step(w, r)
	default:
		d.grant(v.op, nil)(w, r)
	}
}

// grant answers op as tokend does when all is well, but for the members in change; nil takes
// one away.
func (d *desk) grant(op string, change map[string]any) step {
	return func(w http.ResponseWriter, r *http.Request) {
		d.mu.Lock()
		d.committed = d.committed || op == "commit"
		committed := d.committed
		d.mu.Unlock()
		status, body := http.StatusOK, map[string]any{"state": "claimed", "ref": testKeyRef, "new": "member"}
		switch op {
		case "claim":
			status = http.StatusCreated
			body["claim"], body["takeover"], body["replayed"] = testHandle, false, false
			fallthrough
		case "renew", "commit":
			body["fence"], body["committed"], body["lease_expires_at"] = 1, committed, wire.TimeOf(issuedAt)
		case "complete":
			body["state"], body["completed_at"], body["replayed"] = "completed", wire.TimeOf(issuedAt), false
		case "release":
			w.Header().Set(wire.HeaderRequestID, "r1")
			w.WriteHeader(http.StatusNoContent)
			return
		}
		for k, v := range change {
			if body[k] = v; v == nil {
				delete(body, k)
			}
		}
		if body["result"] != nil {
			status = http.StatusOK
		}
		b, _ := json.Marshal(body)
		answerWith(status, wire.TypeJSON, string(b))(w, r)
	}
}

// visits returns the requests of op.
func (d *desk) visits(op string) []visit {
	d.mu.Lock()
	defer d.mu.Unlock()
	var vs []visit
	for _, v := range d.made {
		if v.op == op {
			vs = append(vs, v)
		}
	}
	return vs
}

// wantVisits holds how many requests of op there were.
func (d *desk) wantVisits(op string, want int) {
	d.t.Helper()
	if got := len(d.visits(op)); got != want {
		d.t.Errorf("%d requests to %s, want %d", got, op, want)
	}
}

// claimIt claims the test's subject, which must be granted.
func claimIt(ctx context.Context, t *testing.T, c *Client, opts ...ClaimOption) *Claim {
	t.Helper()
	cl, done, err := c.Claim(ctx, testSubject, opts...)
	if err != nil || done != nil {
		t.Fatalf("claim: %v, %v", done, err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// wantAlive holds that cl's context has not ended.
func wantAlive(t *testing.T, cl *Claim) {
	t.Helper()
	synctest.Wait()
	if cause := context.Cause(cl.Context()); cause != nil {
		t.Fatalf("the context ended: %v", cause)
	}
}

// wantEnded holds that cl's context has ended, because of want.
func wantEnded(t *testing.T, cl *Claim, want error) {
	t.Helper()
	synctest.Wait()
	if cause := context.Cause(cl.Context()); !errors.Is(cause, want) {
		t.Fatalf("the context's cause is %v, want %v", cause, want)
	}
}

// endsAt waits for cl's context to end, and returns when that was.
func (d *desk) endsAt(cl *Claim) time.Duration {
	<-cl.Context().Done()
	return time.Since(d.began)
}
