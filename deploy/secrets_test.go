package deploy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"example.com/tokend/config"
)

// TestSecrets holds that secrets.sh makes all secrets or none, so that it can be run again when
// it has failed, and never replaces those that are there. e2e/program runs it with the program.
func TestSecrets(t *testing.T) {
	script, err := filepath.Abs("secrets.sh")
	if err != nil {
		t.Fatal(err)
	}
	work := t.TempDir()
	tokend := func(name, text string) string {
		t.Helper()
		if err := os.WriteFile(filepath.Join(work, name), []byte("#!/bin/sh\n"+text), 0o700); err != nil {
			t.Fatal(err)
		}
		return "./" + name
	}
	in := filepath.Join(work, "in")
	if err := os.Mkdir(in, 0o700); err != nil {
		t.Fatal(err)
	}
	run := func(tokend string) (string, error) {
		cmd := exec.Command("sh", script, "in/secrets")
		cmd.Dir, cmd.Env = work, []string{"PATH=" + os.Getenv("PATH"), "TOKEND=" + tokend}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	left := func() (names []string) {
		entries, err := os.ReadDir(in)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	const service = `printf 'for the service:       tsk_x\nfor auth.service_keys: %s\n' "` + "form-service:hash" + `"` + "\n"
	for name, text := range map[string]string{
		"absent":        "",
		"broken":        "exit 3\n",
		"half-way":      `test "$2" = signing && echo k1:x` + "\n",
		"no such lines": "echo something else\n",
	} {
		program := "./absent"
		if text != "" {
			program = tokend(name, text)
		}
		out, err := run(program)
		if err == nil || !strings.Contains(out, "secrets.sh: ") {
			t.Errorf("%s: %v: %s", name, err, out)
		}
		if text == "" && !strings.Contains(out, "TOKEND=/path/to/tokend") {
			t.Errorf("%s: it does not say how to name the program: %s", name, out)
		}
		if got := left(); len(got) > 0 {
			t.Errorf("%s leaves %q", name, got)
		}
	}

	good := tokend("good", `if test "$2" = signing; then echo k1:x; else `+service+"fi\n")
	if out, err := run(good); err != nil || out != "" {
		t.Fatalf("%v: %s", err, out)
	}
	read := func(name string) string {
		t.Helper()
		s, err := config.ReadSecret(filepath.Join(in, "secrets", name))
		if err != nil {
			t.Fatal(err)
		}
		return s.Reveal()
	}
	if read("signing.keys") != "k1:x" || read("service.keys") != "form-service:hash" || read("form-service.key") != "tsk_x" {
		t.Errorf("the keys are %q, %q and %q", read("signing.keys"), read("service.keys"), read("form-service.key"))
	}
	if acl := read("redis.acl"); strings.Contains(acl, "SHA256") {
		t.Errorf("a password is not filled in:\n%s", acl)
	}
	if info, err := os.Stat(filepath.Join(in, "secrets")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory: %v, %v", info.Mode(), err)
	}
	before := read("redis.password")
	if out, err := run(good); err == nil || !strings.Contains(out, "in/secrets is there already") || !strings.Contains(out, "move it away first") {
		t.Errorf("again: %v: %s", err, out)
	}
	if got := left(); len(got) != 1 || read("redis.password") != before {
		t.Errorf("again: there are %q, with a password that is the same: %v", got, read("redis.password") == before)
	}
}
