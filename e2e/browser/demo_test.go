package browser_test

import (
	"fmt"
	"strings"
	"testing"
)

// openDemo opens the demo page and waits for its script.
func openDemo(t *testing.T, l look) *page {
	t.Helper()
	p := window(t, l)
	p.expect(refusals)
	p.open(dev.url + "/demo/")
	p.until(`document.documentElement.classList.contains('scripts') && document.querySelector('.tokend-status')`)
	return p
}

// protect chooses what stands before the form.
func (p *page) protect(how string) {
	p.t.Helper()
	p.choose(`#settings [value="`+how+`"]`, how)
	p.until(`document.body.dataset.protection === ` + quote(how))
}

// line returns the requests on the time line, the first one first: "step status code next".
func (p *page) line() []string {
	p.t.Helper()
	return get[[]string](p, `[...document.querySelectorAll('#line li[data-kind=order]')].reverse().map((li) => {
		const d = li.dataset;
		return [d.step, d.status, d.code, d.next, d.replayed === 'true' ? 'replayed' : '', d.takeover === 'true' ? 'takeover' : ''].filter(Boolean).join(' ');
	})`)
}

func (p *page) orders() int { return get[int](p, `document.querySelectorAll('#orders li').length`) }

func (p *page) duplicates() int {
	return get[int](p, `document.querySelectorAll('#orders li.double').length`)
}

// try presses a button of the demo and waits for what comes of it.
func (p *page) try(name string) {
	p.t.Helper()
	p.run(`window.busied = 0; new MutationObserver(() => window.busied++).observe(document.body, { attributeFilter: ['data-busy'] })`)
	p.click(`[data-try="` + name + `"]`)
	p.until(`window.busied && !document.body.hasAttribute('data-busy')`)
	p.until(`!document.querySelector('#line li[data-ended=false]')`)
}

func TestDemoButtons(t *testing.T) {
	type try struct {
		button             string
		orders, duplicates int
		line               string
	}
	for how, tries := range map[string][]try{
		"replay": {
			{"double", 1, 0, "click-1 201, click-2 201 replayed"},
			{"tabs", 2, 0, "tab-1 201, tab-2 201"},
			{"mistake", 1, 0, "mistake 422, mended 201"},
			{"expire", 1, 0, "expired 410 token_expired reissue, fresh 201"},
			{"replay", 1, 0, "201, replay 201 replayed"},
			{"changed", 1, 0, "201, changed 422 idempotency_key_reused fix"},
			{"other", 0, 0, "other 403 wrong_user stop"},
		},
		"once": {
			{"double", 1, 0, "click-1 201, click-2 409 token_used stop"},
			{"tabs", 2, 0, "tab-1 201, tab-2 201"},
			{"mistake", 1, 0, "mistake 422, mended 201"},
			{"expire", 1, 0, "expired 410 token_expired reissue, fresh 201"},
			{"replay", 1, 0, "201, replay 409 token_used stop"},
			{"changed", 1, 0, "201, changed 409 token_used stop"},
			{"other", 0, 0, "other 403 wrong_user stop"},
		},
		"off": {
			{"double", 2, 1, "click-1 201, click-2 201"},
			{"tabs", 2, 0, "tab-1 201, tab-2 201"},
			{"mistake", 1, 0, "mistake 422, mended 201"},
			{"expire", 1, 0, "expired 201"},
			{"replay", 2, 1, "201, replay 201"},
			{"changed", 2, 1, "201, changed 201"},
			{"other", 1, 0, "other 201"},
		},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			p := openDemo(t, plain)
			p.protect(how)
			for _, tt := range tries {
				t.Run(tt.button, func(t *testing.T) {
					p.on(t)
					p.click("#clear button") // which has no last request either
					p.until(`!document.querySelector('#line') && document.querySelector('#say').textContent === ''`)
					p.try(tt.button)
					// Which one of two at the same time comes first is for the network to say.
					got := strings.Join(p.line(), ", ")
					if swap := strings.NewReplacer("-1 ", "-2 ", "-2 ", "-1 "); got != tt.line && swap.Replace(got) != tt.line {
						t.Errorf("the time line: %s, want %s", got, tt.line)
					}
					check(t, "orders", p.orders(), tt.orders)
					check(t, "duplicates", p.duplicates(), tt.duplicates)
					if want := fmt.Sprintf("requests %d, orders %d", strings.Count(tt.line, ",")+1, tt.orders); !strings.Contains(p.text("#say"), want) {
						t.Errorf("it says %q, want %q", p.text("#say"), want)
					}
				})
			}
		})
	}
}

