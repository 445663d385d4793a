package browser_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.com/tokend/client"
	"example.com/tokend/client/guard"
	"example.com/tokend/httpapi/wire"
)

// However a form is sent twice, it is one request.
func TestOneRequest(t *testing.T) {
	t.Parallel()
	p := window(t, plain)
	for name, twice := range map[string]func(*page){
		"a double click": func(p *page) { p.click("#go", 2) },
		"two clicks":     func(p *page) { p.click("#go"); p.until(`events.some((e) => e.state === 'sending')`); p.click("#go") },
		"Enter twice":    func(p *page) { p.run(`document.querySelector('#item').focus()`); p.press("\r\r") },
		"requestSubmit":  func(p *page) { p.run(`const f = document.querySelector('#f'); f.requestSubmit(); f.requestSubmit()`) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t, simple, `{ endpoint: '/token' }`)
			release := make(chan struct{})
			s.mux.Handle("POST /orders", slowly(s.once(), release))
			s.visitIn(p)
			twice(p)
			p.until(`events.some((e) => e.state === 'held')`)
			within(t, "it is sent", func() bool { return len(s.sent("/orders")) == 1 })
			check(t, "busy", get[string](p, `document.querySelector('#f').getAttribute('aria-busy')`), "true")
			check(t, "the message", p.text("[role=status]"), "Sending …")
			if name != "requestSubmit" {
				check(t, "the button", get[string](p, `document.querySelector('#go').getAttribute('aria-disabled')`), "true")
			}
			close(release)
			p.settled(1)
			check(t, "the message", p.text("[role=status]"), "Sent.")
			check(t, "the button", get[bool](p, `document.querySelector('#go').hasAttribute('aria-disabled')`), false)
			check(t, "orders", s.orders(), 1)
			check(t, "requests", s.tokens("/orders"), "a")
			check(t, "tokens", len(s.sent("/token")), 1)
			check(t, "states", strings.Replace(p.states(), "held ", "", 1), "fetching sending outcome")

			p.click("#go") // another intention
			p.settled(2)
			check(t, "orders", s.orders(), 2)
			check(t, "requests", s.tokens("/orders"), "a b")
		})
	}
}

// What the script does about each answer, and what becomes of the token.
func TestNext(t *testing.T) {
	t.Parallel()
	p := window(t, plain)
	for _, tt := range []struct {
		name    string
		answers []said
		states  string
		tokens  string // of the requests, then of the ones of another press
		again   string
		says    string
		button  string
	}{
		{"stop: nothing was done", []said{refusal(403, wire.CodeWrongUser, client.NextStop), made}, "fetching sending outcome",
			"a", "a b", "The detail of wrong_user.", ""},
		{"stop: it was used", []said{refusal(409, wire.CodeTokenUsed, client.NextStop)}, "fetching sending outcome",
			"a", "a a", "The detail of token_used.", "Start anew"},
		{"verify", []said{refusal(409, wire.CodeClaimUnfinished, client.NextVerify)}, "fetching sending outcome",
			"a", "a a", "The detail of claim_unfinished.", "Start anew"},
		{"reissue", []said{refusal(410, wire.CodeTokenExpired, client.NextReissue), made}, "fetching sending reissued fetching sending outcome",
			"a b", "a b c", "Sent.", ""},
		{"reissue, once", []said{refusal(410, wire.CodeTokenExpired, client.NextReissue)}, "fetching sending reissued fetching sending outcome",
			"a b", "a b c d", "The page has expired and nothing was done. Please send it again.", ""},
		{"no token came", []said{refusal(400, wire.CodeTokenMissing, client.NextReissue), made}, "fetching sending reissued fetching sending outcome",
			"a b", "a b c", "Sent.", ""},
		{"wait", []said{refusal(409, wire.CodeRequestInProgress, client.NextWait).after("1"), made}, "fetching sending waiting sending outcome",
			"a a", "a a b", "Sent.", ""},
		{"retry", []said{refusal(503, wire.CodeStoreUnavailable, wire.NextRetry).after("1"), made}, "fetching sending waiting sending outcome",
			"a a", "a a b", "Sent.", ""},
		{"wait, too long", []said{refusal(503, wire.CodeStoreUnavailable, client.NextWait).after("3600")}, "fetching sending outcome",
			"a", "a a", "The detail of store_unavailable.", ""},
		{"fix", []said{refusal(422, wire.CodeIdempotencyKeyReused, client.NextFix)}, "fetching sending outcome",
			"a", "a a", "The detail of idempotency_key_reused.", "Start anew"},
		{"a mistake", []said{{status: 422, contentType: "application/json", body: `{}`}, made}, "fetching sending outcome",
			"a", "a a", "This was not accepted (422). You can mend it and send it again.", ""},
		{"a mistake of its own words", []said{{status: 422, contentType: wire.TypeProblem, body: `{"detail": "Too much tea."}`}, made}, "fetching sending outcome",
			"a", "a a", "Too much tea.", ""},
		{"a failure", []said{{status: 500, contentType: "text/plain", body: "oh"}, made}, "fetching sending outcome",
			"a", "a a", "Something went wrong on the other side (500).", ""},
		{"no answer", []said{nobody, made}, "fetching sending lost sending outcome",
			"a a", "a a b", "Sent.", ""},
		{"a gateway has no answer", []said{{status: 502, contentType: "text/html", body: "<h1>Bad Gateway</h1>"}, made}, "fetching sending lost sending outcome",
			"a a", "a a b", "Sent.", ""},
		{"a replay", []said{{status: 201, contentType: "application/json", body: `{}`, header: map[string]string{"Idempotent-Replayed": "true"}}}, "fetching sending outcome",
			"a", "a b", "This was sent before. Here is the answer that it got.", ""},
		{"a code that means nothing", []said{{status: 409, contentType: wire.TypeProblem, body: `{"code": "constructor", "next": "stop", "detail": "Its own words."}`}, made}, "fetching sending outcome",
			"a", "a b", "Its own words.", ""},
		{"a code that is none", []said{{status: 409, contentType: wire.TypeProblem, body: `{"code": {"toString": 1}, "next": "stop", "detail": "Its own words."}`}, made}, "fetching sending outcome",
			"a", "a b", "Its own words.", ""},
		{"a code called as a state", []said{{status: 409, contentType: wire.TypeProblem, body: `{"code": "done", "next": "stop", "detail": "Its own words."}`}, made}, "fetching sending outcome",
			"a", "a b", "Its own words.", ""},
		{"no content", []said{{status: 200, contentType: "text/plain", body: ""}}, "fetching sending outcome",
			"a", "a b", "Sent.", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newShop(t, simple, `{ endpoint: '/token' }`)
			s.mux.Handle("POST /orders", s.says(tt.answers...))
			s.visitIn(p)
			p.click("#go")
			p.settled(1)
			check(t, "states", p.states(), tt.states)
			check(t, "requests", s.tokens("/orders"), tt.tokens)
			check(t, "the message", p.text("[role=status]"), tt.says)
			check(t, "the button", p.text(".tokend-status button"), tt.button)
			check(t, "what was fetched", len(s.sent("/token")), strings.Count(p.states(), "fetching"))
			p.run(`document.querySelector('#item').value = 'cake'`)
			p.click("#go")
			p.settled(2)
			check(t, "requests, with another press", s.tokens("/orders"), tt.again)
			if tt.button == "" {
				return
			}
			n := len(s.sent("/orders"))
			p.click(".tokend-status button")
			check(t, "the message", p.text("[role=status]"), "")
			p.click("#go")
			p.settled(3)
			all := s.sent("/orders")
			if all[n].token == all[0].token || all[n].token == "" {
				t.Error("started anew, it is sent with the same token")
			}
		})
	}
}

