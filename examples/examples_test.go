// Package examples_test runs the examples, each against a tokend of its own, and holds what
// they do to what they say.
package examples_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/tokend/client"
	"example.com/tokend/client/clienttest"
)

// languages are those whose shop is one and the same service.
var languages = []struct {
	name    string
	command []string
	atLeast []int // the version, as the example's head says
}{
	{"python", []string{"python3", "python/shop.py"}, []int{3, 8}},
	{"node", []string{"node", "node/shop.mjs"}, []int{18}},
	{"java", []string{"java", "java/Shop.java"}, []int{17}},
}

// version returns what the machine has of a language: nil is nothing that runs.
func version(name string) (v []int) {
	out, err := exec.Command(name, "--version").Output()
	if err != nil {
		return nil
	}
	for _, part := range strings.Split(regexp.MustCompile(`\d+(\.\d+)*`).FindString(string(out)), ".") {
		n, _ := strconv.Atoi(part)
		v = append(v, n)
	}
	return v
}

// TestShop plays what browsers, users and networks do to a form service to the shop of each
// language that the machine has.
func TestShop(t *testing.T) {
	t.Parallel()
	for _, l := range languages {
		if v := version(l.command[0]); slices.Compare(v, l.atLeast) < 0 {
			t.Logf("NOT RUN: the example in %s: it takes %s %v or newer, and the machine has %v", l.name, l.command[0], l.atLeast, v)
			continue
		}
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			s := start(t, l.command)
			t.Run("sent twice", s.sentTwice)
			t.Run("sent at the same time", s.sentAtOnce)
			t.Run("no answer at first", s.noAnswerAtFirst)
			t.Run("no answer at all", s.noAnswerAtAll)
			t.Run("nothing done", s.nothingDone)
			t.Run("own fault", s.ownFault)
			t.Run("paid twice", s.paidTwice)
			t.Run("paid at the same time", s.paidAtOnce)
			t.Run("paid over a broken line", s.paidWithLostReplies)
			t.Run("not paid without a commit", s.notCommitted)
		})
	}
}

// TestGoShop runs the program that the README's form service is the heart of; what it does with
// each answer is its own test's.
func TestGoShop(t *testing.T) {
	t.Parallel()
	start(t, []string{"go", "run", "./go"}).sentAtOnce(t)
}

// shop is a running example and what it depends on.
type shop struct {
	url    string
	tokend *clienttest.Server
	line   *line
}

// patience is for what takes no time on an idle machine.
const patience = 2 * time.Minute

var listening = regexp.MustCompile(`^listening on (http://127\.0\.0\.1:\d+)/orders/new$`)

// start starts the example that command runs, and waits until it listens.
func start(t *testing.T, command []string) *shop {
	t.Helper()
	s := &shop{tokend: clienttest.New(t)}
	s.line = newLine(t, s.tokend.URL)
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = environ(s.line.url, s.tokend.ServiceKey)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var faults bytes.Buffer
	cmd.Stderr = &faults
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // some interpreters are wrapped in a shell
	cmd.WaitDelay = patience
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	urls := make(chan string, 1)
	var reader sync.WaitGroup
	reader.Go(func() {
		defer close(urls)
		for sc := bufio.NewScanner(out); sc.Scan(); {
			if m := listening.FindStringSubmatch(sc.Text()); m != nil {
				urls <- m[1]
			}
		}
	})
	t.Cleanup(func() {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		reader.Wait()
		cmd.Wait()
		if t.Failed() {
			t.Logf("%v says:\n%s", command, &faults)
		}
	})
	select {
	case s.url = <-urls:
	case <-time.After(patience):
	}
	if s.url == "" {
		t.Fatalf("%v does not listen", command)
	}
	return s
}

// environ returns what an example is told, and nothing that would send it through a proxy.
func environ(tokendURL, key string) []string {
	env := slices.DeleteFunc(os.Environ(), func(e string) bool {
		name, _, _ := strings.Cut(strings.ToLower(e), "=")
		return strings.HasPrefix(name, "tokend_") || strings.HasSuffix(name, "_proxy")
	})
	return append(env, "TOKEND_URL="+tokendURL, "TOKEND_TOKEN="+key, "PORT=0")
}

