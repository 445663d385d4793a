package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/golang-jwt/jwt/v5"
	"github.com/redis/go-redis/v9"

	"example.com/tokend/httpapi"
	"example.com/tokend/httpapi/auth"
	"example.com/tokend/httpapi/wire"
	"example.com/tokend/token"
	"example.com/tokend/token/redisstore"
)

// harness is the real service over miniredis, whose clock the test moves.
type harness struct {
	t     *testing.T
	srv   *httpapi.Server
	http  *httptest.Server
	redis *miniredis.Miniredis
	log   *logBuffer
	m     *httpapi.Metrics
	now   time.Time
}

var (
	jwtSecret  = []byte("a secret of thirty-two bytes, ok")
	signingKey = token.Key{ID: "k1", Secret: [32]byte{1, 2, 3}}
)

func newHarness(t *testing.T, edit ...func(*httpapi.Options, *token.Options)) *harness {
	t.Helper()
	h := &harness{t: t, redis: miniredis.RunT(t), log: new(logBuffer), now: time.Now()}
	h.redis.SetTime(h.now)
	rdb := redis.NewClient(&redis.Options{Addr: h.redis.Addr(), ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { rdb.Close() })
	ring, err := token.NewRing(signingKey)
	if err != nil {
		t.Fatal(err)
	}
	callers, err := auth.New(auth.Config{Secrets: [][]byte{jwtSecret}, Leeway: auth.DefaultLeeway})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(callers.Close)
	h.m = httpapi.NewMetrics("test", "go", ring.KeyIDs(), func() httpapi.Pool { return httpapi.Pool{Total: 3, Idle: 1} })
	store := redisstore.New(rdb, redisstore.Options{Observe: h.m.ObserveRedis, Timeout: 20 * time.Second})
	topts := token.Options{
		Mode:     token.Record,
		Settings: token.Settings{TTL: 5 * time.Minute, MaxTTL: time.Hour, Retention: time.Hour, KeysRetention: time.Hour},
		Rate:     token.Rate{PerMinute: 60, Burst: 10},
	}
	opts := httpapi.Options{
		Callers: callers, Ping: store.Ping, Metrics: h.m, Log: slog.New(slog.NewJSONHandler(h.log, nil)),
	}
	for _, e := range edit {
		e(&opts, &topts)
	}
	if opts.Tokens == nil {
		opts.Tokens = token.NewService(ring, store, topts)
	}
	h.srv = httpapi.New(opts)
	h.http = httptest.NewServer(h.srv)
	t.Cleanup(h.http.Close)
	return h
}

func (h *harness) advance(d time.Duration) {
	h.now = h.now.Add(d)
	h.redis.SetTime(h.now)
	h.redis.FastForward(d)
}

// logBuffer is a log that may be read while it is written.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// lines returns the log's lines, decoded.
func (l *logBuffer) lines(t *testing.T) []map[string]any {
	t.Helper()
	var lines []map[string]any
	for line := range strings.Lines(l.String()) {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatalf("log line %q: %v", line, err)
		}
		lines = append(lines, m)
	}
	return lines
}

