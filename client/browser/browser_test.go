package browser

import (
	"strings"
	"testing"

	"example.com/tokend/httpapi/wire"
)

// The plain build is the module but for how it gives away what it has.
func TestGlobal(t *testing.T) {
	if n := strings.Count(module, exported); n != 1 || !strings.HasSuffix(module, exported) {
		t.Fatalf("the module must end with its only export, %q; it stands there %d times", exported, n)
	}
	if strings.Contains(module, "\nimport ") || strings.Count(module, "\nexport ") != 1 {
		t.Error("the module imports or exports something else, which a plain script cannot")
	}
	inside, ok := strings.CutPrefix(string(Global()), "(() => {\n'use strict';\n")
	inside, ok2 := strings.CutSuffix(inside, global+"})();\n")
	if !ok || !ok2 || inside+exported != string(Module()) {
		t.Error("the plain build is not the module within a function")
	}
}

// The script says what the wire's other side reads.
func TestNames(t *testing.T) {
	for what, line := range map[string]string{
		"the field":  "const FIELD = '" + wire.FieldToken + "';",
		"the header": "const HEADER = '" + wire.HeaderToken + "';",
		"the replay": "headers.get('" + wire.HeaderIdempotentReplayed + "')",
		"the wait":   "headers.get('Retry-After')",
	} {
		if !strings.Contains(module, line) {
			t.Errorf("%s: the script does not have %s", what, line)
		}
	}
	for _, kind := range wire.Kinds() {
		// What speaks to services never comes to a page.
		switch kind.Code {
		case wire.CodeClaimSuperseded, wire.CodeClaimEnded, wire.CodeClaimCommitted, wire.CodeModeUnsupported,
			wire.CodeInvalidRequest, wire.CodeNotFound, wire.CodeMethodNotAllowed, wire.CodeBodyTooLarge, wire.CodeUnsupportedMediaType,
			wire.CodeTokenExpired: // has a text of its own
			continue
		}
		if !strings.Contains(module, "\n\t\t"+string(kind.Code)+": '") {
			t.Errorf("the script has no Chinese text for %s", kind.Code)
		}
	}
}

// Both languages say the same things.
func TestTexts(t *testing.T) {
	_, en, ok := strings.Cut(module, "\n\ten: {\n")
	en, zh, ok2 := strings.Cut(en, "\n\t},\n\tzh: {\n")
	if !ok || !ok2 {
		t.Fatal("the texts are not where they were")
	}
	n := 0
	for line := range strings.Lines(en) {
		key, _, _ := strings.Cut(strings.TrimSpace(line), ":")
		if n++; !strings.Contains("\n"+zh, "\n\t\t"+key+": ") {
			t.Errorf("there is no Chinese text for %s", key)
		}
	}
	if n < 10 {
		t.Errorf("there are %d texts in English", n)
	}
}
