package deploy_test

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"example.com/tokend/internal/redistest"
	"example.com/tokend/token"
	"example.com/tokend/token/redisstore"
)

// patience bounds every wait: far more than any machine needs.
const patience = 60 * time.Second

// The commands that deploy/redis.acl grants to tokend are those that it calls, no more and no
// less. The suite in package redisstore, which runs as that user too, holds that they are
// enough for every behaviour.
func TestRedisUserHasWhatItCalls(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--repl-diskless-sync-delay", "0")
	server.AddUser("tokend")
	server.Client().ConfigResetStat(t.Context())
	everyCall(t, server.ClientAs("tokend"))
	untilCalled(t, server.Client(), "ping") // the listener's own, when it has heard nothing for a while
	if denied := server.Denied(); len(denied) > 0 {
		t.Errorf("denied: %q", denied)
	}
	if diff := cmp.Diff(granted(t), called(t, server.Client(), "acl", "auth", "config", "hello", "info", "client")); diff != "" {
		t.Errorf("commands (-granted +called):\n%s", diff)
	}
}

// What a cluster takes besides is said by docs/operations.md.
func TestRedisUserOfCluster(t *testing.T) {
	t.Parallel()
	server := redistest.StartCluster(t)
	server.AddUser("tokend", redistest.ForCluster...)
	server.Client().ConfigResetStat(t.Context())
	rdb := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: []string{server.Addr}, Username: "tokend", Password: redistest.Password, ContextTimeoutEnabled: true,
	})
	t.Cleanup(func() { rdb.Close() })
	everyCall(t, rdb)
	if denied := server.Denied(); len(denied) > 0 {
		t.Errorf("denied: %q", denied)
	}
	// COMMAND, the other one, is asked for by the program's client: e2e/program.
	if !slices.Contains(called(t, server.Client()), "cluster|slots") {
		t.Error("a cluster's client does not ask for the slots")
	}
}

// The user may touch no key or channel of anybody else's, and learn nothing of the server.
func TestRedisUserStaysInside(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.AddUser("tokend")
	server.AddUser("monitor")
	ctx := t.Context()
	for user, commands := range map[string][]string{
		"tokend": {
			"GET other:t:1", "SET other 1", "DEL tokendx", "GETEX tokend", "EVALSHA x 1 other", "PUBLISH other x", "SUBSCRIBE other",
			"PSUBSCRIBE tokend:*", "KEYS *", "SCAN 0", "FLUSHALL", "CONFIG GET requirepass", "INFO", "ACL LIST", "SCRIPT FLUSH", "EXPIRE tokend:x 1",
		},
		"monitor": {"GET tokend:t:1", "PUBLISH tokend:x y", "CONFIG GET requirepass", "KEYS *", "EVAL 0 0"},
	} {
		conn := server.ClientAs(user).Conn()
		for _, command := range commands {
			var args []any
			for _, word := range strings.Fields(command) {
				args = append(args, word)
			}
			if err := conn.Do(ctx, args...).Err(); err == nil || !redis.HasErrorPrefix(err, "NOPERM") {
				t.Errorf("%s as %s: %v, want NOPERM", command, user, err)
			}
		}
		conn.Close()
	}
	script := redis.NewScript(`return redis.call('GET', ARGV[1])`)
	if err := script.Eval(ctx, server.ClientAs("tokend"), nil, "other").Err(); err == nil {
		t.Error("a script reads another's key")
	}
}

// granted returns the commands that deploy/redis.acl grants to tokend.
func granted(t *testing.T) (commands []string) {
	t.Helper()
	rules, err := redistest.Rules("tokend", redistest.Password)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rules {
		if command, ok := strings.CutPrefix(r, "+"); ok {
			commands = append(commands, command)
		}
	}
	slices.Sort(commands)
	return commands
}

