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

// tokend dev never works on another's Redis.
func TestDevHasItsOwnRedis(t *testing.T) {
	got := runCommand(t, []string{"TOKEND_REDIS_URL=redis://:" + canary + "@production", "TOKEND_REDIS_PASSWORD=" + canary}, "", "dev")
	if got.status != exitUsage || strings.Count(got.stderr, "is tokend dev's own") != 2 || strings.Contains(got.stderr, canary) {
		t.Errorf("%+v", got)
	}
}
