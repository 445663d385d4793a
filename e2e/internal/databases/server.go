package databases

import (
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"
)

// server is a database server within a directory that is removed with it.
type server struct {
	once     sync.Once
	err      error
	dir      string
	addr     string // host:port
	password string
	admin    *sql.DB
	cmd      *exec.Cmd
	end      syscall.Signal // what ends it at once, and in such order as its own processes need

	// What differs between servers.
	user    string // runs it where the tests run as root, as which it refuses to
	prepare func(*server) error
	start   func(s *server, port string) *exec.Cmd
	open    func(*server) (*sql.DB, error)
}

var servers = []*server{postgres, mariadb}

// Run runs the tests of a package, and ends the servers that they have used.
func Run(m *testing.M) int {
	defer func() {
		for _, s := range servers {
			s.stop()
		}
	}()
	return m.Run()
}

// use starts the server, once.
func (s *server) use(t testing.TB) {
	t.Helper()
	s.once.Do(func() { s.err = s.launch() })
	if s.err != nil {
		t.Fatal(s.err)
	}
}

func (s *server) launch() (err error) {
	s.password = rand.Text()
	if s.dir, err = os.MkdirTemp("", "db"); err != nil {
		return err
	}
	if err := s.own(s.dir); err != nil {
		return err
	}
	if err := s.prepare(s); err != nil {
		return err
	}
	// Another program may take the port between the asking and the use of it.
	for range 5 {
		port, err := freePort()
		if err != nil {
			return err
		}
		s.addr = net.JoinHostPort("127.0.0.1", port)
		if err = s.try(s.start(s, port)); err == nil {
			return nil
		}
	}
	log, _ := os.ReadFile(s.logFile())
	return fmt.Errorf("%w\n%s", err, log[max(0, len(log)-2000):])
}

// try starts cmd and waits until it answers: with our password, so it is not somebody else's.
func (s *server) try(cmd *exec.Cmd) error {
	log, err := os.OpenFile(s.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	endWithParent(cmd, s.end)
	started, ended := make(chan error, 1), make(chan struct{})
	go func() {
		runtime.LockOSThread() // whose end counts as the parent's
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			cmd.Wait()
		}
		close(ended)
	}()
	if err := <-started; err != nil {
		return err
	}
	if s.admin, err = s.open(s); err != nil {
		return err
	}
	for deadline := time.Now().Add(Patience); ; {
		err := s.admin.Ping()
		if err == nil {
			s.cmd = cmd
			return nil
		}
		select {
		case <-ended:
			return fmt.Errorf("%s has ended", cmd.Path)
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			cmd.Process.Kill()
			<-ended
			return fmt.Errorf("%s does not answer: %w", cmd.Path, err)
		}
	}
}

func (s *server) stop() {
	if s.admin != nil {
		s.admin.Close()
	}
	if s.cmd != nil {
		s.cmd.Process.Signal(s.end)
		for deadline := time.Now().Add(Patience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
			if errors.Is(s.cmd.Process.Signal(syscall.Signal(0)), os.ErrProcessDone) {
				break
			}
		}
		s.cmd.Process.Kill()
	}
	if s.dir != "" {
		os.RemoveAll(s.dir)
	}
}

func (s *server) logFile() string { return filepath.Join(s.dir, "log") }

// command returns a command that runs as whoever runs the server.
func (s *server) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir = s.dir
	if uid, gid, ok := s.credential(); ok {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid}}
	}
	return cmd
}

// credential is the user of the server, where the tests run as root.
func (s *server) credential() (uid, gid uint32, ok bool) {
	if os.Getuid() != 0 {
		return 0, 0, false
	}
	u, err := user.Lookup(s.user)
	if err != nil {
		return 0, 0, false // and the server says that it will not run as root
	}
	id, err1 := strconv.ParseUint(u.Uid, 10, 32)
	group, err2 := strconv.ParseUint(u.Gid, 10, 32)
	return uint32(id), uint32(group), errors.Join(err1, err2) == nil
}

// own gives path to whoever runs the server.
func (s *server) own(path string) error {
	if uid, gid, ok := s.credential(); ok {
		return os.Chown(path, int(uid), int(gid))
	}
	return nil
}

// write writes a file that the server reads.
func (s *server) write(name, text string) (path string, err error) {
	path = filepath.Join(s.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return "", err
	}
	return path, s.own(path)
}

// find returns the path of a program, which Debian may have put aside.
func find(name, elsewhere string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	found, err := filepath.Glob(elsewhere)
	if err == nil && len(found) > 0 {
		return found[len(found)-1], nil
	}
	return "", fmt.Errorf("%s is not installed: `make deps-e2e` installs it", name)
}

func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}