// called returns the commands that Redis has carried out, in scripts too, but for those that
// the test itself makes.
func called(t *testing.T, admin *redis.Client, but ...string) (commands []string) {
	t.Helper()
	stats, err := admin.Info(context.Background(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^cmdstat_([^:]+):`).FindAllStringSubmatch(stats, -1) {
		name, _, _ := strings.Cut(m[1], "|")
		if !slices.Contains(but, name) {
			commands = append(commands, m[1])
		}
	}
	slices.Sort(commands)
	return commands
}

func untilCalled(t *testing.T, admin *redis.Client, command string) {
	t.Helper()
	for deadline := time.Now().Add(patience); !slices.Contains(called(t, admin), command); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s is not called", command)
		}
	}
}

// everyCall makes every call that a store has, in both modes, and one that waits for a claim
// to end, which goes on until the test is over.
func everyCall(t *testing.T, rdb redis.UniversalClient) {
	t.Helper()
	const user, purpose = token.User("alice"), token.Purpose("p")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	store := redisstore.New(rdb, redisstore.Options{Timeout: patience})
	waiting := redisstore.New(rdb, redisstore.Options{Timeout: patience, WaitReplicas: 1, WaitTimeout: time.Millisecond})
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	must("ping", store.Ping(ctx))
	ring, err := token.NewRing(token.Key{ID: "k1"})
	must("ring", err)
	set := token.Settings{TTL: time.Minute, MaxTTL: time.Minute, Retention: time.Minute, KeysRetention: time.Minute}
	for _, mode := range []token.Mode{token.Record, token.Delete} {
		svc := token.NewService(ring, store, token.Options{Mode: mode, Settings: set, Rate: token.Rate{PerMinute: 60, Burst: 60}})
		for range 2 { // by the script whole, and by its hash
			got, err := svc.IssueBatch(ctx, token.IssueRequest{User: user, Purpose: purpose, Limited: true}, 3)
			must("issue", err)
			var cs []token.Consumption
			for _, g := range got {
				opened, err := svc.Open(token.Use{Text: g.Text, User: user, Purpose: purpose})
				must("open", err)
				cs = append(cs, token.Consumption{User: user, Token: opened, Attempt: token.NewAttempt()})
			}
			_, err = svc.Consume(ctx, cs[0])
			must("consume", err)
			_, errs := svc.ConsumeBatch(ctx, cs[1:])
			must("consume a batch", errors.Join(errs...))
			st, err := svc.Status(ctx, token.TokenSubject(user, cs[0].Token))
			if err != nil || st.State != token.StateUsed {
				t.Errorf("%v: status: %v, %v", mode, st.State, err)
			}
		}
	}
	svc := token.NewService(ring, store, token.Options{Mode: token.Record, Settings: set})
	issued, err := svc.Issue(ctx, token.IssueRequest{User: user, Purpose: purpose})
	must("issue", err)
	opened, err := svc.Open(token.Use{Text: issued.Text, User: user, Purpose: purpose})
	must("open", err)
	c := token.Consumption{User: user, Token: opened, Attempt: token.NewAttempt()}
	if _, err := waiting.Consume(ctx, c); err == nil || !strings.Contains(err.Error(), "0 replicas") {
		t.Errorf("consume that waits for a replica: %v, want that there is none", err)
	}
	_, err = svc.Revoke(ctx, token.TokenSubject(user, opened))
	must("revoke", err)
	for n, end := range []func(token.Handle) error{
		func(h token.Handle) error { _, err := svc.Complete(ctx, h, &token.Result{Status: 204}); return err },
		func(h token.Handle) error { return svc.Release(ctx, h) },
	} {
		key := token.KeySubject(user, purpose, token.IdempotencyKey(token.NewAttempt()))
		claimed, err := svc.Claim(ctx, token.ClaimRequest{Subject: key, Purpose: purpose, Attempt: token.NewAttempt(), Lease: time.Minute})
		must("claim", err)
		woken, stop := store.Watch(key)
		await(t, woken, "the watch has begun")
		_, err = svc.Renew(ctx, claimed.Handle, time.Minute)
		must("renew", err)
		if n == 0 {
			_, err = svc.Commit(ctx, claimed.Handle)
			must("commit", err)
		}
		must("end", end(claimed.Handle))
		await(t, woken, "the end of a claim is told")
		_, err = svc.ClaimStatus(ctx, key)
		must("claim status", err)
		stop()
	}
	// One that begins before the last one ends keeps the connection: the last one is
	// unsubscribed from, and nothing else is said on it.
	woken, stop := store.Watch(token.KeySubject(user, purpose, "first"))
	await(t, woken, "the watch has begun")
	_, stays := store.Watch(token.KeySubject(user, purpose, "stays"))
	t.Cleanup(stays)
	stop()
}

func await(t *testing.T, woken <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-woken:
	case <-time.After(patience):
		t.Fatalf("waited in vain: %s", what)
	}
}