// The service dies in the middle, and the script sends the same again.
func TestDemoCrash(t *testing.T) {
	for _, tt := range []struct {
		protection, when string
		orders, double   int
		last             string
		says             string
	}{
		{"replay", "before", 1, 0, "201 takeover", "Made: order 1"},
		{"replay", "after", 1, 0, "409 claim_unfinished verify", "The first submission made order 1."},
		{"once", "before", 1, 0, "201", "Made: order 1"},
		{"once", "after", 1, 0, "409 token_used stop", "token_used · next: stop · The first submission made order 1."},
		{"off", "before", 1, 0, "again 201", ""},
		{"off", "after", 2, 1, "again 201", ""},
	} {
		t.Run(tt.protection+" "+tt.when, func(t *testing.T) {
			t.Parallel()
			p := openDemo(t, plain)
			p.protect(tt.protection)
			p.try("crash." + tt.when)
			line := p.line()
			if len(line) < 2 || line[len(line)-1] != tt.last {
				t.Errorf("the time line: %q, want %q last", line, tt.last)
			}
			check(t, "orders", p.orders(), tt.orders)
			check(t, "duplicates", p.duplicates(), tt.double)
			if tt.says != "" {
				p.shows("#notice", tt.says)
			}
		})
	}
}

// The form itself is in tokend.js's hands.
func TestDemoForm(t *testing.T) {
	t.Parallel()
	p := openDemo(t, plain)
	p.fillIn("#quantity", "0")
	p.click("#send")
	p.shows("#quantity-wrong", "1 to 9")
	check(t, "aria-invalid", get[string](p, `document.querySelector('#quantity').getAttribute('aria-invalid')`), "true")
	check(t, "focus", get[string](p, `document.activeElement.id`), "quantity")
	p.fillIn("#quantity", "2")
	p.run(atOnce("#send"))
	p.shows("#notice", "Made: order 1")
	p.until(`document.querySelector('#orders')?.innerText.includes('2 × Coffee')`)
	check(t, "wrong", p.text("#quantity-wrong"), "")
	check(t, "the time line", strings.Join(p.line(), ", "), "422, 201")
	if tokens := get[[]string](p, `[...document.querySelectorAll('#line li[data-kind=order]')].map((li) => li.dataset.token)`); tokens[0] != tokens[1] || tokens[0] == "" {
		t.Errorf("it was mended with another token: %q", tokens)
	}
	p.click("#send")
	p.shows("#notice", "Made: order 2")

	p.protect("off")
	p.run(atOnce("#send"))
	p.until(`document.querySelectorAll('#orders li').length === 4`)
	check(t, "duplicates", p.duplicates(), 1)

	p.click("#clear button")
	p.until(`!document.querySelector('#orders') && !document.querySelector('#line')`)
	p.protect("once")
	p.click("#send")
	p.shows("#notice", "Made: order 1")
}

// Whoever has no mouse, or does not see the page, can do the same.
func TestDemoByKeyboard(t *testing.T) {
	t.Parallel()
	p := openDemo(t, plain)
	p.press("\t")
	check(t, "first stop", get[string](p, `document.activeElement.className`), "skip")
	p.press("\r")
	for get[string](p, `document.activeElement.id`) != "quantity" {
		p.press("\t")
	}
	p.press("\r")
	p.shows("#notice", "Made: order 1")
	p.until(`document.querySelectorAll('#orders li').length === 1`)
	check(t, "the time line", strings.Join(p.line(), ", "), "201")
	p.run(`document.querySelector('[data-try=double]').focus()`)
	p.press(" ")
	p.shows("#say", "Double click: requests 2, orders 1.")

	// Every control has a name, every field a label, and what changes is told.
	if bad := get[[]string](p, `[...document.querySelectorAll('button, input:not([type=hidden]), select')].filter((e) =>
		!(e.innerText?.trim() && e.tagName === 'BUTTON') && !e.labels?.length && !e.ariaLabel && !e.hidden).map((e) => e.outerHTML)`); len(bad) > 0 {
		t.Errorf("without a name: %q", bad)
	}
	if n := get[int](p, `document.querySelectorAll('[role=status][aria-live=polite]').length`); n < 2 {
		t.Errorf("%d live regions, want that of the script and that of the buttons", n)
	}
	if ids := get[[]string](p, `[...document.querySelectorAll('[aria-labelledby], [aria-describedby]')].flatMap((e) =>
		((e.getAttribute('aria-labelledby') ?? '') + ' ' + (e.getAttribute('aria-describedby') ?? '')).trim().split(/ +/)).filter((id) => !document.getElementById(id))`); len(ids) > 0 {
		t.Errorf("there is nothing called %q", ids)
	}
	check(t, "h1", get[int](p, `document.querySelectorAll('h1').length`), 1)
}

func TestDemoTwoTabs(t *testing.T) {
	t.Parallel()
	a := openDemo(t, plain)
	b := a.sibling(plain)
	b.open(dev.url + "/demo/")
	b.until(`document.querySelector('.tokend-status')`)
	if get[string](a, `document.querySelector('[name=tokend_token]').value`) == get[string](b, `document.querySelector('[name=tokend_token]').value`) {
		t.Error("two tabs have one token")
	}
	b.click("#send")
	b.shows("#notice", "Made: order 1")
	a.click("#send")
	a.shows("#notice", "Made: order 2")
	b.until(`document.querySelectorAll('#orders li').length === 2`) // by itself

	other := openDemo(t, plain) // somebody else
	check(t, "another's orders", other.orders(), 0)
}

