package history

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"example.com/tokend/httpapi/wire"
	"example.com/tokend/token"
)

const purpose = "history.submit"

var errNoAnswer = errors.New("not answered")

func (w *work) attemptText(n uint8) string { return fmt.Sprintf("%s-%d", w.Name, n) }

// exchange sends one request, once, to one of the instances. It returns the status and body
// of the answer, or why there is none.
func (l *Load) exchange(ctx context.Context, rng *rand.Rand, method, path string, body any) (status int, answer []byte, why string) {
	text, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	// What was sent is waited for, though the load is ended.
	req, err := http.NewRequestWithContext(context.WithoutCancel(ctx), method, l.URLs[rng.IntN(len(l.URLs))]+path, bytes.NewReader(text))
	if err != nil {
		panic(err)
	}
	req.GetBody = nil // so that net/http sends nothing twice
	req.Header.Set("Authorization", "Bearer "+l.ServiceKey)
	req.Header.Set("Content-Type", wire.TypeJSON)
	resp, err := l.http.Do(req)
	if err != nil {
		return 0, nil, "no answer"
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(resp.Body)
	if err != nil {
		return 0, nil, "half an answer"
	}
	return resp.StatusCode, answer, ""
}

// issue issues w's token.
func (w *work) issue(ctx context.Context, rng *rand.Rand) error {
	o := &Op{Kind: Issue, Call: micros()}
	p := purpose
	status, body, why := w.load.exchange(ctx, rng, "POST", wire.PathTokens, wire.IssueRequest{User: &w.user, Purpose: &p, TTL: &w.ttl})
	o.Return = micros()
	o.Out = Outcome{Code: ok}
	if why == "" && status != http.StatusCreated {
		o.Out = problem(status, body)
	} else if why != "" {
		o.Out = Outcome{Code: unknown, Why: why}
	}
	w.load.count(o)
	switch {
	case !o.answered():
		return errNoAnswer
	case o.Out.Code != ok:
		return fmt.Errorf("issue: %d: %s", status, body)
	}
	var got wire.IssueResponse
	if err := json.Unmarshal(body, &got); err != nil {
		return fmt.Errorf("issue: %v in %s", err, body)
	}
	tok, err := w.load.opener.Open(token.Use{Text: got.Token, User: token.User(w.user), Purpose: purpose})
	if err != nil {
		return fmt.Errorf("issue: %v", err)
	}
	w.text, w.Delete = got.Token, tok.Mode == token.Delete
	w.Expires, w.Retention = tok.ExpiresAt.UnixMilli(), tok.Retention.Milliseconds()
	if from, to := o.Call/1000+w.ttl*1000, o.Return/1000+1+w.ttl*1000; w.Expires < from || w.Expires > to {
		return fmt.Errorf("issue: the token expires at %d, want %d to %d", w.Expires, from, to)
	}
	return nil
}

// problem reads an answer that is not a success.
func problem(status int, body []byte) Outcome {
	var p wire.Problem
	if err := json.Unmarshal(body, &p); err != nil || p.Code == "" || p.Status != status {
		return Outcome{Code: fmt.Sprintf("no problem: %d %.200q", status, body)}
	}
	if p.Code == wire.CodeStoreUnavailable || p.Code == wire.CodeOutcomeUnknown {
		return Outcome{Code: unknown, Why: code(p.Code)}
	}
	return Outcome{Code: code(p.Code), Lease: ms(p.LeaseExpiresAt), At: max(ms(p.UsedAt), ms(p.RevokedAt))}
}

// ms returns t in Unix milliseconds, 0 where it is left out.
func ms(t wire.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Time().UnixMilli()
}

// send makes the call o, and adds it to the history.
func (c *caller) send(ctx context.Context, o *Op) {
	method, path, body := c.request(o)
	o.Call = micros()
	status, answer, why := c.load.exchange(ctx, c.rng, method, path, body)
	o.Return = micros()
	o.Again = c.load.Again != nil && c.load.Again(o.Call, o.Return)
	switch {
	case why != "":
		o.Out = Outcome{Code: unknown, Why: why}
	case status >= 300:
		o.Out = c.problem(status, answer)
	default:
		o.Out = c.success(o, status, answer)
	}
	c.Add(o)
	c.load.count(o)
}

func (c *caller) problem(status int, body []byte) Outcome {
	out := problem(status, body)
	var p wire.Problem
	if json.Unmarshal(body, &p) == nil {
		out.By = c.by(p.UsedBy)
	}
	return out
}

// request returns what o is over HTTP.
func (c *caller) request(o *Op) (method, path string, body any) {
	user, purpose, attempt := c.user, purpose, c.attemptText(o.Attempt)
	switch o.Wrong {
	case code(wire.CodeWrongUser):
		user += "'s neighbour"
	case code(wire.CodeWrongPurpose):
		purpose += ".other"
	}
	var digest *string
	if o.Digest != 0 {
		text := "digest-" + strconv.Itoa(int(o.Digest))
		digest = &text
	}
	tok, key := &c.text, (*string)(nil)
	if c.Key {
		tok, key = nil, &c.text
	}
	seconds := o.Lease / 1000
	switch o.Kind {
	case Consume:
		return "POST", wire.PathConsume, wire.ConsumeRequest{Token: tok, User: &user, Purpose: &purpose, Digest: digest, Attempt: &attempt}
	case Claim:
		req := wire.ClaimRequest{
			Token: tok, Key: key, User: &user, Purpose: &purpose, Digest: digest, Attempt: &attempt, Lease: &seconds,
			Commit: &o.Commit, Resolve: &o.Resolve,
		}
		if o.Wait {
			one := int64(1)
			req.Wait = &one
		}
		return "POST", wire.PathClaims, req
	case Status:
		if c.Key || !c.plain && !c.Delete {
			return "POST", wire.PathClaimStatus, wire.ClaimStatusRequest{Token: tok, Key: key, User: &user, Purpose: &purpose}
		}
		return "POST", wire.PathStatus, wire.StatusRequest{Token: tok, User: &user, Purpose: &purpose}
	case Revoke:
		return "POST", wire.PathRevoke, wire.StatusRequest{Token: tok, User: &user, Purpose: &purpose}
	}
	h := c.textOf(o)
	switch o.Kind {
	case Commit:
		return "POST", wire.PathCommit(h), struct{}{}
	case Renew:
		return "POST", wire.PathRenew(h), wire.RenewRequest{Lease: &seconds}
	case Complete:
		ok, text := int64(http.StatusOK), base64.StdEncoding.EncodeToString([]byte(strconv.Itoa(int(o.Result))))
		return "PUT", wire.PathResult(h), wire.CompleteRequest{Result: &wire.ResultRequest{Status: &ok, Body: &text}}
	case Release:
		return "DELETE", wire.PathClaim(h), struct{}{}
	}
	panic("no request for " + o.Kind)
}

// textOf returns the text of the claim that o is a later step of.
func (c *caller) textOf(o *Op) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range c.handles {
		if h.fence == o.Fence && h.attempt == o.Attempt {
			return h.text
		}
	}
	panic("no claim of that fence")
}

