package redisstore

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"example.com/tokend/internal/redistest"
	"example.com/tokend/token"
)

func newTestRing(t testing.TB) *token.Ring {
	t.Helper()
	ring, err := token.NewRing(token.Key{ID: "k"})
	if err != nil {
		t.Fatal(err)
	}
	return ring
}

// run runs calls on s's only server, and returns what was said to each.
func run(t *testing.T, s *Store, calls ...*call) []string {
	t.Helper()
	s.runOn(t.Context(), s.rdb, calls)
	var said []string
	for _, c := range calls {
		if c.err != nil {
			said = append(said, "fault")
		} else {
			said = append(said, c.reply.status)
		}
	}
	return said
}

// ran tells how many scripts rdb's server has run since it was asked last.
func ran(t *testing.T, rdb redis.UniversalClient) int {
	t.Helper()
	total := 0
	for _, m := range regexp.MustCompile(`cmdstat_eval(?:sha)?:calls=(\d+)`).FindAllStringSubmatch(rdb.Info(t.Context(), "commandstats").Val(), -1) {
		var n int
		fmt.Sscan(m[1], &n)
		total += n
	}
	if err := rdb.ConfigResetStat(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	return total
}

func consuming(s *Store, tok *token.Token, a token.Attempt) *call {
	return s.consumption(token.Consumption{User: "alice", Token: tok, Attempt: a})
}

func wantSaid(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("said %q, want %q", got, want)
	}
}

// stores are a store on each kind of server; all but miniredis's can say what they ran.
func stores(t *testing.T) map[string]*Store {
	m := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	t.Cleanup(func() { m.Close() })
	return map[string]*Store{
		"miniredis": New(m, Options{Timeout: 10 * time.Second}),
		"redis":     New(redistest.Start(t).Client(), Options{Timeout: 10 * time.Second}),
		"cluster":   New(redistest.StartCluster(t).ClusterClient(), Options{Timeout: 10 * time.Second}),
		"behind":    New(redistest.StartCluster(t).Client(), Options{Timeout: 10 * time.Second}), // as behind a proxy
	}
}

// TestCallsShareOneRun has calls of all kinds fly together, some of them for the same token:
// each is answered as if it had come alone, in order.
func TestCallsShareOneRun(t *testing.T) {
	ring := newTestRing(t)
	for name, s := range stores(t) {
		t.Run(name, func(t *testing.T) {
			tok1, issue1 := newIssue(s, ring, token.Rate{})
			tok2, issue2 := newIssue(s, ring, token.Rate{PerMinute: 1, Burst: 2})
			_, issue3 := newIssue(s, ring, token.Rate{PerMinute: 1, Burst: 2})
			_, issue4 := newIssue(s, ring, token.Rate{PerMinute: 1, Burst: 2})
			never, _ := newIssue(s, ring, token.Rate{})
			wantSaid(t, run(t, s, issue1, issue2, issue3, issue4, issue1), "issued", "issued", "issued", "limited", "issued")
			if name != "miniredis" {
				ran(t, s.rdb)
			}
			wantSaid(t, run(t, s,
				consuming(s, tok1, "a"), consuming(s, tok1, "b"), consuming(s, tok2, "b"), consuming(s, tok1, "a"), consuming(s, never, "a"),
			), "consumed", "used", "consumed", "replayed", "lost")
			if name != "miniredis" {
				if n := ran(t, s.rdb); n != 2 { // Redis did not know the script
					t.Errorf("%d runs for calls that fly together, want 1 and its repeat", n)
				}
			}
			if rec := s.rdb.Get(t.Context(), consuming(s, tok1, "a").keys[0]).Val(); len(rec) != usedSize {
				t.Errorf("a used record of %d bytes", len(rec))
			}
			s.rdb.ScriptFlush(t.Context())
			wantSaid(t, run(t, s, consuming(s, tok1, "a"), consuming(s, tok2, "c")), "replayed", "used")
		})
	}
}

