package browser_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"example.com/tokend/client"
)

// patience bounds every wait: far more than any machine needs.
const patience = time.Minute

// What all tests share: each has pages, sessions and a form service of its own.
var (
	dev     *devServer
	browser context.Context  // of chromedp
	letIn   *httptest.Server // whose origin tokend dev lets in
	letInTo atomic.Pointer[shop]
)

func TestMain(m *testing.M) {
	flag.Parse()
	flag.Set("test.parallel", "6") // most of what a test does here is wait
	os.Exit(runAll(m))
}

func runAll(m *testing.M) int {
	dir, err := os.MkdirTemp("", "tokend-browser")
	if err == nil {
		defer os.RemoveAll(dir)
		letIn = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { letInTo.Load().serve(w, r) }))
		defer letIn.Close()
		dev, err = startDev(dir, letIn.URL)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer dev.close()
	end, err := startBrowser(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer end()
	return m.Run()
}

// devServer is a running tokend dev.
type devServer struct {
	url, userJWT, serviceKey string
	cmd                      *exec.Cmd
}

var printed = regexp.MustCompile(`(?s)The API is at (http://\S+)\. .*USER_JWT='([^']+)'\s+SERVICE='([^']+)'.*# what became of it`)

// startDev builds tokend in dir and starts tokend dev, which lets the pages of origin call.
func startDev(dir, origin string) (*devServer, error) {
	program := filepath.Join(dir, "tokend")
	if out, err := exec.Command("go", "build", "-C", "../..", "-o", program, "./cmd/tokend").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("tokend does not build: %w\n%s", err, out)
	}
	said, err := os.Create(filepath.Join(dir, "dev"))
	if err != nil {
		return nil, err
	}
	defer said.Close()
	d := &devServer{cmd: exec.Command(program, "dev", "--listen=127.0.0.1:0", "--admin-listen=", "--log-level=warn",
		"--rate-issue-per-minute=0", "--cors-origins="+origin)}
	d.cmd.Env = slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, "TOKEND_") })
	d.cmd.Stdout, d.cmd.Stderr = said, os.Stderr
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	for began := time.Now(); time.Since(began) < patience; time.Sleep(20 * time.Millisecond) {
		text, err := os.ReadFile(said.Name())
		if err != nil {
			return nil, err
		}
		if m := printed.FindSubmatch(text); m != nil {
			d.url, d.userJWT, d.serviceKey = string(m[1]), string(m[2]), string(m[3])
			return d, nil
		}
	}
	d.close()
	return nil, errors.New("tokend dev says nothing")
}

func (d *devServer) close() {
	d.cmd.Process.Kill()
	d.cmd.Wait()
}

// client returns a client of d as a service.
func (d *devServer) client(t *testing.T) *client.Client {
	t.Helper()
	c, err := client.New(d.url, client.ServiceKey(d.serviceKey))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

// startBrowser starts a Chromium that calls nobody of its own accord.
func startBrowser(dir string) (end func(), err error) {
	path, err := exec.LookPath("chromium")
	if err != nil {
		return nil, fmt.Errorf("these tests need Debian's chromium, which `make deps-e2e` installs: %w", err)
	}
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path),
		chromedp.UserDataDir(filepath.Join(dir, "chromium")),
		chromedp.WSURLReadTimeout(patience),
		chromedp.Flag("no-sandbox", true), // as root there is none
		chromedp.Flag("disable-gpu", true),
		chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-domain-reliability", true),
		chromedp.Flag("no-pings", true),
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"),
	)...)
	browser, _ = chromedp.NewContext(ctx, chromedp.WithErrorf(func(string, ...any) {})) // of events that it does not know
	if err := chromedp.Do(browser); err != nil {
		cancel()
		return nil, fmt.Errorf("chromium does not start: %w", err)
	}
	return cancel, nil
}

// page is a tab.
type page struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	faults   []string
	expected []*regexp.Regexp // of what is no fault
	hosts    []string         // that it may ask
}

// look is what a page is looked at in.
type look struct {
	width, height int64
	phone, dark   bool
	language      string // Accept-Language
	noScript      bool
}

var plain = look{width: 1280, height: 900, language: "en"}

// window opens a tab in a window that shares no cookies with any other; its faults fail t.
func window(t *testing.T, l look) *page {
	t.Helper()
	return tab(t, browser, l, chromedp.WithNewBrowserContext())
}

