package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.com/tokend/internal/redistest"
)

// benchFlags make a bench short; how much it measures is no matter here.
var benchFlags = []string{"bench", "--rounds=2", "--duration=200ms", "--warmup=20ms", "--timeout=30s"}

func TestBench(t *testing.T) {
	r := startCommand(t, serveEnviron(testStore(t).URL()), "serve")
	environ := []string{"TOKEND_URL=" + r.url, "TOKEND_TOKEN_FILE=" + written(t, bearer(t, "form", "tokend.issue tokend.consume")+"\n")}
	for name, flags := range map[string][]string{
		"closed": {"--callers=3"},
		"open":   {"--rate=200", "--duration=500ms"},
	} {
		t.Run(name, func(t *testing.T) {
			got := runCommand(t, environ, "", append(append(benchFlags, "--json", "--double=0.5"), flags...)...)
			var report benchReport
			if err := json.Unmarshal([]byte(got.stdout), &report); err != nil || got.status != exitOK || got.stderr != "" {
				t.Fatalf("%v: %+v", err, got)
			}
			if report.URL != r.url || report.Loop != name || report.Rounds != 2 || report.Doubles == 0 || len(report.Faults)+len(report.Failures) != 0 {
				t.Errorf("%+v", report)
			}
			for _, kind := range benchKinds {
				c := report.Calls[kind]
				var n int64
				for _, bar := range c.Histogram {
					n += bar.Count
				}
				if c.Answers == 0 || n != c.Answers || c.PerSecond <= 0 || c.P50 <= 0 || c.P50 > c.P90 || c.P90 > c.P99 || c.P99 > c.P999 || c.P999 > c.Max {
					t.Errorf("%s: %+v", kind, c)
				}
			}
		})
	}
	t.Run("table", func(t *testing.T) {
		got := runCommand(t, environ, "", append(benchFlags, "--progress")...)
		for _, want := range []string{`closed loop, 64 callers, 2 rounds of 200ms, medians`, `(?m)^ *call +calls/s +p50 +p90 +p99 +p99\.9 +max`, `(?m)^ *issue +\d`, `(?m)^ *both +\d+`, `to .*█`, `faults: none`, `wrong answers: none`} {
			if !regexp.MustCompile(want).MatchString(got.stdout) {
				t.Errorf("no %s in\n%s", want, got.stdout)
			}
		}
		if want := regexp.MustCompile(`^warming up for 20ms\nround 1 of 2: \d+ calls/s, .*\nround 2 of 2: .*\n$`); got.status != exitOK || !want.MatchString(got.stderr) {
			t.Errorf("%+v", got)
		}
	})
	for name, token := range map[string]string{"unknown": canary, "a user's": bearer(t, "alice", ""), "may not consume": bearer(t, "form", "tokend.issue")} {
		got := runCommand(t, []string{"TOKEND_URL=" + r.url, "TOKEND_TOKEN=" + token}, "", benchFlags...)
		if got.status != exitRefused || got.stdout != "" || strings.Contains(got.stderr, token) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// Without a URL the bench has a service of its own, on the Redis of the settings; what it
// leaves there is gone in three minutes.
func TestBenchOwn(t *testing.T) {
	s := redistest.Start(t)
	environ := serveEnviron("redis://"+s.Addr, "TOKEND_REDIS_KEY_PREFIX=own", "TOKEND_TOKENS_RETENTION=24h")
	got := runCommand(t, environ, "", append(benchFlags, "--callers=4")...)
	if got.status != exitOK || !strings.Contains(got.stderr, "a service within this process") || strings.Contains(got.stderr, "MINIREDIS") {
		t.Errorf("%+v", got)
	}
	c := s.Client()
	keys := c.Keys(t.Context(), "*").Val()
	if len(keys) == 0 {
		t.Error("nothing was measured on that Redis")
	}
	for _, key := range keys {
		if left := c.TTL(t.Context(), key).Val(); left <= 0 || left > 3*time.Minute+time.Second || !strings.HasPrefix(key, "own:") {
			t.Errorf("%q is left for %v", key, left)
		}
	}
	if got := runCommand(t, nil, "", benchFlags...); got.status != exitOK || !strings.Contains(got.stderr, "THIS MEASURES MINIREDIS") {
		t.Errorf("without a Redis: %+v", got)
	}
	s.Kill()
	if got := runCommand(t, environ, "", benchFlags...); got.status != exitFault || got.stdout != "" {
		t.Errorf("a Redis that is away: %+v", got)
	}
}

func TestBenchUsage(t *testing.T) {
	for flag, want := range map[string]string{
		"--callers=0": "--callers must be", "--callers=1025": "--callers must be", "--rate=-1": "--rate must be", "--rate=1e6": "--rate must be", "--rate=NaN": "--rate must be",
		"--rounds=0": "--rounds must be", "--rounds=101": "--rounds must be", "--duration=0s": "--duration must be", "--duration=11m": "--duration must be",
		"--warmup=-1s": "--warmup must be", "--double=1.1": "--double must be", "--double=NaN": "--double must be", "--timeout=0s": "--timeout must be",
		"--token=" + canary: "give --url or TOKEND_URL too", "--redis-mode=x": "must be standalone", "--url=localhost:1": "must be http://",
	} {
		got := runCommand(t, []string{"TOKEND_TOKEN=x"}, "", "bench", flag)
		if got.status != exitUsage || !strings.Contains(got.stderr, want) || strings.Contains(got.stderr, canary) {
			t.Errorf("%s: %+v", flag, got)
		}
	}
}

// fakeTokend answers a bench's calls. Each consume is answered by what is given.
type fakeTokend struct {
	*httptest.Server
	issued atomic.Int64
}

const (
	fakeConsumed = `{"outcome":"consumed","replayed":false}`
	fakeUsed     = `{"code":"token_used","next":"stop"}`
)

func newFakeTokend(t *testing.T, consume func(w http.ResponseWriter, body string)) *fakeTokend {
	t.Helper()
	f := new(fakeTokend)
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.URL.Path == "/base/v1/tokens" {
			w.WriteHeader(http.StatusCreated)
			fmt.Fprintf(w, `{"token":"ott_%d","user":"x"}`, f.issued.Add(1))
			return
		}
		consume(w, string(body))
	}))
	t.Cleanup(f.Close)
	return f
}