// TestIssuesThatDiffer has issues fly together that ask for different things: each gets its own.
func TestIssuesThatDiffer(t *testing.T) {
	asked := []token.NewRecords{
		{TTL: time.Minute, Retention: time.Hour, Mode: token.Record},
		{TTL: 2 * time.Minute, Retention: time.Hour, Mode: token.Record},
		{TTL: time.Minute, Retention: 2 * time.Hour, Mode: token.Record},
		{TTL: time.Minute, Retention: time.Hour, Mode: token.Delete},
		{TTL: time.Minute, Retention: time.Hour, Mode: token.Record, Rate: token.Rate{PerMinute: 1e6, Burst: 1e6}},
		{TTL: time.Minute, Retention: time.Hour, Mode: token.Record, Rate: token.Rate{PerMinute: 1, Burst: 1}},
	}
	for name, s := range stores(t) {
		t.Run(name, func(t *testing.T) {
			var calls []*call
			var want []string
			for n := 2; n <= 3; n++ {
				for _, ask := range asked {
					ask.User = "alice"
					for range n {
						ask.IDs = append(ask.IDs, token.NewID())
					}
					calls, want = append(calls, s.issuing(ask)), append(want, "issued")
				}
				want[len(want)-1] = "limited" // more than at once
			}
			wantSaid(t, run(t, s, calls...), want...)
			for i, c := range calls {
				ask := asked[i%len(asked)]
				for j, key := range c.keys[:2+i/len(asked)] {
					if want[i] == "limited" {
						if n := s.rdb.Exists(t.Context(), key).Val(); n != 0 {
							t.Errorf("call %d, token %d: there is one", i, j)
						}
						continue
					}
					text := s.rdb.Get(t.Context(), key).Val()
					rec, err := parseRecord(text)
					if err != nil {
						t.Fatalf("call %d, token %d: %v", i, j, err)
					}
					left := s.rdb.TTL(t.Context(), key).Val()
					if rec.life != ask.TTL || rec.retention != ask.Retention || (text[1]&flagDelete != 0) != (ask.Mode == token.Delete) ||
						left > ask.TTL+time.Second || left < ask.TTL-50*time.Second {
						t.Errorf("call %d, token %d: %+v, %v left; want %+v", i, j, rec, left, ask)
					}
				}
			}
		})
	}
}

// TestCallsOfSeveralSlots has calls for users of several slots fly together.
func TestCallsOfSeveralSlots(t *testing.T) {
	ring := newTestRing(t)
	for name, s := range stores(t) {
		t.Run(name, func(t *testing.T) {
			var issues, consumes []*call
			var issued, consumed []string
			for i := range 20 {
				user := token.User(fmt.Sprint("user", i))
				tok, err := ring.Parse(ring.Sign(token.Grant{
					ID: token.NewID(), User: user, Purpose: "p", Mode: token.Record, ExpiresAt: time.Now().Add(time.Minute), Retention: time.Minute,
				}))
				if err != nil {
					t.Fatal(err)
				}
				issues = append(issues, s.issuing(token.NewRecords{
					IDs: []token.ID{tok.ID, token.NewID()}, User: user, Mode: token.Record, TTL: time.Minute, Retention: time.Minute,
					Rate: token.Rate{PerMinute: 1, Burst: 2},
				}))
				consumes = append(consumes, s.consumption(token.Consumption{User: user, Token: tok, Attempt: "a"}))
				issued, consumed = append(issued, "issued"), append(consumed, "consumed")
			}
			wantSaid(t, run(t, s, issues...), issued...)
			if name != "miniredis" {
				ran(t, s.rdb)
			}
			wantSaid(t, run(t, s, consumes...), consumed...)
			if name == "redis" {
				if n := ran(t, s.rdb); n != 2 {
					t.Errorf("%d runs, want 1 and its repeat", n)
				}
			}
			if want := name == "behind"; s.slotted.Load() != want {
				t.Errorf("slotted is %v", !want)
			}
		})
	}
}

// TestOneCallIsRefusedByRedis has one of the calls that fly together be for a key that holds
// what is no record: it alone is a fault.
func TestOneCallIsRefusedByRedis(t *testing.T) {
	ring := newTestRing(t)
	for name, s := range stores(t) {
		t.Run(name, func(t *testing.T) {
			for place := range 3 {
				toks, issues, consumes := make([]*token.Token, 3), make([]*call, 3), make([]*call, 3)
				for i := range toks {
					toks[i], issues[i] = newIssue(s, ring, token.Rate{})
					consumes[i] = consuming(s, toks[i], "a")
				}
				run(t, s, issues...)
				key := consumes[place].keys[0]
				s.rdb.Del(t.Context(), key)
				if err := s.rdb.LPush(t.Context(), key, "x").Err(); err != nil {
					t.Fatal(err)
				}
				want := []string{"consumed", "consumed", "consumed"}
				want[place] = "fault"
				got := run(t, s, consumes...)
				for i := range got { // some may have been consumed before the fault came
					got[i] = strings.Replace(got[i], "replayed", "consumed", 1)
				}
				wantSaid(t, got, want...)
			}
		})
	}
}

// TestFullMemoryRefusesAll has memory be full for calls that fly together, the first of which
// its rate refuses.
func TestFullMemoryRefusesAll(t *testing.T) {
	s := New(redistest.Start(t).Client(), Options{})
	issuing := func(user token.User) *call {
		return s.issuing(token.NewRecords{
			IDs: []token.ID{token.NewID()}, User: user, Mode: token.Record, TTL: time.Minute, Retention: time.Minute,
			Rate: token.Rate{PerMinute: 1, Burst: 1},
		})
	}
	run(t, s, issuing("alice"))
	s.rdb.ConfigSet(context.Background(), "maxmemory", "1")
	keys := s.rdb.DBSize(t.Context()).Val()
	wantSaid(t, run(t, s, issuing("alice"), issuing("bob")), "limited", "fault")
	if got := s.rdb.DBSize(t.Context()).Val(); got != keys {
		t.Errorf("%d keys, want %d", got, keys)
	}
}
