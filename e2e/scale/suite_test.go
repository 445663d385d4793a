package scale_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/tokend/token"
	"example.com/tokend/token/redisstore"
	"example.com/tokend/token/tokentest"
)

// runSuite runs the behaviour suite on rdb, where so many replicas are waited for.
func runSuite(t *testing.T, rdb redis.UniversalClient, replicas int) {
	t.Cleanup(func() { rdb.Close() })
	tokentest.Run(t, func(t *testing.T) tokentest.Backend {
		return tokentest.Backend{
			Store: redisstore.New(rdb, redisstore.Options{
				Prefix: "test-" + string(token.NewAttempt()), Timeout: 20 * time.Second,
				WaitReplicas: replicas, WaitTimeout: 10 * time.Second,
			}),
			Advance: time.Sleep,
		}
	})
}

// TestCluster runs the behaviour suite over three masters, each change acknowledged by a
// replica.
func TestCluster(t *testing.T) { runSuite(t, startCluster(t, 1).NewClient(), 1) }

// TestSentinel runs the behaviour suite on the master that the Sentinels name.
func TestSentinel(t *testing.T) { runSuite(t, startSentinel(t).NewClient(), 0) }
