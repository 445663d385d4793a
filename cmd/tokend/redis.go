package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"example.com/tokend/config"
)

// newRedis returns a client of the Redis that c names, or nil where c has faults, which
// it adds. It does not connect.
func newRedis(c config.Redis, faults *config.Faults) redis.UniversalClient {
	if c.URL == "" || faults.Has("redis.url", "redis.mode", "redis.password", "redis.timeout", "redis.pool_size") {
		return nil
	}
	opts, err := redisOptions(c)
	if err != nil {
		faults.Add("redis.url", err.Error())
		return nil
	}
	if c.CAFile != "" {
		if err := trustCA(opts, c.CAFile); err != nil {
			faults.Add("redis.ca_file", err.Error())
			return nil
		}
	}
	return redis.NewUniversalClient(opts)
}

// redisOptions returns c for go-redis. Its errors are faults of redis.url.
func redisOptions(c config.Redis) (*redis.UniversalOptions, error) {
	opts, err := redisAddress(c)
	if err != nil {
		return nil, err
	}
	if c.Password != "" {
		opts.Password = c.Password.Reveal()
	}
	bound(opts, c)
	return opts, nil
}

// bound sees to it that a command is answered or given up within c.Timeout, whatever
// state Redis is in, and that there are no more connections than asked for. The store
// sets the deadline; what stands here makes go-redis keep it.
func bound(opts *redis.UniversalOptions, c config.Redis) {
	opts.ContextTimeoutEnabled = true
	opts.DialTimeout = c.Timeout
	opts.ReadTimeout = c.Timeout
	opts.WriteTimeout = c.Timeout
	opts.PoolTimeout = c.Timeout

	// A command is tried again at once and then a little later: a restarted Redis leaves
	// dead connections in the pool. A dial is not, as the command's own tries dial anew.
	opts.MaxRetries = 3
	opts.MinRetryBackoff = 8 * time.Millisecond
	opts.MaxRetryBackoff = 64 * time.Millisecond
	opts.DialerRetries = 1

	opts.PoolSize = c.PoolSize
	if opts.PoolSize == 0 {
		opts.PoolSize = 10 * runtime.GOMAXPROCS(0)
	}
	opts.MaxActiveConns = opts.PoolSize // PoolSize alone is no cap
	opts.PipelinePoolSize = -1          // pipelines would have ten connections more

	// RESP3 would have each call look for push messages, which nobody sends here.
	opts.Protocol = 2

	opts.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	opts.DisableIdentity = true // spares each connection two commands
}

// redisParams are the parameters that a URL may have. The others would set what
// redis.timeout and redis.pool_size set, or let replicas answer, whose records are
// stale.
var redisParams = map[config.RedisMode][]string{
	config.Standalone: {"db", "skip_verify"},
	config.Sentinel:   {"addr", "db", "master_name", "password", "skip_verify", "username"},
	config.Cluster:    {"addr"},
}

// redisAddress returns where Redis is and who calls, as go-redis reads c.URL. Its errors
// quote nothing of the URL, which may hold a password; go-redis's do.
func redisAddress(c config.Redis) (*redis.UniversalOptions, error) {
	u, err := url.Parse(c.URL.Reveal())
	if err != nil || u.Fragment != "" {
		return nil, errRedisForm(c.Mode)
	}
	allowed := redisParams[c.Mode]
	for name := range u.Query() {
		if !slices.Contains(allowed, name) {
			return nil, fmt.Errorf("may have no parameters but %s (behind the ?) in mode %s: redis.timeout and redis.pool_size bound the rest, and replicas must not answer",
				strings.Join(allowed, ", "), c.Mode)
		}
	}
	opts := new(redis.UniversalOptions)
	switch c.Mode {
	case config.Sentinel:
		o, err := redis.ParseFailoverURL(c.URL.Reveal())
		if err != nil || o.MasterName == "" {
			return nil, errRedisForm(c.Mode)
		}
		opts.Addrs, opts.MasterName, opts.DB, opts.TLSConfig = o.SentinelAddrs, o.MasterName, o.DB, o.TLSConfig
		opts.Username, opts.Password = o.Username, o.Password
		opts.SentinelUsername, opts.SentinelPassword = o.SentinelUsername, o.SentinelPassword
	case config.Cluster:
		o, err := redis.ParseClusterURL(c.URL.Reveal())
		if err != nil || !slices.Contains([]string{"", "/", "/0"}, u.Path) { // a cluster has database 0 only
			return nil, errRedisForm(c.Mode)
		}
		opts.IsClusterMode = true
		opts.Addrs, opts.TLSConfig = o.Addrs, o.TLSConfig
		opts.Username, opts.Password = o.Username, o.Password
	default:
		o, err := redis.ParseURL(c.URL.Reveal())
		if err != nil {
			return nil, errRedisForm(c.Mode)
		}
		opts.Addrs, opts.DB, opts.TLSConfig = []string{o.Addr}, o.DB, o.TLSConfig
		opts.Username, opts.Password = o.Username, o.Password
	}
	if opts.TLSConfig != nil {
		opts.TLSConfig.ServerName = "" // the URL's host would stand for all nodes; empty, each has its own
		opts.TLSConfig.MinVersion = tls.VersionTLS12
	}
	return opts, nil
}

// errRedisForm says what a URL must look like.
func errRedisForm(mode config.RedisMode) error {
	const password = "; a password with other characters than [A-Za-z0-9._~-] belongs into redis.password"
	switch mode {
	case config.Sentinel:
		return errors.New("must be redis://HOST:26379/DB?master_name=NAME&addr=HOST2:26379 (or rediss://) in mode sentinel" + password)
	case config.Cluster:
		return errors.New("must be redis://USER:PASSWORD@HOST:6379?addr=HOST2:6379 (or rediss://), without a database, in mode cluster" + password)
	}
	return errors.New("must be redis://USER:PASSWORD@HOST:6379/DB, rediss:// or unix://USER:PASSWORD@/PATH?db=DB in mode standalone" + password)
}

// trustCA has Redis's certificate checked against those in the PEM file at path.
func trustCA(opts *redis.UniversalOptions, path string) error {
	if opts.TLSConfig == nil {
		return errors.New("needs a redis.url that begins with rediss://: nothing else is encrypted")
	}
	pem, err := config.ReadFile(path)
	if err != nil {
		return fmt.Errorf("must name a file that can be read: %w", err)
	}
	opts.TLSConfig.RootCAs = x509.NewCertPool()
	if !opts.TLSConfig.RootCAs.AppendCertsFromPEM(pem) {
		return errors.New("must name a file of certificates in PEM")
	}
	return nil
}

// redisLog hands go-redis's own log on. What matters of it comes out as the errors of
// commands too, so it is for debugging only.
type redisLog struct{ log *slog.Logger }

func (l redisLog) Printf(ctx context.Context, format string, v ...any) {
	if l.log.Enabled(ctx, slog.LevelDebug) {
		l.log.DebugContext(ctx, "go-redis", "text", fmt.Sprintf(format, v...))
	}
}