// The reply of the first is lost: Replay gives it to the second.
func TestLostReply(t *testing.T) {
	t.Parallel()
	p := window(t, plain)
	for name, tt := range map[string]struct {
		replay bool
		says   string
	}{
		"replay": {true, "This was sent before. Here is the answer that it got."},
		"once":   {false, "This form was sent before"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t, simple, `{ endpoint: '/token' }`)
			h := s.once()
			if tt.replay {
				h = s.guard.Replay(http.HandlerFunc(s.order))
			}
			lost := false
			s.mux.HandleFunc("POST /orders", func(w http.ResponseWriter, r *http.Request) {
				if !lost {
					lost = true
					h.ServeHTTP(&nowhere{header: http.Header{}}, r)
					cutOff(w)
				}
				h.ServeHTTP(w, r)
			})
			s.visitIn(p)
			p.click("#go")
			p.settled(1)
			check(t, "orders", s.orders(), 1)
			check(t, "requests", s.tokens("/orders"), "a a")
			check(t, "states", p.states(), "fetching sending lost sending outcome")
			p.shows("[role=status]", tt.says)
		})
	}
}

// nowhere is where an answer is lost.
type nowhere struct{ header http.Header }

func (n *nowhere) Header() http.Header         { return n.header }
func (n *nowhere) Write(b []byte) (int, error) { return len(b), nil }
func (n *nowhere) WriteHeader(int)             {}

// What was edited after it was sent is another request: a person has to say so.
func TestFixAfterEdit(t *testing.T) {
	t.Parallel()
	s := newShop(t, simple, `{ endpoint: '/token', patience: 0 }`)
	replay := s.guard.Replay(http.HandlerFunc(s.order))
	first := true
	s.mux.HandleFunc("POST /orders", func(w http.ResponseWriter, r *http.Request) {
		if first {
			first = false
			replay.ServeHTTP(&nowhere{header: http.Header{}}, r)
			answer(w, 504, "text/html", "<h1>Gateway Timeout</h1>")
			return
		}
		replay.ServeHTTP(w, r)
	})
	p := s.visit(plain)
	p.click("#go")
	p.settled(1)
	p.shows("[role=status]", "There is no answer. You can send it again: it counts once.")
	p.fillIn("#item", "cake")
	p.click("#go")
	p.settled(2)
	p.shows("[role=status]", "was used before to send something else")
	check(t, "requests", s.tokens("/orders"), "a a")
	check(t, "tokens", len(s.sent("/token")), 1)
	check(t, "orders", s.orders(), 1)
	p.click(".tokend-status button")
	p.click("#go")
	p.settled(3)
	check(t, "requests", s.tokens("/orders"), "a a b")
	check(t, "orders", s.orders(), 2)
}

// A page that lies for too long, and one whose user has changed.
func TestRefusedByGuard(t *testing.T) {
	t.Parallel()
	s := newShop(t, strings.Replace(simple, "<input", "{{field}}<input", 1), `{ endpoint: '/token' }`, guard.IssueWith(client.TTL(time.Second)))
	s.mux.Handle("POST /orders", s.once())
	s.mux.Handle("POST /token/long", s.guard.IssueHandler(guard.IssueWith(client.TTL(time.Hour))))
	s.opts = `{ endpoint: '/token/long' }`
	p := s.visit(plain)
	token := get[string](p, `document.querySelector('[name=tokend_token]').value`)
	c := dev.client(t)
	within(t, "it has expired", func() bool {
		st, err := c.Purpose("order.create").Status(t.Context(), "alice", token)
		return err == nil && st.State == client.StateExpired
	})
	p.click("#go")
	p.settled(1)
	check(t, "states", p.states(), "sending reissued fetching sending outcome")
	check(t, "orders", s.orders(), 1)
	check(t, "requests", s.tokens("/orders"), "a b")

	s.mu.Lock()
	s.opts = `{ endpoint: '/token/long', ahead: true }`
	s.form = simple
	s.mu.Unlock()
	s.open(p)
	p.until(`document.querySelector('[name=tokend_token]')?.value`)
	p.run(`document.cookie = 'user=bob'`)
	p.click("#go")
	p.settled(1)
	p.shows("[role=status]", "another user")
	check(t, "orders", s.orders(), 1)
	p.click("#go")
	p.settled(2)
	check(t, "orders", s.orders(), 2)
}

