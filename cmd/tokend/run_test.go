package main

import (
	"bytes"
	"context"
	"io"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// canary stands in every secret of these tests; no message may hold it.
const canary = "canary7f3a"

var (
	testSecret = strings.Repeat(canary, 4)
	testKeys   = "k1:" + strings.Repeat("A", 43) + "="
)

// result is what a command that has ended leaves.
type result struct {
	status         int
	stdout, stderr string
}

// runCommand runs a command to its end.
func runCommand(t *testing.T, environ []string, stdin string, args ...string) result {
	t.Helper()
	var out, errs bytes.Buffer
	status := run(t.Context(), &program{args: args, environ: environ, stdin: strings.NewReader(stdin), stdout: &out, stderr: &errs})
	return result{status, out.String(), errs.String()}
}

// output is what a running command has written so far.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// running is a command that serves.
type running struct {
	t              *testing.T
	stdout, stderr *output
	signal         context.CancelFunc // as SIGTERM does
	ended          chan int

	url, adminURL string
}

var listening = regexp.MustCompile(`"msg":"listening","addr":"([^"]*)","tls":(true|false),"admin_addr":"([^"]*)"`)

// startCommand runs a command that serves, and waits until it listens.
func startCommand(t *testing.T, environ []string, args ...string) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{t: t, stdout: new(output), stderr: new(output), signal: cancel, ended: make(chan int, 1)}
	args = append(args, "--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0", "--log-format=json")
	go func() {
		r.ended <- run(ctx, &program{args: args, environ: environ, stdin: strings.NewReader(""), stdout: r.stdout, stderr: r.stderr})
	}()
	t.Cleanup(func() { r.stop() })
	r.until("it listens", func() bool {
		m := listening.FindStringSubmatch(r.stderr.String())
		if m != nil {
			r.url, r.adminURL = localURL(m[1], m[2] == "true"), localURL(m[3], false)
		}
		return m != nil
	})
	return r
}

// stop ends the command and returns its status.
func (r *running) stop() int {
	r.signal()
	return r.wait()
}

// wait waits for the command's end.
func (r *running) wait() int {
	r.t.Helper()
	select {
	case status := <-r.ended:
		r.ended <- status // for the next to ask
		return status
	case <-time.After(30 * time.Second):
		r.t.Fatalf("it does not end:\n%s", r.stderr)
		return -1
	}
}

// until waits until ok, or for the command's end.
func (r *running) until(what string, ok func() bool) {
	r.t.Helper()
	for range 3000 {
		if ok() {
			return
		}
		select {
		case status := <-r.ended:
			r.ended <- status
			r.t.Fatalf("it ended with %d before %s:\n%s", status, what, r.stderr)
		case <-time.After(10 * time.Millisecond):
		}
	}
	r.t.Fatalf("waited in vain until %s:\n%s", what, r.stderr)
}

