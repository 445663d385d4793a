package gateway_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"example.com/tokend/client"
	"example.com/tokend/e2e/internal/topology"
	"example.com/tokend/internal/redistest"
)

// ofNginx are tokend's settings that deploy/nginx/tokend.conf goes with.
var ofNginx = []string{
	"GATEWAY_METHOD_HEADER=X-Original-Method", "GATEWAY_PURPOSE_HEADER=Tokend-Purpose", "GATEWAY_ATTEMPT_HEADER=Tokend-Attempt",
}

// replace are changes of a file: each old text must stand in it once.
type replace map[string]string

func (r replace) in(t *testing.T, text string) string {
	t.Helper()
	for old, with := range r {
		if strings.Count(text, old) != 1 {
			t.Fatalf("%q stands %d times in the file", old, strings.Count(text, old))
		}
		text = strings.Replace(text, old, with, 1)
	}
	return text
}

// nginx puts nginx before s, with the file of deploy/nginx, in which addresses, the key's path
// and timeouts are its own, and with more changes.
func (s *site) nginx(more replace) {
	s.t.Helper()
	if _, err := exec.LookPath("nginx"); err != nil {
		s.t.Fatal("nginx is not installed: `make deps-e2e` installs it (apt-get install nginx-light)")
	}
	file, err := os.ReadFile("../../deploy/nginx/tokend.conf")
	if err != nil {
		s.t.Fatal(err)
	}
	dir := s.t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			s.t.Fatal(err)
		}
		return path
	}
	key := write("key.conf", fmt.Sprintf("proxy_set_header Tokend-Authorization \"Bearer %s\";\n", program.ServiceKey()))
	text := more.in(s.t, string(file))
	if strings.Contains(text, "server 127.0.0.1:8080;") {
		text = replace{"server 127.0.0.1:8080;": "server " + host(s.tokend.URL) + ";"}.in(s.t, text)
	}
	for _, timeout := range []string{"proxy_connect_timeout 1s;", "proxy_read_timeout 5s;"} { // a loaded machine may need more
		name, _, _ := strings.Cut(timeout, " ")
		text = replace{timeout: name + " 60s;"}.in(s.t, text)
	}
	text = replace{"server 127.0.0.1:3000;": "server " + host(s.orders.URL) + ";", "/etc/nginx/tokend-key.conf": key}.in(s.t, text)
	for range 5 { // another program may take the port
		port, err := redistest.FreePort()
		if err != nil {
			s.t.Fatal(err)
		}
		addr := fmt.Sprintf("127.0.0.1:%d", port)
		site := write("tokend.conf", replace{"listen 80;": "listen " + addr + ";"}.in(s.t, text))
		if s.run(dir, addr, write("nginx.conf", fmt.Sprintf(nginxConf, dir, site, addr))) {
			s.url, s.host = "http://"+addr, "shop.example"
			return
		}
	}
	s.t.Fatal("nginx does not start")
}

// nginxConf is what stands around a site's file: one process, in a directory of its own, and
// the default site that distributions come with.
const nginxConf = `
daemon off;
master_process off;
pid nginx.pid;
error_log stderr warn;
events { worker_connections 256; }
http {
    access_log off;
    client_body_temp_path %[1]s/body;
    proxy_temp_path %[1]s/proxy;
    fastcgi_temp_path %[1]s/fastcgi;
    uwsgi_temp_path %[1]s/uwsgi;
    scgi_temp_path %[1]s/scgi;
    server {
        listen %[3]s default_server;
        server_name _;
        location / { return 404; }
    }
    include %[2]s;
}
`

// run starts nginx, and tells whether it answers at addr.
func (s *site) run(dir, addr, conf string) bool {
	s.t.Helper()
	cmd := exec.Command("nginx", "-p", dir, "-c", conf)
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close()
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		cmd.Wait()
		close(ended)
	}()
	s.t.Cleanup(func() {
		cmd.Process.Kill()
		<-ended
		if s.t.Failed() {
			said, _ := os.ReadFile(log.Name())
			s.t.Logf("nginx:\n%s", said)
		}
	})
	for deadline := time.Now().Add(topology.Patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if c, err := net.Dial("tcp", addr); err == nil {
			c.Close()
			select {
			case <-ended: // it was another's
			default:
				return true
			}
		}
		select {
		case <-ended:
			said, _ := os.ReadFile(log.Name())
			if !strings.Contains(string(said), "Address already in use") {
				s.t.Fatalf("nginx:\n%s", said)
			}
			return false
		default:
		}
	}
	return false
}

func host(url string) string { return strings.TrimPrefix(url, "http://") }

// TestNginx puts nginx before a service.
func TestNginx(t *testing.T) {
	s := newSite(t, ofNginx...)
	s.nginx(nil)
	s.sendsOnce(t, "POST", "PUT", "PATCH", "DELETE", "BREW")
	s.takesADoubleClick(t)
	s.isNotFooled(t)
	if a := s.send("GET", "/_tokend", http.Header{}); a.status != http.StatusNotFound {
		t.Errorf("tokend can be asked from outside: %v", a)
	}
	s.host = "other.example"
	if a := s.send("POST", "/orders", headers("Tokend-Token", s.token("alice").Value)); a.status != http.StatusNotFound || len(s.orders.take()) != 0 {
		t.Errorf("another site's request: %v", a)
	}
}

