package main

import (
	"bytes"
	"fmt"
	"strings"

	"example.com/tokend/httpapi/wire"
	"example.com/tokend/token"
)

// wrongAnswer is a kind of wrong answers, with the first of them as the example.
type wrongAnswer struct {
	What       string   `json:"what"`
	Count      int64    `json:"count"`
	Ref        string   `json:"ref,omitempty"`         // of the example's token
	RequestIDs []string `json:"request_ids,omitempty"` // of the example's calls
}

func (w *wrongAnswer) String() string {
	text := fmt.Sprintf("%d × %s", w.Count, w.What)
	var example []string
	if w.Ref != "" {
		example = append(example, "ref "+w.Ref)
	}
	if len(w.RequestIDs) > 0 {
		example = append(example, "request "+strings.Join(w.RequestIDs, " and "))
	}
	if example != nil {
		text += " (" + strings.Join(example, ", ") + ")"
	}
	return text
}

// fail counts a wrong answer. What does not look like a ref or a request's id, as somebody
// else than tokend may have answered, is left out of the example.
func (b *benchRun) fail(what, ref string, requestIDs ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.wrong[what]
	if w == nil {
		w = &wrongAnswer{What: what}
		if _, _, err := token.ParseRef(ref); err == nil {
			w.Ref = ref
		}
		for _, id := range requestIDs {
			if wire.ValidRequestID(id) {
				w.RequestIDs = append(w.RequestIDs, id)
			}
		}
		b.wrong[what] = w
	}
	w.Count++
}

// unlike says what is wrong with an answer that grants t, or "".
func (b *benchRun) unlike(r benchReply, t benchToken) string {
	for _, m := range [...]struct{ name, want, of string }{
		{"user", t.user.name, "user"},
		{"purpose", b.purpose, "purpose"},
		{"ref", t.ref, "token"},
	} {
		got, ok := find(r.body, m.name)
		if !ok {
			return notTokends(r)
		}
		if string(got) != m.want {
			return "names another " + m.of
		}
	}
	return ""
}

// refusedOrNot names an answer that is neither what was asked for nor a fault.
func refusedOrNot(r benchReply) string {
	if code := codeOf(r); code != "" {
		return fmt.Sprintf("refused %s (%d) without reason", code, r.status)
	}
	return notTokends(r)
}

func notTokends(r benchReply) string { return fmt.Sprintf("not tokend's answer (%d)", r.status) }

// codeOf returns the code of a problem of tokend's, or "" where r is none.
func codeOf(r benchReply) string {
	code := wire.Code(member(r.body, "code"))
	if kind, ok := wire.KindOf(code); !ok || kind.Status != r.status {
		return ""
	}
	return string(code)
}

// member returns the text of answer's member called name, or "" where there is none.
func member(answer []byte, name string) string {
	text, _ := find(answer, name)
	return string(text)
}

// find returns the text of answer's member called name, which tokend writes without
// spaces and escapes.
func find(answer []byte, name string) ([]byte, bool) {
	_, rest, ok := bytes.Cut(answer, []byte(`"`+name+`":"`))
	if !ok {
		return nil, false
	}
	text, _, ok := bytes.Cut(rest, []byte(`"`))
	return text, ok
}
