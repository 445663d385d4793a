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

// newPrefix returns a key prefix that no other test uses.
func newPrefix() string { return "test-" + string(token.NewAttempt()) }

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

func TestRedis(t *testing.T) {
	rdb := redistest.Start(t).Client()
	tokentest.Run(t, func(t *testing.T) tokentest.Backend {
		return tokentest.Backend{Store: newStore(rdb), Advance: time.Sleep}
	})
}

func TestCluster(t *testing.T) {
	rdb := redistest.StartCluster(t).ClusterClient()
	tokentest.Run(t, func(t *testing.T) tokentest.Backend {
		return tokentest.Backend{Store: newStore(rdb), Advance: time.Sleep}
	})
}
