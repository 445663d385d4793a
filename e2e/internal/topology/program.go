package topology

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"example.com/tokend/client"
	"example.com/tokend/httpapi/wire"
)

// Program is tokend as it is built.
type Program struct {
	dir, path               string
	signingKey, key, secret string // what all instances share
}

// Build builds tokend into dir, which its instances work in.
func Build(dir string) (*Program, error) {
	// From its own module: this one does not list what the program is built from.
	module, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "example.com/tokend").Output()
	if err != nil {
		return nil, fmt.Errorf("find tokend: %w", err)
	}
	p := &Program{
		dir: dir, path: filepath.Join(dir, "tokend"),
		signingKey: base64.StdEncoding.EncodeToString(random()),
		key:        "tsk_" + base64.RawURLEncoding.EncodeToString(random()),
		secret:     hex.EncodeToString(random()),
	}
	if out, err := exec.Command("go", "build", "-C", strings.TrimSpace(string(module)), "-o", p.path, "./cmd/tokend").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build tokend: %w\n%s", err, out)
	}
	return p, nil
}

func random() []byte {
	b := make([]byte, 32)
	rand.Read(b)
	return b
}

// JWTSecret signs the JWTs of users.
func (p *Program) JWTSecret() []byte { return []byte(p.secret) }

// ServiceKey is what services show.
func (p *Program) ServiceKey() string { return p.key }

// Instance is one tokend serve.
type Instance struct {
	URL string

	program *Program
	cmd     *exec.Cmd
	ended   chan struct{}
	log     string // its path
}

var listening = regexp.MustCompile(`"msg":"listening","addr":"([^"]*)"`)

// Serve starts an instance on the Redis at url in mode (redis.mode), and waits until it
// is ready. settings are NAME=VALUE, without TOKEND_.
func (p *Program) Serve(url, mode string, settings ...string) (*Instance, error) {
	log, err := os.CreateTemp(p.dir, "log")
	if err != nil {
		return nil, err
	}
	defer log.Close()
	hash := sha256.Sum256([]byte(p.key))
	settings = append([]string{
		"LISTEN=127.0.0.1:0", "ADMIN_LISTEN=127.0.0.1:0",
		"REDIS_URL=" + url, "REDIS_MODE=" + mode,
		"SIGNING_KEYS=k1:" + p.signingKey, "AUTH_JWT_SECRET=" + p.secret,
		"AUTH_SERVICE_KEYS=form:" + hex.EncodeToString(hash[:]) + ":tokend.issue+tokend.consume",
		"LOG_OUTCOMES=none", // but faults, which are logged all the same
	}, settings...)
	i := &Instance{program: p, cmd: exec.Command(p.path, "serve"), ended: make(chan struct{}), log: log.Name()}
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "TOKEND_") {
			i.cmd.Env = append(i.cmd.Env, e)
		}
	}
	for _, s := range settings {
		i.cmd.Env = append(i.cmd.Env, "TOKEND_"+s)
	}
	i.cmd.Stdout, i.cmd.Stderr = log, log
	if err := i.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		i.cmd.Wait()
		close(i.ended)
	}()
	err = Until("tokend is ready", func() bool {
		if m := listening.FindStringSubmatch(i.Log()); m != nil {
			i.URL = "http://" + m[1]
		}
		return i.over() || i.URL != "" && i.ready()
	})
	if i.over() {
		err = errors.New("tokend has ended")
	}
	if err != nil {
		i.Close()
		return nil, fmt.Errorf("%w:\n%s", err, i.Log())
	}
	return i, nil
}

func (i *Instance) over() bool {
	select {
	case <-i.ended:
		return true
	default:
		return false
	}
}

func (i *Instance) ready() bool {
	resp, err := http.Get(i.URL + wire.PathReadyz)
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// Log returns what the instance has logged.
func (i *Instance) Log() string {
	b, _ := os.ReadFile(i.log)
	return string(b)
}

// Close kills the instance.
func (i *Instance) Close() {
	i.cmd.Process.Kill()
	<-i.ended
}

// Client returns a client of the instance, as a service. It tries each call once, so that
// every answer is seen.
func (i *Instance) Client(opts ...client.Option) *client.Client {
	c, err := client.New(i.URL, client.ServiceKey(i.program.key),
		append([]client.Option{client.MaxTries(1), client.Budget(Patience)}, opts...)...)
	if err != nil {
		panic(err) // the URL is what the program itself says
	}
	return c
}

// Persistent is a client that goes on trying, for as long as a failover may take.
func (i *Instance) Persistent() *client.Client {
	return i.Client(client.MaxTries(1000), client.Backoff(func(int, time.Duration) time.Duration { return 50 * time.Millisecond }))
}