// sibling opens another tab of p's window.
func (p *page) sibling(l look) *page {
	p.t.Helper()
	return tab(p.t, p.ctx, l)
}

// on has p fail t, a subtest of its own test, until that ends: a window is dear to open.
func (p *page) on(t *testing.T) {
	was := p.t
	p.t = t
	t.Cleanup(func() {
		p.t = was
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, f := range p.faults {
			t.Error(f)
		}
		p.faults = nil
	})
}

func tab(t *testing.T, in context.Context, l look, opts ...chromedp.ContextOption) *page {
	t.Helper()
	p := &page{t: t, hosts: []string{strings.TrimPrefix(dev.url, "http://")}}
	ctx, cancel := chromedp.NewContext(in, append(opts, chromedp.WithListener(p.hear))...)
	p.ctx = ctx
	t.Cleanup(func() {
		cancel()
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, f := range p.faults {
			t.Error(f)
		}
	})
	theme := "light"
	if l.dark {
		theme = "dark"
	}
	view := []chromedp.EmulateViewportOption{}
	if l.phone {
		view = append(view, chromedp.EmulateMobile, chromedp.EmulateTouch, chromedp.EmulatePortrait, chromedp.EmulateScale(2))
	}
	agent, err := chromedp.Run(ctx, chromedp.Evaluate[string]("navigator.userAgent"))
	if err != nil {
		t.Fatalf("open a tab: %v", err)
	}
	err = chromedp.Do(ctx, chromedp.EmulateViewport(l.width, l.height, view...), chromedp.Func(func(ctx context.Context, on *chromedp.Target) error {
		_, err1 := cdp.Call(ctx, on, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}}})
		_, err2 := cdp.Call(ctx, on, emulation.SetUserAgentOverride, emulation.SetUserAgentOverrideParams{UserAgent: agent, AcceptLanguage: l.language})
		_, err3 := cdp.Call(ctx, on, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: l.noScript})
		_, err4 := cdp.Call(ctx, on, network.Enable, network.EnableParams{})
		_, err5 := cdp.Call(ctx, on, log.Enable, cdp.Empty{})
		return errors.Join(err1, err2, err3, err4, err5)
	}))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// hear notes what a page should not do. It is called for each event of the tab.
func (p *page) hear(event any) {
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		u, err := url.Parse(e.Request.URL)
		p.mu.Lock()
		known := err == nil && (u.Scheme == "data" || u.Scheme == "http" && slices.Contains(p.hosts, u.Host))
		p.mu.Unlock()
		if !known {
			p.fault("a request to " + e.Request.URL)
		}
		if strings.Contains(e.Request.URL, "ott_") {
			p.fault("a token in a URL: " + e.Request.URL)
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
			p.fault(fmt.Sprintf("%s: %s: %s %s", e.Entry.Source, e.Entry.Level, e.Entry.Text, e.Entry.URL))
		}
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning || e.Type == runtime.ConsoleAPICalledTypeAssert {
			p.fault(fmt.Sprintf("console: %s %s", e.Type, spoken(e.Args)))
		}
	case *runtime.EventExceptionThrown:
		p.fault("exception: " + (&chromedp.ExceptionError{ExceptionDetails: e.ExceptionDetails}).Error())
	}
}

func spoken(args []*runtime.RemoteObject) string {
	var b strings.Builder
	for _, a := range args {
		fmt.Fprintf(&b, "%s%s ", a.Value, a.Description)
	}
	return b.String()
}

func (p *page) fault(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.expected {
		if e.MatchString(text) {
			return
		}
	}
	p.faults = append(p.faults, text)
}

// refusals are what Chromium itself notes of answers that are refusals, and of none.
const refusals = `^network: error: Failed to load resource: (the server responded with a status of (4\d\d|50[0234]) |net::ERR_(EMPTY_RESPONSE|CONNECTION_RESET|ABORTED|CONNECTION_CLOSED|CONTENT_LENGTH_MISMATCH|INCOMPLETE_CHUNKED_ENCODING))`

// expect has what matches be no fault.
func (p *page) expect(expressions ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range expressions {
		p.expected = append(p.expected, regexp.MustCompile(e))
	}
}

