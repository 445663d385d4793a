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
func start(addr string, cmd *exec.Cmd) (*server, error) {
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &server{addr, cmd}
	for range 500 {
		if c, err := net.Dial("tcp", addr); err == nil {
			c.Close()
			return s, nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	s.stop()
	return nil, fmt.Errorf("%s did not listen at %s", cmd.Path, addr)
}

func (s *server) stop() {
	s.cmd.Process.Kill()
	s.cmd.Wait()
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

// startAll builds and starts redis-server, tokend with everything on, and the bare handler.
func startAll(dir string) (redis, tokend, hello *server, err error) {
	redisAddr, tokendAddr, helloAddr := freeAddr(), freeAddr(), freeAddr()
	_, port, _ := net.SplitHostPort(redisAddr)
	redis, err = start(redisAddr, exec.Command("redis-server", "--port", port, "--bind", "127.0.0.1",
		"--dir", dir, "--save", "", "--appendonly", "no"))
	if err != nil {
		return nil, nil, nil, err
	}
	bin := filepath.Join(dir, "tokend")
	build := exec.Command("go", "build", "-C", "..", "-o", bin, "./cmd/tokend") // run from e2e/
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return nil, nil, nil, fmt.Errorf("build tokend: %w", err)
	}
	cmd := exec.Command(bin, "serve")
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, nil, nil, err
	}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(),
		"TOKEND_LISTEN="+tokendAddr, "TOKEND_ADMIN_LISTEN="+freeAddr(),
		"TOKEND_REDIS_URL=redis://"+redisAddr,
		"TOKEND_SIGNING_KEYS=k1:"+base64.StdEncoding.EncodeToString(make([]byte, 32)),
		"TOKEND_AUTH_JWT_SECRET="+jwtSecret, "TOKEND_RATE_ISSUE_PER_MINUTE=0")
	if tokend, err = start(tokendAddr, cmd); err != nil {
		return nil, nil, nil, err
	}
	for range 500 {
		if resp, err := http.Get("http://" + tokendAddr + "/readyz"); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				break
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, nil, nil, err
	}
	hello, err = start(helloAddr, exec.Command(self, "-hello", helloAddr))
	return redis, tokend, hello, err
}
