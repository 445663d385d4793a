package tokend_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/tokend/internal/redistest"
)

// refusedOrders is the section of docs/operations.md that works through log lines.
const refusedOrders = "Why was this user's order refused?"

// shopServer is tokend serve on a Redis, as a form service calls it.
type shopServer struct {
	t                *testing.T
	url, secret, log string
}

// startServe starts tokend serve on redisAddr, and waits until it serves.
func startServe(t *testing.T, redisAddr string) *shopServer {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	s := &shopServer{t: t, log: filepath.Join(t.TempDir(), "log")}
	made := regexp.MustCompile(`(?m)^for the service: +(\S+)\nfor auth.service_keys: (\S+)$`).
		FindStringSubmatch(tokend(t, "keygen", "service", "--name", "shop"))
	if made == nil {
		t.Fatal("keygen service prints no key")
	}
	s.secret = made[1]
	cmd := exec.Command(path, "serve", "--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0", "--redis-url=redis://"+redisAddr+"/0",
		"--signing-keys="+strings.TrimSpace(tokend(t, "keygen", "signing")), "--auth-service-keys="+made[2])
	cmd.Env = withoutSettings()
	f, err := os.Create(s.log)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = f, f
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		cmd.Wait()
		f.Close()
	})
	s.until("it listens", func() bool {
		m := listening.FindStringSubmatch(s.text())
		if m != nil {
			s.url = "http://" + m[1]
		}
		return m != nil
	})
	return s
}

func (s *shopServer) text() string {
	b, _ := os.ReadFile(s.log)
	return string(b)
}

func (s *shopServer) until(what string, ok func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("waited in vain until %s:\n%s", what, s.text())
		}
	}
}

// post makes the call that has this request id, and returns its status and the token of a
// form.
func (s *shopServer) post(path, id string, body map[string]any) (status int, token string) {
	s.t.Helper()
	body["purpose"] = "order.create"
	b, err := json.Marshal(body)
	if err != nil {
		s.t.Fatal(err)
	}
	req, err := http.NewRequest("POST", s.url+"/v1/"+path, strings.NewReader(string(b)))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.secret)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Request-Id", id)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	var got struct{ Token string }
	json.Unmarshal(text, &got)
	return resp.StatusCode, got.Token
}

// TestOrderRefused does what the users of docs/operations.md did, and holds the lines that the
// page shows to those that are logged.
func TestOrderRefused(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := startServe(t, server.Addr)
	type m = map[string]any
	form := func(id, user string, ttl int) string {
		_, token := s.post("tokens", id, m{"user": user, "ttl": ttl})
		return token
	}
	consume := func(id, user, token, attempt string) int {
		status, _ := s.post("tokens/consume", id, m{"user": user, "token": token, "attempt": attempt})
		return status
	}
	claim := func(id, user, token, attempt string, commit bool) int {
		status, _ := s.post("claims", id, m{"user": user, "token": token, "attempt": attempt, "lease": 1, "commit": commit})
		return status
	}
	alice := form("form-1", "alice", 300)
	consume("order-1", "alice", alice, "one")
	consume("order-2", "alice", alice, "two")
	bob := form("form-2", "bob", 1)
	carol := form("form-3", "carol", 300)
	claim("order-4", "carol", carol, "four", true)
	// When the lease is over, so is the life of Bob's token. What was asked before has another id.
	s.until("the claim is unfinished", func() bool {
		st, _ := s.post("claims", "early", m{"user": "carol", "token": carol, "attempt": "early"})
		return st == http.StatusConflict && strings.Contains(s.text(), `"code":"claim_unfinished"`)
	})
	consume("order-3", "bob", bob, "three")
	claim("order-5", "carol", carol, "five", false)
	// Redis carries out what it finds when it wakes, unless no connection was free for it.
	s.until("a consume without an answer has used its token", func() bool {
		erin := form("form-5", "erin", 300)
		server.Pause()
		noAnswer := consume("order-7", "erin", erin, "seven")
		server.Resume()
		return noAnswer == http.StatusServiceUnavailable && consume("order-8", "erin", erin, "eight") == http.StatusConflict
	})
	dave := form("form-4", "dave", 300)
	server.Kill()
	consume("order-6", "dave", dave, "six")

	var shown []string
	for _, b := range read(t, "docs/operations.md").blocks {
		if b.section == refusedOrders && b.lang == "json" {
			for line := range strings.Lines(b.text) {
				shown = append(shown, line)
			}
		}
	}
	if len(shown) != 13 {
		t.Fatalf("%d lines are shown", len(shown))
	}
	logged := map[string]string{}
	s.until("all is logged", func() bool {
		for line := range strings.Lines(s.text()) {
			if id := regexp.MustCompile(`"request_id":"((?:form|order)-\d)"`).FindStringSubmatch(line); id != nil && strings.HasSuffix(line, "\n") {
				logged[id[1]] = line
			}
		}
		return len(logged) == len(shown)
	})
	var want []string
	for _, line := range shown {
		id := regexp.MustCompile(`"request_id":"([^"]*)"`).FindStringSubmatch(line)
		if id == nil {
			t.Fatalf("a line without a request id: %s", line)
		}
		want = append(want, logged[id[1]])
	}
	if diff := cmp.Diff(masked(want), masked(shown)); diff != "" {
		t.Errorf("log lines (-tokend +docs/operations.md):\n%s", diff)
	}
	first := regexp.MustCompile(`t_[0-9a-f]{32}`).FindString(shown[0])
	if !slices.ContainsFunc(read(t, "docs/operations.md").blocks, func(b block) bool {
		return b.section == refusedOrders && strings.Contains(b.text, "grep "+first+" tokend.log")
	}) {
		t.Errorf("the page does not look for %s, which its first line is about", first)
	}
}

// masked returns lines with a stand-in for what differs from run to run: times, what calls took,
// Redis's address, and refs, which are numbered by their first appearance.
func masked(lines []string) []string {
	refs := map[string]string{}
	volatile := regexp.MustCompile(`"(time|expires_at)":"[^"]+"|"ms":[0-9.]+|127\.0\.0\.1:\d+`)
	var out []string
	for _, line := range lines {
		line = regexp.MustCompile(`t_[0-9a-f]{32}`).ReplaceAllStringFunc(line, func(ref string) string {
			if refs[ref] == "" {
				refs[ref] = fmt.Sprint("ref ", len(refs)+1)
			}
			return refs[ref]
		})
		line = volatile.ReplaceAllString(line, "…")
		// A connection that is cut is told otherwise than one that cannot be made.
		out = append(out, regexp.MustCompile(`(store: ).*"`).ReplaceAllString(line, `$1…"`))
	}
	return out
}