// do does steps, which must succeed.
func (p *page) do(steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		p.t.Fatalf("%v\n%s", err, p.seen())
	}
}

// seen returns what the page shows, for a test that fails.
func (p *page) seen() string {
	text, err := eval[string](p, `document.URL + "\n" + document.body.innerText`)
	return fmt.Sprint(text, err)
}

func (p *page) open(url string) {
	p.t.Helper()
	p.do(chromedp.Navigate(url))
}

// eval returns what script comes to, or waits for the promise that it is.
func eval[T any](p *page, script string) (T, error) {
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	return chromedp.Run(ctx, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise))
}

// get is eval that must succeed.
func get[T any](p *page, script string) T {
	p.t.Helper()
	v, err := eval[T](p, script)
	if err != nil {
		p.t.Fatalf("%s: %v", script, err)
	}
	return v
}

// run runs a script for what it does.
func (p *page) run(script string) {
	p.t.Helper()
	get[bool](p, "(async () => {"+script+"; return true})()")
}

// until waits until script is true; a page that is being left is none to ask.
func (p *page) until(script string) {
	p.t.Helper()
	for began := time.Now(); ; time.Sleep(40 * time.Millisecond) {
		ok, err := eval[bool](p, "Boolean("+script+")")
		if err == nil && ok {
			return
		}
		if time.Since(began) > patience {
			p.t.Fatalf("waited in vain until %s: %v\n%s", script, err, p.seen())
		}
	}
}

// text returns what the element shows.
func (p *page) text(selector string) string {
	p.t.Helper()
	return get[string](p, `document.querySelector(`+quote(selector)+`).innerText.trim()`)
}

// shows waits until the element shows part.
func (p *page) shows(selector, part string) {
	p.t.Helper()
	p.until(`document.querySelector(` + quote(selector) + `)?.innerText.includes(` + quote(part) + `)`)
}

func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// click clicks the element with the mouse, so many times.
func (p *page) click(selector string, times ...int) {
	p.t.Helper()
	p.until(`document.querySelector(` + quote(selector) + `)?.checkVisibility()`)
	at := get[[]float64](p, `(() => {
		const e = document.querySelector(`+quote(selector)+`);
		e.scrollIntoView({block: 'center', behavior: 'instant'});
		const r = e.getBoundingClientRect();
		return [r.x + r.width / 2, r.y + r.height / 2];
	})()`)
	n := 1
	if len(times) > 0 {
		n = times[0]
	}
	for i := range n {
		p.do(chromedp.MouseClickXY(at[0], at[1], chromedp.ClickCount(i+1)))
	}
}

// leaves clicks the element, so many times, and waits for the page that comes of it.
func (p *page) leaves(selector string, times ...int) {
	p.t.Helper()
	p.run(`window.left = true`)
	p.click(selector, times...)
	p.until(`!window.left && document.readyState === 'complete'`)
}

// press presses keys, where the focus is.
func (p *page) press(keys string) {
	p.t.Helper()
	p.do(chromedp.KeyEvent(keys))
}

// fillIn fills a field in, as typing does.
func (p *page) fillIn(selector, value string) {
	p.t.Helper()
	p.run(`const e = document.querySelector(` + quote(selector) + `); e.focus(); e.select?.()`)
	p.do(chromedp.KeyEvent(value))
	p.until(`document.querySelector(` + quote(selector) + `).value === ` + quote(value))
}

// choose sets a select or a radio, as a person does who is told.
func (p *page) choose(selector, value string) {
	p.t.Helper()
	p.run(`const e = document.querySelector(` + quote(selector) + `);
		if (e.type === 'radio') { e.click(); } else { e.value = ` + quote(value) + `; e.dispatchEvent(new Event('change', {bubbles: true})); }`)
}

// check fails the test where got is not want.
func check[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// atOnce clicks an element twice before anything else can happen.
func atOnce(selector string) string {
	return `const e = document.querySelector(` + quote(selector) + `); e.click(); e.click()`
}

// later does what leads away from the page, when it has been told to.
func (p *page) later(script string) {
	p.t.Helper()
	p.run(`setTimeout(() => {` + script + `})`)
}

// within waits until ok.
func within(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for began := time.Now(); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Since(began) > patience {
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

// fetch returns what the service says to a GET.
func fetch(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: %d, %v", url, resp.StatusCode, err)
	}
	return string(b)
}
