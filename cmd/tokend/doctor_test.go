package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"example.com/tokend/config"
	"example.com/tokend/internal/redistest"
)

// examined is what tokend doctor --json prints.
type examined struct {
	Fit      bool
	Findings []finding
}

// of returns the findings of check, "LEVEL TEXT; mend: MEND" each.
func (e examined) of(check string) string {
	var all []string
	for _, f := range e.Findings {
		if f.Check == check {
			all = append(all, string(f.Level)+" "+f.String())
		}
	}
	return strings.Join(all, "\n")
}

// doctor examines the Redis at url.
func doctor(t *testing.T, url string, flags ...string) (result, examined) {
	t.Helper()
	environ := []string{"TOKEND_REDIS_URL=" + url, "TOKEND_REDIS_TIMEOUT=20s"} // for a busy machine
	got := runCommand(t, environ, "", append([]string{"doctor", "--json"}, flags...)...)
	var e examined
	if got.stdout != "" {
		if err := json.Unmarshal([]byte(got.stdout), &e); err != nil {
			t.Fatalf("%v: %+v", err, got)
		}
	}
	if e.Fit != (got.status == exitOK) {
		t.Errorf("fit is %v, the status %d", e.Fit, got.status)
	}
	for _, f := range e.Findings {
		if f.Level != good && f.Mend == "" {
			t.Errorf("no mend: %+v", f)
		}
	}
	return got, e
}

