package guard_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"example.com/tokend/client"
	"example.com/tokend/client/guard"
	"example.com/tokend/httpapi/wire"
)

// What the service that is to be killed is told.
const (
	crashPoint  = "GUARD_TEST_CRASH_AT"
	crashURL    = "GUARD_TEST_CRASH_URL"
	crashKey    = "GUARD_TEST_CRASH_KEY"
	crashToken  = "GUARD_TEST_CRASH_TOKEN"
	crashCommit = "GUARD_TEST_CRASH_COMMIT"
)

// crashAt is a form service that takes one submission, and stands still at point until it is
// killed.
func crashAt(point string) {
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(1) // the test is gone, and nobody kills
	}()
	stop := func(here string) {
		if here == point {
			fmt.Println("stopped")
			select {}
		}
	}
	c, err := client.New(os.Getenv(crashURL), client.ServiceKey(os.Getenv(crashKey)), client.HTTPClient(&http.Client{Transport: stops{stop}}))
	if err != nil {
		panic(err)
	}
	g := guard.New(c.Purpose(purpose), guard.User(sessionUser))
	h := g.Replay(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		stop("handler")
		if os.Getenv(crashCommit) != "" {
			if err := guard.Commit(r.Context()); err != nil {
				panic(err)
			}
		}
		fmt.Println("work")
		stop("work")
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, "run 1")
	}))
	w := &orderWriter{ResponseRecorder: httptest.NewRecorder(), first: func() { stop("first byte") }}
	h.ServeHTTP(w, form(os.Getenv(crashToken)))
	stop("end")
}

// stops stops before and after each call of tokend.
type stops struct{ at func(string) }

func (s stops) RoundTrip(r *http.Request) (*http.Response, error) {
	op := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:] // claims, commit, result …
	s.at("before " + op)
	resp, err := http.DefaultTransport.RoundTrip(r)
	s.at("after " + op)
	return resp, err
}

// killAt runs a service up to point, kills it, and tells how often it did its work.
func killAt(t *testing.T, s *service, token, point string, commit bool) (works int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), crashPoint+"="+point, crashURL+"="+s.tokend.URL, crashKey+"="+s.tokend.ServiceKey, crashToken+"="+token)
	if commit {
		cmd.Env = append(cmd.Env, crashCommit+"=1")
	}
	cmd.Stderr = t.Output()
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stopped := false
	for lines := bufio.NewScanner(out); !stopped && lines.Scan(); {
		switch lines.Text() {
		case "work":
			works++
		case "stopped":
			stopped = true
		}
	}
	cmd.Process.Kill() // SIGKILL
	cmd.Wait()
	if !stopped {
		t.Fatalf("%s was not reached", point)
	}
	return works
}

// A service process is killed at every step. Nothing runs a second time after a commit, and
// nothing is blocked for longer than the lease before it.
func TestCrash(t *testing.T) {
	t.Parallel()
	const (
		free       = iota // a repeat runs at once
		taken             // when the lease is over
		unfinished        // never: somebody has to look
		kept              // a repeat gets the answer
	)
	for _, tt := range []struct {
		point  string
		commit bool
		then   int
	}{
		{"before claims", false, free},
		{"after claims", false, taken},
		{"handler", false, taken},
		{"work", false, taken}, // at least once: it has not committed
		{"before result", false, taken},
		{"after result", false, kept},
		{"first byte", false, kept},
		{"end", false, kept},
		{"handler", true, taken},
		{"before commit", true, taken},
		{"after commit", true, unfinished},
		{"work", true, unfinished},
		{"before result", true, unfinished},
		{"after result", true, kept},
		{"first byte", true, kept},
	} {
		t.Run(fmt.Sprint(tt.point, " ", tt.commit), func(t *testing.T) {
			t.Parallel()
			s := newService(t, guard.Wait(0))
			h := s.guard.Replay(http.HandlerFunc(s.run))
			token := s.token()
			works := killAt(t, s, token, tt.point, tt.commit)
			repeat := func() *httptest.ResponseRecorder { return send(h, form(token)) }
			if tt.then == taken || tt.then == unfinished {
				wantProblem(t, repeat(), 409, wire.CodeRequestInProgress, client.NextWait)
				s.tokend.Advance(30 * time.Second)
			}
			if tt.then == unfinished {
				wantProblem(t, repeat(), 409, wire.CodeClaimUnfinished, client.NextVerify)
				s.wantRuns(0)
				return
			}
			w := repeat()
			wantAnswer(t, w, http.StatusCreated, "run 1")
			if replayed := w.Header().Get("Idempotent-Replayed") != ""; replayed != (tt.then == kept) {
				t.Errorf("replayed: %t", replayed)
			}
			if tt.commit && works+s.runs != 1 {
				t.Errorf("the work was done %d times", works+s.runs)
			}
		})
	}
}
