package client

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/tokend/httpapi/wire"
)

var testResult = Result{Status: 201, Header: map[string]string{"Location": "/orders/7"}, Body: []byte("\x00done")}

// doing is a fn that returns r.
func doing(r Result) func(context.Context, *Claim) (Result, error) {
	return func(context.Context, *Claim) (Result, error) { return r, nil }
}

func TestDoCompletes(t *testing.T) {
	tests := []struct {
		result Result
		want   map[string]any
	}{
		{testResult, map[string]any{"result": map[string]any{
			"status": 201.0, "headers": map[string]any{"Location": "/orders/7"}, "body": "AGRvbmU=",
		}}},
		{Result{Status: 204}, map[string]any{"result": map[string]any{"status": 204.0}}},
		{Result{Status: 200, BodyOmitted: true}, map[string]any{"result": map[string]any{"status": 200.0, "body_omitted": true}}},
		{Result{}, map[string]any{}},
	}
	for _, tt := range tests {
		atDesk(t, nil, func(t *testing.T, c *Client, d *desk) {
			var within *Claim
			got, err := c.Do(t.Context(), testSubject, func(ctx context.Context, cl *Claim) (Result, error) {
				within = cl
				time.Sleep(time.Hour)
				return tt.result, ctx.Err()
			})
			if diff := cmp.Diff(Completed{Result: tt.result, Ref: testKeyRef}, got); err != nil || diff != "" {
				t.Errorf("%v %s", err, diff)
			}
			d.wantVisits("complete", 1)
			d.wantVisits("release", 0)
			if diff := cmp.Diff(tt.want, d.visits("complete")[0].body); diff != "" {
				t.Error(diff)
			}
			renewals := len(d.visits("renew"))
			wantEnded(t, within, context.Canceled)
			time.Sleep(time.Hour)
			d.wantVisits("renew", renewals)
		})
	}
}

func TestDoReplays(t *testing.T) {
	answer := replayWith(map[string]any{"result": map[string]any{
		"status": 201, "headers": testResult.Header, "body": testResult.Body, "body_omitted": false, "new": 1,
	}})
	for name, tt := range map[string]struct {
		step step
		want Result
	}{
		"all":     {answer, testResult},
		"none":    {replayWith(map[string]any{"result": nil}), Result{}},
		"omitted": {replayWith(map[string]any{"result": map[string]any{"status": 200, "headers": nil, "body": "", "body_omitted": true}}), Result{Status: 200, BodyOmitted: true}},
		"long": {replayWith(map[string]any{"result": map[string]any{"status": 200, "body": strings.Repeat("A", 1<<20)}}),
			Result{Status: 200, Body: make([]byte, 3<<18)}},
	} {
		if name == "none" { // the harness leaves out what is nil
			tt.step = answerWith(200, wire.TypeJSON, `{"state":"completed","ref":"`+testKeyRef+`","replayed":true,"result":null}`)
		}
		atDesk(t, script{"claim": steps(tt.step)}, func(t *testing.T, c *Client, d *desk) {
			got, err := c.Do(t.Context(), testSubject, func(context.Context, *Claim) (Result, error) {
				t.Error("done again")
				return Result{}, nil
			})
			want := Completed{Result: tt.want, Ref: testKeyRef, Replayed: true}
			if err != nil || !reflect.DeepEqual(got, want) { // cmp is slow where it is long
				t.Errorf("%s: %v %.500v", name, err, got)
			}
			if n := len(d.made); n != 1 {
				t.Errorf("%d requests", n)
			}
		})
	}
}