func answer(w http.ResponseWriter, status int, body string) {
	w.WriteHeader(status)
	io.WriteString(w, body)
}

// measure runs a bench at f.
func (f *fakeTokend) measure(t *testing.T, o benchOptions) (*benchReport, error) {
	t.Helper()
	target, err := newTarget(f.URL+"/base/", "secret", 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(target.close)
	if o.callers == 0 {
		o.callers = 4
	}
	o.rounds, o.duration, o.timeout = 1, 100*time.Millisecond, 20*time.Second
	b := newBenchRun(target, "default", o)
	if err := b.run(t.Context(), io.Discard); err != nil {
		t.Fatal(err)
	}
	r := b.report(f.URL)
	return r, r.verdict()
}

// What is answered wrong fails the run, what is not answered does not.
func TestBenchChecksAnswers(t *testing.T) {
	var used sync.Map
	once := func(w http.ResponseWriter, body string) {
		if _, before := used.LoadOrStore(body, true); before {
			answer(w, 409, fakeUsed)
			return
		}
		answer(w, 200, fakeConsumed)
	}
	var turn atomic.Int64
	for _, tt := range []struct {
		name    string
		double  float64
		consume func(w http.ResponseWriter, body string)
		status  int
		failure string // the only one
		fault   string // the only one
	}{
		{"each once", 1, once, exitOK, "", ""},
		{"everything granted", 1, func(w http.ResponseWriter, _ string) { answer(w, 200, fakeConsumed) }, exitRefused, "DOUBLE CONSUME: two attempts were granted the same token", ""},
		{"nothing granted", 1, func(w http.ResponseWriter, _ string) { answer(w, 409, fakeUsed) }, exitRefused, "consume: token_used to both of two attempts", ""},
		{"used before", 0, func(w http.ResponseWriter, _ string) { answer(w, 409, fakeUsed) }, exitRefused, "consume: token_used, for a token that nobody had used", ""},
		{"another refusal", 0, func(w http.ResponseWriter, _ string) { answer(w, 410, `{"code":"token_lost"}`) }, exitRefused, "consume: 410 token_lost", ""},
		{"a replay", 0, func(w http.ResponseWriter, _ string) { answer(w, 200, `{"outcome":"consumed","replayed":true}`) }, exitRefused, "consume: 200", ""},
		{"a page", 0, func(w http.ResponseWriter, _ string) { answer(w, 200, "<html>") }, exitRefused, "consume: 200", ""},
		{"a redirection", 0, func(w http.ResponseWriter, _ string) {
			w.Header().Set("Location", "/base/v1/tokens")
			answer(w, 307, "")
		}, exitRefused, "consume: 307", ""},
		{"unavailable", 0, func(w http.ResponseWriter, _ string) { answer(w, 503, `{"code":"store_unavailable"}`) }, exitOK, "", "503 store_unavailable"},
		{"one of two hangs up", 1, func(w http.ResponseWriter, body string) {
			if turn.Add(1)%2 == 0 {
				panic(http.ErrAbortHandler)
			}
			once(w, body)
		}, exitOK, "", "connection closed"},
		{"an answer without end", 0, func(w http.ResponseWriter, _ string) { answer(w, 200, strings.Repeat(" ", maxAnswer+1)) }, exitOK, "", "*errors.errorString"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := newFakeTokend(t, tt.consume).measure(t, benchOptions{double: tt.double})
			if exitStatus(err) != tt.status {
				t.Errorf("%v", err)
			}
			for what, pair := range map[string]struct {
				got  map[string]int64
				want string
			}{"failures": {r.Failures, tt.failure}, "faults": {r.Faults, tt.fault}} {
				if n := pair.got[pair.want]; (len(pair.got) != 0) != (pair.want != "") || len(pair.got) > 1 || pair.want != "" && n == 0 {
					t.Errorf("%s: %v, want %q", what, pair.got, pair.want)
				}
			}
			if (r.Doubles > 0) != (tt.double > 0) {
				t.Errorf("%d doubles", r.Doubles)
			}
		})
	}
}

