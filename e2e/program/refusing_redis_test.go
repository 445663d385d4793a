package program_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"example.com/tokend/httpapi/wire"
	"example.com/tokend/internal/redistest"
)

// A Redis that answers, but not as a writable master does, is a fault and never a refusal:
// its records may be stale. The service recovers by itself.
func TestRedisThatRefuses(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	do := func(t *testing.T, r *redistest.Server, args ...any) {
		t.Helper()
		if err := r.Client().Do(ctx, args...).Err(); err != nil {
			t.Fatal(args, err)
		}
	}
	for _, tt := range []struct {
		name          string
		breaks, mends func(*testing.T, *redistest.Server)
	}{
		{"a replica", // READONLY
			func(t *testing.T, r *redistest.Server) { do(t, r, "REPLICAOF", "127.0.0.1", "1") },
			func(t *testing.T, r *redistest.Server) { do(t, r, "REPLICAOF", "NO", "ONE") }},
		{"a replica without its master", // MASTERDOWN
			func(t *testing.T, r *redistest.Server) {
				do(t, r, "CONFIG", "SET", "replica-serve-stale-data", "no")
				do(t, r, "REPLICAOF", "127.0.0.1", "1")
			},
			func(t *testing.T, r *redistest.Server) { do(t, r, "REPLICAOF", "NO", "ONE") }},
		{"a master without its replicas", // NOREPLICAS
			func(t *testing.T, r *redistest.Server) { do(t, r, "CONFIG", "SET", "min-replicas-to-write", "1") },
			func(t *testing.T, r *redistest.Server) { do(t, r, "CONFIG", "SET", "min-replicas-to-write", "0") }},
		{"one that does not let it in any more", // NOAUTH
			func(t *testing.T, r *redistest.Server) {
				do(t, r, "CONFIG", "SET", "requirepass", secretPassword)
				killClients(r)
			},
			func(t *testing.T, r *redistest.Server) {
				c := r.Client().Conn()
				defer c.Close()
				c.Auth(ctx, secretPassword)
				if err := c.ConfigSet(ctx, "requirepass", "").Err(); err != nil {
					t.Fatal(err)
				}
			}},
		{"one that forbids a command", // NOPERM
			func(t *testing.T, r *redistest.Server) {
				do(t, r, "ACL", "SETUSER", "default", "-getex", "-set", "-get")
			},
			func(t *testing.T, r *redistest.Server) { do(t, r, "ACL", "SETUSER", "default", "+@all") }},
	} {
		t.Run(strings.ReplaceAll(tt.name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			r := redistest.Start(t)
			i := startReady(t, redisURL(r.Addr), timeoutSetting)
			used, spare := i.issue("alice"), i.issue("alice")
			i.consume("alice", used, "winner")
			tt.breaks(t, r)
			storeUnavailable(t, spare, i)
			storeUnavailable(t, used, i)
			tt.mends(t, r)
			i.untilReady()
			if s := i.state("alice", spare); s != "issued" {
				t.Errorf("the token is %s", s)
			}
			if a := i.consume("alice", used, "winner"); !a.Replayed {
				t.Errorf("the winner's attempt again: %v", a)
			}
			i.usable()
		})
	}
}

func killClients(r *redistest.Server) {
	c := r.Client().Conn()
	defer c.Close()
	c.Auth(context.Background(), secretPassword)
	c.ClientKillByFilter(context.Background(), "TYPE", "normal", "SKIPME", "yes")
}

// A Redis that is full issues nothing. What was issued before is told as ever, or not at
// all; and none of it is lost.
func TestRedisFull(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	r := redistest.Start(t, "--maxmemory-policy", "noeviction")
	i := startReady(t, redisURL(r.Addr), timeoutSetting)
	used := i.issue("alice")
	spare := i.issue("alice")
	i.consume("alice", used, "winner")
	admin := r.Client()
	if err := admin.ConfigSet(ctx, "maxmemory", "1mb").Err(); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{wire.PathTokens, wire.PathBatch} {
		body := members{"user": "alice"}
		if path == wire.PathBatch {
			body["count"] = 10
		}
		if a := i.post(path, serviceKey, body); a.Code != string(wire.CodeStoreUnavailable) {
			t.Errorf("POST %s: %v", path, a)
		}
	}
	for _, tt := range []struct {
		token, attempt string
		refusal        wire.Code
	}{{used, "winner", ""}, {used, "other", wire.CodeTokenUsed}, {spare, "a1", ""}} {
		a := i.consume("alice", tt.token, tt.attempt)
		if fault := a.Code == string(wire.CodeStoreUnavailable); !fault && (a.Code != string(tt.refusal) || (a.status == http.StatusOK) != (tt.refusal == "")) {
			t.Errorf("the attempt %s: %v", tt.attempt, a)
		}
		t.Logf("full, the attempt %s: %d %s", tt.attempt, a.status, a.Code)
	}
	if err := admin.ConfigSet(ctx, "maxmemory", "0").Err(); err != nil {
		t.Fatal(err)
	}
	if a := i.consume("alice", spare, "a1"); a.status != http.StatusOK {
		t.Errorf("the attempt again, with room: %v", a)
	}
	i.usable()
}