func TestDoctor(t *testing.T) {
	tests := []struct {
		name   string
		redis  []string // options of redis-server
		flags  []string
		status int
		want   map[string]string // by check; what is not named must be ok
	}{
		{"fit", []string{"--appendonly", "yes", "--appendfsync", "always", "--maxmemory", "100mb"}, nil, exitOK, nil},
		{"no persistence", nil, nil, exitOK, map[string]string{"persistence": "warn nothing is kept"}},
		{"snapshots", []string{"--save", "900 1"}, nil, exitOK, map[string]string{"persistence": "warn appendonly is off: a restart after a crash goes back"}},
		{"no fsync", []string{"--appendonly", "yes", "--appendfsync", "no"}, nil, exitOK, map[string]string{"persistence": "warn appendonly is on, with appendfsync no"}},
		{"allkeys-lru", []string{"--appendonly", "yes", "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"}, nil, exitRefused, map[string]string{"eviction": "fail maxmemory-policy is allkeys-lru: it evicts any key"}},
		{"volatile-ttl", []string{"--appendonly", "yes", "--maxmemory-policy", "volatile-ttl"}, nil, exitRefused, map[string]string{"eviction": "fail maxmemory-policy is volatile-ttl: it evicts keys that have an expiry"}},
		{"full", []string{"--appendonly", "yes", "--maxmemory", "1"}, nil, exitRefused, map[string]string{
			"memory": "warn", "write": "fail a token could not be issued and consumed: issue: OOM"}},
		{"replicas wanted", []string{"--appendonly", "yes"}, []string{"--redis-wait-replicas=1"}, exitRefused, map[string]string{
			"replicas": "fail 0 online, redis.wait_replicas is 1: every change", "write": "fail a token could not be issued and consumed: issue: 0 replicas have"}},
		{"min-replicas", []string{"--appendonly", "yes", "--min-replicas-to-write", "1"}, nil, exitRefused, map[string]string{"write": "fail a token could not be issued and consumed: issue: NOREPLICAS"}},
		{"cluster's node", []string{"--appendonly", "yes", "--cluster-enabled", "yes", "--cluster-port", "0"}, nil, exitRefused, map[string]string{
			"mode": "fail this is a node of a cluster", "write": "fail a token could not be issued and consumed: issue: CLUSTERDOWN"}},
		{"not a cluster", nil, []string{"--redis-mode=cluster"}, exitRefused, map[string]string{"mode": "fail redis.mode is cluster"}},
		{"delete mode", []string{"--appendonly", "yes"}, []string{"--tokens-mode=delete"}, exitOK, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if i := slices.Index(tt.redis, "--cluster-port"); i >= 0 {
				tt.redis[i+1] = freePort(t)
			}
			s := redistest.Start(t, tt.redis...)
			got, e := doctor(t, "redis://"+s.Addr, tt.flags...)
			if got.status != tt.status {
				t.Errorf("status %d, want %d: %s", got.status, tt.status, got.stderr)
			}
			for _, f := range e.Findings {
				if _, named := tt.want[f.Check]; !named && f.Level != good {
					t.Errorf("%+v", f)
				}
			}
			for check, want := range tt.want {
				if got := e.of(check); !strings.HasPrefix(got, want) {
					t.Errorf("%s: got %q, want %q", check, got, want)
				}
			}
			if tt.want["mode"] != "" {
				return
			}
			for _, check := range []string{"latency", "version", "eviction", "memory", "persistence", "replicas", "write", "clock"} {
				if e.of(check) == "" {
					t.Errorf("nothing is said of %s", check)
				}
			}
			c := s.Client()
			for _, key := range c.Keys(t.Context(), "*").Val() {
				if left := c.TTL(t.Context(), key).Val(); left <= 0 || left > 2*time.Minute || !strings.HasPrefix(key, "tokend:") {
					t.Errorf("%q is left for %v", key, left)
				}
			}
		})
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// A replica, and its master, which a failover may replace.
func TestDoctorReplica(t *testing.T) {
	master := redistest.Start(t, "--appendonly", "yes")
	host, port, _ := net.SplitHostPort(master.Addr)
	replica := redistest.Start(t, "--replicaof", host+" "+port, "--repl-diskless-sync-delay", "0")
	waitFor(t, "the replica is online", func() bool {
		return strings.Contains(master.Client().Info(t.Context(), "replication").Val(), "state=online")
	})

	got, e := doctor(t, "redis://"+replica.Addr)
	if got.status != exitRefused || !strings.HasPrefix(e.of("role"), "fail this is a replica") || !strings.Contains(e.of("write"), "READONLY") {
		t.Errorf("the replica: %+v", got)
	}
	got, e = doctor(t, "redis://"+master.Addr)
	if want := "warn 1 online, redis.wait_replicas is 0: a failover may bring back"; got.status != exitOK || !strings.HasPrefix(e.of("replicas"), want) || !strings.Contains(e.of("replicas"), "warn min-replicas-to-write is 0") {
		t.Errorf("the master: %+v", got)
	}
	master.Client().ConfigSet(t.Context(), "min-replicas-to-write", "1")
	got, e = doctor(t, "redis://"+master.Addr, "--redis-wait-replicas=1", "--redis-wait-timeout=10s")
	if got.status != exitOK || e.of("replicas") != "ok 1 online, redis.wait_replicas is 1" || !strings.HasPrefix(e.of("write"), "ok") {
		t.Errorf("the master that is waited for: %+v", got)
	}
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for range 3000 {
		if ok() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("waited in vain until " + what)
}

// CONFIG and INFO may be forbidden, or unknown, as with providers. That is a warning; what
// tokend needs itself is not.
func TestDoctorForbidden(t *testing.T) {
	s := redistest.Start(t, "--appendonly", "yes")
	url := func(rules ...any) string {
		t.Helper()
		if err := s.Client().Do(t.Context(), append([]any{"acl", "setuser", "some", "reset", "on", ">" + canary}, rules...)...).Err(); err != nil {
			t.Fatal(err)
		}
		return "redis://some:" + canary + "@" + s.Addr
	}
	least := regexp.MustCompile(`\+\S+`).FindAllString(mendOf(fmt.Errorf("x NOPERM x")), -1)
	if len(least) == 0 {
		t.Fatal("the mend names no commands")
	}
	rules := []any{"~tokend:*"}
	for _, rule := range least {
		rules = append(rules, rule)
	}
	for name, tt := range map[string]struct {
		rules  []any
		status int
		warn   []string
		fail   []string
	}{
		"no CONFIG": {[]any{"~tokend:*", "+@all", "-config"}, exitOK, []string{"config"}, nil},
		"no INFO":   {[]any{"~tokend:*", "+@all", "-info"}, exitOK, []string{"info"}, nil},
		"least":     {rules, exitOK, []string{"config", "info", "eviction", "persistence"}, nil},
		"no EVAL":   {[]any{"~tokend:*", "+@all", "-@scripting"}, exitRefused, nil, []string{"write"}},
		"no GETEX":  {[]any{"~tokend:*", "+@all", "-getex"}, exitRefused, nil, []string{"write"}},
		"no MGET":   {[]any{"~tokend:*", "+@all", "-mget"}, exitOK, []string{"write"}, nil},
		"no keys":   {[]any{"~other:*", "+@all"}, exitRefused, nil, []string{"write"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, e := doctor(t, url(tt.rules...))
			if got.status != tt.status || strings.Contains(got.stdout+got.stderr, canary) {
				t.Errorf("%+v", got)
			}
			for _, f := range e.Findings {
				want := good
				if slices.Contains(tt.warn, f.Check) {
					want = doubt
				} else if slices.Contains(tt.fail, f.Check) {
					want = unfit
				}
				if f.Level != want {
					t.Errorf("%+v", f)
				}
			}
		})
	}
	t.Run("unknown", func(t *testing.T) {
		renamed := redistest.Start(t, "--appendonly", "yes", "--rename-command", "CONFIG", "")
		if got, e := doctor(t, "redis://"+renamed.Addr); got.status != exitOK || !strings.HasPrefix(e.of("config"), "warn CONFIG is not to be had (ERR unknown command") {
			t.Errorf("%+v", got)
		}
	})
}

// A server of another version is the real one, whose INFO is rewritten on its way.
func TestDoctorVersions(t *testing.T) {
	s := redistest.Start(t, "--appendonly", "yes")
	version := regexp.MustCompile(`redis_version:([0-9.]+)`).FindStringSubmatch(s.Client().Info(t.Context(), "server").Val())
	if version == nil {
		t.Fatal("the server tells no redis_version, which Valkey does too")
	}
	for _, tt := range []struct {
		other  string
		status int
		want   string
	}{
		{"6.1.99", exitRefused, "fail Redis 6.1.99 is too old"},
		{"5.0.14", exitRefused, "fail Redis 5.0.14 is too old"},
		{"6.2.18", exitOK, "ok Redis 6.2.18"},
		{"8.2.10", exitOK, "ok Redis 8.2.10"},
	} {
		if len(tt.other) > len(version[1]) {
			tt.other = tt.other[:len(version[1])]
		}
		padded := tt.other + strings.Repeat("0", len(version[1])-len(tt.other))
		addr := rewriting(t, s.Addr, []byte("redis_version:"+version[1]), []byte("redis_version:"+padded))
		if got, e := doctor(t, "redis://"+addr); got.status != tt.status || !strings.HasPrefix(e.of("version"), tt.want) {
			t.Errorf("%s: %+v", tt.other, got)
		}
	}
}

// rewriting starts a proxy to upstream that replaces was, in what upstream answers, by is,
// which is as long.
func rewriting(t *testing.T, upstream string, was, is []byte) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", upstream)
			if err != nil {
				client.Close()
				return
			}
			go func() { io.Copy(server, client); server.Close() }()
			go func() {
				defer client.Close()
				buf := make([]byte, 1<<16)
				for {
					n, err := server.Read(buf)
					if err != nil {
						return
					}
					client.Write(bytes.ReplaceAll(buf[:n], was, is))
				}
			}()
		}
	}()
	return l.Addr().String()
}