// Whatever fn ends with but a result, the claim is released, or left once it is committed.
func TestDoReleases(t *testing.T) {
	errOops := errors.New("oops")
	ends := map[string]func() error{
		"error":   func() error { return errOops },
		"panic":   func() error { panic(errOops) },
		"abort":   func() error { panic(http.ErrAbortHandler) },
		"goexit":  func() error { runtime.Goexit(); return nil },
		"nothing": func() error { panic(nil) },
	}
	for name, end := range ends {
		for _, when := range []string{"", "commit", "commit lost", "release", "release lost"} {
			t.Run(name+" after "+when, func(t *testing.T) {
				lost := func(int, time.Duration) turn { return turn{lost: true} }
				sc := script{}
				if op, isLost := strings.CutSuffix(when, " lost"); isLost {
					sc[op] = lost
				}
				atDesk(t, sc, func(t *testing.T, c *Client, d *desk) {
					var returned bool
					var err error
					var thrown any
					over := make(chan struct{})
					go func() {
						defer close(over)
						defer func() { thrown = recover() }()
						_, err = c.Do(t.Context(), testSubject, func(ctx context.Context, cl *Claim) (Result, error) {
							switch op, _, _ := strings.Cut(when, " "); op {
							case "commit":
								cl.Commit(ctx)
							case "release":
								cl.Release(ctx)
							}
							return testResult, end()
						})
						returned = true
					}()
					<-over
					if (name == "error") != returned || returned && !errors.Is(err, errOops) {
						t.Errorf("returned %t, %v", returned, err)
					}
					if strings.HasPrefix(name, "a") && thrown != http.ErrAbortHandler || name == "panic" && thrown != errOops {
						t.Errorf("panicked with %v", thrown)
					}
					d.wantVisits("complete", 0)
					d.wantVisits("release", map[string]int{"": 1, "commit": 0, "commit lost": 1, "release": 1, "release lost": 2}[when])
					renewals := len(d.visits("renew"))
					time.Sleep(time.Hour)
					d.wantVisits("renew", renewals)
				}, MaxTries(1))
			})
		}
	}
}

// fn's error is fn's, with what its context ended with; a release that fails is told in words.
func TestDoError(t *testing.T) {
	errOops := errors.New("oops")
	run := func(t *testing.T, c *Client, ctx context.Context, fn func(context.Context, *Claim) error) error {
		got, err := c.Do(ctx, testSubject, func(ctx context.Context, cl *Claim) (Result, error) { return testResult, fn(ctx, cl) })
		if diff := cmp.Diff(Completed{}, got); diff != "" {
			t.Error(diff)
		}
		if errors.Is(err, ErrNotKept) {
			t.Errorf("not done, but %v", err)
		}
		return err
	}
	atDesk(t, nil, func(t *testing.T, c *Client, d *desk) {
		if err := run(t, c, t.Context(), func(context.Context, *Claim) error { return errOops }); err != errOops {
			t.Errorf("got %v", err)
		}
	})
	atDesk(t, script{"release": always(problemOf(wire.CodeStoreUnavailable))}, func(t *testing.T, c *Client, d *desk) {
		err := run(t, c, t.Context(), func(context.Context, *Claim) error { return errOops })
		_, isFault := errors.AsType[*Fault](err)
		if !errors.Is(err, errOops) || isFault || !strings.Contains(err.Error(), "not released") {
			t.Errorf("got %v", err)
		}
	})
	atDesk(t, script{"renew": always(problemOf(wire.CodeClaimSuperseded))}, func(t *testing.T, c *Client, d *desk) {
		err := run(t, c, t.Context(), func(ctx context.Context, cl *Claim) error {
			<-ctx.Done()
			return ctx.Err()
		})
		if !errors.Is(err, ErrSuperseded) || !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		d.wantVisits("release", 0) // it is another's
	})
	atDesk(t, script{"renew": always(silent)}, func(t *testing.T, c *Client, d *desk) {
		err := run(t, c, t.Context(), func(ctx context.Context, cl *Claim) error {
			<-ctx.Done()
			return cl.Commit(ctx)
		})
		if !errors.Is(err, ErrLeaseLost) {
			t.Errorf("got %v", err)
		}
		d.wantVisits("release", 1) // perhaps it still is ours
	})
	// The caller hangs up: what it leaves is released all the same.
	atDesk(t, nil, func(t *testing.T, c *Client, d *desk) {
		ctx, cancel := context.WithCancelCause(t.Context())
		err := run(t, c, ctx, func(ctx context.Context, cl *Claim) error {
			cancel(errOops)
			<-ctx.Done()
			return ctx.Err()
		})
		if !errors.Is(err, context.Canceled) || !errors.Is(err, errOops) {
			t.Errorf("got %v", err)
		}
		d.wantVisits("release", 1)
	})
	// The claim's own errors are passed on.
	atDesk(t, script{"claim": steps(problemOf(wire.CodeRequestInProgress))}, func(t *testing.T, c *Client, d *desk) {
		err := run(t, c, t.Context(), func(context.Context, *Claim) error {
			t.Error("fn ran")
			return nil
		})
		if _, ok := err.(*Refusal); !ok || !errors.Is(err, ErrInProgress) {
			t.Errorf("got %v", err)
		}
	})
}

