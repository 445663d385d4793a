package sqlguard_test

import (
	"os/exec"
	"strings"
	"testing"
)

// Services bring their own driver: the package stands on the standard library alone.
func TestDependencies(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if got := strings.TrimSpace(string(out)); got != "example.com/tokend/client/sqlguard" {
		t.Errorf("imports %s", got)
	}
}
