package tokend_test

import (
	"context"
	"fmt"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.com/tokend/internal/redistest"
	"example.com/tokend/token"
	"example.com/tokend/token/redisstore"
)

// TestScaling works out again what docs/scaling.md works out from its measured figures, and
// measures the bytes anew.
func TestScaling(t *testing.T) {
	page, err := os.ReadFile("docs/scaling.md")
	if err != nil {
		t.Fatal(err)
	}
	measured, derived := figures(t, string(page), "measured"), figures(t, string(page), "derived")

	const (
		n, peak          = 1e9, 3
		ttl, form        = 300, 30
		gb, masterGB     = 1e9, 16 * .75
		day, hour, extra = 86400, 3600, 60
	)
	perSecond := n / float64(day)
	requests := 2 * perSecond * peak
	record := func(retention float64) float64 {
		return perSecond * (ttl + retention + extra) * measured["used_bytes"] / gb
	}
	want := map[string]float64{
		"peak_requests": requests,
		"redis_cores":   requests * measured["redis_us"] / 1e6,
		"server_cores":  requests * measured["server_us"] / 1e6,
		"record_24h_gb": record(day),
		"record_1h_gb":  record(hour),
		"delete_gb":     perSecond * form * measured["live_bytes"] / gb,
		"masters_24h":   math.Ceil(record(day) / masterGB),
		"masters_1h":    math.Ceil(record(hour) / masterGB),
	}
	for name, v := range want {
		got, ok := derived[name]
		if !ok {
			t.Errorf("the page does not work out %s", name)
		} else if math.Abs(got-v) > .051 && math.Abs(got-v)/v > .06 {
			t.Errorf("%s is %v on the page, %.4g by its formula", name, got, v)
		}
	}
	if len(derived) != len(want) {
		t.Errorf("the page works out %d figures, the test %d", len(derived), len(want))
	}

	for name, v := range measureBytes(t) {
		if got := measured[name]; math.Abs(got-v)/v > .2 {
			t.Errorf("%s is %v on the page, and %.0f here", name, got, v)
		}
	}
}

// figures reads the table of the page between the markers called name.
func figures(t *testing.T, page, name string) map[string]float64 {
	t.Helper()
	_, rest, ok1 := strings.Cut(page, "<!-- "+name+":begin -->")
	table, _, ok2 := strings.Cut(rest, "<!-- "+name+":end -->")
	if !ok1 || !ok2 {
		t.Fatalf("docs/scaling.md has no table called %s", name)
	}
	all := map[string]float64{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| ([0-9.,]+) \\|").FindAllStringSubmatch(table, -1) {
		v, err := strconv.ParseFloat(strings.ReplaceAll(m[2], ",", ""), 64)
		if err != nil {
			t.Fatal(err)
		}
		all[m[1]] = v
	}
	return all
}

// measureBytes measures what a token takes, over fewer than the page does.
func measureBytes(t *testing.T) map[string]float64 {
	t.Helper()
	rdb := redistest.Start(t).Client()
	ctx := context.Background()
	ring, err := token.NewRing(token.Key{ID: "1"})
	if err != nil {
		t.Fatal(err)
	}
	store := redisstore.New(rdb, redisstore.Options{Timeout: time.Minute})
	svc := token.NewService(ring, store, token.Options{
		Mode: token.Record, Settings: token.Settings{TTL: time.Hour, MaxTTL: time.Hour, Retention: time.Hour},
	})
	used := func() float64 {
		m := regexp.MustCompile(`used_memory:(\d+)`).FindStringSubmatch(rdb.Info(ctx, "memory").Val())
		v, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	const n = 1 << 15 // a power of two, as the million's tables are nearly: they grow by doubling
	fill := func(consume bool, d token.Digest) float64 {
		if err := rdb.FlushAll(ctx).Err(); err != nil {
			t.Fatal(err)
		}
		before := used()
		for i := range n / 64 {
			user := token.User(fmt.Sprint("user ", i))
			tokens, err := svc.IssueBatch(ctx, token.IssueRequest{User: user, Purpose: "p"}, 64)
			if err != nil {
				t.Fatal(err)
			}
			if !consume {
				continue
			}
			cs := make([]token.Consumption, len(tokens))
			for j, tok := range tokens {
				opened, err := svc.Open(token.Use{Text: tok.Text, User: user, Purpose: "p"})
				if err != nil {
					t.Fatal(err)
				}
				cs[j] = token.Consumption{User: user, Token: opened, Attempt: "a", Digest: d}
			}
			if _, errs := store.ConsumeBatch(ctx, cs); errs[0] != nil {
				t.Fatal(errs[0])
			}
		}
		return (used() - before) / n
	}
	fill(true, "d") // what the server allocates once
	return map[string]float64{"live_bytes": fill(false, ""), "used_bytes": fill(true, ""), "digest_bytes": fill(true, "d")}
}
