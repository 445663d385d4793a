package main

import (
	"bufio"
	"context"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"example.com/tokend/httpapi"
	"example.com/tokend/httpapi/auth"
	"example.com/tokend/internal/lazyconn"
	"example.com/tokend/token"
	"example.com/tokend/token/redisstore"
)

// life is the life and the retention of tokens here: longer than a turn, and short enough
// that Redis does not fill up.
const life = 30 * time.Second

// newRedis returns a client of the Redis at addr as tokend serve makes it.
func newRedis(addr string) *redis.Client {
	const timeout = time.Second
	size := 10 * runtime.GOMAXPROCS(0)
	return redis.NewClient(&redis.Options{
		Addr:                  addr,
		ContextTimeoutEnabled: true,
		DialTimeout:           timeout,
		ReadTimeout:           timeout,
		WriteTimeout:          timeout,
		PoolTimeout:           timeout,
		MaxRetries:            3,
		DialerRetries:         1,
		PoolSize:              size,
		MaxActiveConns:        size,
		PipelinePoolSize:      -1,
		DisableIdentity:       true,
		Protocol:              2,
		MaintNotificationsConfig: &maintnotifications.Config{
			Mode: maintnotifications.ModeDisabled,
		},
	})
}

// newTokens returns the service of tokens on store.
func newTokens(store token.Store) (*token.Service, error) {
	keys, err := token.ParseKeys(signingKeys)
	if err != nil {
		return nil, err
	}
	ring, err := token.NewRing(keys...)
	if err != nil {
		return nil, err
	}
	return token.NewService(ring, store, token.Options{
		Mode:     token.Record,
		Settings: token.Settings{TTL: life, MaxTTL: life, Retention: life},
	}), nil
}

// servePlain serves tokend's API, going to Redis by w.
func servePlain(addr, redisAddr string, w *way) error {
	metrics := httpapi.NewMetrics("plain", runtime.Version(), []string{"k1"}, func() httpapi.Pool { return httpapi.Pool{} })
	rdb, opts, err := w.client(redisAddr)
	if err != nil {
		return err
	}
	opts.Observe = metrics.ObserveRedis
	store := redisstore.New(rdb, opts)
	var records token.Store = store
	if w.none {
		records = bound{}
	}
	tokens, err := newTokens(records)
	if err != nil {
		return err
	}
	callers, err := auth.New(auth.Config{Secrets: [][]byte{[]byte(jwtSecret)}, Leeway: auth.DefaultLeeway})
	if err != nil {
		return err
	}
	out, err := os.CreateTemp("", "tokend-bench-log")
	if err != nil {
		return err
	}
	os.Remove(out.Name()) // it is gone with the process
	outcomes, err := httpapi.ParseOutcomes("all")
	if err != nil {
		return err
	}
	user, err := httpapi.ParseLogUser("hash")
	if err != nil {
		return err
	}
	api := httpapi.New(httpapi.Options{
		Tokens: tokens, Callers: callers, Ping: func(ctx context.Context) error { return store.Ping(ctx) },
		Metrics: metrics, Log: slog.New(slog.NewJSONHandler(newTardy(out), nil)), Outcomes: outcomes, LogUser: user,
	})
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	return (&http.Server{
		Handler:           api,
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 20 * time.Second, WriteTimeout: time.Minute, IdleTimeout: 2 * time.Minute,
	}).Serve(lazyconn.Listener(l, 250*time.Millisecond))
}

// tardy writes a hundred times a second: the least that a log can cost.
type tardy struct {
	mu sync.Mutex
	w  *bufio.Writer
}

func newTardy(f *os.File) *tardy {
	t := &tardy{w: bufio.NewWriterSize(f, 1<<20)}
	go func() {
		for range time.Tick(10 * time.Millisecond) {
			t.mu.Lock()
			t.w.Flush()
			t.mu.Unlock()
		}
	}()
	return t
}

func (t *tardy) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.w.Write(p)
}