// TestNginxRefuses tells each refusal and fault from the others, although auth_request knows
// two statuses.
func TestNginxRefuses(t *testing.T) {
	s := newSite(t, ofNginx...)
	s.nginx(nil)
	about := func(tok client.Token) http.Header { return headers("Tokend-Token", tok.Value) }

	short := s.tokenFor(s.forms, "alice", client.TTL(time.Second))
	err := topology.Until("the token has expired", func() bool {
		st, err := s.forms.Status(t.Context(), "alice", short.Value)
		return err == nil && st.State == client.StateExpired
	})
	if err != nil {
		t.Fatal(err)
	}
	s.stopped(s.send("POST", "/orders", about(short)), 410, "token_expired", "reissue")

	claimed := s.token("alice")
	s.claim("alice", claimed)
	a := s.send("POST", "/orders", about(claimed))
	s.stopped(a, 409, "request_in_progress", "wait")
	if a.header.Get("Retry-After") == "" {
		t.Errorf("no Retry-After: %v", a)
	}

	tok := s.token("alice")
	s.redis.Kill()
	a = s.send("POST", "/orders", about(tok))
	s.stopped(a, 503, "store_unavailable", "wait")
	if a.header.Get("Retry-After") == "" {
		t.Errorf("no Retry-After: %v", a)
	}
	s.through(s.send("GET", "/orders", http.Header{}))

	s.tokend.Close()
	for _, method := range []string{"GET", "POST"} { // nobody says which of them pass
		a = s.send(method, "/orders", about(tok))
		s.stopped(a, 503, "store_unavailable", "wait")
		if a.header.Get("Retry-After") == "" {
			t.Errorf("no Retry-After: %v", a)
		}
	}
}

// TestNginxAsksTwice loses tokend's answer, so that nginx asks again: that is the same attempt,
// and the form comes through, once.
func TestNginxAsksTwice(t *testing.T) {
	s := newSite(t, ofNginx...)
	var lost atomic.Int64
	loses := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		req, err := http.NewRequestWithContext(r.Context(), r.Method, s.tokend.URL+r.URL.Path, nil)
		if err != nil {
			t.Error(err)
			return
		}
		req.Header = r.Header.Clone()
		resp, err := browser.Do(req)
		if err != nil {
			t.Error(err)
			return
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode == http.StatusNoContent {
			lost.Add(1)
		}
		panic(http.ErrAbortHandler)
	}))
	t.Cleanup(loses.Close)
	s.nginx(replace{"server 127.0.0.1:8080;": "server " + host(loses.URL) + "; server " + host(s.tokend.URL) + " backup;"})

	header := headers("Tokend-Token", s.token("alice").Value)
	s.through(s.send("POST", "/orders", header))
	if n := lost.Load(); n != 1 {
		t.Fatalf("%d answers were lost", n)
	}
	s.stopped(s.send("POST", "/orders", header), 409, "token_used", "stop")
}

// TestNginxLosesBody holds what docs/gateways.md says of bodies that nginx refuses after it has
// asked: nothing comes through, and the token is used up.
func TestNginxLosesBody(t *testing.T) {
	s := newSite(t, ofNginx...)
	s.nginx(nil)
	for name, body := range map[string]string{
		"too long":  "200000\r\n" + strings.Repeat("x", 2<<20) + "\r\n0\r\n\r\n", // twice what nginx takes
		"malformed": "nonsense\r\n",
		"cut off":   "5\r\nhel",
	} {
		tok := s.token("alice")
		c, err := net.Dial("tcp", host(s.url))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "POST /orders HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nTokend-Token: %s\r\nTransfer-Encoding: chunked\r\n\r\n", s.host, userJWT(t, "alice"), tok.Value)
		io.WriteString(c, body) // nginx may have refused it by now
		err = topology.Until("the token is used up", func() bool {
			st, err := s.forms.Status(t.Context(), "alice", tok.Value)
			return err == nil && st.State == client.StateUsed
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		c.Close() // where it is cut off, in the middle of the body
		s.stopped(s.send("POST", "/orders", headers("Tokend-Token", tok.Value)), 409, "token_used", "stop")
	}
}

// TestNginxUserHeader has nginx say who the user is: here by name and password.
func TestNginxUserHeader(t *testing.T) {
	s := newSite(t, append(ofNginx, "GATEWAY_USER_HEADER=Tokend-User")...)
	passwords := filepath.Join(t.TempDir(), "passwords")
	if err := os.WriteFile(passwords, []byte("alice:{PLAIN}a\nbob:{PLAIN}b\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.nginx(replace{
		"proxy_set_header Authorization $http_authorization; # the user's JWT": "",
		"#proxy_set_header Tokend-User $remote_user;":                          "proxy_set_header Tokend-User $remote_user; #",
		"auth_request /_tokend;":                                               "auth_basic orders; auth_basic_user_file " + passwords + "; auth_request /_tokend;",
	})
	as := func(user, password string, pairs ...string) http.Header {
		req := http.Request{Header: headers(pairs...)}
		req.SetBasicAuth(user, password)
		return req.Header
	}
	tok := s.token("alice").Value
	s.stopped(s.send("POST", "/orders", as("bob", "b", "Tokend-Token", tok, "Tokend-User", "alice")), 403, "wrong_user", "stop")
	if a := s.send("POST", "/orders", as("alice", "b", "Tokend-Token", tok)); a.status != http.StatusUnauthorized || len(s.orders.take()) != 0 {
		t.Errorf("a wrong password: %v", a)
	}
	s.through(s.send("POST", "/orders", as("alice", "a", "Tokend-Token", tok, "Tokend-User", "bob")))
	s.stopped(s.send("POST", "/orders", as("alice", "a", "Tokend-Token", tok)), 409, "token_used", "stop")
}