// The answer is given as a form's is.
func TestRedirect(t *testing.T) {
	t.Parallel()
	s := newShop(t, simple, `{ endpoint: '/token' }`)
	s.mux.Handle("POST /orders", s.guard.Once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if guard.Consume(r.Context()) == nil {
			http.Redirect(w, r, "/made", http.StatusSeeOther)
		}
	})))
	p := s.visit(plain)
	p.click("#go")
	p.until(`location.pathname === '/made'`)
	p.shows("h1", "Made")

	// Back: another submission, with a token of its own.
	p.later(`history.back()`)
	p.until(`location.pathname === '/' && window.protection && document.querySelector('#f').getAttribute('aria-busy') !== 'true'`)
	p.click("#go")
	p.until(`location.pathname === '/made'`)
	check(t, "requests", s.tokens("/orders"), "a b")
}

func TestHTMLAnswer(t *testing.T) {
	t.Parallel()
	form := `<form id="f" method="post" action="/sub/orders">{{field}}<input id="item" name="item" value="%s"%s><button id="go">Order</button></form>`
	fresh := strings.NewReplacer("%s", "")
	s := newShop(t, fresh.Replace(form), `{ endpoint: '/token' }`)
	s.mux.Handle("POST /sub/orders", s.guard.Once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		item := r.PostFormValue("item")
		if item == "" {
			again := strings.Replace(strings.Replace(form, "%s", "", 1), "%s", ` aria-invalid="true"`, 1)
			again = strings.Replace(again, "{{field}}", string(guard.Field(r.Context())), 1)
			show(w, 422, `<h1>Mend it</h1><noscript><p id="no">no script</p></noscript>`+again+`<a href="there">there</a>`)
			return
		}
		if guard.Consume(r.Context()) == nil {
			show(w, 200, "<h1>Made "+item+"</h1>")
		}
	})))
	p := s.visit(plain)
	p.click("#go")
	p.shows("h1", "Mend it")
	p.until(`events.some((e) => e.type === 'shown')`)
	check(t, "address", get[string](p, `location.pathname`), "/")
	check(t, "a link in it", get[string](p, `document.querySelector('a').href`), s.url+"/sub/there")
	check(t, "focus", get[string](p, `document.activeElement.id`), "item")
	check(t, "noscript", get[int](p, `document.querySelectorAll('#no').length`), 0)
	p.fillIn("#item", "cake")
	p.click("#go", 2)
	p.shows("h1", "Made cake")
	check(t, "requests", s.tokens("/sub/orders"), "a a")
	check(t, "tokens", len(s.sent("/token")), 0)
}

// What another origin answers is no part of the page, and is not told who its user is.
func TestAnotherOrigin(t *testing.T) {
	t.Parallel()
	p := window(t, plain)
	for name, form := range map[string]string{
		"action":     `<form id="f" method="post" action="{{other}}/orders"><input name="item" value="tea"><button id="go">Order</button></form>`,
		"formaction": `<form id="f" method="post" action="/orders"><input name="item" value="tea"><button id="go" formaction="{{other}}/orders">Order</button></form>`,
	} {
		t.Run(name, func(t *testing.T) {
			other := newShop(t, simple, `{}`)
			other.letIn(p)
			lets := map[string]string{"Access-Control-Allow-Origin": "*", "Access-Control-Allow-Headers": "*"}
			evil := `<base href="/"><h1>Mine</h1><img src="data:," onerror="window.ran = true"><body onload="window.ran = true">` + simple
			other.mux.Handle("OPTIONS /", other.says(said{status: 200, contentType: "text/plain", header: lets}))
			other.mux.Handle("POST /orders", other.says(said{status: 200, contentType: "text/html", body: evil, header: lets}))
			s := newShop(t, strings.ReplaceAll(form, "{{other}}", other.url), `{ endpoint: '/token', ahead: true, authorization: () => 'the-users-own' }`)
			s.visitIn(p)
			for n := range 2 {
				p.click("#go")
				p.settled(n + 1)
				check(t, "the page", p.text("h1"), "Order")
				check(t, "the message", p.text("[role=status]"), "Sent.")
			}
			check(t, "requests", other.tokens("/orders"), "a b")
			check(t, "its scripts ran", get[bool](p, `Boolean(window.ran)`), false)
			check(t, "the other was asked for tokens", len(other.sent("/token")), 0)
			for _, g := range other.sent("/orders") {
				check(t, "the form's authorization", g.auth, "")
			}
		})
	}
}

// A relative endpoint is the page's, wherever what is shown later comes from, or says it does.
func TestRelativeEndpoint(t *testing.T) {
	t.Parallel()
	other := newShop(t, simple, `{}`)
	p := window(t, plain)
	other.letIn(p)
	for name, base := range map[string]string{"none": "", "of another origin": `<base href="` + other.url + `/">`} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t, strings.Replace(simple, "/orders", "/sub/orders", 1), `{ endpoint: 'token', authorization: 'the-users-own' }`)
			s.mux.HandleFunc("POST /sub/orders", func(w http.ResponseWriter, r *http.Request) {
				show(w, 200, base+`<h1>Made</h1><img src="data:," onerror="window.ran = true">`+strings.Replace(simple, "/orders", s.url+"/sub/orders", 1))
			})
			s.visitIn(p)
			for n := range 3 {
				p.click("#go")
				within(t, "it is sent", func() bool { return len(s.sent("/sub/orders")) == n+1 })
				p.shows("h1", "Made")
				p.until(`events.filter((e) => e.type === 'shown').length === ` + strconv.Itoa(n+1))
			}
			check(t, "requests", s.tokens("/sub/orders"), "a b c")
			check(t, "tokens", len(s.sent("/token")), 3)
			check(t, "asked elsewhere", len(s.sent("/sub/token"))+len(other.sent("/token")), 0)
			check(t, "its scripts ran", get[bool](p, `Boolean(window.ran)`), false)
		})
	}
}

