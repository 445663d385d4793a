package redisstore_test

import (
	"errors"
	"net"
	"testing"
	"time"

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

		host, port, _ := net.SplitHostPort(master.Addr)
		below.ReplicaOf(t.Context(), host, port)
		conn := rdb.Conn() // WAIT waits for its own connection's writes
		for deadline := time.Now().Add(30 * time.Second); ; {
			conn.Set(t.Context(), "probe", "1", time.Minute)
			if conn.Wait(t.Context(), 1, time.Second).Val() > 0 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("the replica did not come up")
			}
		}
		conn.Close()
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
