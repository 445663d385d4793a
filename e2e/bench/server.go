package main

import (
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// server is a program under measurement, on loopback.
type server struct {
	addr string
	cmd  *exec.Cmd
}

func freeAddr() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	fatal(err)
	defer l.Close()
	return l.Addr().String()
}

// start runs cmd, which listens at addr, until it accepts connections.
func (b *bench) start(addr string, cmd *exec.Cmd) (*server, error) {
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &server{addr, cmd}
	b.running = append(b.running, s)
	for range 1000 {
		if c, err := net.Dial("tcp", addr); err == nil {
			c.Close()
			return s, nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return nil, fmt.Errorf("%s did not listen at %s", cmd.Path, addr)
}

func (b *bench) stopAll() {
	for _, s := range b.running {
		s.cmd.Process.Kill()
		s.cmd.Wait()
	}
}

// cpu returns the time that the server has spent on a processor, in user and system mode.
func (s *server) cpu() time.Duration {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	fatal(err)
	_, rest, _ := strings.Cut(string(b), ") ")
	fields := strings.Fields(rest)
	const ticks = 100 // a second, on every Linux that Go runs on
	var total time.Duration
	for _, text := range fields[11:13] { // utime and stime
		n, err := strconv.Atoi(text)
		fatal(err)
		total += time.Duration(n) * time.Second / ticks
	}
	return total
}

const jwtSecret = "a-secret-of-thirty-two-bytes-okay"

// signingKeys are everybody's who signs tokens.
var signingKeys = "k1:" + base64.StdEncoding.EncodeToString(make([]byte, 32))

func (b *bench) startRedis() (*server, error) {
	addr := freeAddr()
	_, port, _ := net.SplitHostPort(addr)
	return b.start(addr, exec.Command("redis-server", "--port", port, "--bind", "127.0.0.1",
		"--dir", b.dir, "--save", "", "--appendonly", "no"))
}

// startSelf starts the server of this program that is called name.
func (b *bench) startSelf(name string) (*server, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	addr := freeAddr()
	cmd := exec.Command(self, "-serve", name, "-listen", addr, "-redis", b.redis.addr)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	return b.start(addr, cmd)
}

// build builds tokend, once.
func (b *bench) build() error {
	if b.tokend != "" {
		return nil
	}
	program := filepath.Join(b.dir, "tokend")
	// From its own module: this one does not list what the program is built from.
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "example.com/tokend").Output()
	if err != nil {
		return fmt.Errorf("find tokend: %w", err)
	}
	build := exec.Command("go", "build", "-C", strings.TrimSpace(string(dir)), "-o", program, "./cmd/tokend")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("build tokend: %w", err)
	}
	b.tokend = program
	return nil
}

// startTokend builds and starts tokend with everything on.
func (b *bench) startTokend() (*server, error) {
	if err := b.build(); err != nil {
		return nil, err
	}
	cmd := exec.Command(b.tokend, "serve")
	log, err := os.CreateTemp(b.dir, "log")
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	addr := freeAddr()
	cmd.Env = append(os.Environ(),
		"TOKEND_LISTEN="+addr, "TOKEND_ADMIN_LISTEN="+freeAddr(),
		"TOKEND_REDIS_URL=redis://"+b.redis.addr, "TOKEND_SIGNING_KEYS="+signingKeys,
		"TOKEND_AUTH_JWT_SECRET="+jwtSecret, "TOKEND_RATE_ISSUE_PER_MINUTE=0",
		"TOKEND_TOKENS_TTL="+life.String(), "TOKEND_TOKENS_RETENTION="+life.String())
	s, err := b.start(addr, cmd)
	if err != nil {
		return nil, err
	}
	return s, s.ready()
}

// ready returns when the server, tokend or plain, is.
func (s *server) ready() error {
	for range 1000 {
		if resp, err := http.Get("http://" + s.addr + "/readyz"); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	return fmt.Errorf("%s is not ready", s.cmd.Path)
}

// startBoth starts tokend and plain.
func (b *bench) startBoth() (tokend, plain *server, err error) {
	if tokend, err = b.startTokend(); err != nil {
		return nil, nil, err
	}
	if plain, err = b.startSelf("plain"); err != nil {
		return nil, nil, err
	}
	return tokend, plain, plain.ready()
}
