package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.com/tokend/internal/loadtest"
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
			if report.URL != r.url || report.Loop != name || report.Rounds != 2 || report.Doubles == 0 || report.Made == 0 || report.Interrupted != "" || len(report.Faults)+len(report.WrongAnswers) != 0 {
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
		for _, want := range []string{`closed loop, 64 callers, 2 rounds of 200ms\n`, `calls/s and p50 to p99\.9 the median of the rounds, max and histograms of all rounds`, `(?m)^ *call +calls/s +p50 +p90 +p99 +p99\.9 +max`, `(?m)^ *issue +\d`, `(?m)^ *both +\d+`, `to .*█`, `faults: none of \d+ calls\n`, `wrong answers: none`} {
			if !regexp.MustCompile(want).MatchString(got.stdout) {
				t.Errorf("no %s in\n%s", want, got.stdout)
			}
		}
		if want := regexp.MustCompile(`^warming up for 20ms\nround 1 of 2: \d+ calls/s answered, .* faults 0\nround 2 of 2: .*\n$`); got.status != exitOK || !want.MatchString(got.stderr) {
			t.Errorf("%+v", got)
		}
	})
	for name, token := range map[string]string{"unknown": canary, "a user's": bearer(t, "alice", ""), "may not consume": bearer(t, "form", "tokend.issue")} {
		got := runCommand(t, []string{"TOKEND_URL=" + r.url, "TOKEND_TOKEN=" + token}, "", benchFlags...)
		if got.status != exitRefused || got.stdout != "" || strings.Contains(got.stderr, token) ||
			(name == "unknown") == strings.Contains(got.stderr, "bench needs a service's credential, not a user's, with the scopes tokend.issue and tokend.consume") {
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
		"--callers=0": "--callers must be", "--callers=4097": "--callers must be", "--rate=-1": "--rate must be", "--rate=1e6": "--rate must be", "--rate=NaN": "--rate must be",
		"--rounds=0": "--rounds must be", "--rounds=101": "--rounds must be", "--duration=0s": "--duration must be", "--duration=11m": "--duration must be",
		"--warmup=-1s": "--warmup must be", "--double=1.1": "--double must be", "--double=NaN": "--double must be", "--timeout=0s": "--timeout must be", "--max-faults=-1": "--max-faults must be", "--max-faults=NaN": "--max-faults must be",
		"--token=" + canary: "give --url or TOKEND_URL too", "--redis-mode=x": "must be standalone", "--url=localhost:1": "must be http://",
	} {
		got := runCommand(t, []string{"TOKEND_TOKEN=x"}, "", "bench", flag)
		if got.status != exitUsage || !strings.Contains(got.stderr, want) || strings.Contains(got.stderr, canary) {
			t.Errorf("%s: %+v", flag, got)
		}
	}
}

// What a bench takes is in its help.
func TestBenchHelp(t *testing.T) {
	got := runCommand(t, nil, "", "bench", "--help")
	for _, want := range []string{"how many call at once, 1 to 4096", "arrive in a second, 1 to 200000", "1 to 100", "10ms to 10m", "0s to 1m", "10ms to 1m"} {
		if !strings.Contains(got.stdout, want) {
			t.Errorf("no %q in\n%s", want, got.stdout)
		}
	}
	o := benchOptions{callers: 4096, rate: 200_000, rounds: 100, duration: 10 * time.Minute, timeout: time.Minute}
	if err := o.check(); err != nil {
		t.Error(err)
	}
}

// The service at a URL has settings of its own: those that only a bench's own service
// reads are refused, and the environment's, which others need, are not.
func TestBenchURLAndSettings(t *testing.T) {
	const at = "http://127.0.0.1:1" // nobody
	for _, flag := range []string{"--redis-url=redis://localhost", "--redis-mode=cluster", "--log-outcomes=none", "--tokens-mode=delete", "--config=x"} {
		for name, got := range map[string]result{
			"flag":     runCommand(t, []string{"TOKEND_TOKEN=x"}, "", "bench", "--url="+at, flag),
			"variable": runCommand(t, []string{"TOKEND_TOKEN=x", "TOKEND_URL=" + at}, "", "bench", flag),
		} {
			given, _, _ := strings.Cut(flag, "=")
			if got.status != exitUsage || !strings.Contains(got.stderr, given+" and --url or TOKEND_URL rule each other out") {
				t.Errorf("%s by %s: %+v", flag, name, got)
			}
		}
	}
	got := runCommand(t, []string{"TOKEND_TOKEN=x", "TOKEND_REDIS_URL=redis://localhost"}, "", "bench", "--url="+at)
	if got.status != exitFault {
		t.Errorf("the environment's: %+v", got)
	}
}

