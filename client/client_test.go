package client

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"example.com/tokend/httpapi/wire"
)

func TestNewURL(t *testing.T) {
	tests := []struct{ url, want string }{
		{"http://tokend", "http://tokend"},
		{"https://tokend:8443/", "https://tokend:8443"},
		{"https://gateway/tokend/", "https://gateway/tokend"},
		{"http://[::1]:8080", "http://[::1]:8080"},
		{"", ""},
		{"tokend:8080", ""},
		{"//tokend", ""},
		{"http://", ""},
		{"http://:8080", ""},
		{"unix:///run/tokend.sock", ""},
		{"http://user:hunter2@tokend", ""},
		{"http://tokend?key=hunter2", ""},
		{"http://tokend?", ""},
		{"http://tokend#hunter2", ""},
		{"http://tokend#", ""},
		{"http://tokend:hunter2", ""},
		{"http://tok end/hunter2", ""},
	}
	for _, tt := range tests {
		t.Run(tt.url, func(t *testing.T) {
			c, err := New(tt.url, ServiceKey(testKey))
			if tt.want == "" {
				if err == nil || c != nil {
					t.Fatalf("got %v, %v", c, err)
				}
				if strings.Contains(err.Error(), "hunter2") {
					t.Errorf("the URL is quoted: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if c.base != tt.want {
				t.Errorf("base is %s, want %s", c.base, tt.want)
			}
		})
	}
}

func TestNewNamesAllThatIsWrong(t *testing.T) {
	_, err := New("ftp://x", ServiceKey("a\nb"),
		HTTPClient(nil), TryTimeout(0), MaxTries(0), Budget(-1), Backoff(nil), UserAgent("a\r\nb"))
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"URL", "credential", "HTTPClient", "TryTimeout", "MaxTries", "Budget", "Backoff", "UserAgent"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s is not in %v", want, err)
		}
	}
}

func TestUserAgent(t *testing.T) {
	for want, opts := range map[string][]Option{"tokend-go": nil, "orders/1.2 (x)": {UserAgent("orders/1.2 (x)")}} {
		saw := func(w http.ResponseWriter, r *http.Request) {
			if got := r.UserAgent(); got != want {
				t.Errorf("User-Agent is %q, want %q", got, want)
			}
			granted(w, r)
		}
		inBubble(t, []step{saw}, func(t *testing.T, c *Client, f *fake) {
			if err := consumeOnce(t.Context(), c); err != nil {
				t.Error(err)
			}
		}, opts...)
	}
}

// The caller's own http.Client may follow redirects; the copy that calls does not, and
// the caller's stays as it was.
func TestRedirectsAreNotFollowed(t *testing.T) {
	for _, status := range []int{301, 302, 303, 307, 308} {
		var followed atomic.Bool
		mux := http.NewServeMux()
		mux.Handle("POST "+wire.PathConsume, http.RedirectHandler("/elsewhere", status))
		mux.HandleFunc("/elsewhere", func(http.ResponseWriter, *http.Request) { followed.Store(true) })
		srv := httptest.NewServer(mux)
		defer srv.Close()
		theirs := &http.Client{Transport: srv.Client().Transport}
		for name, opts := range map[string][]Option{"default": {MaxTries(1)}, "caller's": {MaxTries(1), HTTPClient(theirs)}} {
			c, err := New(srv.URL, ServiceKey(testKey), opts...)
			if err != nil {
				t.Fatal(err)
			}
			defer c.CloseIdleConnections()
			wantFault(t, consumeOnce(t.Context(), c), Fault{Op: "consume", MaybeDone: true, Tries: 1})
			if followed.Load() {
				t.Errorf("%s: a %d was followed", name, status)
			}
		}
		if theirs.CheckRedirect != nil {
			t.Error("the caller's http.Client was changed")
		}
	}
}

// newServer serves h over a real network, and counts the connections.
func newServer(t *testing.T, h http.HandlerFunc) (*Client, *atomic.Int64) {
	t.Helper()
	var conns atomic.Int64
	srv := httptest.NewUnstartedServer(h)
	srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			conns.Add(1)
		}
	}
	srv.Start()
	t.Cleanup(srv.Close)
	c, err := New(srv.URL, ServiceKey(testKey))
	if err != nil {
		t.Fatal(err)
	}
	c.wait = noWait
	t.Cleanup(c.CloseIdleConnections)
	return c, &conns
}

