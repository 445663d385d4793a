package demo

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.com/tokend/client/guard"
)

// items are what can be ordered; their names are words.
var items = []string{"coffee", "tea", "cake"}

// work is how long an order takes: long enough for a second click to come in the middle.
const work = 400 * time.Millisecond

// orders returns the form's handler behind p.
func (d *Demo) orders(g *guard.Guard, p protection) http.Handler {
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { d.order(w, r, p) })
	switch p {
	case once:
		return g.Once(h)
	case replay:
		return g.Replay(h)
	}
	return h
}

// sent is what the form says.
type sent struct{ Item, Quantity string }

// read returns what r says, and what is wrong with it: words by the field's name.
func read(r *http.Request) (s sent, o order, wrong map[string]string) {
	s = sent{r.PostFormValue("item"), strings.TrimSpace(r.PostFormValue("quantity"))}
	o.Item = s.Item
	wrong = map[string]string{}
	if !slices.Contains(items, s.Item) {
		wrong["item"] = "wrong.item"
	}
	n, err := strconv.Atoi(s.Quantity)
	if err != nil || n < 1 || n > 9 {
		wrong["quantity"] = "wrong.quantity"
	}
	o.Quantity = n
	return s, o, wrong
}

// order takes the form. What a mistake is is found out before anything is used up.
func (d *Demo) order(w http.ResponseWriter, r *http.Request, p protection) {
	v := visitOf(r)
	if v.session == nil { // only where nothing is protected: a guard has said so before
		http.Redirect(w, r, Path, http.StatusSeeOther)
		return
	}
	s, o, wrong := read(r)
	token, c := v.session.letter(r.PostFormValue("tokend_token")), v.session.chosen()
	v.note(func(e *entry) {
		e.token, e.ref, e.fence = token, guard.Ref(r.Context()), guard.Fence(r.Context())
	})
	if len(wrong) > 0 {
		d.mistaken(w, r, s, wrong)
		return
	}
	if v.session.dies(before) {
		v.die()
	}
	var err error
	switch p {
	case once:
		err = guard.Consume(r.Context())
	case replay:
		err = guard.Commit(r.Context())
	}
	if err != nil {
		return // the guard answers
	}
	time.Sleep(work)
	o.User, o.token = c.user, token
	o = v.session.create(o)
	v.note(func(e *entry) { e.order = o.N })
	if v.session.dies(after) {
		v.die()
	}
	if takesHTML(r) {
		http.Redirect(w, r, Path+"?order="+strconv.Itoa(o.N), http.StatusSeeOther)
		return
	}
	answer(w, http.StatusCreated, o)
}

// mistaken answers a form with mistakes: the form again, with the token that it had.
func (d *Demo) mistaken(w http.ResponseWriter, r *http.Request, s sent, wrong map[string]string) {
	guard.Release(r.Context()) // where it is claimed: the field is rendered before the status is written
	if takesHTML(r) {
		d.page(w, r, http.StatusUnprocessableEntity, s, wrong, nil)
		return
	}
	words := languages[languageOf(r, visitOf(r).session.chosen())]
	said := map[string]string{}
	for field, key := range wrong {
		said[field] = words[key]
	}
	answer(w, http.StatusUnprocessableEntity, map[string]any{"wrong": said})
}

// takesHTML tells a browser from its script.
func takesHTML(r *http.Request) bool { return strings.Contains(r.Header.Get("Accept"), "text/html") }

func answer(w http.ResponseWriter, status int, body any) {
	b, err := json.Marshal(body)
	if err != nil {
		panic(err) // not with strings and numbers
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(b)
}
