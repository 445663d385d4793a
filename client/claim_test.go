package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"example.com/tokend/httpapi/wire"
)

// replayWith answers a claim with a result, but for the members in change.
func replayWith(change map[string]any) step {
	all := map[string]any{
		"claim": nil, "fence": nil, "takeover": nil, "committed": nil, "lease_expires_at": nil,
		"state": "completed", "replayed": true,
		"result": map[string]any{"status": 200, "headers": map[string]string{}, "body": "AA==", "body_omitted": false},
	}
	for k, v := range change {
		all[k] = v
	}
	return (&desk{}).grant("claim", all)
}

// What a claim sends.
func TestClaimRequest(t *testing.T) {
	tests := []struct {
		name    string
		subject Subject
		opts    []ClaimOption
		want    string // in Go's order of members; the attempt left out
	}{
		{"a key", Key("alice", "payment", "K1"), nil, "map[key:K1 lease:30 purpose:payment user:alice]"},
		{"a token", TokenOf("alice", "payment", "ott_1"), nil, "map[lease:30 purpose:payment token:ott_1 user:alice]"},
		{"nobody's", Key("", "payment", "K1"), nil, "map[key:K1 lease:30 purpose:payment]"},
		{"all options", Key("alice", "payment", "K1"),
			[]ClaimOption{Lease(time.Hour), Wait(30 * time.Second), Digest("d1"), CommitFirst()},
			"map[commit:true digest:d1 key:K1 lease:3600 purpose:payment user:alice wait:30]"},
	}
	for _, tt := range tests {
		for _, resolve := range []bool{false, true} {
			t.Run(fmt.Sprint(tt.name, resolve), func(t *testing.T) {
				atDesk(t, nil, func(t *testing.T, c *Client, d *desk) {
					claim, want := c.Claim, tt.want
					if resolve {
						claim, want = c.Resolve, strings.Replace(want, " user", " resolve:true user", 1)
						want = strings.Replace(want, " token:ott_1 resolve:true", " resolve:true token:ott_1", 1)
						if tt.name == "nobody's" {
							want = strings.Replace(want, "]", " resolve:true]", 1)
						}
					}
					cl, _, err := claim(t.Context(), tt.subject, tt.opts...)
					if err != nil {
						t.Fatal(err)
					}
					defer cl.Close()
					body := d.visits("claim")[0].body
					if a, _ := body["attempt"].(string); len(a) < 20 {
						t.Errorf("the attempt is %q", a)
					}
					delete(body, "attempt")
					if got := fmt.Sprint(body); got != want {
						t.Errorf("got  %s\nwant %s", got, want)
					}
					if cl.Ref != testKeyRef || cl.Fence != 1 || cl.Takeover || cl.Replayed {
						t.Errorf("claimed %+v", cl)
					}
				})
			})
		}
	}
}

// One attempt through all tries of a call, another in the next.
func TestClaimAttempt(t *testing.T) {
	atDesk(t, script{"claim": turns(turn{lost: true}, turn{step: problemOf(wire.CodeStoreUnavailable)})},
		func(t *testing.T, c *Client, d *desk) {
			claimIt(t.Context(), t, c)
			claimIt(t.Context(), t, c)
			claimIt(t.Context(), t, c, Attempt("a1"))
			var as []any
			for _, v := range d.visits("claim") {
				as = append(as, v.body["attempt"])
			}
			if len(as) != 5 || as[0] != as[1] || as[1] != as[2] || as[3] == as[0] || as[4] != "a1" {
				t.Errorf("attempts %v", as)
			}
		})
}

