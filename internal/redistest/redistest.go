// Package redistest starts real redis-servers for tests: private ones, on loopback,
// with a directory of their own, ended with the test.
//
// It starts the redis-server of the machine, or what REDISTEST_SERVER names: a
// valkey-server, say, or another release.
package redistest

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Server is a redis-server.
type Server struct {
	Addr string // host:port
	Dir  string

	t    testing.TB // nil where it was launched
	conf string     // a file of its configuration, which args override; may be empty
	args []string
	cmd  *exec.Cmd
}

// Start starts a redis-server without persistence; args are options of its own
// ("--appendonly", "yes") and override that. It fails the test where redis-server is
// not installed: a test that needs the real thing is never skipped.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	s, err := Launch(t.TempDir(), "", args...)
	if err != nil {
		t.Fatal(err)
	}
	s.t = t
	t.Cleanup(s.Kill)
	return s
}

// Launch is Start for who has no test: the server works in dir, and its caller kills it.
// conf names a file of its configuration, where it needs one.
func Launch(dir, conf string, args ...string) (*Server, error) {
	if _, err := exec.LookPath(program()); err != nil {
		return nil, fmt.Errorf("%s is not installed: `make deps` installs redis-server (apt-get install redis-server)", program())
	}
	s := &Server{Dir: dir, conf: conf, args: args}
	// Another program may take the port between the asking and the use of it.
	for range 5 {
		port, err := FreePort()
		if err != nil {
			return nil, err
		}
		s.Addr = "127.0.0.1:" + strconv.Itoa(port)
		if s.Relaunch() == nil {
			return s, nil
		}
	}
	log, _ := os.ReadFile(s.logFile())
	return nil, fmt.Errorf("%s did not start:\n%s", program(), log)
}

// program is what is started.
func program() string { return cmp.Or(os.Getenv("REDISTEST_SERVER"), "redis-server") }

// StartCluster starts a redis-server in cluster mode that holds every slot.
func StartCluster(t testing.TB) *Server {
	t.Helper()
	bus, err := FreePort()
	if err != nil {
		t.Fatal(err)
	}
	s := Start(t, "--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(bus))
	c := s.Client()
	ctx := context.Background()
	if err := c.ClusterAddSlotsRange(ctx, 0, 16383).Err(); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(30 * time.Second)
	for c.Set(ctx, "probe", "1", time.Second).Err() != nil {
		if time.Now().After(deadline) {
			t.Fatal("cluster did not come up")
		}
		time.Sleep(10 * time.Millisecond)
	}
	c.Del(ctx, "probe")
	return s
}

// quiet drops go-redis's own log: tests stop servers on purpose.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

func init() { redis.SetLogger(quiet{}) }

// Client returns a plain client, closed with the test.
func (s *Server) Client() *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: s.Addr, ContextTimeoutEnabled: true, DialerRetries: 1})
	s.t.Cleanup(func() { c.Close() })
	return c
}

// ClusterClient returns a cluster client, closed with the test.
func (s *Server) ClusterClient() *redis.ClusterClient {
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{s.Addr}, ContextTimeoutEnabled: true})
	s.t.Cleanup(func() { c.Close() })
	return c
}

// Kill ends the server at once, as a crash would.
func (s *Server) Kill() {
	if s.cmd != nil {
		s.cmd.Process.Kill()
		s.cmd.Wait()
		s.cmd = nil
	}
}

// Restart starts the server again, on the same port and directory.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	deadline := time.Now().Add(30 * time.Second)
	for s.Relaunch() != nil {
		if time.Now().After(deadline) {
			s.t.Fatal("redis-server did not start again")
		}
	}
}

// Pause stops the server's process (SIGSTOP): connections stay, nothing is answered.
func (s *Server) Pause() { s.cmd.Process.Signal(syscall.SIGSTOP) }

// Resume ends a Pause.
func (s *Server) Resume() { s.cmd.Process.Signal(syscall.SIGCONT) }

func (s *Server) logFile() string { return filepath.Join(s.Dir, "log") }

// Relaunch starts the server, which does not run, on the same port and directory, and waits
// until it answers.
func (s *Server) Relaunch() error {
	_, port, _ := net.SplitHostPort(s.Addr)
	var args []string
	if s.conf != "" {
		args = append(args, s.conf)
	}
	args = append(args,
		"--port", port, "--bind", "127.0.0.1", "--dir", s.Dir, "--daemonize", "no",
		"--logfile", s.logFile(), "--save", "", "--appendonly", "no",
	)
	cmd := exec.Command(program(), append(args, s.args...)...)
	if err := cmd.Start(); err != nil {
		return err
	}
	s.cmd = cmd
	c := redis.NewClient(&redis.Options{Addr: s.Addr, MaxRetries: -1})
	defer c.Close()
	deadline := time.Now().Add(30 * time.Second)
	for time.Now().Before(deadline) {
		info, err := c.Info(context.Background(), "server").Result()
		if err == nil {
			if !strings.Contains(info, fmt.Sprintf("process_id:%d\r\n", cmd.Process.Pid)) {
				break // somebody else's server
			}
			return nil
		}
		if exited(cmd) {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	s.Kill()
	return fmt.Errorf("%s at %s did not answer", program(), s.Addr)
}

func exited(cmd *exec.Cmd) bool {
	var status syscall.WaitStatus
	pid, err := syscall.Wait4(cmd.Process.Pid, &status, syscall.WNOHANG, nil)
	return err != nil || pid != 0
}

// FreePort returns a port of loopback that nobody listens on.
func FreePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