// An answer's own policy holds for it where it is shown.
func TestPolicyOfAnswer(t *testing.T) {
	t.Parallel()
	p := window(t, plain)
	p.expect(`Content Security Policy`) // what it blocks is told on the console
	form := `<h1>%s</h1><img src="/pixel"><a id="link" href="javascript:void(window.ran = true)">link</a>` + strings.Replace(simple, "/orders", "/sub/orders", 1)
	for name, tt := range map[string]struct {
		page, answer string // their policies
		shown        bool
		pixels       bool
	}{
		"none":                    {"", "", true, true},
		"strict":                  {"", "default-src 'none'; base-uri 'none'; frame-ancestors 'none'; report-uri /report; form-action 'self'", true, false},
		"the second of two":       {"", "img-src 'self', IMG-SRC 'none'; script-src 'self'; connect-src 'none'", true, false},
		"sandbox":                 {"", "default-src 'self'; sandbox", false, false},
		"sandboxed by the second": {"", "img-src 'self', Sandbox allow-forms", false, false},
		"one on all pages": {"default-src 'none'; script-src 'self' 'unsafe-inline'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'self'",
			"default-src 'none'; script-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'self'", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t, strings.Replace(simple, "/orders", "/sub/orders", 1), `{ endpoint: '/token' }`)
			policy := func(w http.ResponseWriter, policy string) {
				if policy != "" {
					w.Header().Set("Content-Security-Policy", policy)
				}
			}
			s.mux.HandleFunc("GET /strict", func(w http.ResponseWriter, r *http.Request) {
				policy(w, tt.page)
				s.page(w, r)
			})
			s.mux.HandleFunc("GET /pixel", func(w http.ResponseWriter, r *http.Request) {
				answer(w, 200, "image/svg+xml", `<svg xmlns="http://www.w3.org/2000/svg"/>`)
			})
			s.mux.HandleFunc("POST /sub/orders", func(w http.ResponseWriter, r *http.Request) {
				policy(w, tt.answer)
				show(w, 200, strings.ReplaceAll(form, "%s", "Made"))
			})
			p.on(t)
			s.letIn(p)
			p.open(s.url + "/strict")
			p.until(`window.protection`)
			for n := range 2 {
				p.click("#go")
				p.until(`events.filter((e) => e.type === 'outcome').length === ` + strconv.Itoa(n+1))
				if !tt.shown {
					p.settled(n + 1)
					check(t, "the page", p.text("h1"), "Order")
					check(t, "the message", p.text("[role=status]"), "Sent.")
					continue
				}
				p.until(`events.filter((e) => e.type === 'shown').length === ` + strconv.Itoa(n+1))
				check(t, "the page", p.text("h1"), "Made")
				if tt.answer != "" {
					p.click("#link")
				}
			}
			check(t, "requests", s.tokens("/sub/orders"), "a b")
			if tt.pixels {
				within(t, "the picture is fetched", func() bool { return len(s.sent("/pixel")) > 0 })
			} else {
				check(t, "pictures", len(s.sent("/pixel")), 0)
			}
			check(t, "its scripts ran", get[bool](p, `Boolean(window.ran)`), false)
			check(t, "reports", len(s.sent("/report")), 0)
		})
	}
}

