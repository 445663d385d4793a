package demo

import (
	"bytes"
	"embed"
	"html/template"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.com/tokend/client/guard"
)

//go:embed *.html
var sources embed.FS

var templates = template.Must(template.ParseFS(sources, "*.html"))

// texts says things in one language.
type texts struct {
	Lang  string
	words map[string]string
}

func textsIn(lang string) texts { return texts{lang, languages[lang]} }

// T returns the text called key, or key itself, which a test finds.
func (t texts) T(key string) string {
	if text, ok := t.words[key]; ok {
		return text
	}
	return key
}

// pageView is what the page shows.
type pageView struct {
	texts
	Choices  choicesView
	Claims   bool
	Field    template.HTML // with the token
	Sent     sent
	Wrong    map[string]string // words by field
	Items    []string
	Users    []string
	Lives    []int
	Notice   *notice
	Board    boardView
	ToScript map[string]string
}

type choicesView struct {
	Protection, User string
	Life             int
}

// notice is what is said above the form.
type notice struct {
	OK         bool
	Text       string
	Code, Next string
	Ref        string
}

// boardView is the time line and the orders, the latest first.
type boardView struct {
	texts
	Version        int
	Requests, Made int
	Entries        []entryView
	Orders         []orderView
	Doubles        int
}

type entryView struct {
	N                         int
	Kind, Step, Time, User    string
	Token, Color              string
	Ref                       string
	Status, Outcome, Tone     string
	Code, Next                string
	Ended, Replayed, Takeover bool
	Order                     int
	Took, Fence               int64
}

type orderView struct {
	order
	Time, Token, Color string
	Double             bool // the same submission has made one before
}

// board returns what the board shows.
func (s *session) board(lang string) boardView {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := boardView{texts: textsIn(lang), Version: s.version, Requests: s.n.requests, Made: s.n.orders}
	cutOff, letters := map[string]bool{}, map[string]string{} // by ref
	for _, e := range s.entries {
		if e.ref != "" && e.token != "" {
			letters[e.ref] = e.token
		}
	}
	for _, e := range s.entries {
		v := e.view(letters[e.ref]) // what a guard answers by itself tells only the ref
		v.Takeover = e.fence > 1 && cutOff[e.ref]
		cutOff[e.ref] = cutOff[e.ref] || e.ended && e.status == 0
		b.Entries = append(b.Entries, v)
	}
	slices.Reverse(b.Entries)
	seen := map[string]bool{}
	for _, o := range s.orders {
		v := orderView{order: o, Time: o.at.Format(time.TimeOnly), Token: o.token, Color: colorOf(o.token), Double: o.token != "" && seen[o.token]}
		if v.Double {
			b.Doubles++
		}
		seen[o.token] = true
		b.Orders = append(b.Orders, v)
	}
	slices.Reverse(b.Orders)
	return b
}

func (e *entry) view(letter string) entryView {
	if e.token != "" {
		letter = e.token
	}
	v := entryView{
		N: e.n, Kind: string(e.kind), Step: e.step, Time: e.at.Format("15:04:05.000"), User: e.user,
		Token: letter, Color: colorOf(letter), Ref: e.ref, Code: e.code, Next: e.next,
		Ended: e.ended, Replayed: e.replayed, Fence: e.fence, Order: e.order, Took: e.took.Milliseconds(),
	}
	switch {
	case !e.ended:
		v.Outcome, v.Tone = "outcome.busy", "busy"
	case e.status == 0:
		v.Outcome, v.Tone = "outcome.cut", "bad"
	case e.replayed:
		v.Outcome, v.Tone = "outcome.replayed", "same"
	case e.status < 400 && e.kind == ofOrder:
		v.Outcome, v.Tone = "outcome.made", "good"
	case e.status < 400:
		v.Outcome, v.Tone = "outcome.ok", "calm"
	case e.status == http.StatusUnprocessableEntity && e.code == "":
		v.Outcome, v.Tone = "outcome.mistake", "warn"
	default:
		v.Outcome, v.Tone = "outcome.refused", "warn"
	}
	if e.status != 0 {
		v.Status = strconv.Itoa(e.status)
	}
	return v
}