// fakeTokend answers a bench's calls. Each consume is answered by what is given.
type fakeTokend struct {
	*httptest.Server
	issued, consumes atomic.Int64
	issue            func(w http.ResponseWriter, user string) // nil: as tokend does
}

const fakeUsed = `{"code":"token_used","next":"stop"}`

// fakeRef is the ref of a token that a fakeTokend has issued.
func fakeRef(text string) string { return fmt.Sprintf("t_%032s", strings.TrimPrefix(text, "ott_")) }

// fakeConsumed is the answer that grants what body asks for.
func fakeConsumed(body string) string {
	return fmt.Sprintf(`{"outcome":"consumed","ref":%q,"user":%q,"purpose":"default","replayed":false}`,
		fakeRef(member([]byte(body), "token")), member([]byte(body), "user"))
}

func newFakeTokend(t *testing.T, consume func(w http.ResponseWriter, body string)) *fakeTokend {
	t.Helper()
	f := new(fakeTokend)
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.URL.Path == "/base/v1/tokens" {
			user, text := member(body, "user"), fmt.Sprintf("ott_%d", f.issued.Add(1))
			if f.issue != nil {
				f.issue(w, user)
				return
			}
			answer(w, 201, fmt.Sprintf(`{"token":%q,"ref":%q,"user":%q,"purpose":"default"}`, text, fakeRef(text), user))
			return
		}
		w.Header().Set("X-Request-Id", fmt.Sprintf("call-%d", f.consumes.Add(1)))
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
	if o.maxFaults == 0 {
		o.maxFaults = 1
	}
	o.rounds, o.duration, o.timeout = 1, 100*time.Millisecond, 20*time.Second
	b := newBenchRun(target, "default", o)
	b.run(t.Context(), io.Discard)
	r := b.report(f.URL)
	return r, r.verdict()
}