func TestUsageErrors(t *testing.T) {
	tests := []struct {
		args []string
		want string
	}{
		{nil, "name a command"},
		{[]string{"sevre"}, "did you mean tokend serve?"},
		{[]string{"frobnicate"}, "there is no such command: tokend --help"},
		{[]string{"keygen"}, "name a command: tokend keygen --help"},
		{[]string{"keygen", "sining"}, "did you mean tokend keygen signing?"},
		{[]string{"serve", "--redis-ulr=" + canary}, "unknown flag: --redis-ulr; did you mean --redis-url? (tokend serve --help"},
		{[]string{"serve", "--listen"}, "flag needs an argument: --listen"},
		{[]string{"serve", canary}, "takes flags only"},
		{[]string{"version", canary}, "takes flags only"},
		{[]string{"consume"}, "takes one argument"},
		{[]string{"status", canary, canary}, "takes one argument"},
		{[]string{"status"}, "give the one-time token (or - to read it from standard input), or --ref"},
		{[]string{"status", "--ref=t_0", canary}, "or --ref, and not both"},
		{[]string{"resolve", "--ref=t_0", "--user=alice", "--release"}, "a claim cannot be ended by its ref"},
		{[]string{"issue"}, "give --url or TOKEND_URL"},
		{[]string{"issue", "--url=http://localhost"}, "give --token, --token-file"},
		{[]string{"issue", "--url=localhost", "--token=" + canary}, "the URL must be http://"},
		{[]string{"issue", "--url=http://localhost", "--token=x", "--token-file=x"}, "given twice"},
		{[]string{"issue", "--url=http://localhost", "--token-file=" + canary}, "cannot be read: no such file"},
		{[]string{"issue", "--url=http://localhost", "--token-file=/nonexistent/service.key"}, "cannot be read: /nonexistent/service.key: no such file"},
		{[]string{"keygen", "signing", "--id=a b"}, "--id must be"},
		{[]string{"keygen", "service", "--scope=all"}, "--scope must be tokend.issue or tokend.consume"},
		{[]string{"keygen", "service", "--name=a b"}, "--name must be"},
		{[]string{"keygen", "service", "--name=a:b"}, "--name must be"},
		{[]string{"keygen", "service", "--name=a,b"}, "--name must be"},
		{[]string{"keygen", "service", "--name=tsk_a"}, "must not begin with tsk_"},
		{[]string{"jwt", "--sub=alice"}, "no secret to sign with"},
		{[]string{"jwt", "--sub=alice", "--secret=" + canary}, "at least 32 bytes"},
		{[]string{"jwt", "--secret=" + testSecret}, "--sub must be"},
		{[]string{"jwt", "--sub=alice", "--secret=" + testSecret, "--ttl=-1s"}, "--ttl must be"},
		{[]string{"jwt", "--sub=alice", "--secret=" + testSecret, "--secret-file=x"}, "not both"},
		{[]string{"ref"}, "--user must be"},
		{[]string{"ref", "--user=alice", "--ref=" + canary}, "--ref must be"},
		{[]string{"healthcheck", "--url=localhost"}, "--url must be"},
		{[]string{"config", "--tokens-ttl=x"}, "tokens.ttl in YAML: must be a duration"},
	}
	for _, tt := range tests {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			got := runCommand(t, nil, "", tt.args...)
			if got.status != exitUsage {
				t.Errorf("status %d, want %d", got.status, exitUsage)
			}
			if !strings.HasPrefix(got.stderr, "tokend: ") || !strings.Contains(got.stderr, tt.want) {
				t.Errorf("stderr %q lacks %q", got.stderr, tt.want)
			}
			if strings.Contains(got.stderr, canary) {
				t.Errorf("a secret in %q", got.stderr)
			}
			if n := strings.Count(got.stderr, "\n"); n != 1 && tt.args[0] != "config" {
				t.Errorf("%d lines: %q", n, got.stderr)
			}
		})
	}
}

// commands yields every command of ours.
func commands(t *testing.T) []*cobra.Command {
	t.Helper()
	var all []*cobra.Command
	var add func(*cobra.Command)
	add = func(c *cobra.Command) {
		all = append(all, c)
		for _, sub := range c.Commands() {
			add(sub)
		}
	}
	add(newRoot(&program{stdout: io.Discard, stderr: io.Discard}))
	return all
}

var flagInText = regexp.MustCompile(`(?:^|[\s\[])--([a-z][a-z-]*)`)

// Each command has a help with an example, and what the example says exists.
func TestHelp(t *testing.T) {
	all := commands(t)
	for _, c := range all {
		if c.Short == "" || c.Example == "" {
			t.Errorf("%s: no short help or no example", c.CommandPath())
		}
		for line := range strings.Lines(c.Example) {
			for _, call := range regexp.MustCompile(`\btokend( [a-z]+)+[^|)>;]*`).FindAllString(line, -1) {
				words := strings.Fields(call)[1:]
				named, _, err := c.Root().Find(words)
				if err != nil || !named.HasParent() {
					t.Errorf("%s: the example calls %q: %v", c.CommandPath(), call, err)
					continue
				}
				for _, m := range flagInText.FindAllStringSubmatch(call, -1) {
					if named.Flags().Lookup(m[1]) == nil {
						t.Errorf("%s: the example's --%s is no flag of %s", c.CommandPath(), m[1], named.CommandPath())
					}
				}
			}
		}
		for _, m := range flagInText.FindAllStringSubmatch(c.Long, -1) {
			if c.Flags().Lookup(m[1]) == nil && m[1] != "quoted-input" { // redis-cli's
				t.Errorf("%s: the help's --%s is no flag", c.CommandPath(), m[1])
			}
		}
	}
}

func TestHelpIsPrinted(t *testing.T) {
	for _, args := range [][]string{{"--help"}, {"help"}, {"help", "serve"}, {"serve", "--help"}, {"keygen", "--help"}} {
		if got := runCommand(t, nil, "", args...); got.status != exitOK || !strings.Contains(got.stdout, "Usage:") || got.stderr != "" {
			t.Errorf("%v: %+v", args, got)
		}
	}
}