// colorOf returns the class that a token's letter is shown in.
func colorOf(letter string) string {
	if letter == "" {
		return ""
	}
	return "color-" + strconv.Itoa(int(letter[0]-'A')%6)
}

// home shows the page, with a token of its own.
func (d *Demo) home(w http.ResponseWriter, r *http.Request) {
	v := visitOf(r)
	if v.session == nil {
		http.Redirect(w, r, Path, http.StatusSeeOther)
		return
	}
	letter := v.session.letter(guard.Token(r.Context()))
	v.note(func(e *entry) { e.token = letter })
	var said *notice
	t := textsIn(languageOf(r, v.session.chosen()))
	if n, err := strconv.Atoi(r.URL.Query().Get("order")); err == nil && v.session.has(n) {
		said = &notice{OK: true, Text: t.T("made") + " " + strconv.Itoa(n)}
	}
	d.page(w, r, http.StatusOK, sent{items[0], "1"}, nil, said)
}

// has tells whether there is an order n.
func (s *session) has(n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return 1 <= n && n <= s.n.orders
}

// refused is what a guard shows to a browser without the script: the reason, what came of the
// first submission where there was one, and the form again.
func (d *Demo) refused(w http.ResponseWriter, r *http.Request, no *guard.Refused) {
	v := visitOf(r)
	if v.session == nil {
		http.Redirect(w, r, Path, http.StatusSeeOther)
		return
	}
	t := textsIn(languageOf(r, v.session.chosen()))
	said := &notice{Text: no.Detail, Code: string(no.Code), Next: string(no.Next), Ref: no.Ref}
	if text := t.T("code." + string(no.Code)); text != "code."+string(no.Code) {
		said.Text = text
	}
	if n := v.session.madeBy(no.Ref); n != 0 {
		said.Text += t.T("between") + strings.ReplaceAll(t.T("first.made"), "{order}", strconv.Itoa(n))
	}
	s, _, _ := read(r)
	if !slices.Contains(items, s.Item) {
		s = sent{items[0], "1"}
	}
	d.page(w, r, no.Status, s, nil, said)
}

// madeBy returns the order that the submission called ref has made, or 0. It is how a service
// looks for the business record.
func (s *session) madeBy(ref string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.entries {
		if ref != "" && e.ref == ref && e.order != 0 {
			return e.order
		}
	}
	return 0
}

// scriptWords are those that the page's script says.
var scriptWords = []string{
	"doing", "done", "wait.expiry", "made", "first.made", "failed", "double", "tabs", "mistake", "expire", "replay", "changed", "other", "crash.before", "crash.after",
	"held", "next",
}

func (d *Demo) page(w http.ResponseWriter, r *http.Request, status int, s sent, wrong map[string]string, said *notice) {
	v := visitOf(r)
	c := v.session.chosen()
	lang := languageOf(r, c)
	p := pageView{
		texts: textsIn(lang), Claims: d.opts.Claims, Field: guard.Field(r.Context()), Sent: s, Wrong: wrong, Items: items, Users: users[:],
		Choices: choicesView{string(c.protection), c.user, int(c.life.Seconds())}, Notice: said, ToScript: map[string]string{},
	}
	for _, life := range d.lives {
		p.Lives = append(p.Lives, int(life.Seconds()))
	}
	for _, key := range scriptWords {
		p.ToScript[key] = p.T(key)
	}
	p.Board = v.session.board(lang)
	d.render(w, status, "page", p)
}

func (d *Demo) render(w http.ResponseWriter, status int, name string, data any) {
	var b bytes.Buffer
	if err := templates.ExecuteTemplate(&b, name, data); err != nil {
		d.opts.Log.Error("demo: "+name, "error", err)
		http.Error(w, "this page is broken", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Add("Vary", "Accept-Language, Cookie")
	w.WriteHeader(status)
	w.Write(b.Bytes())
}
