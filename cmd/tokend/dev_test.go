package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// What tokend dev prints can be pasted into a shell as it stands.
func TestDevLinesCanBePasted(t *testing.T) {
	for _, tool := range []string{"sh", "curl", "sed"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Fatalf("what is tested is text for a shell with curl, which `make deps` installs, and sed: %v", err)
		}
	}
	key := runCommand(t, nil, "", "keygen", "service").stdout
	entry := strings.Fields(key)[len(strings.Fields(key))-1]
	for name, environ := range map[string][]string{
		"all made up":  nil,
		"keys given":   {"TOKEND_AUTH_SERVICE_KEYS=" + entry, "TOKEND_AUTH_JWT_SECRET=" + testSecret, "TOKEND_AUTH_AUDIENCE=x"},
		"other claims": {"TOKEND_AUTH_USER_CLAIM=uid", "TOKEND_TOKENS_MODE=record"},
	} {
		t.Run(name, func(t *testing.T) {
			r := startCommand(t, environ, "dev")
			r.until("it prints the lines", func() bool { return strings.Contains(r.stdout.String(), "what became of it") })
			text := r.stdout.String()
			if !strings.Contains(text, "NOT FOR PRODUCTION") {
				t.Errorf("it does not say what it is not for:\n%s", text)
			}
			_, lines, ok := strings.Cut(text, "another terminal:\n")
			if !ok {
				t.Fatal(text)
			}
			sh := exec.CommandContext(t.Context(), "sh")
			sh.Stdin = strings.NewReader(lines + lines[strings.Index(lines, "# 2."):])
			sh.Env = []string{"PATH=" + os.Getenv("PATH")}
			out, err := sh.CombinedOutput()
			got := strings.Split(string(out), "\n")
			if err != nil || len(got) < 5 {
				t.Fatalf("%v:\n%s", err, out)
			}
			for i, want := range []string{"ott_", `"outcome":"consumed"`, `"state":"used"`, `"code":"token_used"`, `"state":"used"`} {
				if !strings.Contains(got[i], want) {
					t.Errorf("line %d lacks %s: %s", i+1, want, got[i])
				}
			}
			if status := r.stop(); status != exitOK {
				t.Errorf("status %d:\n%s", status, r.stderr)
			}
		})
	}
}

// tokend dev never works on another's Redis, nor with keys that others publish. Each such
// setting is one fault, and not in the help.
func TestDevOwn(t *testing.T) {
	for _, tt := range []struct {
		environ []string
		args    []string
		want    []string
	}{
		{environ: []string{"TOKEND_REDIS_URL=redis://:" + canary + "@production", "TOKEND_REDIS_PASSWORD=" + canary}, want: []string{"redis.url", "redis.password"}},
		{environ: []string{"TOKEND_REDIS_URL=" + canary}, want: []string{"redis.url"}},
		{environ: []string{"TOKEND_REDIS_PASSWORD_FILE=" + written(t, canary)}, want: []string{"redis.password"}},
		{args: []string{"--redis-wait-replicas=1", "--redis-timeout=2s", "--redis-mode=cluster"}, want: []string{"redis.wait_replicas", "redis.timeout", "redis.mode"}},
		{args: []string{"--redis-ca-file=/nonexistent/ca.pem"}, want: []string{"redis.ca_file"}},
		{args: []string{"--auth-jwks-url=https://issuer.example/keys"}, want: []string{"auth.jwks_url"}},
		{args: []string{"--auth-public-key-file=/nonexistent/jwt.pem"}, want: []string{"auth.public_key_file"}},
	} {
		got := runCommand(t, tt.environ, "", append([]string{"dev"}, tt.args...)...)
		if got.status != exitUsage || strings.Count(got.stderr, "\n") != 1+len(tt.want) || strings.Contains(got.stderr, canary) {
			t.Errorf("%+v: %+v", tt, got)
		}
		for _, name := range tt.want {
			if !strings.Contains(got.stderr, name+" in YAML: is tokend dev's own: leave it out, or use tokend serve\n") {
				t.Errorf("%s: %s", name, got.stderr)
			}
		}
	}
	help := runCommand(t, nil, "", "dev", "--help").stdout
	for _, hidden := range []string{"--redis-", "--auth-jwks-url", "--auth-public-key-file"} {
		if strings.Contains(help, hidden) {
			t.Errorf("the help has %s…", hidden)
		}
	}
	if !strings.Contains(help, "--tokens-ttl") || !strings.Contains(help, "--auth-jwt-secret-file") {
		t.Error("the help lacks what can be given")
	}
}
