package client

import (
	"context"
	"errors"
	"testing"
	"time"

	"example.com/tokend/httpapi/wire"
)

// failures are the ways in which a renewal is not answered.
var failures = map[string]step{
	"store_unavailable": problemOf(wire.CodeStoreUnavailable),
	"a proxy's 502":     answerWith(502, "text/html", "<h1>Bad gateway</h1>"),
	"dropped":           dropped,
	"silent":            silent,
	"unreadable":        answerWith(200, wire.TypeJSON, `{"state":"claimed"}`),
	"not our claim's":   answerWith(200, wire.TypeJSON, `{"state":"claimed","ref":"k_1","fence":1,"committed":false,"lease_expires_at":"2026-01-02T03:04:05.678Z"}`),
	"unauthenticated":   problemOf(wire.CodeUnauthenticated),
	"forbidden":         problemOf(wire.CodeForbidden),
	"forged":            problemOf(wire.CodeInvalidRequest), // its signing key is gone
}

func TestLeaseIsKept(t *testing.T) {
	for _, lease := range []time.Duration{time.Second, 30 * time.Second, time.Hour} {
		atDesk(t, nil, func(t *testing.T, c *Client, d *desk) {
			cl := claimIt(t.Context(), t, c, Lease(lease))
			time.Sleep(100 * lease)
			wantAlive(t, cl)
			cl.Close()
			wantEnded(t, cl, context.Canceled)
			renewals := d.visits("renew")
			time.Sleep(100 * lease)
			d.wantVisits("renew", len(renewals))

			distinct := map[time.Duration]bool{}
			var last time.Duration
			for _, v := range renewals {
				pause := v.at - last
				last = v.at
				distinct[pause] = true
				if pause < lease/4 || pause > lease/3 {
					t.Errorf("renewed after %v of %v", pause, lease)
				}
				if v.body["lease"] != lease.Seconds() {
					t.Errorf("renewed for %v", v.body["lease"])
				}
			}
			if len(renewals) < 300 || len(distinct) < 100 {
				t.Errorf("%d renewals after %d different pauses", len(renewals), len(distinct))
			}
		})
	}
}

// The deadline is the lease's length from before the request that was granted, to the
// instant, however the renewals fail and whatever tokend's clock says.
func TestLeaseLost(t *testing.T) {
	for name, failure := range failures {
		t.Run(name, func(t *testing.T) {
			atDesk(t, script{"renew": always(failure)}, func(t *testing.T, c *Client, d *desk) {
				cl := claimIt(t.Context(), t, c)
				if at := d.endsAt(cl); at != 30*time.Second {
					t.Errorf("ended after %v", at)
				}
				wantEnded(t, cl, ErrLeaseLost)
				n := len(d.visits("renew"))
				if n < 3 {
					t.Errorf("%d tries to renew", n)
				}
				time.Sleep(time.Hour)
				d.wantVisits("renew", n) // nobody works on it

				// What is lost is not to be gone on with.
				wantFault(t, cl.Commit(t.Context()), Fault{Op: "commit"})
				wantFault(t, cl.Renew(t.Context(), time.Minute), Fault{Op: "renew"})
				d.wantVisits("commit", 0)
				// It may still be completed or released: tokend knows whose it is.
				if err := cl.Release(t.Context()); err != nil {
					t.Error(err)
				}
			})
			// A claim that took long to come has less left.
			slow := script{"renew": always(failure), "claim": turns(turn{after: 2 * time.Second})}
			atDesk(t, slow, func(t *testing.T, c *Client, d *desk) {
				if at := d.endsAt(claimIt(t.Context(), t, c)); at != 30*time.Second {
					t.Errorf("ended after %v", at)
				}
			})
			// Two renewals are answered, the second one slowly.
			slow = script{"renew": func(n int, _ time.Duration) turn {
				switch n {
				case 0:
					return turn{}
				case 1:
					return turn{after: time.Second}
				}
				return turn{step: failure}
			}}
			atDesk(t, slow, func(t *testing.T, c *Client, d *desk) {
				at := d.endsAt(claimIt(t.Context(), t, c))
				if want := d.visits("renew")[1].at + 30*time.Second; at != want {
					t.Errorf("ended after %v, want %v", at, want)
				}
			})
		})
	}
}