func TestClaimCannotBeSent(t *testing.T) {
	tests := []struct {
		name    string
		subject Subject
		opt     ClaimOption
		want    error
		field   string
	}{
		{"nothing", Subject{}, Wait(0), ErrInvalidRequest, "token"},
		{"a user that JSON cannot carry", Key("a\xff", "p", "k"), Wait(0), ErrInvalidRequest, "user"},
		{"what is too long for a token", TokenOf("a", "p", strings.Repeat("t", maxToken+1)), Wait(0), ErrInvalidToken, ""},
		{"a broken lease", testSubject, Lease(1500 * time.Millisecond), ErrInvalidRequest, "lease"},
		{"no lease", testSubject, Lease(0), ErrInvalidRequest, "lease"},
		{"a negative lease", testSubject, Lease(-time.Second), ErrInvalidRequest, "lease"},
		{"a broken wait", testSubject, Wait(time.Millisecond), ErrInvalidRequest, "wait"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			atDesk(t, nil, func(t *testing.T, c *Client, d *desk) {
				_, _, err := c.Claim(t.Context(), tt.subject, tt.opt)
				if no, ok := errors.AsType[*Refusal](err); !ok || !errors.Is(err, tt.want) || no.Field != tt.field {
					t.Errorf("got %v", err)
				}
				d.wantVisits("claim", 0)
			})
		})
	}
}

// What is no answer to a claim is tried again.
func TestClaimAnswers(t *testing.T) {
	g := func(change map[string]any) step { return (&desk{}).grant("claim", change) }
	tests := map[string]step{
		"lost":                        dropped,
		"another state":               g(map[string]any{"state": "queued"}),
		"no handle":                   g(map[string]any{"claim": nil}),
		"no ref":                      g(map[string]any{"ref": nil}),
		"no fence":                    g(map[string]any{"fence": nil}),
		"no lease":                    g(map[string]any{"lease_expires_at": nil}),
		"completed, but 201":          g(map[string]any{"state": "completed", "replayed": true}),
		"claimed, but 200":            answerWith(200, wire.TypeJSON, `{"state":"claimed","claim":"h","ref":"k_1","fence":1,"lease_expires_at":"2026-01-02T03:04:05.678Z"}`),
		"completed without ref":       replayWith(map[string]any{"ref": nil}),
		"completed, and not replayed": replayWith(map[string]any{"replayed": false}),
		"a broken body":               replayWith(map[string]any{"result": map[string]any{"status": 200, "body": "?"}}),
		"null":                        answerWith(201, wire.TypeJSON, "null"),
		"no content":                  answerWith(204, "", "", wire.HeaderRequestID, "r1"),
	}
	for name, s := range tests {
		t.Run(name, func(t *testing.T) {
			atDesk(t, script{"claim": steps(s)}, func(t *testing.T, c *Client, d *desk) {
				claimIt(t.Context(), t, c)
				d.wantVisits("claim", 2)
			})
			atDesk(t, script{"claim": steps(s)}, func(t *testing.T, c *Client, d *desk) {
				cl, done, err := c.Claim(t.Context(), testSubject)
				wantFault(t, err, Fault{Op: "claim", MaybeDone: true, Tries: 1})
				if cl != nil || done != nil {
					t.Error("something beside the error")
				}
			}, MaxTries(1))
		})
	}
}

// A refusal that may be the echo of the call's own earlier try is none.
func TestClaimRefusedAfterLostTry(t *testing.T) {
	settled := []wire.Code{
		wire.CodeRequestInProgress, wire.CodeClaimUnfinished, wire.CodeIdempotencyKeyReused, wire.CodeTokenExpired,
		wire.CodeTokenRevoked, wire.CodeWrongUser, wire.CodeTokenStale, wire.CodeTokenLost,
	}
	for _, code := range settled {
		atDesk(t, script{"claim": steps(dropped, problemOf(code))}, func(t *testing.T, c *Client, d *desk) {
			if _, _, err := c.Claim(t.Context(), testSubject); !errors.Is(err, errOf[code]) {
				t.Errorf("%s: %v", code, err)
			}
		})
	}
	for _, code := range []wire.Code{wire.CodeForbidden, wire.CodeInvalidRequest, wire.CodeModeUnsupported, wire.CodeTokenInvalid, "new"} {
		atDesk(t, script{"claim": steps(dropped, problemWith(wire.Problem{Code: code, Status: 409, Next: wire.NextStop}))},
			func(t *testing.T, c *Client, d *desk) {
				_, _, err := c.Claim(t.Context(), testSubject)
				wantFault(t, err, Fault{Op: "claim", MaybeDone: true, Tries: 2})
			})
	}
}