func sign(t testing.TB, claims jwt.MapClaims) string {
	t.Helper()
	if _, ok := claims["exp"]; !ok {
		claims["exp"] = time.Now().Add(time.Hour).Unix()
	}
	text, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString(jwtSecret)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func userJWT(t testing.TB, sub string) string { return sign(t, jwt.MapClaims{"sub": sub}) }

func serviceJWT(t testing.TB, scopes string) string {
	return sign(t, jwt.MapClaims{"sub": "form-svc", "scope": scopes})
}

// request is one request to the service; a zero member is left out.
type request struct {
	method string // POST where empty
	path   string
	auth   string // a bearer; the service's with both scopes where empty, none where "-"
	body   string
	typ    string // the content type; JSON where empty, none where "-"
	header http.Header
	chunk  bool // sends no Content-Length
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	body   string
	wire.Problem
}

func (h *harness) do(r request) answer {
	h.t.Helper()
	if r.method == "" {
		r.method = http.MethodPost
	}
	var body io.Reader = strings.NewReader(r.body)
	if r.chunk {
		body = io.MultiReader(body) // hides its length
	}
	req, err := http.NewRequestWithContext(context.Background(), r.method, h.http.URL+r.path, body)
	if err != nil {
		h.t.Fatal(err)
	}
	for name, values := range r.header {
		req.Header[name] = values
	}
	switch r.auth {
	case "-":
	case "":
		req.Header.Set("Authorization", "Bearer "+serviceJWT(h.t, "tokend.issue tokend.consume"))
	default:
		req.Header.Set("Authorization", "Bearer "+r.auth)
	}
	switch {
	case r.typ == "" && r.body != "":
		req.Header.Set("Content-Type", "application/json")
	case r.typ != "" && r.typ != "-":
		req.Header.Set("Content-Type", r.typ)
	}
	a := h.exchange(req)
	if a.status >= 400 && r.method != http.MethodHead && !isProbe(r.path) {
		h.checkProblem(&a)
	}
	return a
}

// exchange sends req, and holds the answer to what all have.
func (h *harness) exchange(req *http.Request) answer {
	h.t.Helper()
	resp, err := h.http.Client().Do(req)
	if err != nil {
		h.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		h.t.Fatal(err)
	}
	a := answer{status: resp.StatusCode, header: resp.Header, body: string(b)}
	if got := a.header.Get("Cache-Control"); got != "no-store" {
		h.t.Errorf("%s %s: Cache-Control is %q, want no-store", req.Method, req.URL.Path, got)
	}
	if a.header.Get("X-Request-Id") == "" {
		h.t.Errorf("%s %s: no X-Request-Id", req.Method, req.URL.Path)
	}
	return a
}

// serve has the server answer r without a connection, and returns the status.
func (h *harness) serve(r request) int {
	req := httptest.NewRequest(http.MethodPost, r.path, nil)
	req.Header.Set("Authorization", "Bearer "+r.auth)
	w := httptest.NewRecorder()
	h.srv.ServeHTTP(w, req)
	return w.Code
}

func isProbe(path string) bool { return path == wire.PathLivez || path == wire.PathReadyz }

// checkProblem reads a's problem and holds it to the one form that all have.
func (h *harness) checkProblem(a *answer) {
	h.t.Helper()
	if got := a.header.Get("Content-Type"); got != wire.TypeProblem {
		h.t.Errorf("a problem's content type is %q: %s", got, a.body)
	}
	if err := json.Unmarshal([]byte(a.body), &a.Problem); err != nil {
		h.t.Errorf("problem %q: %v", a.body, err)
		return
	}
	p := a.Problem
	kind, ok := wire.KindOf(p.Code)
	if !ok || p.Status != a.status || kind.Status != a.status || p.Next != kind.Next || p.Title != kind.Title ||
		p.Type != "/problems/"+string(p.Code) || p.Detail == "" || p.RequestID != a.header.Get("X-Request-Id") {
		h.t.Errorf("a problem that does not agree with the table of codes: status %d, %s", a.status, a.body)
	}
}

// decode reads a success.
func (a answer) decode(t *testing.T, v any) {
	t.Helper()
	if a.status >= 300 {
		t.Fatalf("status %d: %s", a.status, a.body)
	}
	dec := json.NewDecoder(strings.NewReader(a.body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		t.Fatalf("%s: %v", a.body, err)
	}
}

// issue issues a token for alice.
func (h *harness) issue(body string) wire.IssueResponse {
	h.t.Helper()
	var got wire.IssueResponse
	h.do(request{path: wire.PathTokens, auth: userJWT(h.t, "alice"), body: body}).decode(h.t, &got)
	return got
}

// body makes a JSON object of name, value, ….
func body(pairs ...any) string {
	m := make(map[string]any)
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i].(string)] = pairs[i+1]
	}
	b, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	return string(b)
}
