package redisstore

import (
	"context"
	"regexp"
	"strconv"
	"testing"
	"time"

	"example.com/tokend/internal/redistest"
	"example.com/tokend/token"
)

// BenchmarkScripts reports what Redis itself spends on each script, by its own account: the
// scripts are sent a hundred at a time, so that the network plays no part.
func BenchmarkScripts(b *testing.B) {
	rdb := redistest.Start(b).Client()
	s := New(rdb, Options{})
	ring := newTestRing(b)
	ctx := context.Background()
	const batch = 100
	tokens := make([]*token.Token, batch)
	issues, consumes, replays := make([]*call, batch), make([]*call, batch), make([]*call, batch)
	rate := token.Rate{PerMinute: 1e9, Burst: 1e9}
	total := map[string]float64{}
	perCall := regexp.MustCompile(`cmdstat_evalsha:calls=\d+,usec=(\d+)`)
	measure := func(name string, calls []*call) {
		rdb.ConfigResetStat(ctx)
		s.runOn(ctx, rdb, calls)
		for _, c := range calls {
			if c.err != nil {
				b.Fatal(c.err)
			}
		}
		m := perCall.FindStringSubmatch(rdb.Info(ctx, "commandstats").Val())
		us, _ := strconv.Atoi(m[1])
		total[name] += float64(us) / float64(len(calls))
	}
	for b.Loop() {
		for i := range batch {
			tokens[i], issues[i] = newIssue(s, ring, token.Rate{})
			consumes[i] = s.consumption(token.Consumption{User: "alice", Token: tokens[i], Attempt: "a"})
			replays[i] = s.consumption(token.Consumption{User: "alice", Token: tokens[i], Attempt: "b"})
		}
		measure("issue", issues)
		measure("consume", consumes)
		measure("used", replays)
		for i := range batch {
			_, issues[i] = newIssue(s, ring, rate)
		}
		measure("limited-issue", issues)

		claims, replays, steps := make([]*call, batch), make([]*call, batch), map[string][]*call{}
		order := []*script{renewScript, commitScript, completeScript}
		for i := range batch {
			tokens[i], issues[i] = newIssue(s, ring, token.Rate{})
			c := token.Claiming{Subject: token.TokenSubject("alice", tokens[i]), Attempt: "a", Lease: time.Minute}
			claims[i], replays[i] = s.claiming(c), s.claiming(c)
			h := token.Handle{User: token.User("alice").Hash(), ID: tokens[i].ID, Fence: 1, Attempt: c.Attempt.Hash()}
			for _, sc := range order {
				var more []any
				switch sc {
				case renewScript:
					more = []any{time.Hour.Milliseconds()}
				case completeScript:
					more = []any{appendResult(nil, &token.Result{Status: 200, Body: make([]byte, 1000)})}
				}
				steps[sc.op] = append(steps[sc.op], s.stepping(sc, h, more...))
			}
		}
		s.runOn(ctx, rdb, issues)
		measure("claim", claims)
		for _, sc := range order {
			measure(sc.op, steps[sc.op])
		}
		measure("replay", replays)
	}
	for name, us := range total {
		b.ReportMetric(us/float64(b.N), name+"-µs")
	}
	b.ReportMetric(0, "ns/op")
}

// newIssue returns a call that issues a token, and the token.
func newIssue(s *Store, ring *token.Ring, rate token.Rate) (*token.Token, *call) {
	id, expires := token.NewID(), time.Now().Add(time.Minute)
	t, err := ring.Parse(ring.Sign(token.Grant{ID: id, User: "alice", Purpose: "p", Mode: token.Record, ExpiresAt: expires, Retention: time.Minute}))
	if err != nil {
		panic(err)
	}
	return t, s.issuing(token.NewRecords{
		IDs: []token.ID{id}, User: "alice", Mode: token.Record, TTL: time.Minute, Retention: time.Minute, Rate: rate,
	})
}