// printed returns r as people read it.
func printed(t *testing.T, r *benchReport) string {
	t.Helper()
	var out strings.Builder
	if err := r.print(&out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// What is answered wrong fails the run, what is not answered does not. Each kind of wrong
// answers is told by itself, with a token and the calls to look for.
func TestBenchChecksAnswers(t *testing.T) {
	var used sync.Map
	once := func(w http.ResponseWriter, body string) {
		if _, before := used.LoadOrStore(body, true); before {
			answer(w, 409, fakeUsed)
			return
		}
		answer(w, 200, fakeConsumed(body))
	}
	replacing := func(old, new string) func(http.ResponseWriter, string) {
		return func(w http.ResponseWriter, body string) {
			answer(w, 200, regexp.MustCompile(old).ReplaceAllString(fakeConsumed(body), new))
		}
	}
	var turn atomic.Int64
	for _, tt := range []struct {
		name    string
		double  float64
		consume func(w http.ResponseWriter, body string)
		status  int
		wrong   string // the only kind
		fault   string // the only one
	}{
		{"each once", 1, once, exitOK, "", ""},
		{"everything granted", 1, func(w http.ResponseWriter, body string) { answer(w, 200, fakeConsumed(body)) }, exitRefused, "consume: GRANTED TO TWO ATTEMPTS", ""},
		{"nothing granted", 1, func(w http.ResponseWriter, _ string) { answer(w, 409, fakeUsed) }, exitRefused, "consume: refused token_used to both of two attempts", ""},
		{"used before", 0, func(w http.ResponseWriter, _ string) { answer(w, 409, fakeUsed) }, exitRefused, "consume: refused token_used without reason: there was no other attempt", ""},
		{"another refusal", 0, func(w http.ResponseWriter, _ string) { answer(w, 410, `{"code":"token_lost"}`) }, exitRefused, "consume: refused token_lost (410) without reason", ""},
		{"a replay is a grant", 1, func(w http.ResponseWriter, body string) {
			if _, before := used.LoadOrStore(body, true); before {
				answer(w, 409, fakeUsed)
				return
			}
			replacing("false", "true")(w, body)
		}, exitOK, "", ""},
		{"another user", 0, replacing(`bench-`, "other-"), exitRefused, "consume: names another user", ""},
		{"another purpose", 0, replacing(`"default"`, `"other"`), exitRefused, "consume: names another purpose", ""},
		{"another token", 0, replacing(`t_0`, "t_1"), exitRefused, "consume: names another token", ""},
		{"nobody", 0, replacing(`"user"`, `"who"`), exitRefused, "consume: not tokend's answer (200)", ""},
		{"a page", 0, func(w http.ResponseWriter, _ string) { answer(w, 200, "<html>") }, exitRefused, "consume: not tokend's answer (200)", ""},
		{"another's code", 0, func(w http.ResponseWriter, _ string) { answer(w, 418, `{"code":"\u001b[2J"}`) }, exitRefused, "consume: not tokend's answer (418)", ""},
		{"a redirection", 0, func(w http.ResponseWriter, _ string) {
			w.Header().Set("Location", "/base/v1/tokens")
			answer(w, 307, "")
		}, exitRefused, "consume: not tokend's answer (307)", ""},
		{"unavailable", 0, func(w http.ResponseWriter, _ string) { answer(w, 503, `{"code":"store_unavailable"}`) }, exitOK, "", "503 store_unavailable"},
		{"another's fault", 0, func(w http.ResponseWriter, _ string) { answer(w, 502, "<html>") }, exitOK, "", "502"},
		{"one of two hangs up", 1, func(w http.ResponseWriter, body string) {
			if turn.Add(1)%2 == 0 {
				panic(http.ErrAbortHandler)
			}
			once(w, body)
		}, exitOK, "", "connection closed"},
		{"an answer without end", 0, func(w http.ResponseWriter, _ string) { answer(w, 200, strings.Repeat(" ", maxAnswer+1)) }, exitOK, "", "*errors.errorString"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			used.Clear() // tokens are numbered anew
			r, err := newFakeTokend(t, tt.consume).measure(t, benchOptions{double: tt.double})
			if exitStatus(err) != tt.status {
				t.Errorf("%v", err)
			}
			if n := r.Faults[tt.fault]; (len(r.Faults) != 0) != (tt.fault != "") || len(r.Faults) > 1 || tt.fault != "" && n == 0 {
				t.Errorf("faults: %v, want %q", r.Faults, tt.fault)
			}
			calls := 1
			if strings.Contains(tt.wrong, "TWO ATTEMPTS") || strings.Contains(tt.wrong, "two attempts") {
				calls = 2
			}
			switch {
			case tt.wrong == "" && len(r.WrongAnswers) == 0:
			case len(r.WrongAnswers) != 1 || r.WrongAnswers[0].What != tt.wrong || r.WrongAnswers[0].Count == 0:
				t.Errorf("wrong answers: %v, want %q", r.WrongAnswers, tt.wrong)
			default:
				w := r.WrongAnswers[0]
				example := fmt.Sprintf("%d × %s (ref %s, request %s)", w.Count, tt.wrong, w.Ref, strings.Join(w.RequestIDs, " and "))
				if !strings.HasPrefix(w.Ref, "t_0") || len(w.RequestIDs) != calls || !strings.HasPrefix(w.RequestIDs[0], "call-") {
					t.Errorf("the example is %+v", w)
				}
				if !strings.Contains(err.Error(), example) || !strings.Contains(printed(t, r), "wrong answers: "+example+"\n") {
					t.Errorf("no %q in %v and\n%s", example, err, printed(t, r))
				}
			}
			if (r.Doubles > 0) != (tt.double > 0) {
				t.Errorf("%d doubles", r.Doubles)
			}
		})
	}
}

// Issues are checked too; whatever stands in place of a ref or a request's id is not printed.
func TestBenchChecksIssues(t *testing.T) {
	for _, tt := range []struct {
		name   string
		status int
		body   string
		want   string
	}{
		{"another user", 201, `{"token":"ott_1","ref":"t_00000000000000000000000000000001","user":"eve","purpose":"default"}`, "issue: names another user"},
		{"another purpose", 201, `{"token":"ott_1","ref":"t_00000000000000000000000000000001","user":"USER","purpose":"x"}`, "issue: names another purpose"},
		{"no ref", 201, `{"token":"ott_1","user":"USER","purpose":"default"}`, "issue: not tokend's answer (201)"},
		{"no token", 201, `{}`, "issue: not tokend's answer (201)"},
		{"a strange ref", 201, "{\"token\":\"ott_1\",\"ref\":\"\x1b[2J\",\"user\":\"eve\"}", "issue: names another user"},
		{"refused", 403, `{"code":"forbidden"}`, "issue: refused forbidden (403) without reason"},
		{"a code with another status", 404, `{"code":"forbidden"}`, "issue: not tokend's answer (404)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFakeTokend(t, nil)
			f.issue = func(w http.ResponseWriter, user string) {
				w.Header().Set("X-Request-Id", "no id")
				answer(w, tt.status, strings.ReplaceAll(tt.body, "USER", user))
			}
			r, err := f.measure(t, benchOptions{})
			if exitStatus(err) != exitRefused || len(r.WrongAnswers) != 1 || r.WrongAnswers[0].What != tt.want || strings.Contains(err.Error(), "\x1b") || strings.Contains(err.Error(), "no id") {
				t.Errorf("%q, want %q", err, tt.want)
			}
		})
	}
}