// line stands between a service and tokend. It notes what is sent, and breaks.
type line struct {
	url string

	mu       sync.Mutex
	calls    []call
	lose     map[string]int       // how many replies to calls of a path that ends like this are lost
	answered func(*http.Response) // sees each answer before the service does
	edit     func(http.Header)    // of a request
}

type call struct {
	path    string
	attempt string
	at      time.Time
}

func newLine(t *testing.T, to string) *line {
	target, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	l := &line{lose: map[string]int{}}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ModifyResponse: func(r *http.Response) error {
			l.mu.Lock()
			defer l.mu.Unlock()
			for suffix, n := range l.lose {
				if n > 0 && strings.HasSuffix(r.Request.URL.Path, suffix) {
					l.lose[suffix]--
					return errors.New("lost")
				}
			}
			if l.answered != nil {
				l.answered(r)
			}
			return nil
		},
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		var sent struct{ Attempt string }
		json.Unmarshal(body, &sent)
		l.mu.Lock()
		l.calls = append(l.calls, call{r.URL.Path, sent.Attempt, time.Now()})
		if l.edit != nil {
			l.edit(r.Header)
		}
		l.mu.Unlock()
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	l.url = server.URL
	return l
}

// set changes l while nothing is sent, and forgets what was.
func (l *line) set(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls, l.answered, l.edit = nil, nil, nil
	clear(l.lose)
	if change != nil {
		change()
	}
}

// of returns the calls of a path.
func (l *line) of(path string) (calls []call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.calls {
		if c.path == path {
			calls = append(calls, c)
		}
	}
	return calls
}

// attempts returns those that calls have, each once.
func attempts(calls []call) (all []string) {
	for _, c := range calls {
		if !slices.Contains(all, c.attempt) {
			all = append(all, c.attempt)
		}
	}
	return all
}

const (
	consume = "/v1/tokens/consume"
	claims  = "/v1/claims"
)

// page is what a browser gets.
type page struct {
	status   int
	location string
	header   http.Header
	body     string
}

// token returns the one that the page's form holds.
func (p page) token() string {
	m := regexp.MustCompile(`name="tokend_token" autocomplete="off" value="(ott_[A-Za-z0-9_-]+)"`).FindStringSubmatch(p.body)
	if m == nil {
		return ""
	}
	return m[1]
}

var browser = &http.Client{
	Timeout:       patience,
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	Transport:     &http.Transport{DisableKeepAlives: true},
}

