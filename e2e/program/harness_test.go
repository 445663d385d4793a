package program_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"example.com/tokend/client"
	"example.com/tokend/e2e/internal/serve"
	"example.com/tokend/httpapi/wire"
	"example.com/tokend/internal/redistest"
)

// binary is the program under test.
var binary string

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "tokend")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	var flags []string
	if raceEnabled {
		flags = append(flags, "-race")
	}
	if binary, err = serve.Build(dir, flags...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// The secrets of every instance. None of them may show in a log.
var (
	signingKey  = base64.StdEncoding.EncodeToString(randomBytes(32))
	otherKey    = base64.StdEncoding.EncodeToString(randomBytes(32))
	jwtSecret   = hex.EncodeToString(randomBytes(32))
	serviceKey  = "tsk_" + base64.RawURLEncoding.EncodeToString(randomBytes(32))
	serviceHash = func() string {
		sum := sha256.Sum256([]byte(serviceKey))
		return hex.EncodeToString(sum[:])
	}()
)

func randomBytes(n int) []byte {
	b := make([]byte, n)
	rand.Read(b)
	return b
}

const (
	// patience bounds every wait: far more than any machine needs.
	patience = 40 * time.Second
	// slack is what a loaded machine may add to a bound that the program keeps.
	slack = 8 * time.Second
)

// instance is one tokend serve.
type instance struct {
	t       testing.TB
	environ map[string]string // TOKEND_ variables, without the prefix
	secrets []string          // that its log must not show, besides those of all

	addr, adminAddr string
	logFile         string
	cmd             *exec.Cmd
	ended           <-chan struct{} // closed when the process has ended
}

// settings returns the variables of an instance on the Redis at redisURL; more are NAME=VALUE
// without TOKEND_, and NAME alone takes one away.
func settings(redisURL string, more ...string) map[string]string {
	environ := map[string]string{
		"LISTEN":                "127.0.0.1:0",
		"ADMIN_LISTEN":          "127.0.0.1:0",
		"REDIS_URL":             redisURL,
		"SIGNING_KEYS":          "k1:" + signingKey + ",k2:" + otherKey,
		"AUTH_JWT_SECRET":       jwtSecret,
		"AUTH_SERVICE_KEYS":     "form:" + serviceHash + ":tokend.issue+tokend.consume",
		"RATE_ISSUE_PER_MINUTE": "0",
	}
	for _, m := range more {
		name, value, ok := strings.Cut(m, "=")
		if !ok {
			delete(environ, name)
			continue
		}
		environ[name] = value
	}
	return environ
}

// redisURL returns the URL of the database 0 at addr.
func redisURL(addr string) string { return "redis://" + addr + "/0" }

// start starts an instance and waits until it listens. It is ended with the test, and its
// log is looked through.
func start(t testing.TB, redisURL string, more ...string) *instance {
	t.Helper()
	i := &instance{t: t, environ: settings(redisURL, more...), logFile: filepath.Join(t.TempDir(), "log")}
	t.Cleanup(func() {
		i.kill()
		i.searchLog()
	})
	i.launch()
	return i
}

// startReady starts an instance and waits until it is ready.
func startReady(t testing.TB, redisURL string, more ...string) *instance {
	t.Helper()
	i := start(t, redisURL, more...)
	i.untilReady()
	return i
}

// launch starts the process: at the addresses that it had before, if it had any.
func (i *instance) launch() {
	i.t.Helper()
	deadline := time.Now().Add(patience)
	for !i.try() {
		// Another program may have taken the port meanwhile, and may give it back.
		if time.Now().After(deadline) {
			i.t.Fatalf("tokend does not start:\n%s", tail(i.log()))
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (i *instance) try() bool {
	i.t.Helper()
	p, err := serve.Start(binary, i.logFile, i.environ)
	if errors.Is(err, serve.ErrTaken) {
		return false
	}
	if err != nil {
		i.t.Fatal(err)
	}
	i.cmd, i.ended, i.addr, i.adminAddr = p.Cmd, p.Ended, p.Addr, p.AdminAddr
	i.environ["LISTEN"], i.environ["ADMIN_LISTEN"] = i.addr, i.adminAddr
	return true
}

func (i *instance) log() string {
	b, _ := os.ReadFile(i.logFile)
	return string(b)
}

// kill ends the process as a crash would.
func (i *instance) kill() {
	if i.cmd != nil && i.cmd.Process != nil {
		i.cmd.Process.Kill()
		<-i.ended
	}
}

// send sends the process a signal.
func (i *instance) send(sig os.Signal) {
	i.t.Helper()
	if err := i.cmd.Process.Signal(sig); err != nil {
		i.t.Fatal(err)
	}
}

// terminate asks the process to end in good order.
func (i *instance) terminate() {
	i.t.Helper()
	i.send(syscall.SIGTERM)
}

// status waits for the end of the process and returns its exit status, -1 where a signal
// ended it.
func (i *instance) status() int {
	i.t.Helper()
	select {
	case <-i.ended:
	case <-time.After(patience):
		i.t.Fatalf("the process does not end:\n%s", tail(i.log()))
	}
	return i.cmd.ProcessState.ExitCode()
}

func (i *instance) running() bool {
	select {
	case <-i.ended:
		return false
	default:
		return true
	}
}

func tail(log string) string { return log[max(0, len(log)-4000):] }

// bearers are tokens and JWTs; hashes are too short to look like one by chance.
var bearers = regexp.MustCompile(`ott_[A-Za-z0-9_-]{30}|eyJ[A-Za-z0-9_-]{8,}\.eyJ`)

// searchLog looks through the log for what must never stand there.
func (i *instance) searchLog() {
	log := i.log()
	for _, secret := range append([]string{signingKey, otherKey, jwtSecret, serviceKey, serviceHash}, i.secrets...) {
		if at := strings.Index(log, secret); at >= 0 {
			i.t.Errorf("the log shows %q:\n%s", secret, log[max(0, at-300):min(len(log), at+300)])
		}
	}
	if found := bearers.FindStringIndex(log); found != nil {
		i.t.Errorf("the log shows a token or a JWT:\n%s", log[max(0, found[0]-300):min(len(log), found[1]+300)])
	}
	for line := range strings.Lines(log) {
		// What ended the program is told in words, and the last line of a killed one may be cut.
		if !json.Valid([]byte(line)) && !strings.HasPrefix(line, "tokend: ") && strings.HasSuffix(line, "\n") {
			i.t.Errorf("a line of the log is not JSON (a panic? a data race?):\n%s", tail(log[strings.Index(log, line):]))
			break
		}
		if strings.Contains(line, `"code":"internal"`) {
			i.t.Errorf("an error that nobody expected: %s", line)
		}
	}
}

// until waits until ok.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

// untilReady waits until the instance is ready.
func (i *instance) untilReady() {
	i.t.Helper()
	until(i.t, "it is ready", func() bool {
		if !i.running() {
			i.t.Fatalf("it has ended:\n%s", tail(i.log()))
		}
		a, err := i.request("GET", wire.PathReadyz, "", "")
		return err == nil && a.status == http.StatusOK
	})
}

// untilUnready waits until the instance says that it cannot serve: a blip is not said.
func (i *instance) untilUnready() {
	until(i.t, "it is unready", func() bool {
		a, err := i.request("GET", wire.PathReadyz, "", "")
		return err == nil && a.status == http.StatusServiceUnavailable
	})
}

// answer is what came back, with the members that answers may have.
type answer struct {
	status int
	header http.Header
	body   string
	took   time.Duration
	said
}

type said struct {
	Code, Next, State, Outcome, Token, Ref, Field string
	UsedBy                                        string `json:"used_by"`
	UsedAt                                        string `json:"used_at"`
	RetryAfter                                    int    `json:"retry_after"`
	Replayed                                      bool
	Tokens                                        []struct{ Token string }
	Results                                       []said
}

func (a answer) String() string { return fmt.Sprintf("%d after %v: %s", a.status, a.took, a.body) }

// plainHTTP makes each call on a connection of its own.
var plainHTTP = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}

func (i *instance) request(method, path, bearer, body string) (answer, error) {
	return exchange(method, "http://"+i.addr+path, bearer, strings.NewReader(body))
}

func exchange(method, url, bearer string, body io.Reader) (answer, error) {
	req, err := http.NewRequest(method, url, body)
	if err != nil {
		return answer{}, err
	}
	if bearer != "" {
		req.Header.Set("Authorization", "Bearer "+bearer)
		req.Header.Set("Content-Type", wire.TypeJSON)
	}
	began := time.Now()
	resp, err := plainHTTP.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return readAnswer(resp, b, time.Since(began)), err
}

func readAnswer(resp *http.Response, body []byte, took time.Duration) answer {
	a := answer{status: resp.StatusCode, header: resp.Header, body: string(body), took: took}
	json.Unmarshal(body, &a.said)
	return a
}

// get makes a GET, which must be answered.
func (i *instance) get(path string) answer {
	i.t.Helper()
	a, err := i.request("GET", path, "", "")
	if err != nil {
		i.t.Fatalf("GET %s: %v", path, err)
	}
	return a
}

// post makes a POST as bearer, which must be answered.
func (i *instance) post(path, bearer string, members any) answer {
	i.t.Helper()
	a, err := i.request("POST", path, bearer, object(members))
	if err != nil {
		i.t.Fatalf("POST %s: %v", path, err)
	}
	return a
}

// members are a JSON object's.
type members map[string]any

func object(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// issue has a token issued to user.
func (i *instance) issue(user string) string {
	i.t.Helper()
	a := i.post(wire.PathTokens, serviceKey, members{"user": user})
	if a.status != http.StatusCreated {
		i.t.Fatalf("issue: %v", a)
	}
	return a.Token
}

// consume consumes user's token; an empty attempt is left out.
func (i *instance) consume(user, token, attempt string) answer {
	i.t.Helper()
	return i.post(wire.PathConsume, serviceKey, consumption(user, token, attempt))
}

func consumption(user, token, attempt string) members {
	m := members{"user": user, "token": token}
	if attempt != "" {
		m["attempt"] = attempt
	}
	return m
}

// state returns the state of user's token.
func (i *instance) state(user, token string) string {
	i.t.Helper()
	a := i.post(wire.PathStatus, serviceKey, members{"user": user, "token": token})
	if a.status != http.StatusOK {
		i.t.Fatalf("status: %v", a)
	}
	return a.State
}

// usable fails the test unless a token can be issued and consumed, once.
func (i *instance) usable() {
	i.t.Helper()
	token := i.issue("alice")
	if a := i.consume("alice", token, "a1"); a.status != http.StatusOK || a.Outcome != wire.OutcomeConsumed {
		i.t.Errorf("consume: %v", a)
	}
	if a := i.consume("alice", token, "a2"); a.Code != string(wire.CodeTokenUsed) {
		i.t.Errorf("second consume: %v", a)
	}
}

// userJWT returns the JWT of a user.
func userJWT(t testing.TB, user string) string {
	t.Helper()
	text, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
		"sub": user, "exp": time.Now().Add(time.Hour).Unix(),
	}).SignedString([]byte(jwtSecret))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// client returns a client of i as a service. It does not wait long between tries.
func (i *instance) client(opts ...client.Option) *client.Client {
	i.t.Helper()
	opts = append([]client.Option{
		client.Budget(patience),
		client.Backoff(func(int, time.Duration) time.Duration { return 20 * time.Millisecond }),
	}, opts...)
	c, err := client.New("http://"+i.addr, client.ServiceKey(serviceKey), opts...)
	if err != nil {
		i.t.Fatal(err)
	}
	i.t.Cleanup(c.CloseIdleConnections)
	return c
}

// metrics returns the lines of /metrics, without comments.
func (i *instance) metrics() []string {
	i.t.Helper()
	a, err := exchange("GET", "http://"+i.adminAddr+wire.PathMetrics, "", http.NoBody)
	if err != nil || a.status != http.StatusOK {
		i.t.Fatalf("metrics: %v, %v", a, err)
	}
	var lines []string
	for line := range strings.Lines(a.body) {
		if !strings.HasPrefix(line, "#") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// gauge returns the value of the metric called name, which has no labels.
func (i *instance) gauge(name string) float64 {
	i.t.Helper()
	for _, line := range i.metrics() {
		if text, ok := strings.CutPrefix(line, name+" "); ok {
			v, err := strconv.ParseFloat(text, 64)
			if err != nil {
				i.t.Fatal(err)
			}
			return v
		}
	}
	i.t.Fatalf("there is no metric %s", name)
	return 0
}

// durable starts a redis-server that loses nothing that it has acknowledged.
func durable(t testing.TB) *redistest.Server {
	t.Helper()
	return redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
}

// everyKeyExpires fails the test where a key in r has no expiry. It returns how many
// keys there are.
func everyKeyExpires(t testing.TB, r *redistest.Server) int {
	t.Helper()
	ctx := context.Background()
	c := r.Client()
	n := 0
	for it := c.Scan(ctx, 0, "*", 1000).Iterator(); it.Next(ctx); n++ {
		ttl, err := c.PTTL(ctx, it.Val()).Result()
		if err != nil {
			t.Fatal(err)
		}
		if ttl == -1 {
			t.Errorf("the key %q has no expiry", it.Val())
		}
	}
	return n
}

// raw is a connection that sends what it is told.
type raw struct {
	net.Conn
	t testing.TB
}

func (i *instance) dial() *raw {
	i.t.Helper()
	c, err := net.Dial("tcp", i.addr)
	if err != nil {
		i.t.Fatal(err)
	}
	i.t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	return &raw{c, i.t}
}

func (r *raw) write(parts ...string) {
	r.t.Helper()
	if _, err := io.WriteString(r, strings.Join(parts, "")); err != nil {
		r.t.Fatal(err)
	}
}

// rest returns what else comes until the server closes the connection.
func (r *raw) rest() string {
	var b bytes.Buffer
	_, err := io.Copy(&b, r)
	if ne := net.Error(nil); errors.As(err, &ne) && ne.Timeout() {
		r.t.Errorf("the server does not close the connection; so far it said: %s", tail(b.String()))
	}
	return b.String()
}