// What a form says holds as it would without the script.
func TestForms(t *testing.T) {
	t.Parallel()
	p := window(t, plain)
	for _, tt := range []struct {
		name, form, opts string
		act              func(*page)
		path, mediaType  string
		fields           string
	}{
		{"urlencoded", `<form id="f" method="post" action="/orders"><input name="a" value="1 &amp; ü"><textarea name="b">x
y</textarea><input type="checkbox" name="c" value="on"><select name="d" multiple><option selected>p<option selected>q</select><button id="go">Go</button></form>`,
			`{ endpoint: '/token' }`, nil, "/orders", "application/x-www-form-urlencoded", "TOKEN= a=1 & ü b=x\r\ny d=p d=q"},
		{"the button's name", `<form id="f" method="post" action="/orders"><button name="do" value="buy" id="go">Go</button><button name="do" value="other">No</button></form>`,
			`{ endpoint: '/token' }`, nil, "/orders", "application/x-www-form-urlencoded", "TOKEN= do=buy"},
		{"the button's formaction", `<form id="f" method="post" action="/orders"><input name="a" value="1"><button formaction="/drafts" id="go">Go</button></form>`,
			`{ endpoint: '/token' }`, nil, "/drafts", "application/x-www-form-urlencoded", "TOKEN= a=1"},
		{"the button's formmethod and formenctype", `<form id="f" method="get" action="/orders"><input name="a" value="1"><button formmethod="post" formenctype="multipart/form-data" id="go">Go</button></form>`,
			`{ endpoint: '/token' }`, nil, "/orders", "multipart/form-data", "TOKEN= a=1"},
		{"a button outside", `<form id="f" method="post" action="/orders"><input name="a" value="1"></form><button form="f" name="do" value="it" id="go">Go</button>`,
			`{ endpoint: '/token' }`, nil, "/orders", "application/x-www-form-urlencoded", "TOKEN= a=1 do=it"},
		{"fields called like a form's members", `<form id="f" method="post" action="/orders"><input name="action" value="1"><input name="method" value="2"><input name="submit" value="3"><button id="go">Go</button></form>`,
			`{ endpoint: '/token' }`, nil, "/orders", "application/x-www-form-urlencoded", "TOKEN= action=1 method=2 submit=3"},
		{"multipart with a file", `<form id="f" method="post" action="/orders" enctype="multipart/form-data"><input name="a" value="1"><input type="file" name="file" id="file"><button id="go">Go</button></form>`,
			`{ endpoint: '/token' }`, attach, "/orders", "multipart/form-data", "TOKEN= a=1 file=note.txt:hello"},
		{"JSON", `<form id="f" method="post" action="/orders"><input name="a" value="1"><input name="b" value="2"><input name="b" value="3"><button id="go">Go</button></form>`,
			`{ endpoint: '/token', json: true }`, nil, "/orders", "application/json", ""},
		{"JSON with a file", `<form id="f" method="post" action="/orders"><input type="file" name="file" id="file"><button id="go">Go</button></form>`,
			`{ endpoint: '/token', json: true }`, attach, "/orders", "multipart/form-data", "TOKEN= file=note.txt:hello"},
		{"the header", `<form id="f" method="post" action="/orders">{{field}}<input name="a" value="1"><button id="go">Go</button></form>`,
			`{ endpoint: '/token', header: true }`, nil, "/orders", "application/x-www-form-urlencoded", "a=1"},
		{"without an endpoint", `<form id="f" method="post" action="/orders">{{field}}<input name="a" value="1"><button id="go">Go</button></form>`,
			`{}`, nil, "/orders", "application/x-www-form-urlencoded", "TOKEN= a=1"},
		{"novalidate", `<form id="f" method="post" action="/orders" novalidate><input name="a" required><button id="go">Go</button></form>`,
			`{ endpoint: '/token' }`, nil, "/orders", "application/x-www-form-urlencoded", "TOKEN= a="},
		{"the page's own entry", `<form id="f" method="post" action="/orders"><button id="go">Go</button></form><script>document.querySelector('#f').addEventListener('formdata', (e) => e.formData.append('more', 'yes'))</script>`,
			`{ endpoint: '/token' }`, nil, "/orders", "application/x-www-form-urlencoded", "TOKEN= more=yes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newShop(t, tt.form, tt.opts)
			s.mux.Handle("POST "+tt.path, s.once())
			s.visitIn(p)
			if tt.act != nil {
				tt.act(p)
			}
			p.click("#go")
			p.settled(1)
			all := s.sent(tt.path)
			if len(all) != 1 || !strings.HasPrefix(all[0].token, "ott_") || all[0].mediaType != tt.mediaType || strings.Join(all[0].fields, " ") != tt.fields {
				t.Fatalf("sent: %+v", all)
			}
			check(t, "orders", s.orders(), 1)
			if tt.name == "JSON" && !strings.HasSuffix(all[0].raw, `,"a":"1","b":["2","3"]}`) {
				t.Errorf("sent: %s", all[0].raw)
			}
		})
	}
}

// attach attaches a file.
func attach(p *page) {
	p.run(`const files = new DataTransfer(); files.items.add(new File(['hello'], 'note.txt')); document.querySelector('#file').files = files.files`)
}

// What is no submission of the form is left alone.
func TestLeftAlone(t *testing.T) {
	t.Parallel()
	s := newShop(t, `<form id="f" method="post" action="/orders">{{field}}<input id="item" name="item" required><button id="go">Order</button><button id="find" formmethod="get" formaction="/made" formnovalidate>Find</button></form>`,
		`{ endpoint: '/token' }`)
	s.mux.Handle("POST /orders", s.once())
	p := s.visit(plain)
	p.click("#go") // what is required is missing
	check(t, "states", p.states(), "")
	p.leaves("#find")
	p.shows("h1", "Made")
	if q := s.sent("/made"); len(q) != 1 || q[0].query != "item=" {
		t.Errorf("a form that is GET was sent as %+v", q)
	}

	s.open(p)
	p.run(`window.stopIt = (e) => e.preventDefault(); document.addEventListener('submit', window.stopIt, true)`)
	p.fillIn("#item", "tea")
	p.click("#go") // the page says no
	check(t, "states", p.states(), "")
	p.run(`document.removeEventListener('submit', window.stopIt, true)`)
	p.run(`protection.stop()`)
	p.leaves("#go") // as if there were no script
	check(t, "orders", s.orders(), 1)
	check(t, "tokens", len(s.sent("/token")), 0)
}

// A token ahead of the submission, and always one that is good.
func TestAhead(t *testing.T) {
	t.Parallel()
	s := newShop(t, simple, `{ endpoint: '/token', ahead: true }`, guard.IssueWith(client.TTL(4*time.Second)))
	s.mux.Handle("POST /orders", s.once())
	p := s.visit(plain)
	p.until(`document.querySelector('[name=tokend_token]')?.value.startsWith('ott_')`)
	first := get[string](p, `document.querySelector('[name=tokend_token]').value`)
	p.until(`document.querySelector('[name=tokend_token]').value !== ` + quote(first)) // before it expires
	p.click("#go")
	p.settled(1)
	check(t, "orders", s.orders(), 1)

	// One that lasts is what is sent, and then there is another.
	s.mux.Handle("POST /token/long", s.guard.IssueHandler(guard.IssueWith(client.TTL(time.Hour))))
	s.mu.Lock()
	s.opts = `{ endpoint: '/token/long', ahead: true }`
	s.mu.Unlock()
	s.open(p)
	p.until(`document.querySelector('[name=tokend_token]')?.value.startsWith('ott_')`)
	first = get[string](p, `document.querySelector('[name=tokend_token]').value`)
	p.click("#go")
	p.settled(1)
	check(t, "states", p.states(), "sending outcome")
	check(t, "what was sent", s.sent("/orders")[len(s.sent("/orders"))-1].token, first)
	p.until(`!['', ` + quote(first) + `].includes(document.querySelector('[name=tokend_token]').value)`)
}