func TestFresh(t *testing.T) {
	for v, want := range map[string]bool{
		"6.2.0": true, "6.2": true, "7.0.15": true, "10.1": true, "255.255.255": true,
		"6.0.20": false, "5.9.9": false, "2.8": false, "6": false, "": false, "six.two": false,
	} {
		if fresh(v) != want {
			t.Errorf("%q: %v", v, !want)
		}
	}
}

// Valkey tells an old Redis's version too.
func TestDoctorValkey(t *testing.T) {
	e := &examination{cfg: new(config.Config), info: map[string]string{"redis_version": "7.2.4", "valkey_version": "8.1.3"}}
	e.version()
	if len(e.findings) != 1 || e.findings[0] != (finding{Check: "version", Level: good, Text: "Valkey 8.1.3"}) {
		t.Errorf("%+v", e.findings)
	}
}

// Of a cluster each master is examined, with a token of its own.
func TestDoctorCluster(t *testing.T) {
	a, b := clusterOfTwo(t)
	got, e := doctor(t, "redis://"+a.Addr, "--redis-mode=cluster")
	if got.status != exitOK {
		t.Errorf("%+v", got)
	}
	for _, s := range []*redistest.Server{a, b} {
		one := examined{Findings: slices.DeleteFunc(slices.Clone(e.Findings), func(f finding) bool { return f.Node != s.Addr })}
		for check, want := range map[string]string{"write": "ok", "eviction": "ok", "persistence": "warn nothing is kept", "replicas": "warn 0 online", "mode": ""} {
			if got := one.of(check); !strings.HasPrefix(got, want) || (want == "") != (got == "") {
				t.Errorf("%s: %s: %q", s.Addr, check, got)
			}
		}
		if n := s.Client().DBSize(t.Context()).Val(); n != 0 {
			t.Errorf("%s holds %d keys afterwards", s.Addr, n)
		}
		if stats := s.Client().Info(t.Context(), "commandstats").Val(); !strings.Contains(stats, "cmdstat_del:calls=1,") {
			t.Errorf("%s was not written to: %s", s.Addr, stats)
		}
	}
	b.Client().ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru")
	text := runCommand(t, []string{"TOKEND_REDIS_URL=redis://" + a.Addr, "TOKEND_REDIS_MODE=cluster"}, "", "doctor")
	if want := regexp.MustCompile(`(?m)^fail +` + regexp.QuoteMeta(b.Addr) + ` +eviction +maxmemory-policy is allkeys-lru.*; mend: set maxmemory-policy`); text.status != exitRefused || !want.MatchString(text.stdout) || strings.Count(text.stdout, "\nfail") != 1 {
		t.Errorf("%+v", text)
	}
}

