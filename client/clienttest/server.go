package clienttest

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"example.com/tokend/client"
	"example.com/tokend/httpapi"
	"example.com/tokend/httpapi/auth"
	"example.com/tokend/internal/devredis"
	"example.com/tokend/token"
	"example.com/tokend/token/redisstore"
)

// Server is a running tokend. It is safe for concurrent use.
type Server struct {
	URL        string // of the API, on 127.0.0.1
	ServiceKey string // of a service with both scopes, tokend.issue and tokend.consume

	redis  *devredis.Server
	secret []byte // of users' JWTs
	faults faults

	mu      sync.Mutex
	closers []func() // to be called last first
	closed  atomic.Bool
}

// New starts a tokend that ends with t. It shares nothing with any other, so tests that
// have one each may run in parallel.
func New(t testing.TB, opts ...Option) *Server {
	t.Helper()
	s, err := Start(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// Start starts a tokend where there is no one test that it could end with: for a TestMain
// or an example. Close it after use.
func Start(opts ...Option) (*Server, error) {
	s := new(Server)
	if err := s.start(opts); err != nil {
		s.Close()
		return nil, fmt.Errorf("clienttest: %w", err)
	}
	return s, nil
}

func (s *Server) start(opts []Option) (err error) {
	set, err := newSettings(opts)
	if err != nil {
		return err
	}
	if s.redis, err = devredis.StartAt("127.0.0.1:0", time.Now().Truncate(time.Millisecond)); err != nil {
		return err
	}
	s.atEnd(s.redis.Close)
	rdb := redis.NewClient(redisOptions(s.redis.Addr()))
	s.atEnd(func() { rdb.Close() })
	rdb.AddHook(&s.faults)

	key := token.Key{ID: "test"}
	rand.Read(key.Secret[:]) // never fails
	ring, err := token.NewRing(key)
	if err != nil {
		return err
	}
	callers, err := s.callers(set.log)
	if err != nil {
		return err
	}
	s.atEnd(callers.Close)

	metrics := httpapi.NewMetrics("clienttest", "", ring.KeyIDs(), func() httpapi.Pool { return httpapi.Pool{} })
	store := redisstore.New(rdb, redisstore.Options{Timeout: patience, Observe: metrics.ObserveRedis})
	api := httpapi.New(httpapi.Options{
		Tokens:  token.NewService(ring, store, set.tokens),
		Callers: callers,
		Ping:    store.Ping,
		Metrics: metrics,
		Log:     set.log,

		ResultBytes: int64(set.resultBytes),
	})
	web := httptest.NewUnstartedServer(s.faults.before(api))
	web.Config.ErrorLog = slog.NewLogLogger(set.log.Handler(), slog.LevelError)
	web.Start()
	s.atEnd(web.Close)
	s.atEnd(api.Drain) // whoever waits for a claim to end is answered, and not waited for
	s.URL = web.URL
	return nil
}

// patience is what Redis is given to answer: on a busy machine a test must not find the
// store unavailable that has not asked for it.
const patience = 30 * time.Second

// redisOptions are a production tokend's, but for the time that is given, and for the
// re-sends: what a test has lost is to stay lost.
func redisOptions(addr string) *redis.Options {
	return &redis.Options{
		Addr:                     addr,
		ContextTimeoutEnabled:    true,
		ReadTimeout:              patience,
		MaxRetries:               -1,
		PipelinePoolSize:         -1,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

// callers knows the service by its key and users by JWTs.
func (s *Server) callers(log *slog.Logger) (*auth.Authenticator, error) {
	s.ServiceKey, _ = auth.NewServiceKey()
	s.secret = []byte(rand.Text() + rand.Text())
	return auth.New(auth.Config{
		Secrets: [][]byte{s.secret},
		ServiceKeys: []auth.ServiceKey{{
			Name:   "clienttest",
			SHA256: sha256.Sum256([]byte(s.ServiceKey)),
			Scopes: auth.ScopeIssue | auth.ScopeConsume,
		}},
		Leeway: auth.DefaultLeeway,
		Logger: log,
	})
}

// Close ends the tokend that [Start] started. That of New ends by itself; a test closes it
// early where nothing is to get through any more. Closing twice is the same as once.
func (s *Server) Close() {
	s.closed.Store(true)
	s.mu.Lock()
	closers := s.closers
	s.closers = nil
	s.mu.Unlock()
	for i := range closers {
		closers[len(closers)-1-i]()
	}
}

func (s *Server) atEnd(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closers = append(s.closers, f)
}

// Client returns a client of a service with both scopes. It waits for nothing between its
// tries. It ends with the server.
func (s *Server) Client(opts ...client.Option) *client.Client {
	return s.client(client.ServiceKey(s.ServiceKey), opts)
}

// UserClient returns a client that calls as user, who is logged in for as long as the
// server runs. It is like Client's otherwise.
func (s *Server) UserClient(user string, opts ...client.Option) *client.Client {
	return s.client(client.TokenSource(func(context.Context) (string, error) { return s.UserToken(user), nil }), opts)
}

func (s *Server) client(cr client.Credential, opts []client.Option) *client.Client {
	c, err := client.New(s.URL, cr, append([]client.Option{client.Backoff(atOnce), client.HTTPClient(s.httpClient())}, opts...)...)
	if err != nil {
		panic(fmt.Errorf("clienttest: %w", err)) // an option of the test's own is wrong
	}
	s.atEnd(c.CloseIdleConnections)
	return c
}

// httpClient returns one that finds nobody when the server is closed. By then another
// program, or another test's server, may listen where it did.
func (s *Server) httpClient() *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost = 256
	dial := t.DialContext
	t.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if s.closed.Load() {
			return nil, &net.OpError{Op: "dial", Net: network, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
		}
		return dial(ctx, network, addr)
	}
	return &http.Client{Transport: t}
}

func atOnce(int, time.Duration) time.Duration { return 0 }

// UserToken returns a JWT of user, good for an hour of the host's clock: [Server.Advance]
// logs nobody out.
func (s *Server) UserToken(user string) string {
	claims := jwt.MapClaims{"sub": user, "exp": time.Now().Add(time.Hour).Unix()}
	text, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString(s.secret)
	if err != nil {
		panic(fmt.Errorf("clienttest: %w", err)) // not with a string and a number
	}
	return text
}

// Now returns the server's time. It stands still, and begins at the host's.
func (s *Server) Now() time.Time { return s.redis.Now().UTC() }

// Advance moves the server's time on by d: tokens expire by it, and are forgotten. A
// negative d panics.
func (s *Server) Advance(d time.Duration) { s.redis.Advance(d) }