// A service that does not answer at all is a fault.
func TestBenchNoAnswers(t *testing.T) {
	f := newFakeTokend(t, nil)
	f.Close()
	r, err := f.measure(t, benchOptions{})
	if exitStatus(err) != exitFault || r.Faults["cannot connect"] == 0 {
		t.Errorf("%v: %+v", err, r)
	}
}

// In an open loop a stall drops arrivals, and what was begun is charged with the wait.
func TestBenchOpenLoop(t *testing.T) {
	release := make(chan struct{})
	stall := sync.OnceFunc(func() { time.AfterFunc(time.Second, func() { close(release) }) })
	r, err := newFakeTokend(t, func(w http.ResponseWriter, _ string) {
		stall()
		<-release
		answer(w, 200, fakeConsumed)
	}).measure(t, benchOptions{rate: 1000, callers: 5})
	if err != nil || r.Loop != "open" || r.Dropped == 0 || r.Calls["consume"].Max < 100_000 {
		t.Errorf("%v: %+v", err, r)
	}
}

// Connections are used again, whatever the length of an answer is told by; not after the
// server has said that it closes them, nor after a while.
func TestTargetConnections(t *testing.T) {
	var opened atomic.Int64
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" || r.Header.Get("Content-Type") != "application/json" || r.Method != http.MethodPost {
			t.Errorf("%s with %v", r.Method, r.Header)
		}
		body, _ := io.ReadAll(r.Body)
		switch r.URL.Path {
		case "/closes":
			w.Header().Set("Connection", "close")
		case "/flushes":
			w.(http.Flusher).Flush() // chunked from here on
		}
		w.Write(body)
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	s.StartTLS()
	defer s.Close()
	target, err := newTarget(s.URL, "secret", 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer target.close()
	target.tls.RootCAs = s.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	post := func(path string, want int64) {
		t.Helper()
		status, got, err := target.post(path, "body")
		if status != http.StatusOK || string(got) != "body" || err != nil || opened.Load() != want {
			t.Errorf("%s: %d %q %v, %d connections, want %d", path, status, got, err, opened.Load(), want)
		}
	}
	post("/", 1)
	post("/flushes", 1)
	post("/closes", 1)
	post("/", 2)
	target.idle[0].used = time.Now().Add(-idleAtMost)
	post("/", 3)
	if len(target.idle) != 1 {
		t.Errorf("%d idle connections", len(target.idle))
	}
}

// What a call costs, the server's part included, by a target and by net/http's client.
func BenchmarkTarget(b *testing.B) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		io.WriteString(w, fakeConsumed)
	}))
	defer s.Close()
	b.Run("target", func(b *testing.B) {
		target, err := newTarget(s.URL, "secret", time.Minute)
		if err != nil {
			b.Fatal(err)
		}
		defer target.close()
		for b.Loop() {
			if _, _, err := target.post("/", fakeUsed); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("http.Client", func(b *testing.B) {
		for b.Loop() {
			resp, err := s.Client().Post(s.URL, "application/json", strings.NewReader(fakeUsed))
			if err != nil {
				b.Fatal(err)
			}
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
	})
}

func TestMedianOf(t *testing.T) {
	for _, tt := range []struct {
		took []time.Duration
		want float64
	}{{[]time.Duration{3}, 3}, {[]time.Duration{9, 1}, 5}, {[]time.Duration{9, 1, 2}, 2}} {
		var rounds []*benchRound
		for _, d := range tt.took {
			rounds = append(rounds, &benchRound{took: d})
		}
		if got := medianOf(rounds, func(r *benchRound) float64 { return float64(r.took) }); got != tt.want {
			t.Errorf("%v: %v", tt.took, got)
		}
	}
}
