package gateway_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"example.com/tokend/client"
	"example.com/tokend/e2e/internal/topology"
	"example.com/tokend/httpapi/wire"
	"example.com/tokend/internal/redistest"
)

// program is tokend as it is built.
var program *topology.Program

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "tokend-gateway")
	if err == nil {
		defer os.RemoveAll(dir)
		program, err = topology.Build(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// purpose is the one that the files name.
const purpose = "order.create"

// site is a service behind a gateway that asks a tokend.
type site struct {
	t      *testing.T
	redis  *redistest.Server
	tokend *topology.Instance
	forms  client.Purpose
	orders *orders
	url    string // of the gateway
	host   string // that requests are for; "": url's
	flat   bool   // the gateway hands tokend's 403 on as it is
}

// newSite starts all of a site but its gateway. settings are tokend's, NAME=VALUE without
// TOKEND_.
func newSite(t *testing.T, settings ...string) *site {
	t.Helper()
	s := &site{t: t, redis: redistest.Start(t), orders: newOrders(t)}
	i, err := program.Serve("redis://"+s.redis.Addr+"/0", "standalone", append([]string{"LOG_OUTCOMES=all", "REDIS_TIMEOUT=30s"}, settings...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(i.Close)
	s.tokend, s.forms = i, i.Client().Purpose(purpose)
	return s
}

// token has a token issued to user for the files' purpose.
func (s *site) token(user string) client.Token {
	s.t.Helper()
	return s.tokenFor(s.forms, user)
}

func (s *site) tokenFor(p client.Purpose, user string, opts ...client.IssueOption) client.Token {
	s.t.Helper()
	t, err := p.Issue(s.t.Context(), user, opts...)
	if err != nil {
		s.t.Fatal(err)
	}
	return t
}

// claim has a service at work with user's token.
func (s *site) claim(user string, tok client.Token) {
	s.t.Helper()
	body, err := json.Marshal(wire.ClaimRequest{Token: &tok.Value, User: &user, Purpose: new(purpose)})
	if err != nil {
		s.t.Fatal(err)
	}
	req, err := http.NewRequest(http.MethodPost, s.tokend.URL+wire.PathClaims, bytes.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header = headers("Authorization", "Bearer "+program.ServiceKey(), "Content-Type", wire.TypeJSON)
	resp, err := browser.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		s.t.Fatalf("claim: %s", resp.Status)
	}
}

// orders is the service behind: it takes whatever comes, and notes it.
type orders struct {
	*httptest.Server
	mu  sync.Mutex
	got []taken
}

// taken is a request that came through.
type taken struct {
	method, path, body string
	header             http.Header
}

func newOrders(t *testing.T) *orders {
	o := new(orders)
	o.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		o.mu.Lock()
		o.got = append(o.got, taken{r.Method, r.URL.RequestURI(), string(body), r.Header.Clone()})
		o.mu.Unlock()
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, "taken")
	}))
	t.Cleanup(o.Close)
	return o
}

// take returns what came through since it was last called.
func (o *orders) take() []taken {
	o.mu.Lock()
	defer o.mu.Unlock()
	got := o.got
	o.got = nil
	return got
}

// userJWT returns the JWT of a user.
func userJWT(t *testing.T, user string) string {
	t.Helper()
	text, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
		"sub": user, "exp": time.Now().Add(time.Hour).Unix(),
	}).SignedString(program.JWTSecret())
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// headers makes a header of name, value, …; a name may stand twice.
func headers(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}

// answer is what the sender of a form got.
type answer struct {
	status int
	header http.Header
	body   string
	said
}

type said struct {
	Type, Code, Next, Ref, Detail, Field string
	Status                               int
}

func (a answer) String() string { return fmt.Sprintf("%d %v %s", a.status, a.header, a.body) }

// browser makes each request on a connection of its own.
var browser = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: topology.Patience}

// send sends a request to the gateway: alice's, unless header says whose.
func (s *site) send(method, path string, header http.Header) answer {
	s.t.Helper()
	a, err := s.try(method, path, header)
	if err != nil {
		s.t.Fatal(err)
	}
	return a
}

func (s *site) try(method, path string, header http.Header) (answer, error) {
	body := ""
	if method != http.MethodGet && method != http.MethodHead {
		body = `{"item":"tea"}`
	}
	req, err := http.NewRequest(method, s.url+path, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	req.Header, req.Host = header.Clone(), s.host
	if _, ok := req.Header["Authorization"]; !ok {
		req.Header.Set("Authorization", "Bearer "+userJWT(s.t, "alice"))
	}
	resp, err := browser.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	a := answer{status: resp.StatusCode, header: resp.Header, body: string(b)}
	json.Unmarshal(b, &a.said)
	return a, err
}

// through fails the test unless a came through, once, and returns how.
func (s *site) through(a answer) taken {
	s.t.Helper()
	got := s.orders.take()
	if a.status != http.StatusCreated || len(got) != 1 {
		s.t.Fatalf("%v; %d requests came through", a, len(got))
	}
	return got[0]
}

// stopped fails the test unless a is the refusal code, and nothing came through.
func (s *site) stopped(a answer, status int, code, next string) {
	s.t.Helper()
	if got := s.orders.take(); len(got) != 0 {
		s.t.Errorf("came through: %+v", got)
	}
	if !s.refused(a, status) || a.Code != code || a.Next != next || a.header.Get("Content-Type") != "application/problem+json" ||
		!strings.Contains(a.header.Get("Cache-Control"), "no-store") {
		s.t.Errorf("got %v, want %d %s %s", a, status, code, next)
	}
}

// refused tells whether a is a refusal with status, as s's gateway tells it.
func (s *site) refused(a answer, status int) bool {
	if s.flat && status < http.StatusInternalServerError {
		return a.status == http.StatusForbidden && a.header.Get(wire.HeaderStatus) == strconv.Itoa(status) && a.header.Get(wire.HeaderCode) == a.Code
	}
	return a.status == status
}
