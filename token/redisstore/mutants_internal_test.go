//go:build !race

// The race detector has nothing to say of mutants, and only makes them slow.

package redisstore

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"example.com/tokend/internal/mutants"
)

// scripts are all that there are.
var scripts = []*script{
	issueScript, consumeScript, claimScript, claimKeyScript, commitScript, renewScript, completeScript, releaseScript,
	revokeScript, statusScript,
}

// mutantVariable names the mutant that a process of this test is.
const mutantVariable = "REDISSTORE_MUTANT"

func init() {
	if m, ok := mutants.Named(os.Getenv(mutantVariable)); ok {
		mutate(m)
	}
}

// mutate has every script that holds m's text be wrong, and returns how many do.
func mutate(m mutants.Mutant) (n int) {
	for _, sc := range scripts {
		if wrong, ok := m.Apply(sc.source); ok {
			sum := sha1.Sum([]byte(wrong))
			sc.source, sc.sha = wrong, hex.EncodeToString(sum[:])
			n++
		}
	}
	return n
}

// TestMutants breaks the scripts, each time in one place and in a process of its own, and
// holds the tests to noticing it.
func TestMutants(t *testing.T) {
	t.Parallel()
	if os.Getenv(mutantVariable) != "" {
		t.Fatal("this process is a mutant")
	}
	seen := map[string]bool{}
	slots := make(chan struct{}, 4*runtime.GOMAXPROCS(0)) // some mostly wait
	for _, m := range mutants.All {
		if seen[m.Name] {
			t.Errorf("two mutants are called %q", m.Name)
		}
		seen[m.Name] = true
		in := 0
		for _, sc := range scripts {
			if n := strings.Count(sc.source, m.Old); n == 1 {
				in++
			} else if n > 1 {
				t.Errorf("%s: what it replaces stands %d times in %s", m.Name, n, sc.op)
			}
		}
		if in == 0 {
			t.Errorf("%s: what it replaces stands in no script any more:\n%s", m.Name, m.Old)
			continue
		}
		t.Run(strings.ReplaceAll(m.Name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			slots <- struct{}{}
			defer func() { <-slots }()
			noticed(t, os.Args[0], m)
		})
	}
}

// brokenScript is what tells of a script that Redis cannot run: such a mutant would be noticed
// by anything, and shows nothing.
var brokenScript = regexp.MustCompile(`ERR [Ee]rror (compiling|running)|user_script:|which its caller does not know`)

// noticed runs the test of binary that is to notice m.
func noticed(t *testing.T, binary string, m mutants.Mutant) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	run := "^" + strings.ReplaceAll(m.By, "/", "$/^") + "$"
	cmd := exec.CommandContext(ctx, binary, "-test.run", run, "-test.failfast", "-test.count=1", "-test.v", "-rapid.nofailfile")
	cmd.Env = append(os.Environ(), mutantVariable+"="+m.Name)
	out, err := cmd.CombinedOutput()
	switch {
	case !strings.Contains(string(out), "=== RUN   "+m.By+"\n"):
		t.Errorf("there is no test %s", m.By)
	case err == nil:
		t.Errorf("%s does not notice it", m.By)
	case brokenScript.Match(out):
		t.Errorf("it cannot be run at all:\n%s", out)
	case !strings.Contains(string(out), "--- FAIL: "+m.By):
		t.Errorf("%s does not fail by it:\n%s", m.By, out)
	}
}
