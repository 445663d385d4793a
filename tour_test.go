package tokend_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// programDir is where program is built; TestMain makes and removes it.
var programDir string

func TestMain(m *testing.M) {
	var err error
	if programDir, err = os.MkdirTemp("", "tokend-docs-"); err != nil {
		panic(err)
	}
	status := m.Run()
	os.RemoveAll(programDir)
	os.Exit(status)
}

// program is tokend, built once for all tests that need it.
var program = sync.OnceValues(func() (string, error) {
	path := filepath.Join(programDir, "tokend")
	if out, err := exec.Command("go", "build", "-o", path, "./cmd/tokend").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return path, nil
})

// tokend runs a command to its end and returns what it prints.
func tokend(t *testing.T, args ...string) string {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(path, args...).Output()
	if err != nil {
		t.Fatalf("tokend %s: %v", strings.Join(args, " "), err)
	}
	return string(out)
}

// devServer is a running tokend dev.
type devServer struct {
	url, adminURL string
	shell         string // the lines that it prints for pasting: USER_JWT and SERVICE

	mu   sync.Mutex
	logs []map[string]any // its outcome lines
}

var listening = regexp.MustCompile(`"msg":"listening","addr":"([^"]+)","tls":false,"admin_addr":"([^"]+)"`)

// startDev starts tokend dev on free ports, and waits until it serves.
func startDev(t *testing.T) *devServer {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "dev", "--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0", "--log-format=json")
	cmd.Env = withoutSettings()
	printed, err1 := cmd.StdoutPipe()
	log, err2 := cmd.StderrPipe()
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := new(devServer)
	var readers sync.WaitGroup
	bearers, addresses := make(chan string, 2), make(chan []string, 1)
	readers.Go(func() {
		for sc := bufio.NewScanner(printed); sc.Scan(); {
			if regexp.MustCompile(`^(USER_JWT|SERVICE)='[^']+'$`).MatchString(sc.Text()) {
				bearers <- sc.Text() + "\n"
			}
		}
	})
	readers.Go(func() {
		for sc := bufio.NewScanner(log); sc.Scan(); {
			if m := listening.FindStringSubmatch(sc.Text()); m != nil {
				addresses <- m
			}
			s.note(sc.Bytes())
		}
	})
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		readers.Wait()
		if err := cmd.Wait(); err != nil {
			t.Errorf("tokend dev: %v", err)
		}
	})
	patience := time.After(30 * time.Second)
	for range 3 {
		select {
		case line := <-bearers:
			s.shell += line
		case m := <-addresses:
			s.url, s.adminURL = "http://"+m[1], "http://"+m[2]
		case <-patience:
			t.Fatal("tokend dev does not listen, or prints no USER_JWT and SERVICE")
		}
	}
	return s
}

// withoutSettings returns the environment without tokend's own variables.
func withoutSettings() []string {
	return slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, "TOKEND_") })
}

func (s *devServer) note(line []byte) {
	var o map[string]any
	if json.Unmarshal(line, &o) == nil && o["msg"] == "outcome" {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.logs = append(s.logs, o)
	}
}

// outcome returns the first outcome line of a call with this code.
func (s *devServer) outcome(t *testing.T, op, code string) map[string]any {
	t.Helper()
	for range 100 { // the line comes after the answer
		s.mu.Lock()
		for _, o := range s.logs {
			if o["op"] == op && o["code"] == code {
				s.mu.Unlock()
				return o
			}
		}
		s.mu.Unlock()
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("no outcome line of %s with %s", op, code)
	return nil
}

// TestTour pastes the README's tour into a shell, and holds what it shows to what comes.
func TestTour(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Fatalf("the tour is made with curl, which `make deps` installs: %v", err)
	}
	s := startDev(t)
	var script strings.Builder
	script.WriteString(s.shell)
	var want [][]any
	const mark = "-- next block --"
	for _, b := range read(t, "README.md").blocks {
		switch {
		case b.section != "A tour with curl":
		case b.lang == "sh":
			text := strings.ReplaceAll(b.text, "http://127.0.0.1:8080", s.url)
			fmt.Fprintf(&script, "echo '%s'\n%s", mark, text)
			want = append(want, nil)
		case b.lang == "json":
			want[len(want)-1] = documents(t, b.text)
		}
	}
	if len(want) < 10 {
		t.Fatalf("the tour has %d blocks", len(want))
	}
	cmd := exec.Command("sh")
	cmd.Env = withoutSettings()
	cmd.Stdin = strings.NewReader(script.String())
	var faults bytes.Buffer
	cmd.Stderr = &faults
	out, err := cmd.Output()
	if err != nil || faults.Len() > 0 {
		t.Fatalf("%v\n%s", err, &faults)
	}
	outputs := strings.Split(string(out), mark+"\n")[1:]
	if len(outputs) != len(want) {
		t.Fatalf("%d blocks of output, want %d:\n%s", len(outputs), len(want), out)
	}
	var got [][]any
	for i, output := range outputs {
		got = append(got, documents(t, output))
		if want[i] == nil && got[i] == nil {
			continue
		}
		if len(want[i]) != len(got[i]) {
			t.Errorf("block %d prints %d documents, the README shows %d:\n%s", i+1, len(got[i]), len(want[i]), output)
		}
	}
	if diff := cmp.Diff(alike(want), alike(got)); diff != "" {
		t.Errorf("what the tour shows and what it does (-README +tokend):\n%s", diff)
	}
	t.Run("metrics", func(t *testing.T) { testMetrics(t, s) })
	t.Run("log", func(t *testing.T) { testLogLines(t, s) })
}

