package client

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

func TestTokenShowsItsRefAlone(t *testing.T) {
	tok := Token{Value: testToken, Ref: testRef, User: testUser}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d", "%30s"} {
		if got := fmt.Sprintf(verb, tok); got != testRef {
			t.Errorf("%s prints %s", verb, got)
		}
		if got := fmt.Sprintf(verb, &tok); got != testRef {
			t.Errorf("%s prints %s of a pointer", verb, got)
		}
	}
	if tok.String() != testRef || tok.GoString() != testRef {
		t.Errorf("String %s, GoString %s", tok, tok.GoString())
	}

	var log bytes.Buffer
	for _, h := range []slog.Handler{slog.NewTextHandler(&log, nil), slog.NewJSONHandler(&log, nil)} {
		slog.New(h).Info("m", "token", tok, "pointer", &tok, "struct", struct{ T Token }{tok}, "list", []Token{tok})
	}
	j, err := json.Marshal(map[string]any{"token": tok})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(&log, string(j), fmt.Sprint([]Token{tok}, map[string]Token{"k": tok}, struct{ T *Token }{&tok}))
	if strings.Contains(log.String(), testToken) || !strings.Contains(log.String(), testRef) {
		t.Errorf("logged %s", &log)
	}
}
