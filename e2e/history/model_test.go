package history_test

import (
	"strings"
	"testing"

	"example.com/tokend/e2e/history"
)

// at returns a call of kind that was sent and answered at these milliseconds of a token's or
// key's history.
func at(sent, answered int64, kind history.Kind, o history.Op, code string, out history.Outcome) *history.Op {
	out.Code = code
	o.Kind, o.Call, o.Return, o.Out = kind, sent*1000, answered*1000, out
	return &o
}

// TestModel holds the checker to histories of which it is plain whether they are right.
func TestModel(t *testing.T) {
	type op = history.Op
	type out = history.Outcome
	const expires, retention = 1000, 5000
	by := func(n uint8) op { return op{Attempt: n} }
	lease := func(n uint8, ms int64) op { return op{Attempt: n, Lease: ms} }
	step := func(n uint8, fence int32) op { return op{Attempt: n, Fence: fence} }
	again := func(o op) op { o.Again = true; return o }
	tests := []struct {
		name  string
		of    string // delete mode, or a key; else a token of record mode
		right bool
		why   string // a part of a violation, in words
		ops   []*op
	}{
		{name: "one winner", right: true, ops: []*op{
			at(0, 9, history.Consume, by(1), "ok", out{At: 5}),
			at(0, 9, history.Consume, by(2), "token_used", out{By: 1, At: 5}),
			at(10, 11, history.Consume, by(1), "ok", out{At: 5, Replayed: true}),
		}},
		{name: "two winners", why: "consumed by 2 attempts", ops: []*op{
			at(0, 9, history.Consume, by(1), "ok", out{At: 5}),
			at(0, 9, history.Consume, by(2), "ok", out{At: 6}),
		}},
		{name: "a success becomes a refusal", why: "had the token", ops: []*op{
			at(0, 9, history.Consume, by(1), "ok", out{At: 5}),
			at(10, 19, history.Consume, by(1), "token_used", out{At: 5, By: 1}),
		}},
		{name: "a replay is not told", ops: []*op{
			at(0, 9, history.Consume, by(1), "ok", out{At: 5}),
			at(10, 19, history.Consume, by(1), "ok", out{At: 5}),
		}},
		{name: "a lost reply", right: true, ops: []*op{
			at(0, 9, history.Consume, by(1), "unknown", out{}),
			at(10, 19, history.Consume, by(2), "token_used", out{At: 7, By: 1}),
		}},
		{name: "a lost call", right: true, ops: []*op{
			at(0, 9, history.Consume, by(1), "unknown", out{}),
			at(10, 19, history.Consume, by(2), "ok", out{At: 12}),
		}},
		{name: "a call that was late", right: true, ops: []*op{
			at(0, 9, history.Consume, by(1), "unknown", out{}),
			at(10, 19, history.Status, op{}, "ok", out{State: "issued"}),
			at(20, 29, history.Consume, by(2), "token_used", out{At: 19, By: 1}),
		}},
		{name: "used by nobody who asked", ops: []*op{
			at(0, 9, history.Consume, by(2), "token_used", out{At: 5, By: 1}),
		}},
		{name: "used before it was asked for", ops: []*op{
			at(10, 19, history.Consume, by(1), "ok", out{At: 8}),
		}},
		{name: "expired", right: true, ops: []*op{
			at(1010, 1019, history.Consume, by(1), "token_expired", out{}),
			at(6010, 6019, history.Consume, by(1), "token_stale", out{}),
		}},
		{name: "expired too early", ops: []*op{at(900, 909, history.Consume, by(1), "token_expired", out{})}},
		{name: "stale too early", ops: []*op{at(1010, 1019, history.Consume, by(1), "token_stale", out{})}},
		{name: "used when it is expired", ops: []*op{at(1010, 1019, history.Consume, by(1), "ok", out{At: 1012})}},
		{name: "used, and expired", why: "reads as expired", ops: []*op{
			at(0, 9, history.Consume, by(1), "ok", out{At: 5}),
			at(1010, 1019, history.Consume, by(2), "token_expired", out{}),
		}},
		{name: "lost", why: "is lost", ops: []*op{at(0, 9, history.Consume, by(1), "token_lost", out{})}},
		{name: "a claim, completed and replayed", right: true, ops: []*op{
			at(0, 9, history.Claim, lease(1, 100), "ok", out{Fence: 1, Lease: 105}),
			at(10, 19, history.Claim, lease(2, 100), "request_in_progress", out{Lease: 105, By: 1}),
			at(20, 29, history.Complete, op{Attempt: 1, Fence: 1, Result: 7}, "ok", out{At: 25}),
			at(30, 39, history.Claim, lease(2, 100), "replay", out{Replayed: true, Result: 7}),
			at(40, 49, history.Complete, op{Attempt: 1, Fence: 1, Result: 8}, "ok", out{At: 25, Replayed: true}),
			at(50, 59, history.Status, op{}, "ok", out{State: "completed", At: 25, By: 1, Result: 7}),
			at(60, 69, history.Consume, by(3), "token_used", out{At: 25, By: 1}),
		}},
		{name: "another result", ops: []*op{
			at(0, 9, history.Claim, lease(1, 100), "ok", out{Fence: 1, Lease: 105}),
			at(20, 29, history.Complete, op{Attempt: 1, Fence: 1, Result: 7}, "ok", out{At: 25}),
			at(30, 39, history.Claim, lease(2, 100), "replay", out{Replayed: true, Result: 8}),
		}},
		{name: "two holders", why: "both hold", ops: []*op{
			at(0, 9, history.Claim, lease(1, 100), "ok", out{Fence: 1, Lease: 105}),
			at(0, 9, history.Claim, lease(2, 100), "ok", out{Fence: 1, Lease: 106}),
		}},
		{name: "taken over too early", why: "runs until its lease ends", ops: []*op{
			at(0, 9, history.Claim, lease(1, 100), "ok", out{Fence: 1, Lease: 105}),
			at(50, 59, history.Claim, lease(2, 100), "ok", out{Fence: 2, Lease: 155, Takeover: true}),
		}},
		{name: "taken over", right: true, ops: []*op{
			at(0, 9, history.Claim, lease(1, 100), "ok", out{Fence: 1, Lease: 105}),
			at(110, 119, history.Claim, lease(2, 100), "ok", out{Fence: 2, Lease: 215, Takeover: true}),
			at(120, 129, history.Complete, step(1, 1), "claim_superseded", out{}),
		}},
		{name: "completed by one who was superseded", ops: []*op{
			at(0, 9, history.Claim, lease(1, 100), "ok", out{Fence: 1, Lease: 105}),
			at(110, 119, history.Claim, lease(2, 100), "ok", out{Fence: 2, Lease: 215, Takeover: true}),
			at(120, 129, history.Complete, step(1, 1), "ok", out{At: 125}),
		}},
		{name: "a lease of another length", ops: []*op{
			at(0, 9, history.Claim, lease(1, 100), "ok", out{Fence: 1, Lease: 305}),
		}},
		{name: "committed, and run again", ops: []*op{
			at(0, 9, history.Claim, lease(1, 100), "ok", out{Fence: 1, Lease: 105}),
			at(10, 19, history.Commit, step(1, 1), "ok", out{Committed: true, Lease: 105}),
			at(110, 119, history.Claim, lease(2, 100), "ok", out{Fence: 2, Lease: 215, Takeover: true}),
		}},
		{name: "committed, unfinished, resolved and released", right: true, ops: []*op{
			at(0, 9, history.Claim, lease(1, 100), "ok", out{Fence: 1, Lease: 105}),
			at(10, 19, history.Commit, step(1, 1), "ok", out{Committed: true, Lease: 105}),
			at(20, 29, history.Release, step(1, 1), "claim_committed", out{}),
			at(110, 119, history.Claim, lease(2, 100), "claim_unfinished", out{By: 1, Lease: 105}),
			at(120, 129, history.Claim, op{Attempt: 3, Lease: 100, Resolve: true}, "ok", out{Fence: 2, Lease: 225, Takeover: true, Committed: true}),
			at(130, 139, history.Release, step(3, 2), "ok", out{}),
			at(140, 149, history.Claim, lease(4, 100), "ok", out{Fence: 3, Lease: 245}),
		}},
		{name: "a shortened lease", ops: []*op{
			at(0, 9, history.Claim, lease(1, 100), "ok", out{Fence: 1, Lease: 105}),
			at(10, 19, history.Renew, op{Attempt: 1, Fence: 1, Lease: 10}, "ok", out{Lease: 25}),
		}},
		{name: "released, and claimed by a copy that was left behind", right: true, ops: []*op{
			at(0, 9, history.Claim, again(lease(1, 100)), "ok", out{Fence: 1, Lease: 105}),
			at(10, 19, history.Release, step(1, 1), "ok", out{}),
			at(20, 29, history.Claim, lease(2, 100), "request_in_progress", out{Lease: 119, By: 1}),
		}},
		{name: "released, and claimed by nobody", ops: []*op{
			at(0, 9, history.Claim, lease(1, 100), "ok", out{Fence: 1, Lease: 105}),
			at(10, 19, history.Release, step(1, 1), "ok", out{}),
			at(20, 29, history.Claim, lease(2, 100), "request_in_progress", out{Lease: 119, By: 1}),
		}},
		{name: "a digest that is another", right: true, ops: []*op{
			at(0, 9, history.Consume, op{Attempt: 1, Digest: 1}, "ok", out{At: 5}),
			at(10, 19, history.Consume, op{Attempt: 1, Digest: 2}, "idempotency_key_reused", out{At: 5, By: 1}),
			at(20, 29, history.Consume, by(1), "ok", out{At: 5, Replayed: true}),
		}},
		{name: "a stranger's call that changed something", ops: []*op{
			at(0, 9, history.Consume, op{Attempt: 1, Wrong: "wrong_user"}, "wrong_user", out{}),
			at(10, 19, history.Consume, by(2), "token_used", out{At: 5, By: 1}),
		}},
		{name: "revoked", right: true, ops: []*op{
			at(0, 9, history.Revoke, op{}, "ok", out{State: "revoked"}),
			at(10, 19, history.Consume, by(1), "token_revoked", out{At: 5}),
		}},
		{name: "revoked, and used", ops: []*op{
			at(0, 9, history.Revoke, op{}, "ok", out{State: "revoked"}),
			at(10, 19, history.Consume, by(1), "ok", out{At: 15}),
		}},
		{name: "delete mode", of: "delete mode", right: true, ops: []*op{
			at(0, 9, history.Consume, by(1), "ok", out{At: 5}),
			at(10, 19, history.Consume, by(1), "token_used", out{}),
			at(20, 29, history.Claim, lease(1, 100), "mode_unsupported", out{}),
			at(1010, 1019, history.Consume, by(1), "token_gone", out{}),
		}},
		{name: "delete mode, twice", of: "delete mode", why: "consumed 2 times", ops: []*op{
			at(0, 9, history.Consume, by(1), "ok", out{At: 5}),
			at(10, 19, history.Consume, by(1), "ok", out{At: 15}),
		}},
		{name: "delete mode, done where it said that it was not", of: "delete mode", ops: []*op{
			at(0, 9, history.Consume, by(1), "unknown", out{Why: "store_unavailable"}),
			at(10, 19, history.Consume, by(2), "token_used", out{}),
		}},
		{name: "delete mode, an unknown outcome", of: "delete mode", right: true, ops: []*op{
			at(0, 9, history.Consume, by(1), "unknown", out{Why: "outcome_unknown"}),
			at(10, 19, history.Consume, by(2), "token_used", out{}),
		}},
		{name: "a key", of: "key", right: true, ops: []*op{
			at(0, 9, history.Status, op{}, "ok", out{State: "unknown"}),
			at(9000, 9009, history.Claim, lease(1, 100), "ok", out{Fence: 1, Lease: 9105}),
			at(9010, 9019, history.Release, step(1, 1), "ok", out{}),
			at(9020, 9029, history.Release, step(1, 1), "ok", out{}),
			at(9030, 9039, history.Commit, step(1, 1), "claim_ended", out{}),
		}},
		{name: "an answer that nobody expects", ops: []*op{at(0, 9, history.Consume, by(1), "internal", out{})}},
	}
	for _, tt := range tests {
		t.Run(strings.ReplaceAll(tt.name, " ", "-"), func(t *testing.T) {
			s := history.Subject{Name: tt.name, Key: tt.of == "key", Delete: tt.of == "delete mode", Expires: expires, Retention: retention}
			for _, o := range tt.ops {
				s.Add(o)
			}
			right, known := s.Check()
			if !known || right != tt.right {
				t.Errorf("right is %v (known: %v), want %v:\n%v", right, known, tt.right, &s)
			}
			said := strings.Join(s.Violations(), "; ")
			if tt.right && said != "" || !strings.Contains(said, tt.why) {
				t.Errorf("violations: %q, want %q", said, tt.why)
			}
		})
	}
}
