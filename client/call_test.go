package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/tokend/httpapi/wire"
)

// What is no answer of tokend's is tried again, whoever gave it.
func TestFaultThenAnswer(t *testing.T) {
	tests := []struct {
		name string
		step step
	}{
		{"the reply is lost", dropped},
		{"the reply breaks off", cutShort},
		{"no reply in time", silent},
		{"store_unavailable", problemOf(wire.CodeStoreUnavailable)},
		{"internal", problemOf(wire.CodeInternal)},
		{"an unknown code that says retry", problemWith(wire.Problem{Code: "new", Status: 409, Next: wire.NextRetry})},
		{"a proxy's HTML, 502", answerWith(502, "text/html", "<h1>Bad gateway</h1>")},
		{"a proxy's HTML, 404", answerWith(404, "text/html", "<h1>Not found</h1>")},
		{"a proxy's HTML, 200", answerWith(200, "text/html", "<h1>Log in</h1>")},
		{"a proxy's HTML that says it is JSON", answerWith(200, "application/json", "<h1>Log in</h1>")},
		{"a proxy's redirect, 301", answerWith(301, "text/html", "", "Location", "/base/v1/tokens/elsewhere")},
		{"a proxy's redirect, 302", answerWith(302, "text/html", "", "Location", "/base/v1/tokens/elsewhere")},
		{"a proxy's redirect, 307", answerWith(307, "text/html", "", "Location", "/base/v1/tokens/elsewhere")},
		{"a proxy's redirect, 308", answerWith(308, "text/html", "", "Location", "/base/v1/tokens/elsewhere")},
		{"an empty 503", answerWith(503, "", "")},
		{"no content", answerWith(204, "", "")},
		{"an empty 200", answerWith(200, "application/json", "")},
		{"null", answerWith(200, "application/json", "null")},
		{"an array", answerWith(200, "application/json", "[]")},
		{"another success", grantedWith(map[string]any{"outcome": "queued"})},
		{"another success's status", answerWith(201, "application/json", `{"outcome":"consumed"}`)},
		{"a member of another type", grantedWith(map[string]any{"ref": 1})},
		{"a time that is none", grantedWith(map[string]any{"used_at": "yesterday"})},
		{"a member is missing", grantedWith(map[string]any{"ref": nil})},
		{"the answer to another user's call", grantedWith(map[string]any{"user": "bob"})},
		{"the answer for another purpose", grantedWith(map[string]any{"purpose": "p"})},
		{"something after the document", answerWith(200, "application/json", `{"outcome":"consumed"}{}`)},
		{"a success of another type", answerWith(200, "text/plain", `{"outcome":"consumed"}`)},
		{"an endless answer", answerWith(200, "application/json", strings.Repeat(" ", maxAnswer)+"{}")},
		{"a problem with a success's status", answerWith(200, wire.TypeProblem, `{"code":"token_used","status":200,"next":"stop"}`)},
		{"a problem that says it is JSON", answerWith(409, "application/json", `{"code":"token_used","status":409,"next":"stop"}`)},
		{"a problem with a broken type", answerWith(409, "application/problem+json; =", `{"code":"token_used","status":409,"next":"stop"}`)},
		{"a problem without a code", answerWith(409, wire.TypeProblem, `{"title":"Conflict","status":409}`)},
		{"a problem with another status", answerWith(409, wire.TypeProblem, `{"code":"token_used","status":410,"next":"stop"}`)},
		{"a problem with a broken body", answerWith(409, wire.TypeProblem, `{"code":"token_used","status":409,`)},
		{"a problem with a code that is none", answerWith(409, wire.TypeProblem, `{"code":1,"status":409}`)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, []step{tt.step, granted}, func(t *testing.T, c *Client, f *fake) {
				if err := consumeOnce(t.Context(), c); err != nil {
					t.Fatal(err)
				}
				if as := f.attempts(); as[0] != as[1] || f.made()[0] != (tryMade{0, testKey, f.made()[1].body}) {
					t.Errorf("the second try is another request: %+v", f.made())
				}
			})
			inBubble(t, []step{tt.step}, func(t *testing.T, c *Client, f *fake) {
				wantFault(t, consumeOnce(t.Context(), c), Fault{Op: "consume", MaybeDone: true, Tries: 1})
			}, MaxTries(1))
		})
	}
}