// The caller that hangs up while fn is at work does not keep its result from being kept.
func TestDoCompletesAfterHangUp(t *testing.T) {
	for _, commit := range []bool{false, true} {
		atDesk(t, script{"complete": turns(turn{lost: true})}, func(t *testing.T, c *Client, d *desk) {
			ctx, cancel := context.WithCancel(t.Context())
			got, err := c.Do(ctx, testSubject, func(ctx context.Context, cl *Claim) (Result, error) {
				if commit {
					if err := cl.Commit(ctx); err != nil {
						t.Error(err)
					}
				}
				cancel()
				time.Sleep(time.Hour)
				if (ctx.Err() == nil) != commit {
					t.Errorf("committed %t, context %v", commit, ctx.Err())
				}
				return testResult, nil
			})
			if err != nil || got.Status != 201 {
				t.Errorf("got %v, %v", got, err)
			}
			d.wantVisits("complete", 2)
		})
	}
}

// A claim that its caller cuts off may have been granted: it is released, and blocks nobody.
func TestDoCutOff(t *testing.T) {
	tests := []struct {
		name             string
		opts             []ClaimOption
		script           script
		claims, releases int
	}{
		{"in time", nil, script{"claim": steps(silent)}, 2, 1},
		{"while it waits", []ClaimOption{Wait(30 * time.Second)}, script{"claim": steps(silent)}, 2, 1},
		{"another has it", nil, script{"claim": steps(silent, problemOf(wire.CodeRequestInProgress))}, 2, 0},
		{"tokend is away", nil, script{"claim": always(silent)}, 2, 0},
		{"committed", []ClaimOption{CommitFirst()}, script{"claim": steps(silent)}, 1, 0},
		{"others know its attempt", []ClaimOption{Attempt("a1")}, script{"claim": steps(silent)}, 1, 0},
		{"refused", nil, script{"claim": turns(turn{after: time.Second / 2, step: problemOf(wire.CodeRequestInProgress)})}, 1, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			atDesk(t, tt.script, func(t *testing.T, c *Client, d *desk) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, err := c.Do(ctx, testSubject, func(context.Context, *Claim) (Result, error) {
					t.Error("fn ran")
					return Result{}, nil
				}, tt.opts...)
				if err == nil || tt.name != "refused" && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got %v", err)
				}
				if took := time.Since(d.began); took > 4*time.Second {
					t.Errorf("took %v", took)
				}
				claims := d.visits("claim")
				d.wantVisits("claim", tt.claims)
				d.wantVisits("release", tt.releases)
				if last := claims[len(claims)-1].body; last["attempt"] != claims[0].body["attempt"] || len(claims) > 1 && last["wait"] != nil {
					t.Errorf("claimed with %v", last)
				}
			})
		})
	}
}

