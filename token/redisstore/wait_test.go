package redisstore_test

import (
	"crypto/rand"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/tokend/internal/redistest"
	"example.com/tokend/token"
	"example.com/tokend/token/redisstore"
)

// TestWaitReplicas acknowledges a change only when a replica has it, and never takes a
// change back: the same attempt, sent again when the replica is there, is a success.
func TestWaitReplicas(t *testing.T) {
	master, replica := redistest.Start(t, "--repl-diskless-sync-delay", "0"), redistest.Start(t)
	rdb, below := master.Client(), replica.Client()
	hasty := redisstore.New(rdb, redisstore.Options{WaitReplicas: 1, WaitTimeout: 10 * time.Millisecond, Timeout: 10 * time.Second})
	patient := redisstore.New(rdb, redisstore.Options{WaitReplicas: 1, WaitTimeout: 20 * time.Second, Timeout: 30 * time.Second})
	plain := redisstore.New(rdb, redisstore.Options{})

	for _, mode := range []token.Mode{token.Record, token.Delete} {
		tok := opened(t, plain, mode)
		consume := func(s *redisstore.Store) (token.Consumed, error) {
			return s.Consume(t.Context(), token.Consumption{User: alice, Token: tok, Attempt: "a"})
		}
		_, err := consume(hasty)
		mustFault(t, mode.String()+": consume without a replica", err)
		var f *token.Fault
		if errors.As(err, &f) && f.Unknown != (mode == token.Delete) {
			t.Errorf("%v: unknown is %v: %v", mode, f.Unknown, err)
		}

		follow(t, below, master)
		got, err := consume(patient)
		if mode == token.Record && (err != nil || !got.Replayed) || mode == token.Delete && !errors.Is(err, token.ErrUsed) {
			t.Errorf("%v: the same attempt, with a replica: %+v, %v", mode, got, err)
		}
		tok = opened(t, patient, mode) // issued and consumed on both
		key := redisstore.TokenKey("tokend", alice.Hash(), tok.ID)
		if below.Get(t.Context(), key).Err() != nil {
			t.Errorf("%v: an acknowledged token is not on the replica", mode)
		}
		if _, err := consume(patient); err != nil {
			t.Errorf("%v: consume with a replica: %v", mode, err)
		}
		if got, want := below.Get(t.Context(), key).Val(), rdb.Get(t.Context(), key).Val(); got != want {
			t.Errorf("%v: the replica holds %q, the master %q", mode, got, want)
		}
		below.ReplicaOf(t.Context(), "no", "one")
	}
}

// follow has replica follow master, and waits until it does.
func follow(t *testing.T, replica *redis.Client, master *redistest.Server) {
	t.Helper()
	host, port, _ := net.SplitHostPort(master.Addr)
	replica.ReplicaOf(t.Context(), host, port)
	conn := master.Client().Conn() // WAIT waits for its own connection's writes
	defer conn.Close()
	for deadline := time.Now().Add(30 * time.Second); ; {
		conn.Set(t.Context(), "probe", "1", time.Minute)
		if conn.Wait(t.Context(), 1, time.Second).Val() > 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the replica did not come up")
		}
	}
}

// replays carries out calls of all kinds by s, and returns each to be sent again.
func replays(t *testing.T, s *redisstore.Store) map[string]func(*redisstore.Store) error {
	t.Helper()
	used, revoked := opened(t, s, token.Record), opened(t, s, token.Record)
	consumption := token.Consumption{User: alice, Token: used, Attempt: "a"}
	claimed := claiming(newKey(), "a")
	h := map[string]token.Handle{}
	for _, step := range []string{"commit", "complete", "release"} {
		h[step] = claim(t, s, claiming(newKey(), "a"))
	}
	issue := func(rate token.Rate) func(*redisstore.Store) error {
		asked := token.NewRecords{
			IDs: []token.ID{token.NewID(), token.NewID()}, User: token.User(rand.Text()), Mode: token.Record,
			TTL: time.Hour, Retention: time.Hour, Rate: rate,
		}
		return func(s *redisstore.Store) error { _, err := s.Issue(t.Context(), asked); return err }
	}
	again := map[string]func(*redisstore.Store) error{
		"issue":                 issue(token.Rate{}),
		"issue, under the rate": issue(token.Rate{PerMinute: 1, Burst: 100}),
		"issue, above the rate": issue(token.Rate{PerMinute: 1, Burst: 2}), // which is used up by the first
		"consume":               func(s *redisstore.Store) error { _, err := s.Consume(t.Context(), consumption); return err },
		"revoke": func(s *redisstore.Store) error {
			_, err := s.Revoke(t.Context(), token.TokenSubject(alice, revoked))
			return err
		},
		"claim":    func(s *redisstore.Store) error { _, err := s.Claim(t.Context(), claimed); return err },
		"commit":   func(s *redisstore.Store) error { _, err := s.Commit(t.Context(), h["commit"]); return err },
		"complete": func(s *redisstore.Store) error { _, err := s.Complete(t.Context(), h["complete"], nil); return err },
		"release":  func(s *redisstore.Store) error { return s.Release(t.Context(), h["release"]) },
	}
	for name, call := range again {
		if err := call(s); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	return again
}

// TestReplaysWaitForReplicas sends again what was carried out while the only replica stands
// still: the answer must be that it waits in vain.
func TestReplaysWaitForReplicas(t *testing.T) {
	master, replica := redistest.Start(t, "--repl-diskless-sync-delay", "0"), redistest.Start(t)
	follow(t, replica.Client(), master)
	fresh := func(wait, timeout time.Duration) *redisstore.Store {
		return redisstore.New(master.Client(), redisstore.Options{WaitReplicas: 1, WaitTimeout: wait, Timeout: timeout})
	}
	again := replays(t, redisstore.New(master.Client(), redisstore.Options{}))
	replica.Pause()
	defer replica.Resume()
	for name, call := range again {
		mustFault(t, name+" again, which the replica lacks", call(fresh(10*time.Millisecond, 10*time.Second)))
	}
	replica.Resume()
	for name, call := range again {
		if err := call(fresh(20*time.Second, 30*time.Second)); err != nil {
			t.Errorf("%s again, with the replica: %v", name, err)
		}
	}
}

// TestReplaysWrite counts what is written by what is sent again. Redis 7.0's WAIT waits for
// whatever was written before it was asked, others' for what its connection has written: a
// replay that writes has something to wait for everywhere.
func TestReplaysWrite(t *testing.T) {
	rdb := redistest.Start(t).Client()
	s := redisstore.New(rdb, redisstore.Options{})
	// Not how often SET was called: one may find that it has nothing to do.
	changes := func() string {
		stats, err := rdb.Info(t.Context(), "persistence").Result()
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(stats, "rdb_changes_since_last_save:")
		n, _, _ := strings.Cut(rest, "\r")
		return n
	}
	for name, call := range replays(t, s) {
		before := changes()
		if err := call(s); err != nil {
			t.Errorf("%s again: %v", name, err)
		}
		if changes() == before {
			t.Errorf("%s again writes nothing", name)
		}
	}
}