// clusterOfTwo starts a cluster of two masters.
func clusterOfTwo(t *testing.T) (a, b *redistest.Server) {
	t.Helper()
	ctx := t.Context()
	a = redistest.Start(t, "--cluster-enabled", "yes", "--cluster-port", freePort(t))
	busB := freePort(t)
	b = redistest.Start(t, "--cluster-enabled", "yes", "--cluster-port", busB)
	host, port, _ := net.SplitHostPort(b.Addr)
	for _, err := range []error{
		a.Client().ClusterAddSlotsRange(ctx, 0, 8191).Err(),
		b.Client().ClusterAddSlotsRange(ctx, 8192, 16383).Err(),
		a.Client().Do(ctx, "cluster", "meet", host, port, busB).Err(),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range []*redistest.Server{a, b} {
		waitFor(t, "the cluster is up", func() bool {
			info := s.Client().ClusterInfo(ctx).Val()
			return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_size:2")
		})
	}
	return a, b
}

// A Sentinel leads to the master, and is none.
func TestDoctorSentinel(t *testing.T) {
	master := redistest.Start(t, "--appendonly", "yes")
	host, port, _ := net.SplitHostPort(master.Addr)
	file := filepath.Join(t.TempDir(), "sentinel.conf")
	addr := "127.0.0.1:" + freePort(t)
	conf := fmt.Sprintf("port %s\nbind 127.0.0.1\nsentinel monitor m %s %s 1\n", addr[len("127.0.0.1:"):], host, port)
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("redis-server", file, "--sentinel")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	waitFor(t, "the Sentinel listens", func() bool {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	got, e := doctor(t, "redis://"+addr+"?master_name=m", "--redis-mode=sentinel")
	if got.status != exitOK || !strings.HasPrefix(e.of("write"), "ok") || !strings.HasPrefix(e.of("replicas"), "warn 0 online, redis.wait_replicas is 0: there is nothing to fail over to") {
		t.Errorf("by the Sentinel: %+v", got)
	}
	got, e = doctor(t, "redis://"+addr)
	if got.status != exitRefused || !strings.HasPrefix(e.of("mode"), "fail this is a Sentinel") || !strings.HasPrefix(e.of("write"), "fail") {
		t.Errorf("the Sentinel itself: %+v", got)
	}
}

// A Redis that cannot be asked is neither fit nor unfit.
func TestDoctorFault(t *testing.T) {
	closed := "127.0.0.1:" + freePort(t)
	locked := redistest.Start(t)
	if err := locked.Client().ConfigSet(t.Context(), "requirepass", canary+"other").Err(); err != nil {
		t.Fatal(err)
	}
	plain := redistest.Start(t)
	plain.AddUser("tokend")
	const as = "tokend:" + redistest.Password + "@"
	for _, tt := range []struct{ name, url, want string }{
		{"away", "redis://" + closed, "no answer from Redis: dial tcp"},
		{"no password", "redis://" + locked.Addr, "refused by Redis: NOAUTH "},
		{"wrong password", "redis://:" + canary + "@" + locked.Addr, "refused by Redis: WRONGPASS "},
		{"wrong password", "redis://:" + canary + "@" + locked.Addr, "; mend: " + mendPassword},
		{"no such database", "redis://" + plain.Addr + "/99", "refused by Redis: ERR DB index is out of range; mend: name a database"},
		{"a database that may not be selected", "redis://" + as + plain.Addr + "/3", "; mend: the ACL user needs +select for a database other than 0"},
	} {
		got := runCommand(t, []string{"TOKEND_REDIS_URL=" + tt.url}, "", "doctor")
		if got.status != exitFault || got.stdout != "" || !strings.Contains(got.stderr, tt.want) || strings.Contains(got.stderr, canary) {
			t.Errorf("%s: %+v, want %q", tt.name, got, tt.want)
		}
	}
	if got, e := doctor(t, "redis://"+as+plain.Addr); got.status != exitOK || !strings.HasPrefix(e.of("write"), "ok") {
		t.Errorf("database 0: %+v", got)
	}
	plain.AddUser("tokend", "+select")
	if got, e := doctor(t, "redis://"+as+plain.Addr+"/3"); got.status != exitOK || !strings.HasPrefix(e.of("write"), "ok") {
		t.Errorf("a database that may be selected: %+v", got)
	}
	for _, mode := range []string{"cluster", "sentinel"} {
		got := runCommand(t, []string{"TOKEND_REDIS_URL=redis://" + closed + "?master_name=m", "TOKEND_REDIS_MODE=" + mode}, "", "doctor")
		if want := map[string]int{"cluster": exitUsage, "sentinel": exitFault}[mode]; got.status != want {
			t.Errorf("%s: %+v", mode, got)
		}
	}
	if got := runCommand(t, nil, "", "doctor"); got.status != exitUsage || !strings.Contains(got.stderr, "is required: the Redis to examine") {
		t.Errorf("no URL: %+v", got)
	}
}

// serve says once why a Redis that answers is none to it, and what to mend.
func TestServeIsLetIn(t *testing.T) {
	s := redistest.Start(t)
	s.AddUser("tokend")
	r := startCommand(t, serveEnviron("redis://tokend:"+redistest.Password+"@"+s.Addr+"/3"), "serve")
	warned := regexp.MustCompile(`"level":"WARN","msg":"redis: it refuses every call: NOPERM [^"]*'select'[^"]*","mend":"the ACL user needs \+select `)
	r.until("the warning is logged", func() bool { return warned.MatchString(r.stderr.String()) })
	if status, _ := get(t, r.url+"/readyz"); status != 503 {
		t.Errorf("readyz: %d", status)
	}
	s.AddUser("tokend", "+select")
	r.until("it serves", func() bool { status, _ := get(t, r.url+"/readyz"); return status == 200 })
	if log := r.stderr.String(); strings.Count(log, "refuses every call") != 1 {
		t.Errorf("the warnings:\n%s", log)
	}
}

func TestMends(t *testing.T) {
	for said, want := range map[string]string{
		"NOPERM User tokend has no permissions to run the 'cluster|slots' command":                         "the ACL user needs +cluster|slots too",
		"NOPERM this user has no permissions to run the 'select' command or its subcommand":                "the ACL user needs +select for a database other than 0",
		"NOPERM User tokend has no permissions to run the 'getex' command":                                 mendACL,
		"NOPERM this user has no permissions to access one of the keys used as arguments":                  mendACL,
		"ERR AUTH <password> called without any password configured for the default user. Are you sure …?": mendPassword,
		"ERR something else": "look into Redis's log",
	} {
		if got := mendOf(errors.New(said)); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, want %q", said, got, want)
		}
	}
}

// serve says once what is not ok with its Redis, as soon as that is there, and serves
// whether it is or not.
func TestServeExamines(t *testing.T) {
	s := redistest.Start(t, "--maxmemory-policy", "allkeys-lru")
	s.Kill()
	r := startCommand(t, serveEnviron("redis://"+s.Addr), "serve")
	if status, _ := get(t, r.url+"/livez"); status != 200 {
		t.Errorf("livez: %d", status)
	}
	if log := r.stderr.String(); strings.Contains(log, "WARN") {
		t.Errorf("before Redis is there:\n%s", log)
	}
	s.Restart()
	r.until("both warnings are logged", func() bool {
		log := r.stderr.String()
		return strings.Contains(log, `"msg":"redis: nothing is kept`) && strings.Contains(log, `"msg":"redis: maxmemory-policy is allkeys-lru`)
	})
	s.Restart()
	r.until("it serves again", func() bool { status, _ := get(t, r.url+"/readyz"); return status == 200 })
	if status := r.stop(); status != exitOK {
		t.Errorf("status %d", status)
	}
	if log := r.stderr.String(); strings.Count(log, "maxmemory-policy is") != 1 || strings.Count(log, `"level":"WARN"`) != 2 {
		t.Errorf("the warnings:\n%s", log)
	}
}