// The wait comes on top of what a try and a call have, and is not begun anew by each try.
func TestClaimWaits(t *testing.T) {
	wait := 20 * time.Second
	atDesk(t, script{"claim": turns(turn{after: wait, step: problemOf(wire.CodeRequestInProgress)})},
		func(t *testing.T, c *Client, d *desk) {
			_, _, err := c.Claim(t.Context(), testSubject, Wait(wait))
			if !errors.Is(err, ErrInProgress) {
				t.Error(err)
			}
			d.wantVisits("claim", 1) // neither the try nor the call was given up meanwhile
		})
	atDesk(t, script{"claim": turns(
		turn{after: 7500 * time.Millisecond, lost: true},
		turn{after: 12 * time.Second, step: dropped},
		turn{after: time.Second, step: dropped},
	)}, func(t *testing.T, c *Client, d *desk) {
		claimIt(t.Context(), t, c, Wait(wait))
		var waits []any
		for _, v := range d.visits("claim") {
			waits = append(waits, v.body["wait"])
		}
		if fmt.Sprint(waits) != "[20 13 1 0]" {
			t.Errorf("waits %v", waits)
		}
	})
	atDesk(t, script{"claim": always(silent)}, func(t *testing.T, c *Client, d *desk) {
		_, _, err := c.Claim(t.Context(), testSubject, Wait(wait))
		wantFault(t, err, Fault{Op: "claim", MaybeDone: true, Tries: 2})
		if took := time.Since(d.began); took != 30*time.Second {
			t.Errorf("given up after %v", took)
		}
	})
}

// A claim that was long in coming is renewed before it is handed out: its lease began when it
// was granted, and nobody knows when that was.
func TestClaimThatWaitedIsRenewed(t *testing.T) {
	late := turns(turn{after: 8 * time.Second})
	claim := func(t *testing.T, c *Client, opts ...ClaimOption) (*Claim, error) {
		cl, _, err := c.Claim(t.Context(), testSubject, append(opts, Lease(5*time.Second), Wait(10*time.Second))...)
		return cl, err
	}
	atDesk(t, script{"claim": late}, func(t *testing.T, c *Client, d *desk) {
		cl, err := claim(t, c)
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		if rs := d.visits("renew"); len(rs) != 1 || rs[0].at != 8*time.Second {
			t.Errorf("renewals %v", rs)
		}
		time.Sleep(time.Minute)
		wantAlive(t, cl)
	})
	atDesk(t, script{"claim": late, "renew": always(problemOf(wire.CodeClaimSuperseded))}, func(t *testing.T, c *Client, d *desk) {
		if _, err := claim(t, c); !errors.Is(err, ErrSuperseded) {
			t.Error(err)
		}
	})
	for name, failure := range failures {
		atDesk(t, script{"claim": late, "renew": always(failure)}, func(t *testing.T, c *Client, d *desk) {
			_, err := claim(t, c)
			f, _ := errors.AsType[*Fault](err)
			if f == nil || f.Op != "claim" || !f.MaybeDone {
				t.Errorf("%s: %v", name, err)
			}
			if _, ok := errors.AsType[*Refusal](err); ok {
				t.Errorf("%s: a Refusal too: %v", name, err)
			}
		})
	}
	// What is committed is lost to nobody.
	committed := (&desk{}).grant("claim", map[string]any{"committed": true})
	atDesk(t, script{"claim": turns(turn{after: 8 * time.Second, step: committed}), "renew": always(silent)},
		func(t *testing.T, c *Client, d *desk) {
			cl, err := claim(t, c, CommitFirst())
			if err != nil {
				t.Fatal(err)
			}
			defer cl.Close()
			time.Sleep(time.Minute)
			wantAlive(t, cl)
		})
}

