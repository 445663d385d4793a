package program_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"

	"example.com/tokend/httpapi/wire"
	"example.com/tokend/internal/redistest"
)

// Instances of different modes share one Redis, as they do while a setting is rolled out:
// a token is consumed in the mode that it was issued in, once, whoever is asked.
func TestModesShareOneRedis(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	record := startReady(t, redisURL(r.Addr), "REDIS_TIMEOUT=10s")
	del := startReady(t, redisURL(r.Addr), "REDIS_TIMEOUT=10s", "TOKENS_MODE=delete")
	both := []*instance{record, del}

	const rounds, callers = 25, 6
	wins := map[string]int{}
	for n := range rounds {
		tokens := map[string]string{"record": record.issue("alice"), "delete": del.issue("alice")}
		var mu sync.Mutex
		won := map[string][]string{} // attempts, by mode
		var wg sync.WaitGroup
		for c := range callers {
			attempt := fmt.Sprintf("a%d", c)
			heard := func(mode string, s said) {
				mu.Lock()
				defer mu.Unlock()
				switch {
				case s.Outcome == wire.OutcomeConsumed:
					won[mode] = append(won[mode], attempt)
				case s.Code != string(wire.CodeTokenUsed):
					t.Errorf("a token of %s mode: %+v", mode, s)
				}
			}
			i := both[(n+c)%2]
			wg.Go(func() {
				if c%3 == 0 { // both tokens in one call
					a := i.post(wire.PathConsumeBatch, serviceKey, members{"items": []members{
						consumption("alice", tokens["record"], attempt), consumption("alice", tokens["delete"], attempt),
					}})
					if len(a.Results) != 2 {
						t.Errorf("batch: %v", a)
						return
					}
					heard("record", a.Results[0])
					heard("delete", a.Results[1])
					return
				}
				for mode, token := range tokens {
					heard(mode, i.consume("alice", token, attempt).said)
				}
			})
		}
		wg.Wait()
		for mode, token := range tokens {
			if len(won[mode]) != 1 {
				t.Fatalf("a token of %s mode was granted to %q", mode, won[mode])
			}
			wins[mode]++
			// Only a record remembers attempts, and it does so whoever is asked.
			for _, i := range both {
				a := i.consume("alice", token, won[mode][0])
				if replayed := a.status == http.StatusOK && a.Replayed; replayed != (mode == "record") {
					t.Errorf("the winner's attempt again, of a token of %s mode: %v", mode, a)
				}
			}
		}
	}
	t.Logf("%d tokens of each mode, %d calls for each; winners: %v; %d keys", rounds, callers, wins, everyKeyExpires(t, r))

	// The other mode's instance says the same of both.
	token := del.issue("alice")
	for _, i := range both {
		if a := i.post(wire.PathRevoke, serviceKey, members{"user": "alice", "token": token}); a.Code != string(wire.CodeModeUnsupported) {
			t.Errorf("revoke: %v", a)
		}
	}
	if a := record.consume("alice", token, ""); a.status != http.StatusOK {
		t.Errorf("after the revoke that is not supported: %v", a)
	}
	if s := record.state("alice", token); s != "used" {
		t.Errorf("status: %s", s)
	}
}

// One call that names a token several times is several attempts, unless it says that they
// are one.
func TestTokenTwiceInOneBatch(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	for _, mode := range []string{"record", "delete"} {
		i := startReady(t, redisURL(r.Addr), "TOKENS_MODE="+mode)
		for _, tt := range []struct {
			attempts []string
			winners  int
		}{
			{[]string{"", "", ""}, 1},
			{[]string{"a1", "a2", "a3"}, 1},
			{[]string{"a1", "a2", "a1"}, map[string]int{"record": 2, "delete": 1}[mode]},
		} {
			token := i.issue("alice")
			var items []members
			for _, attempt := range tt.attempts {
				items = append(items, consumption("alice", token, attempt))
			}
			a := i.post(wire.PathConsumeBatch, serviceKey, members{"items": items})
			won := 0
			for n, s := range a.Results {
				switch {
				case s.Outcome == wire.OutcomeConsumed:
					won++
				case n == 0 || s.Code != string(wire.CodeTokenUsed):
					t.Errorf("%s mode, item %d: %+v", mode, n, s)
				}
			}
			if won != tt.winners {
				t.Errorf("%s mode, attempts %q: %d were granted the token: %v", mode, tt.attempts, won, a)
			}
		}
	}
}