// wantFault tells whether err is want, Err and what stands empty in want aside, and
// no refusal.
func wantFault(t *testing.T, err error, want Fault) *Fault {
	t.Helper()
	f, ok := errors.AsType[*Fault](err)
	if !ok {
		t.Fatalf("not a Fault: %v", err)
	}
	if no, ok := errors.AsType[*Refusal](err); ok {
		t.Errorf("a Refusal too: %v", no)
	}
	got := *f
	got.Err = nil
	if want.Code == "" {
		got.Code = ""
	}
	if want.RequestID == "" {
		got.RequestID = ""
	}
	if says, should := got.Attempt != "", got.Op == "consume" || got.Op == "claim"; says != should {
		t.Errorf("%s's fault says the attempt %q", got.Op, got.Attempt)
	}
	if want.Attempt == "" {
		got.Attempt = ""
	}
	if got != want {
		t.Errorf("got %+v, want %+v (%v)", got, want, err)
	}
	return f
}

func TestFaultIsFinal(t *testing.T) {
	tests := []struct {
		name    string
		problem wire.Problem
	}{
		{"outcome_unknown", wire.Problem{Code: wire.CodeOutcomeUnknown}},
		{"store_unavailable that does not say retry", wire.Problem{Code: wire.CodeStoreUnavailable, Next: wire.NextVerify}},
		{"an unknown code and verify, 5xx", wire.Problem{Code: "new", Status: 503, Next: wire.NextVerify}},
		{"an unknown code and next, 5xx", wire.Problem{Code: "new", Status: 500, Next: "new"}},
		{"an unknown code and no next, 5xx", wire.Problem{Code: "new", Status: 599}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.problem.RequestID = "r1"
			inBubble(t, []step{problemWith(tt.problem)}, func(t *testing.T, c *Client, f *fake) {
				want := Fault{Op: "consume", MaybeDone: true, Tries: 1, Code: tt.problem.Code, RequestID: "r1"}
				wantFault(t, consumeOnce(t.Context(), c), want)
			})
		})
	}
}