// Where another call was granted the attempt, its lease may have begun long ago.
func TestClaimGoesOnWithAttempt(t *testing.T) {
	replayed := (&desk{}).grant("claim", map[string]any{"replayed": true})
	for _, tt := range []struct {
		opts     []ClaimOption
		renewals int
	}{{[]ClaimOption{Attempt("a1")}, 1}, {nil, 0}} {
		atDesk(t, script{"claim": steps(replayed)}, func(t *testing.T, c *Client, d *desk) {
			if cl := claimIt(t.Context(), t, c, tt.opts...); !cl.Replayed {
				t.Error("not replayed")
			}
			d.wantVisits("renew", tt.renewals)
		})
	}
}

// A release has no body and no answer but its status, which anybody might give.
func TestReleaseAnswers(t *testing.T) {
	tests := map[string]turn{
		"lost":                    {lost: true},
		"a 204 of somebody else":  {step: answerWith(204, "", "")},
		"a 200":                   {step: answerWith(200, wire.TypeJSON, "{}")},
		"store_unavailable":       {step: problemOf(wire.CodeStoreUnavailable)},
		"a proxy's 404":           {step: answerWith(404, "text/html", "<h1>Not found</h1>")},
		"no reply within the try": {step: silent},
	}
	for name, tn := range tests {
		t.Run(name, func(t *testing.T) {
			atDesk(t, script{"release": turns(tn)}, func(t *testing.T, c *Client, d *desk) {
				if err := claimIt(t.Context(), t, c).Release(t.Context()); err != nil {
					t.Error(err)
				}
				d.wantVisits("release", 2)
			})
			atDesk(t, script{"release": turns(tn)}, func(t *testing.T, c *Client, d *desk) {
				err := claimIt(t.Context(), t, c).Release(t.Context())
				wantFault(t, err, Fault{Op: "release", MaybeDone: true, Tries: 1})
			}, MaxTries(1))
		})
	}
	// Whoever claims after a release whose reply was lost makes it look like a takeover.
	atDesk(t, script{"release": turns(turn{lost: true}, turn{step: problemOf(wire.CodeClaimSuperseded)})},
		func(t *testing.T, c *Client, d *desk) {
			err := claimIt(t.Context(), t, c).Release(t.Context())
			wantFault(t, err, Fault{Op: "release", MaybeDone: true, Tries: 2})
		})
	atDesk(t, script{"release": turns(turn{lost: true}, turn{step: problemOf(wire.CodeClaimCommitted)})},
		func(t *testing.T, c *Client, d *desk) {
			if err := claimIt(t.Context(), t, c).Release(t.Context()); !errors.Is(err, ErrClaimCommitted) {
				t.Error(err)
			}
		})
}

// A handle is tokend's to spell, and must not lead to another path.
func TestHandleInPath(t *testing.T) {
	odd := (&desk{}).grant("claim", map[string]any{"claim": "../tokens?x#y"})
	atDesk(t, script{"claim": steps(odd), "release": always(dropped)}, func(t *testing.T, c *Client, d *desk) {
		cl := claimIt(t.Context(), t, c)
		if got := cl.at(releaseCall, wire.PathClaim).path; got != "/v1/claims/..%2Ftokens%3Fx%23y" {
			t.Errorf("path %s", got)
		}
	})
}

// A Subject holds what may be a secret.
func TestSubjectIsNotShown(t *testing.T) {
	s := TokenOf("alice", "payment", "ott_SECRET")
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("m", "subject", s)
	for _, text := range []string{fmt.Sprintf("%v %+v %#v %s %q %d", s, s, s, s, s, s), fmt.Sprint(&s), log.String()} {
		if strings.Contains(text, "SECRET") || strings.Contains(text, "alice") {
			t.Errorf("shown: %s", text)
		}
	}
}

// A context that has ended asks for nothing.
func TestClaimOnEndedContext(t *testing.T) {
	atDesk(t, nil, func(t *testing.T, c *Client, d *desk) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, _, err := c.Claim(ctx, testSubject)
		wantFault(t, err, Fault{Op: "claim"})
		d.wantVisits("claim", 0)
	})
}