// as makes a request as user: of a form where there is one.
func (s *shop) as(t *testing.T, user, path string, form url.Values) page {
	t.Helper()
	method, body := http.MethodGet, io.Reader(http.NoBody)
	if form != nil {
		method, body = http.MethodPost, strings.NewReader(form.Encode())
	}
	r, err := http.NewRequestWithContext(t.Context(), method, s.url+path, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Accept", "text/html")
	r.Header.Set("X-User", user)
	resp, err := browser.Do(r)
	if err != nil {
		t.Error(err)
		return page{}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return page{resp.StatusCode, resp.Header.Get("Location"), resp.Header, string(text)}
}

func (s *shop) get(t *testing.T, path string) page { t.Helper(); return s.as(t, "alice", path, nil) }

// order is a form for tea, fresh and filled in.
func (s *shop) order(t *testing.T) url.Values {
	t.Helper()
	return url.Values{"item": {`"tea" & <cake>`}, "tokend_token": {s.fresh(t, "/orders/new")}}
}

// payment is a form for a payment.
func (s *shop) payment(t *testing.T) url.Values {
	t.Helper()
	return url.Values{"amount": {"50"}, "tokend_token": {s.fresh(t, "/payments/new")}}
}

func (s *shop) fresh(t *testing.T, path string) string {
	t.Helper()
	p := s.get(t, path)
	if p.status != http.StatusOK || p.token() == "" || p.header.Get("Cache-Control") != "no-store" {
		t.Fatalf("no form: %d %v\n%s", p.status, p.header, p.body)
	}
	return p.token()
}

func (s *shop) send(t *testing.T, path string, form url.Values) page {
	t.Helper()
	return s.as(t, "alice", path, form)
}

// count returns how many rows alice has in a table.
func (s *shop) count(t *testing.T, path string) int {
	t.Helper()
	return len(strings.Fields(regexp.MustCompile(`(?m)^(t_[0-9a-f]{32}) .*$`).ReplaceAllString(s.get(t, path).body, "$1")))
}

// want holds a page to its status, and the table to how many rows were added meanwhile.
func (s *shop) want(t *testing.T, table string, status, added int, send func() page) page {
	t.Helper()
	before := s.count(t, table)
	p := send()
	if got := s.count(t, table) - before; p.status != status || got != added {
		t.Errorf("%d, %d rows; want %d, %d rows\n%s", p.status, got, status, added, p.body)
	}
	return p
}

func (s *shop) sentTwice(t *testing.T) {
	s.line.set(nil)
	form := s.order(t)
	first := s.want(t, "/orders", http.StatusSeeOther, 1, func() page { return s.send(t, "/orders", form) })
	second := s.want(t, "/orders", http.StatusSeeOther, 0, func() page { return s.send(t, "/orders", form) })
	if first.location != second.location || !strings.HasPrefix(first.location, "/orders/t_") {
		t.Errorf("the second click leads to %q, the first to %q", second.location, first.location)
	}
	if p := s.get(t, first.location); !strings.Contains(p.body, form.Get("item")) {
		t.Errorf("the order is %d %q", p.status, p.body)
	}
	if p := s.as(t, "bob", first.location, nil); strings.Contains(p.body, form.Get("item")) {
		t.Error("bob sees alice's order")
	}
	attempts := attempts(s.line.of(consume))
	if len(attempts) != 2 || len(attempts[0]) < 32 {
		t.Errorf("two requests have the attempts %q; want one of 128 bits for each", attempts)
	}
}

// atOnce sends a form n times at the same time.
func (s *shop) atOnce(t *testing.T, n int, path string, form url.Values) []page {
	pages := make([]page, n)
	var all sync.WaitGroup
	for i := range pages {
		all.Go(func() { pages[i] = s.send(t, path, form) })
	}
	all.Wait()
	return pages
}

func (s *shop) sentAtOnce(t *testing.T) {
	s.line.set(nil)
	form, before := s.order(t), s.count(t, "/orders")
	led := map[string]bool{}
	for _, p := range s.atOnce(t, 8, "/orders", form) {
		switch p.status {
		case http.StatusSeeOther:
			led[p.location] = true
		case http.StatusConflict: // the first one is still at work
		default:
			t.Errorf("%d %s", p.status, p.body)
		}
	}
	if got := s.count(t, "/orders") - before; got != 1 || len(led) != 1 {
		t.Errorf("%d orders, and led to %v; want one", got, led)
	}
}

func (s *shop) noAnswerAtFirst(t *testing.T) {
	tests := []struct {
		name string
		what func()
		wait time.Duration // at least, before the second try
	}{
		{"the reply is lost", func() { s.tokend.LoseReplies(1) }, 0},
		{"a gateway is in the way", func() { s.tokend.BadGateway(1) }, 0},
		{"the store is down", func() {
			s.tokend.Down(true)
			s.line.answered = func(r *http.Response) {
				if r.StatusCode == http.StatusServiceUnavailable {
					s.tokend.Down(false)
				}
			}
		}, 990 * time.Millisecond},
	}
	for _, test := range tests {
		form := s.order(t)
		s.line.set(test.what)
		first := s.want(t, "/orders", http.StatusSeeOther, 1, func() page { return s.send(t, "/orders", form) })
		calls := s.line.of(consume)
		switch {
		case len(calls) < 2 || len(attempts(calls)) != 1:
			t.Errorf("%s: %v; want two tries of one attempt", test.name, calls)
		case calls[1].at.Sub(calls[0].at) < test.wait:
			t.Errorf("%s: tried again after %v, sooner than Retry-After says", test.name, calls[1].at.Sub(calls[0].at))
		}
		if second := s.send(t, "/orders", form); second.location != first.location {
			t.Errorf("%s: the second click leads to %q, the first to %q", test.name, second.location, first.location)
		}
	}
}

func (s *shop) noAnswerAtAll(t *testing.T) {
	form := s.order(t)
	s.line.set(func() { s.line.lose[consume] = 1000 })
	s.want(t, "/orders", http.StatusServiceUnavailable, 0, func() page { return s.send(t, "/orders", form) })
	calls := s.line.of(consume)
	if n := len(calls); n < 2 || n > 10 {
		t.Errorf("%d tries", n)
	}
	if len(attempts(calls)) != 1 {
		t.Errorf("the attempt changes between tries: %v", calls)
	}
	// It was granted, and nobody heard: so nobody does the work, ever.
	s.line.set(nil)
	s.want(t, "/orders", http.StatusConflict, 0, func() page { return s.send(t, "/orders", form) })

	form = s.order(t)
	s.line.set(func() {
		s.line.answered = func(r *http.Response) { // a gateway's, that means it
			r.StatusCode, r.ContentLength, r.Body = http.StatusServiceUnavailable, 0, http.NoBody
			r.Header = http.Header{"Retry-After": {"3600"}}
		}
	})
	s.want(t, "/orders", http.StatusServiceUnavailable, 0, func() page { return s.send(t, "/orders", form) })
	if n := len(s.line.of(consume)); n != 1 {
		t.Errorf("asked to wait for an hour, it made %d tries", n)
	}

	s.line.set(func() { s.line.lose["/v1/tokens"] = 1000 })
	if p := s.get(t, "/orders/new"); p.status != http.StatusServiceUnavailable {
		t.Errorf("a form without tokend: %d", p.status)
	}
	s.line.set(nil)
}

// nothingDone: the form comes back with a fresh token, for a person to send.
func (s *shop) nothingDone(t *testing.T) {
	s.line.set(nil)
	late, foreign, lost := s.order(t), s.order(t), s.payment(t)
	lost.Set("item", "tea")
	tests := []struct {
		name string
		send func() page
	}{
		{"no token", func() page { return s.send(t, "/orders", url.Values{"item": {"tea"}}) }},
		{"forged", func() page { return s.send(t, "/orders", url.Values{"tokend_token": {"ott_x"}, "item": {"tea"}}) }},
		{"another purpose's", func() page { return s.send(t, "/orders", lost) }},
		{"another user's", func() page { return s.as(t, "bob", "/orders", foreign) }},
		{"expired", func() page { s.tokend.Advance(time.Hour); return s.send(t, "/orders", late) }},
	}
	for _, test := range tests {
		p := s.want(t, "/orders", http.StatusUnprocessableEntity, 0, test.send)
		if p.token() == "" || p.token() == late.Get("tokend_token") {
			t.Errorf("%s: the page holds no fresh token:\n%s", test.name, p.body)
		}
		if test.name == "expired" {
			late.Set("tokend_token", p.token())
			s.want(t, "/orders", http.StatusSeeOther, 1, func() page { return s.send(t, "/orders", late) })
		}
	}
}

// ownFault: a service that tokend does not let in must not tell its users that their page is
// at fault.
func (s *shop) ownFault(t *testing.T) {
	form := s.order(t)
	s.line.set(func() { s.line.edit = func(h http.Header) { h.Set("Authorization", "Bearer tsk_not-a-key") } })
	s.want(t, "/orders", http.StatusInternalServerError, 0, func() page { return s.send(t, "/orders", form) })
	s.line.set(nil)
	s.want(t, "/orders", http.StatusSeeOther, 1, func() page { return s.send(t, "/orders", form) })
}

// paid is what a payment's page says, with the time of day.
var paid = regexp.MustCompile(`^Paid 50, at 20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d[^ ]*\.\n$`)

// same holds that b is a's answer once more.
func same(t *testing.T, a, b page) {
	t.Helper()
	for _, p := range []*page{&a, &b} {
		h := http.Header{}
		h["Content-Type"], h["Location"] = p.header["Content-Type"], p.header["Location"]
		p.header = h
	}
	if diff := cmp.Diff(a, b, cmp.AllowUnexported(page{})); diff != "" {
		t.Errorf("a repeat is answered otherwise (-first +repeat):\n%s", diff)
	}
}

func (s *shop) paidTwice(t *testing.T) {
	s.line.set(nil)
	form := s.payment(t)

	form.Set("amount", "much")
	mended := s.want(t, "/payments", http.StatusUnprocessableEntity, 0, func() page { return s.send(t, "/payments", form) })
	if mended.token() != form.Get("tokend_token") {
		t.Errorf("with a mistake the form comes back with the token %q, want its own, %q", mended.token(), form.Get("tokend_token"))
	}

	form.Set("amount", "50")
	first := s.want(t, "/payments", http.StatusCreated, 1, func() page { return s.send(t, "/payments", form) })
	second := s.want(t, "/payments", http.StatusCreated, 0, func() page { return s.send(t, "/payments", form) })
	if first.header.Get("Idempotent-Replayed") != "" || second.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("Idempotent-Replayed is %q, then %q", first.header.Get("Idempotent-Replayed"), second.header.Get("Idempotent-Replayed"))
	}
	same(t, first, second)
	if !paid.MatchString(first.body) || !strings.HasPrefix(first.location, "/payments/t_") {
		t.Errorf("paid: %q at %q", first.body, first.location)
	}

	form.Set("amount", "60")
	other := s.want(t, "/payments", http.StatusUnprocessableEntity, 0, func() page { return s.send(t, "/payments", form) })
	if other.token() == "" || other.token() == form.Get("tokend_token") {
		t.Error("another payment with the same token is offered no fresh one")
	}
}

func (s *shop) paidAtOnce(t *testing.T) {
	s.line.set(nil)
	form, before := s.payment(t), s.count(t, "/payments")
	var paid []page
	for _, p := range append(s.atOnce(t, 8, "/payments", form), s.send(t, "/payments", form)) {
		switch p.status {
		case http.StatusCreated:
			paid = append(paid, p)
			same(t, paid[0], p)
		case http.StatusConflict: // it did not wait for as long as the first one took
		default:
			t.Errorf("%d %s", p.status, p.body)
		}
	}
	if len(paid) < 2 {
		t.Errorf("%d of 9 were told that it is paid", len(paid))
	}
	if got := s.count(t, "/payments") - before; got != 1 {
		t.Errorf("%d payments", got)
	}
}

func (s *shop) paidWithLostReplies(t *testing.T) {
	form := s.payment(t)
	steps := []string{claims, "/commit", "/result"}
	s.line.set(func() {
		for _, step := range steps {
			s.line.lose[step] = 1
		}
	})
	first := s.want(t, "/payments", http.StatusCreated, 1, func() page { return s.send(t, "/payments", form) })
	s.line.mu.Lock()
	for _, step := range steps {
		if s.line.lose[step] != 0 {
			t.Errorf("no reply of %s was lost", step)
		}
	}
	s.line.mu.Unlock()
	s.line.set(nil)
	same(t, first, s.want(t, "/payments", http.StatusCreated, 0, func() page { return s.send(t, "/payments", form) }))
}

func (s *shop) notCommitted(t *testing.T) {
	form := s.payment(t)
	s.line.set(func() { s.line.lose["/commit"] = 1000 })
	s.want(t, "/payments", http.StatusServiceUnavailable, 0, func() page { return s.send(t, "/payments", form) })
	s.line.set(nil)
	s.tokend.Advance(time.Minute) // the lease is over, and it had committed
	s.want(t, "/payments", http.StatusServiceUnavailable, 0, func() page { return s.send(t, "/payments", form) })
}

// TestOnce runs a command once for a key, with curl/once.sh.
func TestOnce(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"sh", "curl", "base64", "od"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Fatalf("the script needs %s, which `make deps` installs: %v", tool, err)
		}
	}
	tokend := clienttest.New(t)
	l := newLine(t, tokend.URL)
	ran := t.TempDir() + "/ran"
	const job = `echo run >>"$RAN"; head -c 8 /dev/urandom | od -An -tx1; printf 'no newline, "quotes"'; exit 3`
	run := func(env []string, args ...string) (out, said string, status int) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "sh", append([]string{"curl/once.sh"}, args...)...)
		cmd.Env = append(append(environ(l.url, tokend.ServiceKey), "RAN="+ran), env...)
		var faults bytes.Buffer
		cmd.Stderr = &faults
		b, err := cmd.Output()
		if no := (*exec.ExitError)(nil); err != nil && !errors.As(err, &no) {
			t.Error(err)
		}
		if t.Logf("%v: exit %d %s", args, cmd.ProcessState.ExitCode(), &faults); strings.Contains(faults.String(), tokend.ServiceKey) {
			t.Error("the service's key is printed")
		}
		return string(b), faults.String(), cmd.ProcessState.ExitCode()
	}
	once := func(key string) (out string, status int) {
		t.Helper()
		out, _, status = run(nil, key, "sh", "-c", job)
		return out, status
	}
	runs := func() int {
		b, _ := os.ReadFile(ran)
		return bytes.Count(b, []byte("\n"))
	}

	first, status := once("report:1")
	if status != 3 || runs() != 1 || !strings.HasSuffix(first, `no newline, "quotes"`) {
		t.Fatalf("first: exit %d after %d runs, %q", status, runs(), first)
	}
	if again, status := once("report:1"); again != first || status != 3 || runs() != 1 {
		t.Errorf("again: exit %d after %d runs, %q, want the first result, %q", status, runs(), again, first)
	}

	// Three hosts at once, while the first reply to each step is lost.
	l.set(func() { l.lose[claims], l.lose["/commit"], l.lose["/result"] = 1, 1, 1 })
	outs, statuses := make([]string, 3), make([]int, 3)
	var hosts sync.WaitGroup
	for i := range outs {
		hosts.Go(func() { outs[i], statuses[i] = once("report:2") })
	}
	hosts.Wait()
	if runs() != 2 || outs[0] == "" || outs[1] != outs[0] || outs[2] != outs[0] || !slices.Equal(statuses, []int{3, 3, 3}) {
		t.Errorf("three at once: %d runs, exit %v, %q", runs()-1, statuses, outs)
	}

	// A host that claimed and committed is gone: nobody runs it again, somebody looks.
	c := tokend.Client()
	claim, _, err := c.Claim(t.Context(), client.Key("cron", "job.run", "report:3"))
	if err != nil {
		t.Fatal(err)
	}
	if err := claim.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	claim.Close()
	tokend.Advance(time.Hour)
	if out, status := once("report:3"); out != "" || status != 70 || runs() != 2 {
		t.Errorf("unfinished: exit %d after %d runs, %q; want 70", status, runs(), out)
	}
	if out, status := once(`report"4`); out != "" || status != 64 || runs() != 2 {
		t.Errorf("a key that would end its JSON: exit %d, %q", status, out)
	}

	// What was not run says why, uses no key up, and is to be tried later only where that helps.
	deaf := t.TempDir() // a curl that waits for nobody to answer would try on for a while
	if err := os.WriteFile(deaf+"/curl", []byte("#!/bin/sh\nexit 7\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	stranger := func(h http.Header) { h.Del("Authorization") }
	for _, tt := range []struct {
		name   string
		env    []string
		args   []string
		edit   func(http.Header)
		status int
		said   string
	}{
		{name: "no arguments", status: 64, said: "usage: "},
		{name: "no command", args: []string{"report:5"}, status: 64, said: "usage: "},
		{name: "no key", args: []string{"", "true"}, status: 64, said: "the key is of"},
		{name: "no such command", args: []string{"report:5", "./not-there"}, status: 64, said: "no command ./not-there"},
		{name: "no URL", env: []string{"TOKEND_URL="}, args: []string{"report:5", "sh", "-c", job}, status: 78, said: "TOKEND_URL must be set"},
		{name: "no bearer", env: []string{"TOKEND_TOKEN="}, args: []string{"report:5", "sh", "-c", job}, status: 78, said: "TOKEND_TOKEN must be set"},
		{name: "not let in", edit: stranger, args: []string{"report:5", "sh", "-c", job}, status: 78, said: `"code":"unauthenticated"`},
		{name: "tokend is away", env: []string{"PATH=" + deaf + ":" + os.Getenv("PATH")}, args: []string{"report:5", "sh", "-c", job}, status: 75, said: "report:5 was not run: tokend gave no answer"},
	} {
		l.set(func() { l.edit = tt.edit })
		out, said, status := run(tt.env, tt.args...)
		if out != "" || status != tt.status || runs() != 2 || !strings.Contains(said, tt.said) {
			t.Errorf("%s: exit %d after %d runs, %q, and it says %q; want %d and %q", tt.name, status, runs(), out, said, tt.status, tt.said)
		}
	}
	l.set(nil)
	if _, status := once("report:5"); status != 3 || runs() != 3 {
		t.Errorf("the key after that: exit %d after %d runs, want 3 and 3", status, runs())
	}
}