// The work is done: completing goes on while the lease is kept, through faults and through
// what is refused for a reason that is neither the claim's nor the result's, and what the
// caller hears says both.
func TestDoCompletesThroughFaults(t *testing.T) {
	failures := maps.Clone(failures)
	delete(failures, "unreadable") // not of this call
	failures["rate limited"] = problemWith(wire.Problem{Code: wire.CodeRateLimited, RetryAfter: 1})
	failures["rate limited for long"] = problemWith(wire.Problem{Code: wire.CodeRateLimited, RetryAfter: 600})
	failures["an older tokend"] = problemOf(wire.CodeNotFound)
	for _, status := range []int{401, 403, 404, 429} {
		failures[fmt.Sprint("a gateway's ", status)] = answerWith(status, "text/html", "<h1>No</h1>")
	}
	for name, failure := range failures {
		t.Run(name, func(t *testing.T) {
			const outage = 20 * time.Second
			atDesk(t, script{"complete": until(outage, failure)}, func(t *testing.T, c *Client, d *desk) {
				got, err := c.Do(t.Context(), testSubject, doing(testResult))
				if err != nil || got.Replayed {
					t.Errorf("got %v, %v", got, err)
				}
			})
			// The whole of tokend is away: the lease ends, and with it what can be promised.
			atDesk(t, script{"complete": always(failure), "renew": always(failure)}, func(t *testing.T, c *Client, d *desk) {
				got, err := c.Do(t.Context(), testSubject, doing(testResult))
				took := time.Since(d.began)
				if took < 15*time.Second || took > 35*time.Second {
					t.Errorf("given up after %v", took)
				}
				wantNotKept(t, got, err)
				no, _ := errors.AsType[*Refusal](err)
				if f, _ := errors.AsType[*Fault](err); no == nil && (f == nil || f.Op != "complete" || !f.MaybeDone) {
					t.Errorf("got %v", err)
				}
			})
			// What is committed has no such end; but somebody may be waiting.
			atDesk(t, script{"complete": always(failure), "renew": always(failure)}, func(t *testing.T, c *Client, d *desk) {
				var began time.Time
				got, err := c.Do(t.Context(), testSubject, func(ctx context.Context, cl *Claim) (Result, error) {
					if err := cl.Commit(ctx); err != nil {
						t.Error(err)
					}
					time.Sleep(time.Hour)
					began = time.Now()
					return testResult, nil
				})
				if took := time.Since(began); took < 15*time.Second || took > 45*time.Second {
					t.Errorf("given up after %v", took)
				}
				wantNotKept(t, got, err)
			})
		})
	}
	// Where nothing is waited for, the number of calls counts.
	atDesk(t, script{"complete": always(dropped)}, func(t *testing.T, c *Client, d *desk) {
		got, err := c.Do(t.Context(), testSubject, doing(testResult))
		wantNotKept(t, got, err)
		d.wantVisits("complete", completeCalls*5)
	}, Backoff(noWait))
}

// wantNotKept holds that Do has told of work that was done, and may not be kept.
func wantNotKept(t *testing.T, got Completed, err error) {
	t.Helper()
	if !errors.Is(err, ErrNotKept) {
		t.Errorf("got %v", err)
	}
	if diff := cmp.Diff(Completed{Result: testResult, Ref: testKeyRef}, got); diff != "" {
		t.Error(diff)
	}
}