// success reads the answer of a call that succeeded. One that is not what it should be has a
// code that no call expects.
func (c *caller) success(o *Op, status int, body []byte) Outcome {
	out := Outcome{Code: ok}
	broken := func(err error) Outcome {
		return Outcome{Code: fmt.Sprintf("broken: %v in %d %.300q", err, status, body)}
	}
	read := func(v any) error { return json.Unmarshal(body, v) }
	switch o.Kind {
	case Consume:
		var a wire.ConsumeResponse
		if err := read(&a); err != nil || a.Outcome != wire.OutcomeConsumed {
			return broken(err)
		}
		out.At, out.Takeover, out.Replayed = ms(a.UsedAt), a.Takeover, a.Replayed
	case Claim:
		var a wire.ClaimResponse
		if err := read(&a); err != nil {
			return broken(err)
		}
		if r := a.Completed; r != nil {
			n, err := number(r.Result)
			if err != nil || status != http.StatusOK {
				return broken(err)
			}
			return Outcome{Code: replay, Replayed: r.Replayed, Result: n}
		}
		if a.Claimed.State != wire.StateClaimed || status != http.StatusCreated {
			return broken(nil)
		}
		out.Fence, out.Takeover, out.Committed = int32(a.Claimed.Fence), a.Claimed.Takeover, a.Claimed.Committed
		out.Replayed, out.Lease = a.Claimed.Replayed, ms(a.Claimed.LeaseExpiresAt)
		c.mu.Lock()
		c.handles = append(c.handles, handle{a.Claimed.Claim, out.Fence, o.Attempt})
		c.mu.Unlock()
	case Commit, Renew:
		var a wire.HeldResponse
		if err := read(&a); err != nil || a.State != wire.StateClaimed || int32(a.Fence) != o.Fence {
			return broken(err)
		}
		out.Committed, out.Lease = a.Committed, ms(a.LeaseExpiresAt)
	case Complete:
		var a wire.CompleteResponse
		if err := read(&a); err != nil || a.State != wire.StateCompleted {
			return broken(err)
		}
		out.At, out.Replayed = ms(a.CompletedAt), a.Replayed
	case Release:
		if status != http.StatusNoContent {
			return broken(nil)
		}
	case Status:
		var a wire.ClaimStatusResponse
		if err := read(&a); err != nil {
			return broken(err)
		}
		out.State, out.Fence, out.Lease = a.State, int32(a.Fence), ms(a.LeaseExpiresAt)
		out.At, out.By = max(ms(a.UsedAt), ms(a.CompletedAt), ms(a.RevokedAt)), c.by(a.UsedBy)
		out.Committed = a.Committed != nil && *a.Committed
		if a.State == "completed" {
			n, err := number(a.Result)
			if err != nil {
				return broken(err)
			}
			out.Result = n
		}
	case Revoke:
		var a wire.RevokeResponse
		if err := read(&a); err != nil {
			return broken(err)
		}
		out.State = a.State
	}
	return out
}

// number returns which result r is.
func number(r *wire.Result) (int32, error) {
	if r == nil || r.Status != http.StatusOK {
		return 0, errors.New("another result than any that was given")
	}
	n, err := strconv.Atoi(string(r.Body))
	return int32(n), err
}

// Await waits until every instance answers, or ctx ends.
func (l *Load) Await(ctx context.Context) error {
	for _, url := range l.URLs {
		for {
			resp, err := l.http.Get(url + wire.PathReadyz)
			if err == nil {
				resp.Body.Close()
				if resp.StatusCode == http.StatusOK {
					break
				}
			}
			if ctx.Err() != nil {
				return fmt.Errorf("%s is not ready: %v", url, ctx.Err())
			}
			pause(ctx, 20*time.Millisecond)
		}
	}
	return nil
}
