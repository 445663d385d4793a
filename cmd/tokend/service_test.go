package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"example.com/tokend/config"
	"example.com/tokend/internal/devredis"
)

// testStore starts a Redis for a test.
func testStore(t *testing.T) *devredis.Server {
	t.Helper()
	s, err := devredis.Start("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// serveEnviron returns what serve needs.
func serveEnviron(redisURL string, more ...string) []string {
	return append([]string{
		"TOKEND_REDIS_URL=" + redisURL, "TOKEND_SIGNING_KEYS=" + testKeys, "TOKEND_AUTH_JWT_SECRET=" + testSecret,
	}, more...)
}

// bearer returns a JWT for a server with serveEnviron.
func bearer(t *testing.T, subject, scope string) string {
	t.Helper()
	a := config.Auth{JWTSecrets: []config.Secret{config.Secret(testSecret)}, UserClaim: "sub", ScopeClaim: "scope"}
	text, err := signJWT(a, jwtClaims{subject: subject, scope: scope, ttl: time.Hour}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// get returns the status and the body of a GET.
func get(t *testing.T, url string) (int, string) {
	t.Helper()
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	resp, err := c.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// issue has the server at url issue a token. Nothing of the body is read before the
// server asks for it, so a pipe's first write returns when the call is in flight.
func issue(url, bearer string, body io.Reader) (int, error) {
	req, err := http.NewRequest(http.MethodPost, url+"/v1/tokens", body)
	if err != nil {
		return 0, err
	}
	req.Header.Set("Authorization", "Bearer "+bearer)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Expect", "100-continue")
	resp, err := (&http.Client{Transport: &http.Transport{ExpectContinueTimeout: time.Minute, DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	return resp.StatusCode, nil
}

func TestServe(t *testing.T) {
	r := startCommand(t, serveEnviron(testStore(t).URL()), "serve")
	if status, _ := get(t, r.url+"/readyz"); status != http.StatusOK {
		t.Errorf("readyz: %d", status)
	}
	if status, err := issue(r.url, bearer(t, "alice", ""), strings.NewReader("{}")); status != http.StatusCreated {
		t.Errorf("issue: %d, %v", status, err)
	}
	status, metrics := get(t, r.adminURL+"/metrics")
	for _, want := range []string{`tokend_outcomes_total{code="issued",op="issue"} 1`, "tokend_build_info", `tokend_redis_pool{state="idle"} 1`} {
		if !strings.Contains(metrics, want) {
			t.Errorf("metrics (%d) lack %s", status, want)
		}
	}
	if status, _ := get(t, r.url+"/metrics"); status != http.StatusNotFound {
		t.Errorf("metrics on the public listener: %d", status)
	}
	if status, _ := get(t, r.adminURL+"/debug/pprof/"); status != http.StatusNotFound {
		t.Errorf("profiles without admin_pprof: %d", status)
	}
	if status := r.stop(); status != exitOK {
		t.Errorf("status %d:\n%s", status, r.stderr)
	}
	for line := range strings.Lines(r.stderr.String()) {
		if !json.Valid([]byte(line)) {
			t.Errorf("no JSON line: %s", line)
		}
	}
	if log := r.stderr.String(); strings.Contains(log, canary) {
		t.Errorf("a secret in the log:\n%s", log)
	}
}

// What the configuration says reaches the service.
func TestServeSettings(t *testing.T) {
	file := written(t, "purposes: {order.create: {ttl: 7s}}\ncors: {origins: ['https://shop.example']}\nredis: {key_prefix: shop}\nlog: {outcomes: none}\n")
	store := testStore(t)
	r := startCommand(t, serveEnviron(store.URL(), "TOKEND_CONFIG="+file), "serve")
	environ := []string{"TOKEND_URL=" + r.url, "TOKEND_TOKEN=" + bearer(t, "alice", "")}
	if got := runCommand(t, environ, "", "issue", "--purpose=order.create", "--json"); !strings.Contains(got.stdout, `"ttl":7}`) {
		t.Errorf("the purpose's ttl: %+v", got)
	}
	if got := runCommand(t, environ, "", "issue"); got.status != exitRefused || !strings.Contains(got.stderr, "configured purposes") {
		t.Errorf("another purpose: %+v", got)
	}
	req, err := http.NewRequest(http.MethodGet, r.url+"/livez", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Origin", "https://shop.example")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if got := resp.Header.Get("Access-Control-Allow-Origin"); got != "https://shop.example" {
		t.Errorf("origin %q", got)
	}
	for _, key := range store.Mini().Keys() {
		if !strings.HasPrefix(key, "shop:") {
			t.Errorf("key %q", key)
		}
	}
	if log := r.stderr.String(); strings.Contains(log, `"op":`) {
		t.Errorf("outcomes in the log:\n%s", log)
	}
}

func TestServeProfiles(t *testing.T) {
	r := startCommand(t, serveEnviron(testStore(t).URL()), "serve", "--admin-pprof")
	if status, _ := get(t, r.adminURL+"/debug/pprof/"); status != http.StatusOK {
		t.Errorf("profiles: %d", status)
	}
}

func TestServeTLS(t *testing.T) {
	files := newTestCert(t, "one")
	tlsEnviron := []string{"TOKEND_TLS_CERT_FILE=" + files.certFile, "TOKEND_TLS_KEY_FILE=" + files.keyFile}
	r := startCommand(t, serveEnviron(testStore(t).URL(), tlsEnviron...), "serve")
	if !strings.HasPrefix(r.url, "https://") {
		t.Fatal(r.url)
	}
	if status, body := get(t, r.url+"/readyz"); status != http.StatusOK {
		t.Errorf("readyz: %d %s", status, body)
	}
	addr := strings.TrimPrefix(r.url, "https://")
	if got := runCommand(t, append(tlsEnviron, "TOKEND_LISTEN="+addr), "", "healthcheck"); got.status != exitOK {
		t.Errorf("healthcheck by the configuration: %+v", got)
	}
	if got := runCommand(t, nil, "", "healthcheck", "--url="+r.url); got.status != exitRefused || !strings.Contains(got.stderr, "certificate") {
		t.Errorf("a certificate that nobody knows was taken: %+v", got)
	}
}

// Redis may come after the service, and go.
func TestServeWithoutRedis(t *testing.T) {
	store := testStore(t)
	store.Mini().Close()
	r := startCommand(t, serveEnviron(store.URL(), "TOKEND_REDIS_TIMEOUT=100ms"), "serve")
	health := func(args ...string) int {
		return runCommand(t, nil, "", append([]string{"healthcheck", "--url=" + r.url}, args...)...).status
	}
	if got := health(); got != exitRefused {
		t.Errorf("ready without Redis: %d", got)
	}
	if got := health("--live"); got != exitOK {
		t.Errorf("not alive without Redis: %d", got)
	}
	if err := store.Mini().Restart(); err != nil {
		t.Fatal(err)
	}
	r.until("it is ready", func() bool { return health() == exitOK })
}

// On the signal /readyz is 503 at once while requests are still served; one that is in
// flight is answered; then the program ends.
func TestShutdown(t *testing.T) {
	r := startCommand(t, serveEnviron(testStore(t).URL(), "TOKEND_SHUTDOWN_DELAY=2s"), "serve")
	user := bearer(t, "alice", "")
	body, more := io.Pipe()
	inFlight := make(chan string, 1)
	go func() {
		status, err := issue(r.url, user, body)
		inFlight <- fmt.Sprint(status, err)
	}()
	if _, err := more.Write([]byte("{")); err != nil {
		t.Fatal(err)
	}
	r.signal()
	r.until("it shuts down", func() bool { return strings.Contains(r.stderr.String(), "shutting down") })
	if status, _ := get(t, r.url+"/readyz"); status != http.StatusServiceUnavailable {
		t.Errorf("readyz: %d", status)
	}
	if status, err := issue(r.url, user, strings.NewReader("{}")); status != http.StatusCreated {
		t.Errorf("issue within the delay: %d, %v", status, err)
	}
	r.until("the listener is closed", func() bool { status, _ := get(t, r.url+"/livez"); return status == 0 })
	if _, err := more.Write([]byte("}")); err != nil {
		t.Fatal(err)
	}
	more.Close()
	if got := <-inFlight; got != "201 <nil>" {
		t.Errorf("the request in flight: %s", got)
	}
	if status := r.wait(); status != exitOK {
		t.Errorf("status %d:\n%s", status, r.stderr)
	}
}

// A request that does not end does not keep the program.
func TestShutdownTimeout(t *testing.T) {
	r := startCommand(t, serveEnviron(testStore(t).URL(), "TOKEND_SHUTDOWN_TIMEOUT=50ms"), "serve")
	body, more := io.Pipe()
	inFlight := make(chan error, 1)
	go func() {
		_, err := issue(r.url, bearer(t, "alice", ""), body)
		inFlight <- err
	}()
	if _, err := more.Write([]byte("{")); err != nil {
		t.Fatal(err)
	}
	if status := r.stop(); status != exitFault || !strings.Contains(r.stderr.String(), "still in flight after shutdown.timeout") {
		t.Errorf("status %d:\n%s", status, r.stderr)
	}
	more.CloseWithError(io.ErrClosedPipe) // the transport waits for it
	if err := <-inFlight; err == nil {
		t.Error("the request was answered")
	}
}

func TestAddressInUse(t *testing.T) {
	environ := serveEnviron(testStore(t).URL())
	r := startCommand(t, environ, "serve")
	addr := strings.TrimPrefix(r.url, "http://")
	for _, flags := range [][]string{{"--listen=" + addr, "--admin-listen="}, {"--listen=127.0.0.1:0", "--admin-listen=" + addr}} {
		if got := runCommand(t, environ, "", append([]string{"serve"}, flags...)...); got.status != exitFault || !strings.Contains(got.stderr, "address already in use") {
			t.Errorf("%v: %+v", flags, got)
		}
	}
}

// The calls of the command line, against the service itself.
func TestCalls(t *testing.T) {
	r := startCommand(t, serveEnviron(testStore(t).URL()), "serve")
	environ := []string{"TOKEND_URL=" + r.url, "TOKEND_TOKEN_FILE=" + written(t, bearer(t, "form", "tokend.issue tokend.consume")+"\n")}

	got := runCommand(t, environ, "", "issue", "--user=alice", "--purpose=order.create", "--ttl=1m")
	if got.status != exitOK || !strings.Contains(got.stdout, "order.create") || !strings.HasPrefix(got.stdout, "token ") {
		t.Errorf("issue: %+v", got)
	}
	got = runCommand(t, environ, "", "issue", "--user=alice", "--json")
	var issued map[string]any
	if err := json.Unmarshal([]byte(got.stdout), &issued); err != nil || issued["user"] != "alice" || issued["ttl"] != 300.0 || issued["expires_at"] == nil {
		t.Errorf("issue: %+v, %v", got, err)
	}
	one := runCommand(t, environ, "", "issue", "--user=alice", "--quiet").stdout
	if !strings.HasPrefix(one, "ott_") {
		t.Fatalf("issue: %q", one)
	}
	for _, step := range []struct {
		args   []string
		status int
		stdout string
	}{
		{[]string{"status", "--user=alice", "-"}, exitOK, "state    issued"},
		{[]string{"consume", "--user=bob", "-"}, exitRefused, ""},
		{[]string{"consume", "--user=alice", "--attempt=a1", "-"}, exitOK, "outcome  consumed"},
		{[]string{"consume", "--user=alice", "--attempt=a1", "--json", "-"}, exitOK, `"replayed":true`},
		{[]string{"consume", "--user=alice", "-"}, exitRefused, ""},
		{[]string{"consume", "--user=alice", "--json", "-"}, exitRefused, `"code":"token_used","next":"stop"`},
		{[]string{"status", "--user=alice", "--json", "-"}, exitOK, `"state":"used"`},
	} {
		got := runCommand(t, environ, one, step.args...)
		if got.status != step.status || !strings.Contains(got.stdout, step.stdout) || (got.stderr == "") != (step.status == exitOK) {
			t.Errorf("%v: %+v", step.args, got)
		}
		if strings.Contains(got.stderr, strings.TrimSpace(one)) {
			t.Errorf("%v: the token in %q", step.args, got.stderr)
		}
	}
	if got := runCommand(t, []string{"TOKEND_URL=" + r.url, "TOKEND_TOKEN=" + canary}, "", "issue", "--user=alice"); got.status != exitRefused || strings.Contains(got.stderr, canary) {
		t.Errorf("an unknown caller: %+v", got)
	}
	r.stop()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	var errs output
	status := run(ctx, &program{args: []string{"issue", "--user=alice"}, environ: environ, stdin: strings.NewReader(""), stdout: io.Discard, stderr: &errs})
	if status != exitFault {
		t.Errorf("no service: %d %s", status, &errs)
	}
}

func TestLocalURL(t *testing.T) {
	for _, tt := range []struct {
		addr      string
		encrypted bool
		want      string
	}{
		{":8080", false, "http://localhost:8080"},
		{"0.0.0.0:8080", false, "http://localhost:8080"},
		{"[::]:8080", true, "https://localhost:8080"},
		{"127.0.0.1:1", false, "http://127.0.0.1:1"},
		{"[::1]:1", false, "http://[::1]:1"},
		{"host:1", true, "https://host:1"},
	} {
		if got := localURL(tt.addr, tt.encrypted); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.addr, got, tt.want)
		}
	}
}