// The endpoint can be tokend itself, on another origin, asked as the user.
func TestTokendAsEndpoint(t *testing.T) {
	opts := `{
		endpoint: '` + dev.url + wire.PathTokens + `', purpose: 'order.create',
		authorization: async (why) => { (window.whys ??= []).push(why.refused); return %; },
	}`
	s := newShopLetIn(t, simple, strings.Replace(opts, "%", "why.refused ? jwt : 'stale'", 1))
	s.mux.Handle("POST /orders", s.once())
	p := s.visit(plain)
	p.click("#go")
	p.settled(1)
	check(t, "orders", s.orders(), 1)
	check(t, "how it was asked", get[string](p, `whys.join()`), "false,true")
	check(t, "the form's authorization", s.sent("/orders")[0].auth, "") // another origin

	s.opts = strings.Replace(opts, "%", "'stale'", 1)
	s.open(p)
	p.click("#go")
	p.settled(1)
	check(t, "how it was asked", get[string](p, `whys.join()`), "false,true")
	check(t, "orders", s.orders(), 1)
	check(t, "the problem", get[string](p, `events.at(-1).problem.code`), "unauthenticated")

	s.opts = `{ endpoint: '` + dev.url + wire.PathTokens + `', purpose: 'order.create', authorization: 'Bearer ' + jwt }`
	s.open(p)
	p.run(`const { protect } = await import('` + dev.url + wire.PathScript + `'); window.protection = protect(document.querySelector('#f'), ` +
		`{ endpoint: '` + dev.url + wire.PathTokens + `', purpose: 'order.create', authorization: ` + quote(dev.userJWT) + ` })`)
	p.click("#go")
	p.settled(1)
	check(t, "orders", s.orders(), 2)
}

// The form's own service may want to be told anew who is calling, too.
func TestUnauthenticated(t *testing.T) {
	t.Parallel()
	p := window(t, plain)
	for name, tt := range map[string]struct {
		answers []said
		tokens  string
		says    string
	}{
		"once more": {[]said{refusal(401, wire.CodeUnauthenticated, client.NextFix), made}, "a a", "Sent."},
		"and stops": {[]said{refusal(401, wire.CodeUnauthenticated, client.NextFix)}, "a a", "The detail of unauthenticated."},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t, simple, `{ endpoint: '/token', authorization: ({ refused }) => refused ? 'new' : 'old' }`)
			s.mux.Handle("POST /orders", s.says(tt.answers...))
			s.visitIn(p)
			p.click("#go")
			p.settled(1)
			check(t, "requests", s.tokens("/orders"), tt.tokens)
			check(t, "the message", p.text("[role=status]"), tt.says)
			all := s.sent("/orders")
			check(t, "authorization", all[0].auth+", "+all[1].auth, "Bearer old, Bearer new")
		})
	}
}

// The endpoint's refusals are told, and what can be waited for is.
func TestEndpointRefuses(t *testing.T) {
	t.Parallel()
	s := newShop(t, simple, `{ endpoint: '/endpoint' }`)
	answers := []said{
		refusal(503, wire.CodeStoreUnavailable, wire.NextRetry).after("1"),
		refusal(429, wire.CodeRateLimited, client.NextWait).after("1"),
		nobody,
		{status: 404, contentType: "text/html", body: "<h1>Nothing here</h1>"},
		refusal(403, wire.CodeForbidden, client.NextFix),
		{status: 200, contentType: "text/html", body: "<h1>Log in</h1>"},
	}
	s.mux.Handle("POST /endpoint", s.says(answers...))
	p := s.visit(plain)
	p.click("#go")
	p.settled(1)
	check(t, "the message", p.text("[role=status]"), "This was not accepted (404). You can mend it and send it again.")
	check(t, "states", p.states(), "fetching waiting waiting lost outcome")
	check(t, "no answer of the form's", get[bool](p, `events.at(-1).answered`), false)
	p.click("#go")
	p.settled(2)
	check(t, "the message", p.text("[role=status]"), "The detail of forbidden.")
	p.click("#go")
	p.settled(3)
	check(t, "the message", p.text("[role=status]"), "Something went wrong on the other side (200).")
	check(t, "the page", p.text("h1"), "Order")
	check(t, "submissions", len(s.sent("/orders")), 0)
}

// Without an answer in time the same is sent again.
func TestTimeout(t *testing.T) {
	t.Parallel()
	s := newShop(t, simple, `{ endpoint: '/token', timeout: 5 }`)
	h := s.once()
	first := true
	s.mux.HandleFunc("POST /orders", func(w http.ResponseWriter, r *http.Request) {
		if first {
			first = false
			select {
			case <-r.Context().Done():
			case <-time.After(patience):
			}
			return
		}
		h.ServeHTTP(w, r)
	})
	p := s.visit(plain)
	p.click("#go")
	p.until(`events.some((e) => e.state === 'lost')`)
	p.until(`events.some((e) => e.type === 'outcome')`)
	if tokens := s.tokens("/orders"); !strings.HasPrefix(tokens, "a a") || strings.Contains(tokens, "b") {
		t.Errorf("requests: %s", tokens)
	}
	check(t, "orders", s.orders(), 1)
}

