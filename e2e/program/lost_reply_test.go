package program_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"example.com/tokend/httpapi/wire"
	"example.com/tokend/internal/redistest"
)

// lossy starts Redis behind a proxy that loses replies, and an instance on it.
func lossy(t *testing.T, more ...string) (*redistest.Server, *redistest.Proxy, *instance) {
	r := redistest.Start(t)
	proxy := redistest.NewProxy(t, r.Addr)
	i := startReady(t, redisURL(proxy.Addr), more...)
	// At its start an instance tries Redis out, beside what it serves: with a token of its own,
	// which it deletes at the end, and uses up by the same command in delete mode. No reply to
	// that is to be the lost one.
	last := "calls=1,"
	if slices.Contains(more, "TOKENS_MODE=delete") {
		last = "calls=2,"
	}
	until(t, "Redis is tried out", func() bool {
		return strings.Contains(r.Client().Info(t.Context(), "commandstats").Val(), "cmdstat_del:"+last)
	})
	return r, proxy, i
}

// lose has the reply to the next of the service's scripts lost; cold has Redis forget the
// scripts before, so that it is another command that goes first.
func lose(t *testing.T, r *redistest.Server, proxy *redistest.Proxy, cold bool) {
	t.Helper()
	if !cold {
		proxy.DropReply("evalsha", "fcall")
		return
	}
	if err := forget(t.Context(), r.Client()); err != nil {
		t.Fatal(err)
	}
	proxy.DropReply("eval\r\n", "function\r\n")
}

// forget has Redis forget what it knows by name.
func forget(ctx context.Context, c *redis.Client) error {
	if err := c.ScriptFlush(ctx).Err(); err != nil {
		return err
	}
	return c.FunctionFlush(ctx).Err()
}

// A reply that is lost between Redis and the service turns no success into a refusal,
// whether the caller named its attempt or not.
func TestLostReplyOfConsume(t *testing.T) {
	t.Parallel()
	r, proxy, i := lossy(t)
	for _, tt := range []struct {
		name, path, attempt string
		cold                bool
	}{
		{"with an attempt", wire.PathConsume, "a1", false},
		{"without", wire.PathConsume, "", false},
		{"with an attempt, scripts forgotten", wire.PathConsume, "a1", true},
		{"without, scripts forgotten", wire.PathConsume, "", true},
		{"batch, with attempts", wire.PathConsumeBatch, "a1", false},
		{"batch, without", wire.PathConsumeBatch, "", false},
		{"batch, without, scripts forgotten", wire.PathConsumeBatch, "", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for range 10 {
				token, second := i.issue("alice"), i.issue("alice")
				before := proxy.Dropped()
				lose(t, r, proxy, tt.cold)
				var got answer
				if tt.path == wire.PathConsume {
					got = i.consume("alice", token, tt.attempt)
				} else {
					got = i.post(tt.path, serviceKey, members{"items": []members{
						consumption("alice", token, tt.attempt), consumption("alice", second, tt.attempt),
					}})
				}
				results := []said{got.said}
				if tt.path == wire.PathConsumeBatch {
					results = got.Results
				}
				if got.status != http.StatusOK || slices.ContainsFunc(results, func(s said) bool { return s.Outcome != wire.OutcomeConsumed }) {
					t.Fatalf("the rightful caller hears %v", got)
				}
				if proxy.Dropped() != before+1 {
					t.Fatalf("%d replies were lost", proxy.Dropped()-before)
				}
				if a := i.consume("alice", token, "other"); a.Code != string(wire.CodeTokenUsed) {
					t.Fatalf("another attempt: %v", a)
				}
			}
		})
	}
}

// A reply to an issue that is lost is neither a refusal nor counted twice.
func TestLostReplyOfIssueIsCountedOnce(t *testing.T) {
	t.Parallel()
	r, proxy, i := lossy(t, "RATE_ISSUE_PER_MINUTE=1", "RATE_BURST=6")
	for _, cold := range []bool{false, true} {
		user := map[bool]string{false: "alice", true: "bob"}[cold]
		bearer := userJWT(t, user)
		issue := func(path string, body members) answer {
			t.Helper()
			before := proxy.Dropped()
			lose(t, r, proxy, cold)
			a := i.post(path, bearer, body)
			if a.status == http.StatusCreated && proxy.Dropped() != before+1 {
				t.Fatalf("%d replies were lost", proxy.Dropped()-before)
			}
			return a
		}
		var tokens []string
		for range 3 {
			a := issue(wire.PathTokens, members{})
			if a.status != http.StatusCreated {
				t.Fatalf("issue: %v", a)
			}
			tokens = append(tokens, a.Token)
		}
		a := issue(wire.PathBatch, members{"count": 3})
		if a.status != http.StatusCreated || len(a.Tokens) != 3 {
			t.Fatalf("batch: %v", a)
		}
		for _, x := range a.Tokens {
			tokens = append(tokens, x.Token)
		}
		proxy.DropReply()
		if a := i.post(wire.PathTokens, bearer, members{}); a.Code != string(wire.CodeRateLimited) || a.header.Get("Retry-After") == "" {
			t.Errorf("the seventh of a burst of six: %v", a)
		}
		for _, token := range tokens {
			if a := i.consume(user, token, ""); a.status != http.StatusOK {
				t.Errorf("a token whose issue lost its reply: %v", a)
			}
		}
	}
}

// Delete mode cannot know what became of a DEL without a reply: it says so. An issue
// without a reply may be asked again.
func TestLostReplyInDeleteMode(t *testing.T) {
	t.Parallel()
	_, proxy, i := lossy(t, "TOKENS_MODE=delete")
	token := i.issue("alice")
	proxy.DropReply("\r\ndel\r\n")
	a := i.consume("alice", token, "a1")
	if a.status != http.StatusServiceUnavailable || a.Code != string(wire.CodeOutcomeUnknown) || a.Next != string(wire.NextVerify) || a.header.Get("Retry-After") != "" {
		t.Errorf("consume: %v", a)
	}
	if a := i.consume("alice", token, "a1"); a.Code != string(wire.CodeTokenUsed) {
		t.Errorf("once more: %v", a)
	}
	proxy.DropReply("evalsha", "fcall")
	if a := i.post(wire.PathTokens, serviceKey, members{"user": "alice"}); a.Code != string(wire.CodeStoreUnavailable) || a.Next != string(wire.NextRetry) {
		t.Errorf("issue: %v", a)
	}
	if proxy.Dropped() != 2 {
		t.Errorf("%d replies were lost", proxy.Dropped())
	}
	i.usable()
}
