package history_test

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"example.com/tokend/e2e/internal/serve"
	"example.com/tokend/httpapi/wire"
)

// patience bounds every wait: far more than any machine needs.
const patience = time.Minute

// build builds the program, once.
var build = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "tokend")
	if err != nil {
		return "", err
	}
	return serve.Build(dir)
})

func TestMain(m *testing.M) {
	status := m.Run()
	if path, err := build(); err == nil {
		os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(status)
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	rand.Read(b)
	return b
}

var (
	serviceKey  = "tsk_" + base64.RawURLEncoding.EncodeToString(randomBytes(32))
	serviceHash = func() string {
		sum := sha256.Sum256([]byte(serviceKey))
		return hex.EncodeToString(sum[:])
	}()
)

// instance is one tokend serve.
type instance struct {
	t       testing.TB
	name    string
	environ map[string]string // TOKEND_ variables, without the prefix
	logFile string

	addr, adminAddr string
	cmd             *exec.Cmd
	ended           <-chan struct{} // closed when the process has ended
}

// start starts an instance and waits until it listens.
func start(t testing.TB, name, redisAddr string, environ map[string]string) *instance {
	t.Helper()
	i := &instance{t: t, name: name, logFile: filepath.Join(t.TempDir(), name+".log"), environ: map[string]string{
		"LISTEN": "127.0.0.1:0", "ADMIN_LISTEN": "127.0.0.1:0", "ADMIN_PPROF": "true",
		"REDIS_URL": "redis://" + redisAddr + "/0", "REDIS_TIMEOUT": "500ms",
		"AUTH_SERVICE_KEYS":     "form:" + serviceHash + ":tokend.issue+tokend.consume",
		"RATE_ISSUE_PER_MINUTE": "0", "LOG_OUTCOMES": "none", "SHUTDOWN_TIMEOUT": "2s",
	}}
	maps.Copy(i.environ, environ)
	t.Cleanup(i.kill)
	i.launch()
	return i
}

// launch starts the process: at the addresses that it had before, if it had any. Another
// program may have taken a port meanwhile, and may give it back.
func (i *instance) launch() {
	i.t.Helper()
	for deadline := time.Now().Add(patience); !i.try(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			i.t.Fatalf("%s does not start:\n%s", i.name, i.log())
		}
	}
}

func (i *instance) try() bool {
	i.t.Helper()
	path, err := build()
	if err != nil {
		i.t.Fatal(err)
	}
	p, err := serve.Start(path, i.logFile, i.environ)
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
	if i.cmd != nil {
		i.cmd.Process.Kill()
		<-i.ended
	}
}

// stop ends the process in good order.
func (i *instance) stop() {
	i.t.Helper()
	i.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-i.ended:
	case <-time.After(patience):
		i.t.Fatalf("%s does not end:\n%s", i.name, i.log())
	}
}

// get makes a GET of url, which must be answered.
func get(t testing.TB, url string) (*http.Response, string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: %d, %v", url, resp.StatusCode, err)
	}
	return resp, string(body)
}

// size is what an instance takes.
type size struct{ goroutines, heap, fds float64 }

// measure returns the instance's size after a collection of garbage.
func (i *instance) measure() (s size) {
	i.t.Helper()
	get(i.t, "http://"+i.adminAddr+"/debug/pprof/heap?gc=1")
	_, metrics := get(i.t, "http://"+i.adminAddr+wire.PathMetrics)
	for name, v := range map[string]*float64{
		"go_goroutines": &s.goroutines, "go_memstats_heap_alloc_bytes": &s.heap, "process_open_fds": &s.fds,
	} {
		for line := range strings.Lines(metrics) {
			if text, found := strings.CutPrefix(line, name+" "); found {
				*v, _ = strconv.ParseFloat(strings.TrimSpace(text), 64)
			}
		}
		if *v == 0 {
			i.t.Fatalf("%s: there is no metric %s", i.name, name)
		}
	}
	return s
}

// clock returns what time it is to the instance.
func (i *instance) clock() time.Time {
	i.t.Helper()
	resp, _ := get(i.t, "http://"+i.addr+wire.PathLivez)
	at, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		i.t.Fatal(err)
	}
	return at
}
