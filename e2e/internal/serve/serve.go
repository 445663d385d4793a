// Package serve starts the built program as tests do that end it and start it again.
package serve

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// Build builds tokend into dir, from a folder of tests two below the module's, and returns
// its path. flags are go build's.
func Build(dir string, flags ...string) (string, error) {
	path := filepath.Join(dir, "tokend")
	args := append([]string{"build", "-C", "../..", "-o", path}, flags...)
	if out, err := exec.Command("go", append(args, "./cmd/tokend")...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("tokend does not build: %v\n%s", err, out)
	}
	return path, nil
}

// Process is a tokend serve that listens.
type Process struct {
	Cmd             *exec.Cmd
	Ended           <-chan struct{} // closed when it has ended
	Addr, AdminAddr string
}

// ErrTaken says that another program has the address.
var ErrTaken = errors.New("the address is taken")

var listening = regexp.MustCompile(`"msg":"listening","addr":"([^"]*)".*"admin_addr":"([^"]*)"`)

// Start starts the program at path with the TOKEND_ variables of environ, named without
// TOKEND_, and waits until it listens. It logs to the file log, which may be there.
func Start(path, log string, environ map[string]string) (*Process, error) {
	f, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	said, err := os.ReadFile(log)
	if err != nil {
		return nil, err
	}
	before := len(said)
	cmd := exec.Command(path, "serve")
	cmd.Env = Variables(environ)
	cmd.Stdout, cmd.Stderr = f, f
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	go func() {
		cmd.Wait()
		close(ended)
	}()
	for over := false; ; {
		said, err := os.ReadFile(log)
		if err != nil {
			return nil, err
		}
		if m := listening.FindSubmatch(said[before:]); m != nil {
			return &Process{Cmd: cmd, Ended: ended, Addr: string(m[1]), AdminAddr: string(m[2])}, nil
		}
		switch text := string(said[before:]); {
		case over && strings.Contains(text, "address already in use"):
			return nil, ErrTaken
		case over:
			return nil, fmt.Errorf("tokend does not start:\n%s", text)
		}
		select {
		case <-ended:
			over = true // and what it said last is read once more
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Variables returns the environment of this process, with environ in the place of all that
// begins with TOKEND_.
func Variables(environ map[string]string) []string {
	var list []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "TOKEND_") {
			list = append(list, e)
		}
	}
	for name, value := range environ {
		list = append(list, "TOKEND_"+name+"="+value)
	}
	return list
}
