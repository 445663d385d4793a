package redisstore_test

import (
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"example.com/tokend/internal/redistest"
	"example.com/tokend/token"
	"example.com/tokend/token/redisstore"
	"example.com/tokend/token/tokentest"
)

// newPrefix returns a key prefix that no other test uses, and that the user of
// deploy/redis.acl may.
func newPrefix() string { return "tokend:" + string(token.NewAttempt()) }

func newStore(rdb redis.UniversalClient) *redisstore.Store {
	return redisstore.New(rdb, redisstore.Options{Prefix: newPrefix(), Timeout: 10 * time.Second})
}

func TestMiniredis(t *testing.T) {
	tokentest.Run(t, func(t *testing.T) tokentest.Backend {
		m := miniredis.RunT(t)
		now := time.Now()
		m.SetTime(now)
		rdb := redis.NewClient(&redis.Options{Addr: m.Addr(), ContextTimeoutEnabled: true})
		t.Cleanup(func() { rdb.Close() })
		return tokentest.Backend{
			Store: newStore(rdb),
			Advance: func(d time.Duration) {
				now = now.Add(d)
				m.SetTime(now)
				m.FastForward(d)
			},
			Movable: true,
		}
	})
}

// TestRedis runs the suite as the user of deploy/redis.acl, who is denied nothing.
func TestRedis(t *testing.T) {
	server := redistest.Start(t)
	rdb := leastClient(t, server)
	tokentest.Run(t, func(t *testing.T) tokentest.Backend {
		return tokentest.Backend{Store: newStore(rdb), Advance: time.Sleep}
	})
}

// TestCluster is TestRedis on a cluster, of which the user may see the slots.
func TestCluster(t *testing.T) {
	server := redistest.StartCluster(t)
	server.AddUser("tokend", redistest.ForCluster...)
	nothingDenied(t, server)
	rdb := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: []string{server.Addr}, Username: "tokend", Password: redistest.Password, ContextTimeoutEnabled: true,
	})
	t.Cleanup(func() { rdb.Close() })
	tokentest.Run(t, func(t *testing.T) tokentest.Backend {
		return tokentest.Backend{Store: newStore(rdb), Advance: time.Sleep}
	})
}

// leastClient returns a client that may do what deploy/redis.acl allows. The test fails
// where it was denied anything, even what nobody noticed.
func leastClient(t *testing.T, server *redistest.Server) *redis.Client {
	t.Helper()
	server.AddUser("tokend")
	nothingDenied(t, server)
	return server.ClientAs("tokend")
}

func nothingDenied(t *testing.T, server *redistest.Server) {
	t.Cleanup(func() {
		if denied := server.Denied(); len(denied) > 0 {
			t.Errorf("deploy/redis.acl denied: %q", denied)
		}
	})
}