func TestDemoSettings(t *testing.T) {
	t.Parallel()
	p := openDemo(t, plain)
	p.choose("#user", "bob")
	p.until(`document.body.dataset.user === 'bob'`)
	p.try("double")
	if who := p.text("#orders li"); !strings.Contains(who, "bob") {
		t.Errorf("the order is %q, want bob's", who)
	}
	p.choose("#life", "5")
	p.until(`document.body.dataset.life === '5'`)
	p.try("expire")
	check(t, "the time line's end", p.line()[2], "expired 410 token_expired reissue")
	p.open(dev.url + "/demo/") // it is remembered
	check(t, "user", get[string](p, `document.querySelector('#user').value`), "bob")
	check(t, "life", get[string](p, `document.querySelector('#life').value`), "5")
}

func TestDemoLanguages(t *testing.T) {
	t.Parallel()
	chinese := plain
	chinese.language = "zh-CN,zh;q=0.9,en;q=0.8"
	p := openDemo(t, chinese)
	check(t, "lang", get[string](p, `document.documentElement.lang`), "zh-CN")
	p.shows("h1", "一张表单，一份订单")
	p.click("#send")
	p.shows("#notice", "已生成：订单 1")
	p.shows(".tokend-status", "已提交。")
	p.try("other")
	p.shows("#line", "被拒绝")
	p.shows("#line", "下一步：stop")
	p.click("#language button")
	p.until(`document.documentElement.lang === 'en' && document.querySelector('.tokend-status')`)
	p.shows("h1", "One form, one order")
	p.shows("#line", "refused")
	p.click("#language button")
	p.until(`document.documentElement.lang === 'zh-CN'`)

	other := plain
	other.language = "fr,en;q=0.5,zh;q=0.2"
	check(t, "French", get[string](openDemo(t, other), `document.documentElement.lang`), "en")
}

// What was said of a submission goes when the board is cleared, another protection is chosen or
// something else is tried.
func TestDemoForgets(t *testing.T) {
	t.Parallel()
	for name, then := range map[string]func(*page){
		"cleared":    func(p *page) { p.click("#clear button"); p.until(`!document.querySelector('#orders')`) },
		"protection": func(p *page) { p.protect("off") },
		"tried":      func(p *page) { p.try("double") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := openDemo(t, plain)
			p.protect("once")
			p.click("#send")
			p.shows("#notice", "Made: order 1")
			then(p)
			p.until(`document.querySelector('#notice').innerText === ''`)
			if name != "tried" {
				p.until(`!document.querySelector('.tokend-status')?.innerText.trim()`)
			}
			if name == "cleared" {
				p.click("#send") // it is protected still
				p.shows("#notice", "Made: order ")
			}
		})
	}
}

// Without scripts the field that the service has rendered does the same.
func TestDemoWithoutScript(t *testing.T) {
	t.Parallel()
	l := plain
	l.noScript = true
	p := window(t, l)
	p.expect(refusals)
	p.open(dev.url + "/demo/")
	check(t, "buttons that need scripts", get[bool](p, `document.querySelector('#try').checkVisibility()`), false)
	if !strings.HasPrefix(get[string](p, `document.querySelector('#form [name=tokend_token]').value`), "ott_") {
		t.Error("the form has no token")
	}
	p.fillIn("#quantity", "10")
	token := get[string](p, `document.querySelector('#form [name=tokend_token]').value`)
	p.leaves("#send")
	p.shows("#quantity-wrong", "1 to 9")
	check(t, "the mended form's token", get[string](p, `document.querySelector('#form [name=tokend_token]').value`), token)
	p.fillIn("#quantity", "3")
	p.leaves("#send")
	p.shows("#notice", "Made: order 1")
	check(t, "orders", p.orders(), 1)
	if get[string](p, `document.querySelector('#form [name=tokend_token]').value`) == token {
		t.Error("the next form has the spent token")
	}

	// The spent token again: the first answer, a redirect to its order.
	p.run(`document.querySelector('#form [name=tokend_token]').value = ` + quote(token) + `; document.querySelector('#quantity').value = '3'`)
	p.leaves("#send")
	p.shows("#notice", "Made: order 1")
	check(t, "orders", p.orders(), 1)

	// Settings, without a script.
	p.click(`#settings [value="once"]`)
	p.leaves("#settings noscript button")
	p.until(`document.body.dataset.protection === 'once'`)
	p.run(`document.querySelector('#form [name=tokend_token]').value = ` + quote(token) + `; document.querySelector('#quantity').value = '3'`)
	p.leaves("#send")
	p.shows("#notice", "token_used · next: stop")
	p.shows("#notice", "The first submission made order 1.")
	p.leaves("#send") // with the fresh token of the page that says so
	p.shows("#notice", "Made: order 2")
	p.leaves("#clear button")
	p.until(`!document.querySelector('#orders')`)
}