// An outage that is shorter than what is left of the lease goes unnoticed, short leases
// included.
func TestRenewalFailsForAWhile(t *testing.T) {
	for name, failure := range failures {
		for _, lease := range []time.Duration{time.Second, 2 * time.Second, 30 * time.Second} {
			t.Run(name, func(t *testing.T) {
				atDesk(t, script{"renew": until(lease/2, failure)}, func(t *testing.T, c *Client, d *desk) {
					cl := claimIt(t.Context(), t, c, Lease(lease))
					time.Sleep(20 * lease)
					wantAlive(t, cl)
				})
			})
		}
	}
}

// Who takes the claim over ends the context at the next renewal, committed or not.
func TestSuperseded(t *testing.T) {
	for _, code := range []wire.Code{wire.CodeClaimSuperseded, wire.CodeClaimEnded} {
		for _, commit := range []bool{false, true} {
			atDesk(t, script{"renew": steps(nil, problemOf(code))}, func(t *testing.T, c *Client, d *desk) {
				cl := claimIt(t.Context(), t, c)
				if commit {
					if err := cl.Commit(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				d.endsAt(cl)
				wantEnded(t, cl, errOf[code])
				if no, ok := errors.AsType[*Refusal](context.Cause(cl.Context())); !ok || no.Code != code {
					t.Errorf("cause %v", context.Cause(cl.Context()))
				}
				time.Sleep(time.Hour)
				d.wantVisits("renew", 2)
				commits := len(d.visits("commit"))
				if err := cl.Commit(t.Context()); !errors.Is(err, errOf[code]) {
					t.Errorf("commit: %v", err)
				}
				d.wantVisits("commit", commits)
			})
		}
	}
}

// A step that hears it ends the context as well.
func TestStepHearsSuperseded(t *testing.T) {
	calls := map[string]func(context.Context, *Claim) error{
		"commit":   func(ctx context.Context, cl *Claim) error { return cl.Commit(ctx) },
		"renew":    func(ctx context.Context, cl *Claim) error { return cl.Renew(ctx, time.Minute) },
		"complete": func(ctx context.Context, cl *Claim) error { return cl.Complete(ctx, Result{}) },
		"release":  func(ctx context.Context, cl *Claim) error { return cl.Release(ctx) },
	}
	for op, do := range calls {
		atDesk(t, script{op: steps(problemOf(wire.CodeClaimSuperseded))}, func(t *testing.T, c *Client, d *desk) {
			cl := claimIt(t.Context(), t, c)
			if err := do(t.Context(), cl); !errors.Is(err, ErrSuperseded) {
				t.Errorf("%s: %v", op, err)
			}
			wantEnded(t, cl, ErrSuperseded)
			time.Sleep(time.Hour)
			renewals := 0
			if op == "renew" {
				renewals = 1
			}
			d.wantVisits("renew", renewals)
		})
	}
}

// After Commit the lease's end hands nothing on: the work goes on, and the lease is taken up
// again when the outage is over.
func TestCommittedOutlastsItsLease(t *testing.T) {
	for name, failure := range failures {
		t.Run(name, func(t *testing.T) {
			atDesk(t, script{"renew": until(10*time.Minute, failure)}, func(t *testing.T, c *Client, d *desk) {
				cl := claimIt(t.Context(), t, c)
				if err := cl.Commit(t.Context()); err != nil || !cl.Committed() {
					t.Fatal(err)
				}
				time.Sleep(11 * time.Minute)
				wantAlive(t, cl)
				n := len(d.visits("renew"))
				time.Sleep(time.Minute)
				if more := len(d.visits("renew")) - n; more < 6 || more > 8 {
					t.Errorf("%d renewals in a minute", more)
				}
				if err := cl.Renew(t.Context(), time.Minute); err != nil {
					t.Error(err)
				}
				if err := cl.Complete(t.Context(), Result{}); err != nil {
					t.Error(err)
				}
			})
		})
	}
	// So it is where the claim itself commits.
	atDesk(t, script{
		"claim": func(int, time.Duration) turn {
			return turn{step: (&desk{}).grant("claim", map[string]any{"committed": true})}
		},
		"renew": always(silent),
	}, func(t *testing.T, c *Client, d *desk) {
		ctx, cancel := context.WithCancel(t.Context())
		cl := claimIt(ctx, t, c, CommitFirst())
		cancel()
		time.Sleep(time.Hour)
		wantAlive(t, cl)
		if !cl.Committed() || d.visits("claim")[0].body["commit"] != true {
			t.Error("not committed")
		}
	})
}

// The lease is kept for as long as somebody may be at work, though the caller has gone.
func TestCallerHangsUp(t *testing.T) {
	gone := errors.New("gone")
	atDesk(t, nil, func(t *testing.T, c *Client, d *desk) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cl := claimIt(ctx, t, c)
		cancel(gone)
		wantEnded(t, cl, gone)
		time.Sleep(time.Hour)
		if n := len(d.visits("renew")); n < 300 {
			t.Errorf("%d renewals", n)
		}
		if err := cl.Complete(context.WithoutCancel(ctx), Result{}); err != nil {
			t.Error(err)
		}
	})
	atDesk(t, nil, func(t *testing.T, c *Client, d *desk) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cl := claimIt(ctx, t, c)
		if err := cl.Commit(cl.Context()); err != nil {
			t.Fatal(err)
		}
		cancel(gone)
		time.Sleep(time.Hour)
		wantAlive(t, cl)
	})
	// A deadline ends it as a hang-up does.
	atDesk(t, nil, func(t *testing.T, c *Client, d *desk) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		cl := claimIt(ctx, t, c)
		if at := d.endsAt(cl); at != time.Minute {
			t.Errorf("ended after %v", at)
		}
		wantEnded(t, cl, context.DeadlineExceeded)
	})
}

