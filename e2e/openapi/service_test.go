package openapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/redis/go-redis/v9"

	"example.com/tokend/httpapi"
	"example.com/tokend/httpapi/auth"
	"example.com/tokend/internal/devredis"
	"example.com/tokend/token"
	"example.com/tokend/token/redisstore"
)

// service is the real service over a Redis within the process, whose clock the test moves.
type service struct {
	t        *testing.T
	http     *httptest.Server
	api      *httpapi.Server
	redis    *devredis.Server
	tokens   *token.Service // what the API issues by
	deleting *token.Service // the same in delete mode
	faults   faults
}

// burst is how many tokens a user may be issued at once.
const burst = 3

var secret = []byte("a secret of thirty-two bytes, ok")

func newService(t *testing.T, edit ...func(*httpapi.Options)) *service {
	t.Helper()
	r, err := devredis.StartAt("127.0.0.1:0", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	rdb := redis.NewClient(&redis.Options{Addr: r.Addr(), ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { rdb.Close() })
	ring, err := token.NewRing(token.Key{ID: "k1", Secret: [32]byte{1}})
	if err != nil {
		t.Fatal(err)
	}
	callers, err := auth.New(auth.Config{Secrets: [][]byte{secret}, Leeway: auth.DefaultLeeway})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(callers.Close)
	store := redisstore.New(rdb, redisstore.Options{})
	opts := token.Options{
		Mode:     token.Record,
		Settings: token.Settings{TTL: 5 * time.Minute, MaxTTL: time.Hour, Retention: time.Hour, KeysRetention: time.Hour},
		Rate:     token.Rate{PerMinute: 60, Burst: burst},
	}
	s := &service{t: t, redis: r, tokens: token.NewService(ring, store, opts)}
	opts.Mode = token.Delete
	s.deleting = token.NewService(ring, store, opts)
	s.faults = faults{Tokens: s.tokens, callers: callers}
	api := httpapi.Options{
		Tokens: &s.faults, Callers: &s.faults, Ping: store.Ping, Log: slog.New(slog.DiscardHandler),
		Metrics: httpapi.NewMetrics("test", "go", ring.KeyIDs(), func() httpapi.Pool { return httpapi.Pool{} }),
	}
	for _, e := range edit {
		if e != nil {
			e(&api)
		}
	}
	s.api = httpapi.New(api)
	s.http = httptest.NewServer(s.api)
	t.Cleanup(s.http.Close)
	return s
}

// faults are what stands between the API and what it asks, to make it fail.
type faults struct {
	httpapi.Tokens
	callers httpapi.Callers

	ofTokens  error // what each call of the token service ends in
	ofCallers error // what telling the caller ends in
	ofItems   []error
}

var (
	errStore   = &token.Fault{Op: "test", Err: errors.New("down")}
	errUnknown = &token.Fault{Op: "test", Unknown: true, Err: errors.New("reply lost")}
	errOther   = errors.New("something that nobody foresaw")
)

func (f *faults) Authenticate(ctx context.Context, authorization []string) (auth.Identity, error) {
	if f.ofCallers != nil {
		return auth.Identity{}, f.ofCallers
	}
	return f.callers.Authenticate(ctx, authorization)
}

func (f *faults) Issue(ctx context.Context, req token.IssueRequest) (token.IssuedToken, error) {
	if f.ofTokens != nil {
		return token.IssuedToken{}, f.ofTokens
	}
	return f.Tokens.Issue(ctx, req)
}

func (f *faults) IssueBatch(ctx context.Context, req token.IssueRequest, n int) ([]token.IssuedToken, error) {
	if f.ofTokens != nil {
		return nil, f.ofTokens
	}
	return f.Tokens.IssueBatch(ctx, req, n)
}

func (f *faults) Consume(ctx context.Context, c token.Consumption) (token.Consumed, error) {
	if f.ofTokens != nil {
		return token.Consumed{}, f.ofTokens
	}
	return f.Tokens.Consume(ctx, c)
}

func (f *faults) ConsumeBatch(ctx context.Context, cs []token.Consumption) ([]token.Consumed, []error) {
	if f.ofTokens != nil {
		panic(f.ofTokens)
	}
	if f.ofItems != nil {
		return make([]token.Consumed, len(cs)), f.ofItems
	}
	return f.Tokens.ConsumeBatch(ctx, cs)
}

func (f *faults) Status(ctx context.Context, sub token.Subject) (token.Status, error) {
	if f.ofTokens != nil {
		return token.Status{}, f.ofTokens
	}
	return f.Tokens.Status(ctx, sub)
}

func (f *faults) Revoke(ctx context.Context, sub token.Subject) (token.Status, error) {
	if f.ofTokens != nil {
		return token.Status{}, f.ofTokens
	}
	return f.Tokens.Revoke(ctx, sub)
}

func (f *faults) Claim(ctx context.Context, req token.ClaimRequest) (token.Claimed, error) {
	if f.ofTokens != nil {
		return token.Claimed{}, f.ofTokens
	}
	return f.Tokens.Claim(ctx, req)
}

func (f *faults) ClaimStatus(ctx context.Context, sub token.Subject) (token.Status, error) {
	if f.ofTokens != nil {
		return token.Status{}, f.ofTokens
	}
	return f.Tokens.ClaimStatus(ctx, sub)
}

func (f *faults) Commit(ctx context.Context, h token.Handle) (token.Held, error) {
	if f.ofTokens != nil {
		return token.Held{}, f.ofTokens
	}
	return f.Tokens.Commit(ctx, h)
}

func (f *faults) Renew(ctx context.Context, h token.Handle, lease time.Duration) (token.Held, error) {
	if f.ofTokens != nil {
		return token.Held{}, f.ofTokens
	}
	return f.Tokens.Renew(ctx, h, lease)
}

func (f *faults) Complete(ctx context.Context, h token.Handle, r *token.Result) (token.Completed, error) {
	if f.ofTokens != nil {
		return token.Completed{}, f.ofTokens
	}
	return f.Tokens.Complete(ctx, h, r)
}

func (f *faults) Release(ctx context.Context, h token.Handle) error {
	if f.ofTokens != nil {
		return f.ofTokens
	}
	return f.Tokens.Release(ctx, h)
}

// The callers, as bearers.
func user(name string) string       { return bearer(jwt.MapClaims{"sub": name}) }
func withScope(scope string) string { return bearer(jwt.MapClaims{"sub": "form-svc", "scope": scope}) }

func bearer(claims jwt.MapClaims) string {
	claims["exp"] = time.Now().Add(time.Hour).Unix()
	text, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString(secret)
	if err != nil {
		panic(err)
	}
	return text
}

// A state makes a token of alice's, of purpose default, in that state.
type state func(*service) token.IssuedToken

func fresh(s *service) token.IssuedToken { return s.issue(s.tokens, 0) }

func used(s *service) token.IssuedToken {
	tok := fresh(s)
	s.consume(s.tokens, tok, "first", "one")
	return tok
}

func revoked(s *service) token.IssuedToken {
	tok := fresh(s)
	_, err := s.tokens.Revoke(context.Background(), token.Subject{User: "alice", ID: tok.ID, Token: s.open(s.tokens, tok)})
	s.must(err)
	return tok
}

func expired(s *service) token.IssuedToken {
	tok := s.issue(s.tokens, time.Second)
	s.redis.Advance(time.Minute)
	return tok
}

func stale(s *service) token.IssuedToken {
	tok := s.issue(s.tokens, time.Second)
	s.redis.Advance(2 * time.Hour)
	return tok
}

func lost(s *service) token.IssuedToken {
	tok := fresh(s)
	s.redis.Mini().FlushAll()
	return tok
}

func deleteMode(s *service) token.IssuedToken { return s.issue(s.deleting, 0) }

func usedInDeleteMode(s *service) token.IssuedToken {
	tok := deleteMode(s)
	s.consume(s.deleting, tok, "first", "")
	return tok
}

func gone(s *service) token.IssuedToken {
	tok := s.issue(s.deleting, time.Second)
	s.redis.Advance(time.Minute)
	return tok
}

func (s *service) issue(by *token.Service, ttl time.Duration) token.IssuedToken {
	tok, err := by.Issue(context.Background(), token.IssueRequest{User: "alice", Purpose: token.DefaultPurpose, TTL: ttl})
	s.must(err)
	return tok
}

func (s *service) open(by *token.Service, tok token.IssuedToken) *token.Token {
	t, err := by.Open(token.Use{Text: tok.Text, User: tok.User, Purpose: tok.Purpose})
	s.must(err)
	return t
}

func (s *service) consume(by *token.Service, tok token.IssuedToken, attempt token.Attempt, digest token.Digest) {
	_, err := by.Consume(context.Background(), token.Consumption{User: tok.User, Token: s.open(by, tok), Attempt: attempt, Digest: digest})
	s.must(err)
}

func (s *service) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// members makes a JSON object of name, value, ….
func members(pairs ...any) map[string]any {
	m := make(map[string]any)
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i].(string)] = pairs[i+1]
	}
	return m
}

func encode(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}
