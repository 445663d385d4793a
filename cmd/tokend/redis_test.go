package main

import (
	"context"
	"crypto/x509"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/tokend/config"
	"example.com/tokend/internal/devredis"
)

func redisConfig(mode config.RedisMode, url string) config.Redis {
	return config.Redis{URL: config.Secret(url), Mode: mode, Timeout: 300 * time.Millisecond, PoolSize: 3}
}

func mustRedis(t *testing.T, c config.Redis) redis.UniversalClient {
	t.Helper()
	faults := new(config.Faults)
	rdb := newRedis(c, faults)
	if err := faults.Err(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { rdb.Close() })
	return rdb
}

func TestRedisForms(t *testing.T) {
	tests := []struct {
		mode      config.RedisMode
		url       string
		password  config.Secret
		addrs     []string
		user, pw  string
		db        int
		encrypted bool
	}{
		{config.Standalone, "redis://h", "", []string{"h:6379"}, "", "", 0, false},
		{config.Standalone, "redis://u:p@h:1/2", "", []string{"h:1"}, "u", "p", 2, false},
		{config.Standalone, "redis://u:p@h:1?db=2", "@/#%+=? :", []string{"h:1"}, "u", "@/#%+=? :", 2, false},
		{config.Standalone, "redis://:p%40%2F@h", "", []string{"h:6379"}, "", "p@/", 0, false},
		{config.Standalone, "rediss://h:1", "", []string{"h:1"}, "", "", 0, true},
		{config.Standalone, "redis://[::1]:1", "", []string{"[::1]:1"}, "", "", 0, false},
		{config.Standalone, "unix://u:p@/run/redis.sock?db=3", "", []string{"/run/redis.sock"}, "u", "p", 3, false},
		{config.Sentinel, "redis://h:26379/1?master_name=m&addr=h2:26379&username=u&password=p", "", []string{"h:26379", "h2:26379"}, "u", "p", 1, false},
		{config.Sentinel, "rediss://su:sp@h?master_name=m", "x", []string{"h:6379"}, "", "x", 0, true},
		{config.Cluster, "redis://u:p@h:1?addr=h2:2&addr=h3:3", "", []string{"h:1", "h2:2", "h3:3"}, "u", "p", 0, false},
		{config.Cluster, "rediss://h:1/0", "x", []string{"h:1"}, "", "x", 0, true},
	}
	for _, tt := range tests {
		t.Run(tt.url, func(t *testing.T) {
			c := redisConfig(tt.mode, tt.url)
			c.Password = tt.password
			opts, err := redisOptions(c)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(opts.Addrs, tt.addrs) || opts.Username != tt.user || opts.Password != tt.pw || opts.DB != tt.db || (opts.TLSConfig != nil) != tt.encrypted {
				t.Errorf("got %v %q %q %d %v", opts.Addrs, opts.Username, opts.Password, opts.DB, opts.TLSConfig)
			}
			if opts.TLSConfig != nil && opts.TLSConfig.ServerName != "" {
				t.Error("all nodes must have the name", opts.TLSConfig.ServerName)
			}
			switch rdb := mustRedis(t, c).(type) {
			case *redis.ClusterClient:
				if tt.mode != config.Cluster {
					t.Errorf("%T", rdb)
				}
			case *redis.Client:
				if tt.mode == config.Cluster {
					t.Errorf("%T", rdb)
				}
				o := rdb.Options()
				if o.PoolSize != 3 || o.MaxActiveConns != 3 || !o.ContextTimeoutEnabled || o.DialerRetries != 1 || o.ReadTimeout != c.Timeout {
					t.Errorf("%+v", o)
				}
			}
		})
	}
}