// A commit that is under way holds back what would end the context: what is granted is
// granted in time, and what is not ends it.
func TestCommitUnderWay(t *testing.T) {
	gone := errors.New("gone")
	tests := []struct {
		name   string
		turn   turn
		script script // of the renewals
		want   error
	}{
		{"the caller hangs up, granted", turn{}, nil, nil},
		{"the caller hangs up, the reply is lost", turn{lost: true}, nil, nil},
		{"the caller hangs up, superseded", turn{step: problemOf(wire.CodeClaimSuperseded)}, nil, ErrSuperseded},
		{"the caller hangs up, refused", turn{step: problemOf(wire.CodeForbidden)}, nil, gone},
		{"the lease's deadline passes, granted", turn{}, script{"renew": until(time.Minute, silent)}, nil},
		{"the lease's deadline passes, refused", turn{step: problemOf(wire.CodeForbidden)}, script{"renew": until(time.Minute, silent)}, ErrLeaseLost},
		{"a renewal hears that it is superseded, refused", turn{step: problemOf(wire.CodeForbidden)},
			script{"renew": steps(nil, problemOf(wire.CodeClaimSuperseded))}, ErrSuperseded},
		{"a renewal hears that it is superseded, granted before", turn{},
			script{"renew": steps(nil, problemOf(wire.CodeClaimSuperseded))}, ErrSuperseded},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.turn.after = 20 * time.Second
			sc := script{"commit": turns(tt.turn)}
			for op, say := range tt.script {
				sc[op] = say
			}
			atDesk(t, sc, func(t *testing.T, c *Client, d *desk) {
				ctx, cancel := context.WithCancelCause(t.Context())
				cl := claimIt(ctx, t, c)
				time.Sleep(5 * time.Second)
				if tt.script != nil {
					time.Sleep(9 * time.Second)
				}
				err := make(chan error)
				go func() { err <- cl.Commit(cl.Context()) }()
				time.Sleep(time.Second)
				if tt.script == nil {
					cancel(gone)
				}
				time.Sleep(18 * time.Second)
				wantAlive(t, cl)
				<-err
				if tt.want == nil {
					time.Sleep(time.Hour)
					wantAlive(t, cl)
				} else {
					wantEnded(t, cl, tt.want)
				}
				cancel(nil)
			}, TryTimeout(25*time.Second), Budget(time.Minute))
		})
	}
}