// Faults are told as a share, with what they took; where nothing was answered, there are no
// percentiles. What share fails the run is said by who runs it.
func TestBenchFaults(t *testing.T) {
	unavailable := func(w http.ResponseWriter, _ string) { answer(w, 503, `{"code":"store_unavailable"}`) }
	r, err := newFakeTokend(t, unavailable).measure(t, benchOptions{})
	n := r.Faults["503 store_unavailable"]
	if err != nil || n == 0 || r.Made != r.Calls["issue"].Answers+n || r.FaultShare != float64(n)/float64(r.Made) || r.FaultsTook == nil || !(0 < r.FaultsTook.P50 && r.FaultsTook.P50 <= r.FaultsTook.Max) {
		t.Fatalf("%v: %+v", err, r)
	}
	text := printed(t, r)
	for _, want := range []string{
		`1 round of 100ms\nof the calls that were answered; faults stand below\n`,
		`(?m)^ *consume +0( +–){5} *$`,
		fmt.Sprintf(`(?m)^faults: %d of %d calls, [0-9.]+ %%: %d × 503 store_unavailable; they took p50 [0-9.]+[µm]?s, p99 .*, max `, n, r.Made, n),
	} {
		if !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	encoded, _ := json.Marshal(r)
	if !strings.Contains(string(encoded), `"consume":{"answers":0,"per_second":0,"p50_us":null,`) {
		t.Errorf("%s", encoded)
	}
	if r, err := newFakeTokend(t, unavailable).measure(t, benchOptions{maxFaults: .01}); exitStatus(err) != exitRefused || !strings.Contains(err.Error(), "ended in a fault, above --max-faults=0.01: ") {
		t.Errorf("%v: %+v", err, r)
	}
}

// A round without answers has no percentiles: the median is the others'.
func TestBenchMedianOfAnswered(t *testing.T) {
	if q := quantileOf(new(loadtest.Histogram), .5).String(); q != "–" {
		t.Errorf("of nothing: %s", q)
	}
	answered, silent := &benchRound{took: time.Second}, &benchRound{took: time.Second}
	answered.issue.Add(time.Millisecond)
	c := newBenchCall([]*benchRound{silent, answered, silent}, func(r *benchRound) *loadtest.Histogram { return &r.issue })
	if c.P50 != 1000 || c.PerSecond != 0 || c.Max != 1000 || c.Answers != 1 {
		t.Errorf("%+v", c)
	}
}

// interrupter ends a run as soon as it writes what at holds.
type interrupter struct {
	at        string
	interrupt context.CancelFunc
}

func (i interrupter) Write(p []byte) (int, error) {
	if strings.Contains(string(p), i.at) {
		i.interrupt()
	}
	return len(p), nil
}

// An interrupted run tells of the rounds that are whole, or else of the first one as far as
// it went, and says so.
func TestBenchInterrupted(t *testing.T) {
	for _, tt := range []struct {
		at       string        // what it has written by then
		duration time.Duration // of a round
		rounds   int           // that are told
		said     string
	}{
		{"round 1 of 3", 100 * time.Millisecond, 1, "interrupted after 1 of 3 rounds"},
		{"round 2 of 3", 100 * time.Millisecond, 2, "interrupted after 2 of 3 rounds"},
		{"a call", 10 * time.Minute, 1, "interrupted in the first of 3 rounds"},
		{"warming up", 100 * time.Millisecond, 0, "interrupted before the first round"},
	} {
		t.Run(tt.said, func(t *testing.T) {
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			log := interrupter{tt.at, interrupt}
			f := newFakeTokend(t, func(w http.ResponseWriter, body string) {
				io.WriteString(log, "a call")
				answer(w, 200, fakeConsumed(body))
			})
			target, err := newTarget(f.URL+"/base", "secret", 20*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(target.close)
			o := benchOptions{callers: 2, rounds: 3, duration: tt.duration, timeout: 20 * time.Second, maxFaults: 1}
			if tt.rounds == 0 {
				o.warmup = time.Minute
			}
			b := newBenchRun(target, "default", o)
			began := time.Now()
			b.run(ctx, log)
			took := time.Since(began)
			r := b.report(f.URL)
			err = r.verdict()
			if exitStatus(err) != exitFault || err.Error() != tt.said || r.Rounds != tt.rounds || (r.Made > 0) != (tt.rounds > 0) {
				t.Errorf("%v: %+v", err, r)
			}
			if tt.at == "a call" && (r.RoundSeconds <= 0 || r.RoundSeconds > 1.01*took.Seconds()) {
				t.Errorf("a round of %vs, in a run of %v", r.RoundSeconds, took)
			}
			if text := printed(t, r); !strings.Contains(text, ", "+tt.said+"\n") {
				t.Errorf("%s", text)
			}
		})
	}
	t.Run("as a command", func(t *testing.T) {
		ctx, interrupt := context.WithCancel(t.Context())
		defer interrupt()
		var out strings.Builder
		status := run(ctx, &program{
			args:   append(slices.Clone(benchFlags), "--json", "--progress"),
			stdout: &out, stderr: interrupter{"round 1 of", interrupt},
		})
		var report benchReport
		if err := json.Unmarshal([]byte(out.String()), &report); err != nil || status != exitFault || report.Rounds != 1 || report.Interrupted != "after 1 of 2 rounds" {
			t.Errorf("status %d, %v: %s", status, err, out.String())
		}
	})
}

// What a bench was asked for and has not done, it says.
func TestBenchRemarks(t *testing.T) {
	for _, tt := range []struct {
		name                   string
		arrived, dropped, late int64
		want                   []string
	}{
		{"all was called", 1000, 0, 0, nil},
		{"a few were not", 1000, 10, 9, nil},
		{"most were dropped", 1000, 870, 0, []string{"the bench was the limit: 87 % of the arrivals found all 8 callers waiting for answers, and no call was made; the service saw 65 calls/s, and what it does at 500 was not measured"}},
		{"many were late", 1000, 0, 500, []string{"the bench was the limit, not the service: it began 50 % of the calls more than 5ms late"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBenchRun(nil, "default", benchOptions{rate: 500, callers: 8})
			r := newBenchRound()
			r.took = 2 * time.Second
			r.arrived = loadtest.Arrived{Called: tt.arrived - tt.dropped, Dropped: tt.dropped, Late: tt.late, Took: r.took}
			b.rounds = []*benchRound{r}
			report := b.report("")
			if len(report.Remarks) != len(tt.want) {
				t.Fatalf("%q, want %q", report.Remarks, tt.want)
			}
			text := printed(t, report)
			for i, want := range tt.want {
				if !strings.HasPrefix(report.Remarks[i], want) || !strings.Contains(text, want) {
					t.Errorf("no %q in %q and\n%s", want, report.Remarks[i], text)
				}
			}
			if want := fmt.Sprintf("arrivals dropped: %d of %d; begun more than 5ms late: %d\n", tt.dropped, tt.arrived, tt.late); !strings.Contains(text, want) {
				t.Errorf("no %q in\n%s", want, text)
			}
		})
	}
}

// A service that does not answer at all is a fault.
func TestBenchNoAnswers(t *testing.T) {
	f := newFakeTokend(t, nil)
	f.Close()
	r, err := f.measure(t, benchOptions{})
	if exitStatus(err) != exitFault || r.Faults["cannot connect"] == 0 || r.FaultShare != 1 {
		t.Errorf("%v: %+v", err, r)
	}
	if text := printed(t, r); !regexp.MustCompile(`(?m)^ *issue +0( +–){5} *$`).MatchString(text) || !strings.Contains(text, "100 %") {
		t.Errorf("%s", text)
	}
}

// In an open loop a stall drops arrivals, and what was begun is charged with the wait.
func TestBenchOpenLoop(t *testing.T) {
	release := make(chan struct{})
	stall := sync.OnceFunc(func() { time.AfterFunc(time.Second, func() { close(release) }) })
	r, err := newFakeTokend(t, func(w http.ResponseWriter, body string) {
		stall()
		<-release
		answer(w, 200, fakeConsumed(body))
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
		got, err := target.post(path, "body")
		if got.status != http.StatusOK || string(got.body) != "body" || err != nil || opened.Load() != want {
			t.Errorf("%s: %d %q %v, %d connections, want %d", path, got.status, got.body, err, opened.Load(), want)
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
		io.WriteString(w, fakeUsed)
	}))
	defer s.Close()
	b.Run("target", func(b *testing.B) {
		target, err := newTarget(s.URL, "secret", time.Minute)
		if err != nil {
			b.Fatal(err)
		}
		defer target.close()
		for b.Loop() {
			if _, err := target.post("/", fakeUsed); err != nil {
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