// Whatever is answered is read to its end, so one connection serves all.
func TestConnectionIsKept(t *testing.T) {
	steps := []step{
		granted, problemOf(wire.CodeTokenUsed), problemOf(wire.CodeStoreUnavailable),
		answerWith(502, "text/html", strings.Repeat("<p>", 100_000)), answerWith(200, "application/json", "{"),
	}
	var n atomic.Int64
	c, conns := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		steps[int(n.Add(1)-1)%len(steps)](w, r)
	})
	for n.Load() < 50 {
		consumeOnce(t.Context(), c)
	}
	if got := conns.Load(); got != 1 {
		t.Errorf("%d connections for %d tries, want 1", got, n.Load())
	}
}

// endless is a body without an end, which knows how much of it was read.
type endless struct {
	read   int
	closed bool
}

func (e *endless) Read(b []byte) (int, error) {
	e.read += len(b)
	return copy(b, strings.Repeat(" ", len(b))), nil
}

func (e *endless) Close() error {
	e.closed = true
	return nil
}

// What answers need not be tokend: its memory's worth of bytes is not read.
func TestEndlessAnswer(t *testing.T) {
	body := new(endless)
	c, err := New("http://tokend", ServiceKey(testKey), MaxTries(1), HTTPClient(&http.Client{
		Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			io.Copy(io.Discard, r.Body)
			return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {wire.TypeJSON}}, Body: body}, nil
		}),
	}))
	if err != nil {
		t.Fatal(err)
	}
	wantFault(t, consumeOnce(t.Context(), c), Fault{Op: "consume", MaybeDone: true, Tries: 1})
	if body.read > 2*maxAnswer || !body.closed {
		t.Errorf("read %d bytes, closed %t", body.read, body.closed)
	}
}

// One Client serves many goroutines, each call with an attempt of its own, and keeps
// the connections that they needed.
func TestConcurrentUse(t *testing.T) {
	const callers, calls = 64, 10
	var attempts sync.Map
	var n atomic.Int64
	c, conns := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		attempt := decodeConsume(t, r)
		tries, _ := attempts.LoadOrStore(attempt, new(atomic.Int64))
		if tries.(*atomic.Int64).Add(1) == 1 && n.Add(1)%5 == 0 {
			problemOf(wire.CodeStoreUnavailable)(w, r)
			return
		}
		granted(w, r)
	})
	orders := c.Purpose("default")
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range calls {
				if _, err := orders.Consume(t.Context(), testUser, testToken); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	var distinct int
	for range attempts.Range {
		distinct++
	}
	if distinct != callers*calls {
		t.Errorf("%d attempts for %d calls", distinct, callers*calls)
	}
	if got := conns.Load(); got > 2*callers {
		t.Errorf("%d connections for %d callers", got, callers)
	}
}

// A server that sends GOAWAY after each answer makes net/http send requests anew,
// which it can only with a body that can be read again.
func TestGoAway(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 {
			t.Errorf("%s, want HTTP/2", r.Proto)
		}
		decodeConsume(t, r)
		w.Header().Set("Connection", "close")
		granted(w, r)
	}))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	defer srv.Close()
	c, err := New(srv.URL, ServiceKey(testKey), HTTPClient(srv.Client()))
	if err != nil {
		t.Fatal(err)
	}
	c.wait = noWait
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				if err := consumeOnce(t.Context(), c); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

func TestUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	srv := &httptest.Server{Listener: ln, Config: &http.Server{Handler: http.HandlerFunc(granted)}}
	srv.Start()
	defer srv.Close()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}
	c, err := New("http://tokend", ServiceKey(testKey), HTTPClient(&http.Client{Transport: transport}))
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseIdleConnections()
	if err := consumeOnce(t.Context(), c); err != nil {
		t.Error(err)
	}
}

// Services pay for what the package imports: nothing but wire.
func TestDependencies(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, dep := range strings.Fields(string(out)) {
		if dep != "example.com/tokend/client" && dep != "example.com/tokend/httpapi/wire" {
			t.Errorf("imports %s", dep)
		}
	}
}