// A commit whose reply is lost for good is told by the next renewal.
func TestCommitLostForGood(t *testing.T) {
	lost := func(int, time.Duration) turn { return turn{lost: true} }
	atDesk(t, script{"commit": lost}, func(t *testing.T, c *Client, d *desk) {
		cl := claimIt(t.Context(), t, c)
		wantFault(t, cl.Commit(t.Context()), Fault{Op: "commit", MaybeDone: true, Tries: 5})
		if cl.Committed() {
			t.Error("committed, though nobody knows")
		}
		time.Sleep(10 * time.Second)
		if !cl.Committed() {
			t.Error("not committed, though a renewal says so")
		}
	})
}

// A claim that is completed does not hear from its own renewal that it has ended.
func TestRenewalCrossesComplete(t *testing.T) {
	for _, op := range []string{"complete", "release"} {
		atDesk(t, script{
			op:      turns(turn{after: 5 * time.Second}),
			"renew": always(problemOf(wire.CodeClaimEnded)),
		}, func(t *testing.T, c *Client, d *desk) {
			cl := claimIt(t.Context(), t, c)
			time.Sleep(7 * time.Second)
			var err error
			if op == "complete" {
				err = cl.Complete(t.Context(), Result{})
			} else {
				err = cl.Release(t.Context())
			}
			if err != nil {
				t.Error(err)
			}
			d.wantVisits("renew", 1)
			wantEnded(t, cl, context.Canceled)
			if cause := context.Cause(cl.Context()); cause != context.Canceled {
				t.Errorf("cause %v", cause)
			}
		}, TryTimeout(10*time.Second))
	}
}

// Close does not wait for a renewal that is under way, and may be called by many.
func TestCloseDuringRenewal(t *testing.T) {
	atDesk(t, script{"renew": always(silent)}, func(t *testing.T, c *Client, d *desk) {
		cl := claimIt(t.Context(), t, c)
		time.Sleep(11 * time.Second)
		began := time.Now()
		for range 3 {
			go cl.Close()
		}
		cl.Close()
		if took := time.Since(began); took != 0 {
			t.Errorf("took %v", took)
		}
		wantEnded(t, cl, context.Canceled)
		if err := cl.Complete(t.Context(), Result{}); err != nil { // a claim can be completed that nobody keeps
			t.Error(err)
		}
	})
}

// Renew lengthens the lease, and what is kept after it.
func TestRenew(t *testing.T) {
	failing := script{"renew": func(n int, _ time.Duration) turn {
		if n == 0 {
			return turn{}
		}
		return turn{step: silent}
	}}
	atDesk(t, failing, func(t *testing.T, c *Client, d *desk) {
		cl := claimIt(t.Context(), t, c)
		time.Sleep(time.Second)
		if err := cl.Renew(t.Context(), 10*time.Minute); err != nil {
			t.Fatal(err)
		}
		if at := d.endsAt(cl); at != 10*time.Minute+time.Second {
			t.Errorf("ended after %v", at)
		}
	})
	atDesk(t, failing, func(t *testing.T, c *Client, d *desk) {
		cl := claimIt(t.Context(), t, c)
		if err := cl.Renew(t.Context(), time.Second); err != nil {
			t.Fatal(err)
		}
		if at := d.endsAt(cl); at != 30*time.Second { // never shortens it
			t.Errorf("ended after %v", at)
		}
	})
	// One that comes too late does not bring back what was given up.
	atDesk(t, script{"renew": func(n int, _ time.Duration) turn {
		if n == 0 {
			return turn{after: time.Minute}
		}
		return turn{step: silent}
	}}, func(t *testing.T, c *Client, d *desk) {
		cl := claimIt(t.Context(), t, c)
		if err := cl.Renew(t.Context(), time.Minute); err != nil {
			t.Fatal(err)
		}
		wantEnded(t, cl, ErrLeaseLost)
		wantFault(t, cl.Commit(t.Context()), Fault{Op: "commit"})
	}, TryTimeout(2*time.Minute), Budget(2*time.Minute))
	atDesk(t, nil, func(t *testing.T, c *Client, d *desk) {
		cl := claimIt(t.Context(), t, c)
		for _, bad := range []time.Duration{0, -time.Second, time.Millisecond, 1500 * time.Millisecond} {
			if err := cl.Renew(t.Context(), bad); !errors.Is(err, ErrInvalidRequest) {
				t.Errorf("%v: %v", bad, err)
			}
		}
		d.wantVisits("renew", 0)
	})
}