// A completion that is refused was done all the same. What is said of the claim is not asked
// again.
func TestDoCompleteRefused(t *testing.T) {
	for _, code := range []wire.Code{wire.CodeClaimSuperseded, wire.CodeClaimEnded} {
		atDesk(t, script{"complete": always(problemOf(code))}, func(t *testing.T, c *Client, d *desk) {
			got, err := c.Do(t.Context(), testSubject, doing(testResult))
			wantNotKept(t, got, err)
			if _, ok := errors.AsType[*Fault](err); ok || !errors.Is(err, errOf[code]) {
				t.Errorf("got %v", err)
			}
			d.wantVisits("complete", 1)
			d.wantVisits("release", 0)
		})
	}
	// A lease that was lost while fn did not look need not be another's.
	atDesk(t, script{"renew": always(silent)}, func(t *testing.T, c *Client, d *desk) {
		_, err := c.Do(t.Context(), testSubject, func(context.Context, *Claim) (Result, error) {
			time.Sleep(time.Hour)
			return testResult, nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// results returns the results that complete was sent, in short.
func (d *desk) results() []string {
	var all []string
	for _, v := range d.visits("complete") {
		r, _ := v.body["result"].(map[string]any)
		body, _ := r["body"].(string)
		all = append(all, fmt.Sprintf("%v %v %d %v", r["status"], r["headers"], len(body), r["body_omitted"]))
	}
	return all
}

// A result that is too big is kept without its body, and its header if need be: the work is
// done. Whoever refuses its length, asks for none of it.
func TestResultTooLarge(t *testing.T) {
	proxy := answerWith(413, "text/html", "<h1>Too large</h1>")
	for name, no := range map[string]step{"tokend": problemOf(wire.CodeBodyTooLarge), "a proxy": proxy} {
		r := Result{Status: 200, Header: map[string]string{"A": "b"}, Body: []byte("abc")}
		full, bodiless, bare := "200 map[A:b] 4 <nil>", "200 map[A:b] 0 true", "200 <nil> 0 true"
		atDesk(t, script{"complete": steps(no)}, func(t *testing.T, c *Client, d *desk) {
			got, err := c.Do(t.Context(), testSubject, doing(r))
			if diff := cmp.Diff(Completed{Result: r, Ref: testKeyRef}, got); err != nil || diff != "" {
				t.Errorf("%s: %v %s", name, err, diff)
			}
			if diff := cmp.Diff([]string{full, bodiless}, d.results()); diff != "" {
				t.Error(diff)
			}
		})
		atDesk(t, script{"complete": turns(turn{step: no}, turn{lost: true}, turn{step: no})}, func(t *testing.T, c *Client, d *desk) {
			if err := claimIt(t.Context(), t, c).Complete(t.Context(), r); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if diff := cmp.Diff([]string{full, bodiless, bodiless, bare}, d.results()); diff != "" {
				t.Error(diff)
			}
		})
		atDesk(t, script{"complete": always(no)}, func(t *testing.T, c *Client, d *desk) {
			if err := claimIt(t.Context(), t, c).Complete(t.Context(), r); !errors.Is(err, ErrBodyTooLarge) {
				t.Errorf("%s: %v", name, err)
			}
			d.wantVisits("complete", 3)
		})
	}
}

// A long body is sent when it is asked for, so that a refusal of its length gets through.
func TestLongBodyWaitsToBeAskedFor(t *testing.T) {
	var expected []string
	unread := func(w http.ResponseWriter, r *http.Request) {
		expected = append(expected, r.Header.Get("Expect"))
		if r.ContentLength > 1<<20 {
			problemOf(wire.CodeBodyTooLarge)(w, r) // none of it is read
			return
		}
		io.Copy(io.Discard, r.Body)
		(&desk{}).grant("complete", nil)(w, r)
	}
	granting := &desk{}
	c, _ := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			unread(w, r)
			return
		}
		granting.grant("claim", nil)(w, r)
	})
	cl := claimIt(t.Context(), t, c)
	for _, n := range []int{1, 100 << 10, 4 << 20} {
		if err := cl.Complete(t.Context(), Result{Status: 200, Body: make([]byte, n)}); err != nil {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	if diff := cmp.Diff([]string{"", "100-continue", "100-continue", ""}, expected); diff != "" {
		t.Error(diff)
	}
}

// What is no result is told, and the work is not run again for it.
func TestNoResult(t *testing.T) {
	no := problemWith(wire.Problem{Code: wire.CodeInvalidRequest, Field: "result.status"})
	r := Result{Status: 700, Body: []byte("abc")}
	atDesk(t, script{"complete": turns(turn{step: no}, turn{lost: true})}, func(t *testing.T, c *Client, d *desk) {
		got, err := c.Do(t.Context(), testSubject, doing(r))
		if !errors.Is(err, ErrNotKept) || !errors.Is(err, ErrInvalidRequest) || got.Status != 700 {
			t.Errorf("got %v, %v", got, err)
		}
		placeholder := "500 <nil> 0 true"
		if diff := cmp.Diff([]string{"700 <nil> 4 <nil>", placeholder, placeholder}, d.results()); diff != "" {
			t.Error(diff)
		}
	})
	// JSON cannot carry it.
	r = Result{Status: 200, Header: map[string]string{"A": "\xe4"}}
	atDesk(t, nil, func(t *testing.T, c *Client, d *desk) {
		if err := claimIt(t.Context(), t, c).Complete(t.Context(), r); !errors.Is(err, ErrInvalidRequest) {
			t.Errorf("got %v", err)
		}
		d.wantVisits("complete", 0)
		if _, err := c.Do(t.Context(), testSubject, doing(r)); !errors.Is(err, ErrNotKept) {
			t.Errorf("got %v", err)
		}
		if diff := cmp.Diff([]string{"200 <nil> 0 true"}, d.results()); diff != "" {
			t.Error(diff)
		}
	})
	atDesk(t, script{"complete": always(no)}, func(t *testing.T, c *Client, d *desk) {
		if _, err := c.Do(t.Context(), testSubject, doing(r)); !errors.Is(err, ErrInvalidRequest) {
			t.Errorf("got %v", err)
		}
		d.wantVisits("complete", 1)
	})
}

// A fn that has ended the claim by itself has said what is kept.
func TestDoEndedWithin(t *testing.T) {
	atDesk(t, nil, func(t *testing.T, c *Client, d *desk) {
		got, err := c.Do(t.Context(), testSubject, func(ctx context.Context, cl *Claim) (Result, error) {
			return testResult, cl.Release(ctx)
		})
		if err != nil || got.Status != 201 {
			t.Errorf("got %v, %v", got, err)
		}
		got, err = c.Do(t.Context(), testSubject, func(ctx context.Context, cl *Claim) (Result, error) {
			return testResult, cl.Complete(ctx, Result{Status: 202})
		})
		if err != nil || got.Status != 201 {
			t.Errorf("got %v, %v", got, err)
		}
		d.wantVisits("complete", 1)
		d.wantVisits("release", 1)
	})
}

func TestJSON(t *testing.T) {
	r, err := JSON(201, map[string]int{"id": 7})
	want := Result{Status: 201, Header: map[string]string{"Content-Type": "application/json"}, Body: []byte(`{"id":7}`)}
	if diff := cmp.Diff(want, r); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
	if r, err := JSON(200, func() {}); err == nil || r.Status != 0 {
		t.Errorf("got %v, %v", r, err)
	}
}

// The body is sent as it is, whatever it holds.
func TestBodyIsKept(t *testing.T) {
	for _, body := range []string{"", "\x00", "\xff\xfe", "{\"a\":1}\r\n", strings.Repeat("ä", 50_000)} {
		atDesk(t, nil, func(t *testing.T, c *Client, d *desk) {
			if _, err := c.Do(t.Context(), testSubject, doing(Result{Status: 200, Body: []byte(body)})); err != nil {
				t.Fatal(err)
			}
			r := d.visits("complete")[0].body["result"].(map[string]any)
			sent, _ := r["body"].(string)
			if got, err := base64.StdEncoding.DecodeString(sent); err != nil || string(got) != body {
				t.Errorf("sent %q, %v", got, err)
			}
		})
	}
}