// Back, out of the browser's memory or anew, and a second tab: each has a token of its own.
func TestFreshTokens(t *testing.T) {
	t.Parallel()
	s := newShop(t, strings.Replace(simple, "<input", `<input type="hidden" name="tokend_token" value="ott_spent"><input`, 1), `{ endpoint: '/token', ahead: true }`)
	s.mux.Handle("POST /orders", s.once())
	p := window(t, plain)
	s.letIn(p)
	p.open(s.url + "/cacheable")
	p.until(`window.protection`)
	p.open(s.url + "/made")
	p.later(`history.back()`)
	p.until(`location.pathname === '/cacheable' && window.protection`)
	p.until(`!['ott_spent', ''].includes(document.querySelector('[name=tokend_token]').value)`)
	p.click("#go")
	p.settled(1)
	check(t, "orders", s.orders(), 1)

	// As the page comes out of the browser's memory, in the middle of a submission.
	token := func() string { return get[string](p, `document.querySelector('[name=tokend_token]').value`) }
	p.until(`document.querySelector('[name=tokend_token]').value !== ''`)
	old := token()
	p.run(`dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true }))`)
	p.until(`!['', ` + quote(old) + `].includes(document.querySelector('[name=tokend_token]').value)`)
	if busy := get[string](p, `document.querySelector('#f').getAttribute('aria-busy')`); busy == "true" {
		t.Error("the form that came back is busy")
	}
	p.click("#go")
	p.settled(2)
	check(t, "orders", s.orders(), 2)

	second := p.sibling(plain)
	s.letIn(second)
	s.mu.Lock()
	s.form = simple
	s.mu.Unlock()
	s.open(second)
	second.until(`document.querySelector('[name=tokend_token]')?.value`)
	p.until(`document.querySelector('[name=tokend_token]').value`)
	if token() == get[string](second, `document.querySelector('[name=tokend_token]').value`) {
		t.Error("two tabs have one token")
	}
	p.click("#go")
	p.settled(3)
	second.click("#go")
	second.settled(1)
	check(t, "orders", s.orders(), 4)
}

// A page that comes back in the middle of a submission forgets it.
func TestCameBackBusy(t *testing.T) {
	t.Parallel()
	s := newShop(t, simple, `{ endpoint: '/token' }`)
	release := make(chan struct{})
	s.mux.Handle("POST /orders", slowly(s.once(), release))
	p := s.visit(plain)
	p.click("#go")
	within(t, "it is sent", func() bool { return len(s.sent("/orders")) == 1 })
	p.run(`dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true }))`)
	check(t, "busy", get[string](p, `document.querySelector('#f').getAttribute('aria-busy')`), "false")
	check(t, "the message", p.text("[role=status]"), "")
	close(release)
	p.click("#go")
	p.settled(1)
	if all := s.sent("/orders"); len(all) != 2 || all[0].token == all[1].token {
		t.Errorf("requests: %s", s.tokens("/orders"))
	}
}

// Without an endpoint the page is good for one submission.
func TestWithoutEndpoint(t *testing.T) {
	t.Parallel()
	s := newShop(t, strings.Replace(simple, "<input", "{{field}}<input", 1), `{}`)
	s.mux.Handle("POST /orders", s.once())
	p := s.visit(plain)
	p.click("#go")
	p.settled(1)
	check(t, "the message", p.text("[role=status]"), "Sent.")
	p.click("#go")
	p.settled(2)
	check(t, "the message", p.text("[role=status]"), "This page was good for one submission. Please load it again.")
	p.leaves(".tokend-status button")
	p.until(`window.protection`)
	p.click("#go")
	p.settled(1)
	check(t, "requests", s.tokens("/orders"), "a b")

	p.run(`window.left = true`)
	p.later(`dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true }))`) // loads itself
	p.until(`!window.left && window.protection`)
	p.run(`window.left = true`)
	p.later(`protection.reset()`)
	p.until(`!window.left && window.protection`)
	if text := get[string](p, `(() => { try { protect(document.createElement('form')); return ''; } catch (e) { return e.name; } })()`); text != "TypeError" {
		t.Errorf("neither endpoint nor field: %q", text)
	}
	if text := get[string](p, `(() => { try { protect(null, { endpoint: '/token' }); return ''; } catch (e) { return e.name; } })()`); text != "TypeError" {
		t.Errorf("no form: %q", text)
	}
}

// A form that is protected anew, with other options say, is still the same intention.
func TestProtectTwice(t *testing.T) {
	t.Parallel()
	s := newShop(t, simple, `{ endpoint: '/token' }`)
	s.mux.Handle("POST /orders", s.says(refusal(409, wire.CodeClaimUnfinished, client.NextVerify)))
	p := s.visit(plain)
	p.click("#go")
	p.settled(1)
	p.run(`window.protection = protect(document.querySelector('#f'), { endpoint: '/token', lang: 'zh' })`)
	p.click("#go")
	p.settled(2)
	check(t, "the message", p.text("[role=status]"), "第一次提交中途中断：请先查看它做了什么，再决定是否重新开始。")
	check(t, "places for messages", get[int](p, `document.querySelectorAll('[role=status]').length`), 1)
	check(t, "requests", s.tokens("/orders"), "a a")
	p.run(`protection.reset()`)
	p.click("#go")
	p.settled(3)
	check(t, "requests", s.tokens("/orders"), "a a b")
}

