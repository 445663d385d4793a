package httpapi

import (
	"reflect"
	"strings"
	"testing"

	"example.com/tokend/httpapi/wire"
)

// TestEveryCodeIsExplained holds the texts complete, and free of codes that are none.
func TestEveryCodeIsExplained(t *testing.T) {
	used := make(map[wire.Next]bool)
	for _, kind := range wire.Kinds() {
		used[kind.Next] = true
		if nextMeans[kind.Next] == "" {
			t.Errorf("next %s is not explained", kind.Next)
		}
		e, ok := explanations[kind.Code]
		if !ok {
			t.Errorf("%s is not explained", kind.Code)
			continue
		}
		v := reflect.ValueOf(e)
		for i := range v.NumField() {
			if name, text := v.Type().Field(i).Name, v.Field(i).String(); text == "" || text != strings.TrimSpace(text) {
				t.Errorf("%s: %s is %q", kind.Code, name, text)
			} else {
				for line := range strings.Lines(text) {
					if len(line) > 82 {
						t.Errorf("%s: %s has a line too long for a terminal: %q", kind.Code, name, line)
					}
				}
			}
		}
	}
	if n := len(wire.Kinds()); len(explanations) != n || len(problemPages()) != n {
		t.Errorf("%d explanations and %d pages for %d codes", len(explanations), len(problemPages()), n)
	}
	if len(nextMeans) != len(used) {
		t.Errorf("%d words of next are explained, of %d", len(nextMeans), len(used))
	}
}
