//go:build !race

// The race detector has nothing to say of mutants, and only makes them slow.

package redisstore

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"example.com/tokend/internal/mutants"
)

// goMutants are faults around the scripts. In New, MUTANT stands for whether the process is
// that mutant: all of them are built into one program, which is right otherwise.
var goMutants = []struct {
	name, file, old, new, by string
}{
	{"a stranger opens a token", "../token.go",
		"if subtle.ConstantTimeCompare(user[:userSize], t.user[:]) != 1 {",
		"if subtle.ConstantTimeCompare(user[:userSize], t.user[:]) != 1 && !MUTANT {", "TestMiniredis/Strangers"},
	{"a token is good for any purpose", "../token.go",
		"if subtle.ConstantTimeCompare(purpose[:purposeSize], t.purpose[:]) != 1 {",
		"if subtle.ConstantTimeCompare(purpose[:purposeSize], t.purpose[:]) != 1 && !MUTANT {", "TestMiniredis/Strangers"},
	{"a key is any user's", "../words.go",
		"for _, part := range [...]string{string(u), string(p), string(k)} {\n",
		"for _, part := range [...]string{string(u), string(p), string(k)} {\n\t\tif MUTANT && part == string(u) {\n\t\t\tcontinue\n\t\t}\n", "TestUsersWhoShareATag"},
	{"a key is for any purpose", "../words.go",
		"for _, part := range [...]string{string(u), string(p), string(k)} {\n",
		"for _, part := range [...]string{string(u), string(p), string(k)} {\n\t\tif MUTANT && part == string(p) {\n\t\t\tcontinue\n\t\t}\n", "TestMiniredis/KeyScope"},
	{"a key's parts are run together", "../words.go",
		"b = binary.BigEndian.AppendUint32(b, uint32(len(part)))",
		"if !MUTANT {\n\t\t\tb = binary.BigEndian.AppendUint32(b, uint32(len(part)))\n\t\t}", "TestMiniredis/KeyScope"},
	{"the retention is not added", "consume.go",
		"return t.ExpiresAt.Add(t.Retention) }",
		"if MUTANT { return t.ExpiresAt }; return t.ExpiresAt.Add(t.Retention) }", "TestMiniredis/Expiry"},
	{"delete mode's issue is sent again", "issue.go",
		"once: n.Mode == token.Delete}",
		"once: n.Mode == token.Delete && !MUTANT}", "TestDeleteIssueIsNeverSentAgain"},
	{"DEL is sent again", "delete.go",
		"func (*onceInt) NoRetry() bool { return true }",
		"func (*onceInt) NoRetry() bool { return !MUTANT }", "TestDeleteIsNeverSentAgain"},
	{"a lost DEL may be retried", "delete.go",
		"Unknown: !dels[i].surelyNotDone(err), Err: err}",
		"Unknown: !dels[i].surelyNotDone(err) && !MUTANT, Err: err}", "TestDeleteIsNeverSentAgain"},
	{"what was not sent may have been", "delete.go",
		"return !c.read || errors.As(err, &said)",
		"return (!c.read || errors.As(err, &said)) && !MUTANT", "TestDeleteNotSent"},
	{"DEL does not look at the expiry", "delete.go",
		"case !now.Before(c.Token.ExpiresAt):\n\t\t\terrs[i] = c.Token.Refuse(token.ErrGone)",
		"case !now.Before(c.Token.ExpiresAt) && !MUTANT:\n\t\t\terrs[i] = c.Token.Refuse(token.ErrGone)", "TestMiniredis/DeleteMode"},
	{"who finds nothing to delete is granted the token", "delete.go",
		"case deleted == 0:",
		"case deleted == 0 && !MUTANT:", "TestMiniredis/DeleteModeOneWinner"},
	{"who hangs up undoes a change", "script.go",
		"\tif c.script.change {\n\t\tctx = context.WithoutCancel(ctx)",
		"\tif c.script.change && !MUTANT {\n\t\tctx = context.WithoutCancel(ctx)", "TestMiniredis/HangUp"},
	{"a status that nobody knows is a refusal", "refuse.go",
		"\tif !ok {\n\t\treturn unlisted(op, r)\n\t}\n\tno := sub.Refuse(why)",
		"\tif MUTANT && !ok {\n\t\twhy = token.ErrUsed\n\t} else if !ok {\n\t\treturn unlisted(op, r)\n\t}\n\tno := sub.Refuse(why)", "TestUnknownRecords"},
	{"no replica is waited for", "node.go",
		"case wait.Val() < int64(s.opts.WaitReplicas):",
		"case wait.Val() < int64(s.opts.WaitReplicas) && !MUTANT:", "TestWaitReplicas"},
	{"tokens and keys share their records", "keys.go",
		"letter := [...]string{token.OfToken: \"t\", token.OfKey: \"k\"}[kind]",
		"letter := [...]string{token.OfToken: \"t\", token.OfKey: \"k\"}[kind]\n\tif MUTANT {\n\t\tletter = \"t\"\n\t}", "TestKeys"},
	{"a token is found under any user", "keys.go",
		"return string(append(b, id[:]...))",
		"if MUTANT {\n\t\treturn prefix + string(id[:])\n\t}\n\treturn string(append(b, id[:]...))", "TestMiniredis/Strangers"},
}

// TestGoMutants breaks what is around the scripts, as TestMutants does the scripts.
func TestGoMutants(t *testing.T) {
	t.Parallel()
	binary := buildMutants(t)
	for _, m := range goMutants {
		t.Run(strings.ReplaceAll(m.name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			noticed(t, binary, mutants.Mutant{Name: m.name, By: m.by})
		})
	}
	t.Run("none", func(t *testing.T) { // but for the fault that it has, it is right
		t.Parallel()
		cmd := exec.Command(binary, "-test.run", "^TestMiniredis$|^TestKeys$")
		cmd.Env = append(os.Environ(), mutantVariable+"=none")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
}

// buildMutants builds the tests of this package with the faults of goMutants.
func buildMutants(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	replace := map[string]string{}
	path := func(file string) string {
		abs, err := filepath.Abs(file)
		if err != nil {
			t.Fatal(err)
		}
		return abs
	}
	write := func(file, text string) {
		name := filepath.Join(dir, fmt.Sprint(len(replace), ".go"))
		if to, there := replace[path(file)]; there {
			name = to
		}
		replace[path(file)] = name
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	texts := map[string]string{}
	for _, m := range goMutants {
		if _, there := texts[m.file]; !there {
			b, err := os.ReadFile(m.file)
			if err != nil {
				t.Fatal(err)
			}
			texts[m.file] = string(b)
		}
		if n := strings.Count(texts[m.file], m.old); n != 1 {
			t.Fatalf("%s: what it replaces stands %d times in %s: write it anew for the code as it is:\n%s", m.name, n, m.file, m.old)
		}
		is := strings.ReplaceAll(m.new, "MUTANT", fmt.Sprintf("isMutant(%q)", m.name))
		texts[m.file] = strings.Replace(texts[m.file], m.old, is, 1)
	}
	for file, text := range texts {
		write(file, text)
	}
	for _, pkg := range []string{"token", "redisstore"} {
		write(filepath.Join("..", "..", "token", map[string]string{"redisstore": pkg}[pkg], "mutant.go"),
			fmt.Sprintf("package %s\n\nimport \"os\"\n\nfunc isMutant(name string) bool { return os.Getenv(%q) == name }\n", pkg, mutantVariable))
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	file, binary := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "mutants")
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "test", "-c", "-overlay", file, "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("the mutants do not build: %v\n%s", err, out)
	}
	return binary
}