// A reset is for the next submission: the one under way may have been carried out, and is not
// sent with another token.
func TestResetUnderWay(t *testing.T) {
	t.Parallel()
	p := window(t, plain)
	inProgress := refusal(409, wire.CodeRequestInProgress, client.NextWait).after("1")
	unsure := "There is no answer. Please look what was done before you send it again."
	for _, tt := range []struct {
		name, state, opts string
		answers           []said
		says              string
		first, then       string // the requests' tokens
	}{
		{"fetching", "fetching", `{ endpoint: '/token' }`, []said{made}, "Sent.", "a", "a b"},
		{"sending", "sending", `{ endpoint: '/token' }`, []said{nobody, made}, "Sent.", "a a", "a a b"},
		{"lost", "lost", `{ endpoint: '/token' }`, []said{nobody, made}, "Sent.", "a a", "a a b"},
		{"lost, with a token ahead", "lost", `{ endpoint: '/token', ahead: true }`, []said{nobody, made}, "Sent.", "a a", "a a b"},
		{"lost, in the header", "lost", `{ endpoint: '/token', header: true }`, []said{nobody, made}, "Sent.", "a a", "a a b"},
		{"waiting", "waiting", `{ endpoint: '/token' }`, []said{inProgress, made}, "Sent.", "a a", "a a b"},
		{"reissued", "reissued", `{ endpoint: '/token' }`, []said{refusal(410, wire.CodeTokenExpired, client.NextReissue), nobody, made}, "Sent.", "a b b", "a b b c"},
		{"never answered", "sending", `{ endpoint: '/token', patience: 0 }`, []said{nobody, made}, unsure, "a", "a b"},
		{"waiting for too long", "sending", `{ endpoint: '/token', patience: 0 }`, []said{inProgress, made}, unsure, "a", "a b"},
		{"a mistake", "sending", `{ endpoint: '/token' }`, []said{{status: 422, contentType: "application/json", body: `{}`}, made}, "This was not accepted (422). You can mend it and send it again.", "a", "a b"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newShop(t, simple, tt.opts)
			s.mux.Handle("POST /orders", s.says(tt.answers...))
			s.visitIn(p)
			p.run(`document.addEventListener('tokend:progress', (e) => { if (e.detail.state === '` + tt.state + `' && !window.once) { window.once = true; protection.reset(); } })`)
			p.click("#go")
			p.settled(1)
			check(t, "reset", get[bool](p, `Boolean(window.once)`), true)
			check(t, "requests", s.tokens("/orders"), tt.first)
			check(t, "the message", p.text("[role=status]"), tt.says)
			p.click("#go")
			p.settled(2)
			check(t, "requests, with another press", s.tokens("/orders"), tt.then)
		})
	}

	t.Run("without an endpoint", func(t *testing.T) {
		s := newShop(t, strings.Replace(simple, "<input", "{{field}}<input", 1), `{}`)
		s.mux.Handle("POST /orders", s.says(nobody, made))
		s.visitIn(p)
		p.run(`window.stays = true; document.addEventListener('tokend:progress', (e) => { if (e.detail.state === 'lost') { protection.reset(); } })`)
		p.click("#go")
		p.settled(1)
		check(t, "the page is the same", get[bool](p, `Boolean(window.stays)`), true)
		check(t, "requests", s.tokens("/orders"), "a a")
		check(t, "the message", p.text("[role=status]"), "Sent.")
		p.leaves(".tokend-status button")
		p.until(`window.protection`)
		p.click("#go")
		p.settled(1)
		check(t, "requests", s.tokens("/orders"), "a a b")
	})
}

// A page can do the showing itself.
func TestEvents(t *testing.T) {
	t.Parallel()
	s := newShop(t, simple, `{ endpoint: '/token', status: document.querySelector('h1'), messages: { done: 'Thanks!', wrong_user: 'Not yours.' } }`)
	s.mux.Handle("POST /orders", s.says(made, refusal(403, wire.CodeWrongUser, client.NextStop), said{status: 200, contentType: "text/html", body: "<h1>Page</h1>"}))
	p := s.visit(plain)
	p.click("#go")
	p.settled(1)
	check(t, "the page's own words, where it wants them", p.text("h1 [role=status]"), "Thanks!")
	p.click("#go")
	p.settled(2)
	check(t, "the page's own words for a code", p.text("[role=status]"), "Not yours.")
	check(t, "the event", get[string](p, `JSON.stringify([events.at(-1).ok, events.at(-1).replayed, events.at(-1).problem.code, events.at(-1).message])`),
		`[false,false,"wrong_user","Not yours."]`)
	p.run(`window.prevents = 'tokend:outcome'`)
	p.run(`document.addEventListener('tokend:outcome', async (e) => { window.body = await e.detail.response.text(); })`)
	p.click("#go")
	p.settled(3)
	p.until(`window.body === '<h1>Page</h1>'`)
	check(t, "the page", p.text("h1"), "Order")
	check(t, "the message", p.text("[role=status]"), "")
}

func TestChinese(t *testing.T) {
	t.Parallel()
	s := newShop(t, simple, `{ endpoint: '/token' }`)
	s.lang = "zh-Hans"
	s.mux.Handle("POST /orders", s.says(made, refusal(409, wire.CodeTokenUsed, client.NextStop)))
	p := s.visit(plain)
	p.click("#go")
	p.settled(1)
	check(t, "the message", p.text("[role=status]"), "已提交。")
	p.click("#go")
	p.settled(2)
	check(t, "the message", p.text("[role=status]"), "此表单已经提交过：请查看第一次提交的结果。")
	check(t, "the button", p.text(".tokend-status button"), "重新开始")
}

// The plain build is the same, without modules.
func TestPlainBuild(t *testing.T) {
	t.Parallel()
	s := newShop(t, simple, `{ endpoint: '/token' }`)
	s.plain = true
	s.mux.Handle("POST /orders", s.once())
	p := s.visit(plain)
	check(t, "what it makes global", get[string](p, `Object.keys(tokend).join()`), "protect")
	p.run(atOnce("#go"))
	p.settled(1)
	check(t, "orders", s.orders(), 1)
}

// A browser without scripts sends the field that the service has rendered.
func TestWithoutScript(t *testing.T) {
	t.Parallel()
	s := newShop(t, strings.Replace(simple, "<input", "{{field}}<input", 1), `{ endpoint: '/token' }`)
	s.mux.Handle("POST /orders", s.guard.Replay(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.order(nowhereOf(), r)
		http.Redirect(w, r, "/made", http.StatusSeeOther)
	})))
	l := plain
	l.noScript = true
	p := window(t, l)
	s.letIn(p)
	p.open(s.url)
	p.leaves("#go", 2)
	p.until(`location.pathname === '/made'`)
	check(t, "orders", s.orders(), 1)
	for _, token := range strings.Fields(s.tokens("/orders")) {
		check(t, "token", token, "a")
	}
}

func nowhereOf() http.ResponseWriter { return &nowhere{header: http.Header{}} }