func TestRedisFaults(t *testing.T) {
	const secret = ":" + canary + "@"
	tests := []struct {
		mode config.RedisMode
		url  string
		ca   string
		want string
	}{
		{config.Standalone, "h:6379", "", "must be redis://USER"},
		{config.Standalone, canary, "", "must be redis://USER"},
		{config.Standalone, "http://" + secret + "h", "", "must be redis://USER"},
		{config.Standalone, "redis://:" + canary + "#x@h", "", "must be redis://USER"},
		{config.Standalone, "redis://:" + canary + "/x@h", "", "must be redis://USER"},
		{config.Standalone, "redis://:" + canary + "%x@h", "", "must be redis://USER"},
		{config.Standalone, "redis://" + secret + "h/x", "", "must be redis://USER"},
		{config.Standalone, "redis://:1?" + canary + "@h", "", "may have no parameters but db, skip_verify"},
		{config.Standalone, "redis://" + secret + "h?read_timeout=5s", "", "may have no parameters but"},
		{config.Standalone, "redis://" + secret + "h", "x", "redis.ca_file in YAML: needs a redis.url that begins with rediss://"},
		{config.Standalone, "rediss://" + secret + "h", "/nonexistent/ca.pem", "redis.ca_file in YAML: must name a file that can be read: /nonexistent/ca.pem: no such file"},
		{config.Standalone, "rediss://" + secret + "h", "redis_test.go", "redis.ca_file in YAML: must name a file of certificates"},
		{config.Sentinel, "redis://" + secret + "h", "", "?master_name=NAME"},
		{config.Sentinel, "unix://" + secret + "/x?master_name=m", "", "?master_name=NAME"},
		{config.Sentinel, "redis://" + secret + "h?master_name=m&replica_only=true", "", "replicas must not answer"},
		{config.Cluster, "redis://" + secret + "h/1", "", "without a database"},
		{config.Cluster, "redis://" + secret + "h?read_only=true", "", "replicas must not answer"},
		{config.Cluster, "redis://" + secret + "h?addr=" + canary, "", "without a database"},
	}
	for _, tt := range tests {
		t.Run(string(tt.mode)+" "+tt.url, func(t *testing.T) {
			c := redisConfig(tt.mode, tt.url)
			c.CAFile = tt.ca
			faults := new(config.Faults)
			if rdb := newRedis(c, faults); rdb != nil {
				t.Error("a client all the same")
			}
			if faults.Err() == nil || !strings.Contains(faults.Error(), tt.want) || strings.Contains(faults.Error(), canary) {
				t.Errorf("got %v, want %q", faults.Err(), tt.want)
			}
		})
	}
}

func TestRedisCA(t *testing.T) {
	c := redisConfig(config.Standalone, "rediss://h")
	cert := newTestCert(t, "one")
	c.CAFile = cert.certFile
	o := mustRedis(t, c).(*redis.Client).Options()
	if o.TLSConfig.RootCAs == nil || o.TLSConfig.RootCAs.Equal(x509.NewCertPool()) {
		t.Error("the system's certificates")
	}
}

// A command is given up within the timeout, whether Redis is away or does not answer.
// The bound is generous, go-redis's own defaults are beyond it.
func TestRedisIsGivenUp(t *testing.T) {
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	for name, addr := range map[string]string{"mute": mute.Addr().String(), "away": closed.Addr().String()} {
		for _, mode := range []config.RedisMode{config.Standalone, config.Cluster} {
			t.Run(name+" "+string(mode), func(t *testing.T) {
				rdb := mustRedis(t, redisConfig(mode, "redis://"+addr))
				began := time.Now()
				for range 3 {
					ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
					if err := rdb.Get(ctx, "k").Err(); err == nil {
						t.Error("an answer")
					}
					cancel()
				}
				if took := time.Since(began); took > 3*time.Second {
					t.Errorf("took %v", took)
				}
			})
		}
	}
}

// A Redis that was restarted is found again by the next command: the dead connections of
// the pool are no fault.
func TestRedisRestart(t *testing.T) {
	s, err := devredis.Start("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	rdb := mustRedis(t, redisConfig(config.Standalone, s.URL()))
	if err := rdb.Set(t.Context(), "k", "v", time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	s.Mini().Close()
	if err := s.Mini().Restart(); err != nil {
		t.Fatal(err)
	}
	if got, err := rdb.Get(t.Context(), "k").Result(); got != "v" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}