// documents returns the JSON documents that stand one behind the other in text.
func documents(t *testing.T, text string) (docs []any) {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(text))
	for {
		var d any
		switch err := dec.Decode(&d); {
		case err == io.EOF:
			return docs
		case err != nil:
			t.Fatalf("%v in:\n%s", err, text)
		}
		docs = append(docs, d)
	}
}

// alike returns runs with a stand-in for what differs from run to run. A token's ref and
// an attempt are numbered by their first appearance, so one must still be itself later.
func alike(runs [][]any) any {
	numbers := map[string]int{}
	number := func(kind, s string) string {
		if numbers[s] == 0 {
			numbers[s] = len(numbers) + 1
		}
		return fmt.Sprint(kind, " ", numbers[s])
	}
	var walk func(name string, v any) any
	walk = func(name string, v any) any {
		switch v := v.(type) {
		case []any:
			for i := range v {
				v[i] = walk("", v[i])
			}
		case map[string]any:
			for _, k := range sorted(v) {
				v[k] = walk(k, v[k])
			}
		case string:
			switch {
			case name == "ref":
				return number("ref", v)
			case name == "used_by":
				return number("attempt", v)
			case name == "request_id":
				return "a request id"
			case strings.HasPrefix(v, "ott_"):
				return "a token"
			case strings.HasPrefix(v, "otc_"):
				return "a claim"
			case regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$`).MatchString(v):
				return "a time"
			}
		}
		return v
	}
	for _, docs := range runs {
		for i := range docs {
			docs[i] = walk("", docs[i])
		}
	}
	return runs
}

// metrics are all that tokend exports, of its own.
var metrics = []string{
	"tokend_build_info",
	"tokend_http_request_seconds",
	"tokend_key_uses_total",
	"tokend_outcomes_total",
	"tokend_redis_pool",
	"tokend_redis_seconds",
	"tokend_takeovers_total",
	"tokend_unfinished_total",
}

// testMetrics holds the list to what a server exports that has been used, and the pages to
// the list.
func testMetrics(t *testing.T, s *devServer) {
	resp, err := http.Get(s.adminURL + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var exported []string
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (tokend_\w+) `).FindAllSubmatch(text, -1) {
		exported = append(exported, string(m[1]))
	}
	slices.Sort(exported)
	if diff := cmp.Diff(metrics, exported); diff != "" {
		t.Errorf("metrics (-want +exported):\n%s", diff)
	}
	for _, p := range pages(t) {
		for _, name := range regexp.MustCompile(`\btokend_[a-z_]+`).FindAllString(p.text, -1) {
			series := regexp.MustCompile(`_(bucket|count|sum)$`).ReplaceAllString(name, "")
			if !slices.Contains(metrics, series) && name != "tokend_token" {
				t.Errorf("%s names the metric %s, which does not exist", p.path, name)
			}
		}
	}
}

// testLogLines holds the log lines that the pages show to the members that lines have; those
// of the refused orders are TestOrderRefused's.
func testLogLines(t *testing.T, s *devServer) {
	shown := 0
	for _, p := range pages(t) {
		for _, b := range p.blocks {
			if b.section == refusedOrders {
				continue
			}
			for line := range strings.Lines(b.text) {
				var o map[string]any
				if json.Unmarshal([]byte(line), &o) != nil || o["msg"] != "outcome" {
					continue
				}
				shown++
				want := sorted(s.outcome(t, o["op"].(string), o["code"].(string)))
				if diff := cmp.Diff(want, sorted(o)); diff != "" {
					t.Errorf("%s shows a log line (-tokend +%s):\n%s", p.path, p.path, diff)
				}
			}
		}
	}
	if shown < 2 {
		t.Errorf("%d log lines are shown, want a winner's and a loser's", shown)
	}
}

func sorted(m map[string]any) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
