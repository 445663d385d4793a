package redisstore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/tokend/internal/redistest"
	"example.com/tokend/token"
	"example.com/tokend/token/redisstore"
)

// opened returns a token of mode on s, opened.
func opened(t testing.TB, s token.Store, mode token.Mode) *token.Token {
	t.Helper()
	ring, err := token.NewRing(token.Key{ID: "k", Secret: [32]byte{7}})
	if err != nil {
		t.Fatal(err)
	}
	svc := token.NewService(ring, s, token.Options{Mode: mode, Settings: token.Settings{TTL: time.Minute, MaxTTL: time.Hour, Retention: time.Hour}})
	_, tok := issue(t, svc)
	return tok
}

// clients are the ways to reach a server, alone or of a cluster, through a proxy that loses
// replies.
func clients(t *testing.T) map[string]struct {
	rdb   redis.UniversalClient
	proxy *redistest.Proxy
} {
	alone, cluster := redistest.Start(t), redistest.StartCluster(t)
	p1, p2 := redistest.NewProxy(t, alone.Addr), redistest.NewProxy(t, cluster.Addr)
	slots := func(context.Context) ([]redis.ClusterSlot, error) {
		return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: p2.Addr}}}}, nil
	}
	c1 := redis.NewClient(&redis.Options{Addr: p1.Addr, ContextTimeoutEnabled: true})
	c2 := redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: slots, ContextTimeoutEnabled: true})
	t.Cleanup(func() { c1.Close(); c2.Close() })
	return map[string]struct {
		rdb   redis.UniversalClient
		proxy *redistest.Proxy
	}{"alone": {c1, p1}, "cluster": {c2, p2}}
}

// TestDeleteIsNeverSentAgain loses the reply of a DEL: the token is gone, nobody can tell
// whether by this call, and go-redis must not ask again and read its own DEL as another's.
func TestDeleteIsNeverSentAgain(t *testing.T) {
	for name, c := range clients(t) {
		t.Run(name, func(t *testing.T) {
			s := redisstore.New(c.rdb, redisstore.Options{Timeout: 10 * time.Second})
			for range 3 {
				tok := opened(t, s, token.Delete)
				c.proxy.DropReply("\r\ndel\r\n")
				_, err := s.Consume(t.Context(), token.Consumption{User: alice, Token: tok, Attempt: "a"})
				var f *token.Fault
				if !errors.As(err, &f) || !f.Unknown {
					t.Errorf("a DEL whose reply was lost: %v, want a fault whose outcome is unknown", err)
				}
				if _, err := s.Consume(t.Context(), token.Consumption{User: alice, Token: tok, Attempt: "a"}); !errors.Is(err, token.ErrUsed) {
					t.Errorf("again: %v, want %v", err, token.ErrUsed)
				}
			}
			if got := c.proxy.Dropped(); got != 3 {
				t.Errorf("%d replies were dropped, want 3", got)
			}
		})
	}
}

// TestDeleteIssueIsNeverSentAgain: a second SET, come late, would bring a deleted token
// back.
func TestDeleteIssueIsNeverSentAgain(t *testing.T) {
	for name, c := range clients(t) {
		t.Run(name, func(t *testing.T) {
			s := redisstore.New(c.rdb, redisstore.Options{Timeout: 10 * time.Second})
			opened(t, s, token.Delete) // by now Redis knows the script
			rec := token.NewRecords{IDs: []token.ID{token.NewID()}, User: alice, Mode: token.Delete, TTL: time.Minute, Retention: time.Minute}
			c.proxy.DropReply("evalsha")
			_, err := s.Issue(t.Context(), rec)
			mustFault(t, "an issue whose reply was lost", err)
			if got := c.proxy.Dropped(); got != 1 {
				t.Errorf("%d replies were dropped, want 1", got)
			}
		})
	}
}

// TestDeleteNotSent: where surely nothing was sent, or Redis said no, asking again is safe.
func TestDeleteNotSent(t *testing.T) {
	server := redistest.Start(t)
	rdb := server.Client()
	s := redisstore.New(rdb, redisstore.Options{})
	tok := opened(t, s, token.Delete)
	consume := func() error {
		_, err := s.Consume(t.Context(), token.Consumption{User: alice, Token: tok, Attempt: "a"})
		return err
	}
	mustBeSafe := func(what string) {
		t.Helper()
		err := consume()
		mustFault(t, what, err)
		var f *token.Fault
		if errors.As(err, &f) && f.Unknown {
			t.Errorf("%s: the outcome is called unknown: %v", what, err)
		}
	}
	rdb.ConfigSet(t.Context(), "min-replicas-to-write", "1")
	mustBeSafe("cut off from its replicas")
	rdb.ConfigSet(t.Context(), "min-replicas-to-write", "0")
	server.Kill()
	for rdb.Ping(t.Context()).Err() == nil || rdb.PoolStats().TotalConns > 0 {
	}
	mustBeSafe("down")
	if err := consume(); errors.Is(err, token.ErrUsed) {
		t.Errorf("down: %v", err)
	}
}

// TestDeleteAddsNothing: in delete mode a used token takes nothing of Redis.
func TestDeleteAddsNothing(t *testing.T) {
	rdb := redistest.Start(t).Client()
	s := redisstore.New(rdb, redisstore.Options{})
	tok := opened(t, s, token.Delete)
	if _, err := s.Consume(t.Context(), token.Consumption{User: alice, Token: tok, Attempt: "a"}); err != nil {
		t.Fatal(err)
	}
	if keys := rdb.Keys(t.Context(), "*").Val(); len(keys) != 0 {
		t.Errorf("left in Redis: %q", keys)
	}
}
