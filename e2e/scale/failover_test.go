package scale_test

import (
	"errors"
	"testing"
	"time"

	"example.com/tokend/client"
	"example.com/tokend/e2e/internal/callers"
	"example.com/tokend/e2e/internal/topology"
	"example.com/tokend/token"
	"example.com/tokend/token/redisstore"
)

// enough is how many consumes are acknowledged before something is broken.
const enough = 300

// habits leave the machine to what is tested.
var habits = callers.Habits{AtOnce: 4, Pace: 5 * time.Millisecond}

// TestClusterFailover kills one of three masters under load, with redis.wait_replicas 1. Its
// one replica has every change that was acknowledged, so nothing is lost. The new master has
// no replica, and so acknowledges nothing, until the old one is back as such.
func TestClusterFailover(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1)
	a, b := onCluster(t, c, waiting...), onCluster(t, c, waiting...)
	users := append(c.UsersOf(0, 4), append(c.UsersOf(1, 4), c.UsersOf(2, 4)...)...)
	loadA, loadB := callers.Start(a.Client(), users, habits), callers.Start(b.Client(), users, habits)
	must(t, topology.Until("there is load", func() bool { return loadA.Acknowledged() > enough && loadB.Acknowledged() > enough }))

	rdb := c.NewClient()
	defer rdb.Close()
	store, sub := redisstore.New(rdb, redisstore.Options{Timeout: 5 * time.Second}), token.KeySubject(token.User(users[0]), "p", "k")
	_, err := store.Status(t.Context(), sub)
	must(t, err)

	before := time.Now()
	c.Masters[0].Kill()
	promoted, err := c.UntilPromoted(0)
	must(t, err)
	t.Logf("promoted after %v", time.Since(before).Round(time.Millisecond))
	eventually(t, "a store finds the new master", func() error {
		_, err := store.Status(t.Context(), sub)
		return err
	})

	// The new master takes the change, and has nobody to give it to.
	user := users[0]
	var last error
	must(t, topology.Until("the new master is asked", func() bool {
		_, last = a.Client().Issue(t.Context(), user)
		return unavailable(last) && promoted.Client.DBSize(t.Context()).Val() > 0
	}))
	must(t, c.Masters[0].Relaunch())
	must(t, topology.UntilFollowing(c.Masters[0], promoted))
	since := time.Now()
	must(t, topology.Until("all is served again", func() bool { return loadA.Answered(since) && loadB.Answered(since) }))
	for i, load := range []*callers.Callers{loadA, loadB} {
		load.Stop()
		got, err := load.Audit([]*topology.Instance{b, a}[i].Persistent())
		must(t, err)
		t.Logf("%+v", got)
		if got.Revived+got.Expired+got.Lost+got.Unissued > 0 {
			t.Errorf("a change that the replica has acknowledged is lost: %+v", got)
		}
		if got.Faults == 0 {
			t.Error("the failover was not noticed")
		}
		noneWrong(t, got)
	}
}

// TestSentinelFailover kills the master under load, without redis.wait_replicas. What may be
// granted twice, then, was granted before the failover.
func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	s := startSentinel(t)
	a, b := serve(t, s.URL(), "sentinel"), serve(t, s.URL(), "sentinel")
	users := []string{"alice", "bob", "carol"}
	loadA, loadB := callers.Start(a.Client(), users, habits), callers.Start(b.Client(), users, habits)
	must(t, topology.Until("there is load", func() bool { return loadA.Acknowledged() > enough && loadB.Acknowledged() > enough }))

	before := time.Now()
	s.Master.Kill()
	promoted, err := s.UntilPromoted()
	must(t, err)
	since := time.Now()
	t.Logf("promoted after %v", since.Sub(before).Round(time.Millisecond))
	must(t, topology.Until("it is served again", func() bool { return loadA.Answered(since) && loadB.Answered(since) }))
	for i, load := range []*callers.Callers{loadA, loadB} {
		load.Stop()
		got, err := load.Audit([]*topology.Instance{b, a}[i].Persistent())
		must(t, err)
		t.Logf("%+v", got)
		if got.LastRevived.After(since) {
			t.Errorf("a token was granted twice after the failover: %+v", got)
		}
		noneWrong(t, got)
	}

	// The old master comes back, as a replica: it grants nothing, and nothing of it comes back.
	must(t, s.Master.Relaunch())
	must(t, topology.UntilFollowing(s.Master, promoted))
	tok, err := a.Persistent().Issue(t.Context(), "alice")
	must(t, err)
	_, err = b.Persistent().Consume(t.Context(), "alice", tok.Value)
	must(t, err)
	if _, err := a.Persistent().Consume(t.Context(), "alice", tok.Value); !errors.Is(err, client.ErrUsed) {
		t.Errorf("the second consume: %v", err)
	}
}

func noneWrong(t *testing.T, got callers.Tally) {
	t.Helper()
	for i, err := range got.Wrong {
		if i == 5 {
			t.Errorf("and %d more", len(got.Wrong)-i)
			break
		}
		t.Errorf("a wrong answer: %v", err)
	}
}

// TestReplicasHeldUp has no replica acknowledge a change: that is a store_unavailable, and
// the same attempt is a success as soon as one does.
func TestReplicasHeldUp(t *testing.T) {
	t.Parallel()
	s := startSentinel(t)
	i := serve(t, s.URL(), "sentinel", waiting...)
	c := i.Client(client.TryTimeout(topology.Patience))
	tokens, err := i.Persistent().IssueBatch(t.Context(), "alice", 3)
	must(t, err)
	for _, r := range s.Replicas {
		r.Pause()
		defer r.Resume()
	}
	attempt := client.Attempt(string(token.NewAttempt()))
	consumed, claimed := tokens[0], client.TokenOf("alice", "default", tokens[1].Value)
	items := []client.Item{{User: "alice", Token: tokens[2].Value, Attempt: string(token.NewAttempt())}}

	_, err = c.Consume(t.Context(), "alice", consumed.Value, attempt)
	if !unavailable(err) {
		t.Errorf("consume without a replica: %v", err)
	}
	if _, _, err := c.Claim(t.Context(), claimed, attempt); !unavailable(err) {
		t.Errorf("claim without a replica: %v", err)
	}
	if _, err := c.Issue(t.Context(), "alice"); !unavailable(err) {
		t.Errorf("issue without a replica: %v", err)
	}
	if got, err := c.ConsumeBatch(t.Context(), items); err != nil || !unavailable(got[0].Err) {
		t.Errorf("batch without a replica: %v, %v", got, err)
	}
	// Nor is a refusal acknowledged: of a master that has no replica any more, it may be stale.
	if _, err := c.Consume(t.Context(), "alice", consumed.Value); !unavailable(err) {
		t.Errorf("another consume without a replica: %v", err)
	}

	for _, r := range s.Replicas {
		r.Resume()
	}
	c = i.Persistent()
	if got, err := c.Consume(t.Context(), "alice", consumed.Value, attempt); err != nil || !got.Replayed {
		t.Errorf("the same attempt: %+v, %v", got, err)
	}
	if _, err := c.Consume(t.Context(), "alice", consumed.Value); !errors.Is(err, client.ErrUsed) {
		t.Errorf("another attempt: %v", err)
	}
	cl, _, err := c.Claim(t.Context(), claimed, attempt)
	if err != nil || cl.Fence != 1 {
		t.Errorf("the same claim: %+v, %v", cl, err)
	}
	if got, err := c.ConsumeBatch(t.Context(), items); err != nil || got[0].Err != nil || !got[0].Replayed {
		t.Errorf("the same batch: %+v, %v", got, err)
	}
}