// A refusal is never tried again: not one that waits, nor one with a fault's status.
func TestRefusalIsFinal(t *testing.T) {
	problems := []wire.Problem{
		{Code: "new", Status: 409, Next: wire.NextWait},
		{Code: "new", Status: 503, Next: wire.NextWait},
		{Code: "new", Status: 500, Next: wire.NextStop},
		{Code: "new", Status: 502, Next: wire.NextFix},
		{Code: "new", Status: 504, Next: wire.NextReissue},
		{Code: "new", Status: 410, Next: wire.NextVerify},
		{Code: "new", Status: 418, Next: "new"},
	}
	for _, k := range wire.Kinds() {
		if !k.Fault {
			problems = append(problems, wire.Problem{Code: k.Code, Status: k.Status, Next: k.Next})
		}
	}
	for _, p := range problems {
		t.Run(fmt.Sprint(p.Code, p.Status, p.Next), func(t *testing.T) {
			inBubble(t, []step{problemWith(p, "Retry-After", "1")}, func(t *testing.T, c *Client, f *fake) {
				err := consumeOnce(t.Context(), c)
				no, ok := errors.AsType[*Refusal](err)
				if !ok {
					t.Fatalf("not a Refusal: %v", err)
				}
				if _, ok := errors.AsType[*Fault](err); ok {
					t.Errorf("a Fault too: %v", err)
				}
				want := &Refusal{Code: p.Code, Next: p.Next, Status: p.Status, RetryAfter: time.Second}
				if diff := cmp.Diff(want, no); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

func TestBackoff(t *testing.T) {
	steps := slices.Repeat([]step{problemOf(wire.CodeStoreUnavailable)}, 8)
	inBubble(t, steps, func(t *testing.T, c *Client, f *fake) {
		wantFault(t, consumeOnce(t.Context(), c), Fault{Op: "consume", MaybeDone: true, Tries: 8, Code: wire.CodeStoreUnavailable})
		ms := time.Millisecond
		want := []time.Duration{0, 100 * ms, 300 * ms, 700 * ms, 1500 * ms, 3100 * ms, 5100 * ms, 7100 * ms}
		if diff := cmp.Diff(want, f.at()); diff != "" {
			t.Error(diff)
		}
	}, MaxTries(8))
}

func TestFullJitter(t *testing.T) {
	for n := range 100 {
		limit := backoff(n)
		if limit < backoffBase || limit > backoffCap {
			t.Fatalf("backoff(%d) = %v", n, limit)
		}
		if d := fullJitter(limit); d < 0 || d > limit {
			t.Fatalf("fullJitter(%v) = %v", limit, d)
		}
	}
	if fullJitter(0) != 0 {
		t.Error("fullJitter(0) is not 0")
	}
}

func TestRetryAfter(t *testing.T) {
	down := wire.Problem{Code: wire.CodeStoreUnavailable}
	tests := []struct {
		name string
		step step
		want time.Duration // between two tries, the jitter's 100ms included
	}{
		{"seconds", problemWith(down, "Retry-After", "2"), 2100 * time.Millisecond},
		{"the problem's member", problemWith(wire.Problem{Code: wire.CodeStoreUnavailable, RetryAfter: 2}), 2100 * time.Millisecond},
		{"below 0", problemWith(wire.Problem{Code: wire.CodeStoreUnavailable, RetryAfter: -2}, "Retry-After", "-1"), 100 * time.Millisecond},
		{"no number", problemWith(down, "Retry-After", "soon"), 100 * time.Millisecond},
		{"a proxy's", answerWith(503, "text/html", "", "Retry-After", "3"), 3100 * time.Millisecond},
		{
			"a date, by the sender's clock",
			problemWith(down, "Date", "Fri, 02 Jan 2026 03:04:05 GMT", "Retry-After", "Fri, 02 Jan 2026 03:04:09 GMT"),
			4100 * time.Millisecond,
		},
		{
			"a date that is past",
			problemWith(down, "Date", "Fri, 02 Jan 2026 03:04:05 GMT", "Retry-After", "Fri, 02 Jan 2026 03:04:01 GMT"),
			100 * time.Millisecond,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, []step{tt.step, granted}, func(t *testing.T, c *Client, f *fake) {
				if err := consumeOnce(t.Context(), c); err != nil {
					t.Fatal(err)
				}
				if at := f.at(); at[1] != tt.want {
					t.Errorf("tried again after %v, want %v", at[1], tt.want)
				}
			})
		})
	}
}

// A wait that the call would not outlive is not begun.
func TestRetryAfterTooLate(t *testing.T) {
	for _, after := range []string{"5", "3600", "9223372036854775807", "99999999999999999999999", "Fri, 31 Dec 9999 23:59:59 GMT"} {
		t.Run(after, func(t *testing.T) {
			down := problemWith(wire.Problem{Code: wire.CodeStoreUnavailable, RequestID: "r1"}, "Retry-After", after)
			call := func(ctx context.Context, c *Client) {
				began := time.Now()
				err := consumeOnce(ctx, c)
				wantFault(t, err, Fault{Op: "consume", MaybeDone: true, Tries: 1, Code: wire.CodeStoreUnavailable, RequestID: "r1"})
				if time.Since(began) != 0 {
					t.Errorf("gave up after %v", time.Since(began))
				}
				if errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("the deadline is not over: %v", err)
				}
			}
			inBubble(t, []step{down}, func(t *testing.T, c *Client, f *fake) {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				call(ctx, c)
			})
			inBubble(t, []step{down}, func(t *testing.T, c *Client, f *fake) {
				call(t.Context(), c)
			}, Budget(5*time.Second))
		})
	}
}

func TestTryTimeout(t *testing.T) {
	inBubble(t, []step{silent, silent}, func(t *testing.T, c *Client, f *fake) {
		err := consumeOnce(t.Context(), c)
		wantFault(t, err, Fault{Op: "consume", MaybeDone: true, Tries: 2})
		if want := []time.Duration{0, 1100 * time.Millisecond}; !slices.Equal(f.at(), want) {
			t.Errorf("tries at %v, want %v", f.at(), want)
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("no deadline in %v", err)
		}
	}, TryTimeout(time.Second), MaxTries(2))
}

func TestBudget(t *testing.T) {
	inBubble(t, []step{silent, silent}, func(t *testing.T, c *Client, f *fake) {
		began := time.Now()
		err := consumeOnce(t.Context(), c)
		wantFault(t, err, Fault{Op: "consume", MaybeDone: true, Tries: 2})
		if got := time.Since(began); got != 1500*time.Millisecond {
			t.Errorf("took %v", got)
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("no deadline in %v", err)
		}
	}, TryTimeout(time.Second), Budget(1500*time.Millisecond))
}

func TestContextEnds(t *testing.T) {
	cause := errors.New("the cause")
	down := problemWith(wire.Problem{Code: wire.CodeStoreUnavailable, RequestID: "r1"}, "Retry-After", "5")
	tests := []struct {
		name  string
		steps []step
		after time.Duration
		want  Fault
	}{
		{"before the first try", nil, -1, Fault{Op: "consume"}},
		{"in a try", []step{silent}, time.Second, Fault{Op: "consume", MaybeDone: true, Tries: 1}},
		{"while waiting", []step{down}, time.Second,
			Fault{Op: "consume", MaybeDone: true, Tries: 1, Code: wire.CodeStoreUnavailable, RequestID: "r1"}},
		{"in the second try", []step{down, silent}, 5500 * time.Millisecond,
			Fault{Op: "consume", MaybeDone: true, Tries: 2, RequestID: "r1"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, tt.steps, func(t *testing.T, c *Client, f *fake) {
				ctx, cancel := context.WithCancelCause(t.Context())
				if tt.after < 0 {
					cancel(cause)
				}
				timer := time.AfterFunc(tt.after, func() { cancel(cause) })
				defer timer.Stop()
				began := time.Now()
				err := consumeOnce(ctx, c)
				wantFault(t, err, tt.want)
				if !errors.Is(err, context.Canceled) {
					t.Errorf("no context.Canceled in %v", err)
				}
				if got := time.Since(began); got != max(tt.after, 0) {
					t.Errorf("took %v, want %v", got, tt.after)
				}
			})
		})
	}
}

// A context may end because of a refusal; the call that it ends is a fault all the same.
func TestContextEndsWithRefusal(t *testing.T) {
	inBubble(t, []step{silent}, func(t *testing.T, c *Client, f *fake) {
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(&Refusal{Code: wire.CodeTokenUsed}) })
		err := consumeOnce(ctx, c)
		wantFault(t, err, Fault{Op: "consume", MaybeDone: true, Tries: 1})
		if errors.Is(err, ErrUsed) || !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}

// What an answer that could not be used held must not show in the next one.
func TestAnswersDoNotMix(t *testing.T) {
	broken := grantedWith(map[string]any{"replayed": true, "takeover": true, "ref": 1})
	fine := grantedWith(map[string]any{"replayed": nil, "takeover": nil})
	inBubble(t, []step{broken, fine}, func(t *testing.T, c *Client, f *fake) {
		got, err := c.Consume(t.Context(), testUser, testToken)
		if err != nil || got.Replayed || got.Takeover {
			t.Errorf("got %+v, %v", got, err)
		}
	})
}

// Errors are logged: neither a token nor a credential may stand in one.
func TestErrorsHoldNoSecret(t *testing.T) {
	echo := func(w http.ResponseWriter, r *http.Request) {
		answerWith(200, "application/json", `{"outcome":"`+testToken+`","used_at":"`+testToken+`","`+testToken+`":1}`)(w, r)
	}
	steps := map[string]step{
		"refusal": problemWith(wire.Problem{Code: wire.CodeTokenUsed, Detail: "d", Ref: testRef, UsedBy: "01234567", RequestID: "r1"}),
		"lost":    dropped, "cut": cutShort, "silent": silent, "echo": echo,
		"down":     problemOf(wire.CodeStoreUnavailable),
		"html":     answerWith(502, "text/html", testToken),
		"redirect": answerWith(301, "text/html", testToken, "Location", "/elsewhere"),
		"problem":  answerWith(409, wire.TypeProblem, `{"code":["`+testToken+`"]}`),
	}
	for name, s := range steps {
		t.Run(name, func(t *testing.T) {
			inBubble(t, []step{s}, func(t *testing.T, c *Client, f *fake) {
				err := consumeOnce(t.Context(), c)
				if err == nil {
					t.Fatal("no error")
				}
				for e := err; e != nil; e = errors.Unwrap(e) {
					j, _ := json.Marshal(e)
					for _, text := range []string{e.Error(), fmt.Sprintf("%+v %#v %s", e, e, j)} {
						if strings.Contains(text, "TOKEN-TEXT") || strings.Contains(text, testKey) {
							t.Errorf("a secret in %s", text)
						}
					}
				}
			}, MaxTries(1))
		})
	}
}
