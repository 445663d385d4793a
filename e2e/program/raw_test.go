package program_test

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"example.com/tokend/httpapi/wire"
	"example.com/tokend/internal/redistest"
)

// post spells a POST of a service, with more header lines if there are any.
func post(path, body string, more ...string) string {
	return head(path, append([]string{fmt.Sprintf("Content-Length: %d", len(body))}, more...)...) + body
}

// head spells a POST of a service up to its body.
func head(path string, more ...string) string {
	lines := append([]string{
		"POST " + path + " HTTP/1.1", "Host: x", "Authorization: Bearer " + serviceKey, "Content-Type: application/json",
	}, more...)
	return strings.Join(lines, "\r\n") + "\r\n\r\n"
}

// chunked spells body in chunks of size bytes.
func chunked(body string, size int) string {
	var b strings.Builder
	for len(body) > 0 {
		n := min(size, len(body))
		fmt.Fprintf(&b, "%x\r\n%s\r\n", n, body[:n])
		body = body[n:]
	}
	return b.String() + "0\r\n\r\n"
}

// answers reads n answers.
func (r *raw) answers(n int) []answer {
	r.t.Helper()
	in := bufio.NewReader(r)
	var as []answer
	for range n {
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			r.t.Fatalf("answer %d: %v", len(as)+1, err)
		}
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			r.t.Fatal(err)
		}
		as = append(as, readAnswer(resp, b, 0))
	}
	return as
}

// exchange sends what parts are and reads one answer.
func (r *raw) exchange(parts ...string) answer {
	r.t.Helper()
	r.write(parts...)
	return r.answers(1)[0]
}

// reset hangs up as a crashed client does.
func (r *raw) reset() {
	r.Conn.(*net.TCPConn).SetLinger(0)
	r.Close()
}

// What Go's own client never sends is refused, or served as the standard says, and changes
// nothing that it should not.
func TestRawRequests(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	i := startReady(t, redisURL(r.Addr))
	use := func(token string) string { return object(consumption("alice", token, "a1")) }

	t.Run("a chunked body over the limit, its JSON first", func(t *testing.T) {
		token := i.issue("alice")
		c := i.dial()
		body := use(token) + strings.Repeat(" ", 1<<17)
		go io.WriteString(c, head(wire.PathConsume, "Transfer-Encoding: chunked")+chunked(body, 1000)) // may be cut
		if a := c.answers(1)[0]; a.status != http.StatusRequestEntityTooLarge || a.Code != string(wire.CodeBodyTooLarge) {
			t.Errorf("%v", a)
		}
		if s := i.state("alice", token); s != "issued" {
			t.Errorf("the token is %s", s)
		}
	})
	t.Run("a length over the limit, and no body", func(t *testing.T) {
		if a := i.dial().exchange(head(wire.PathConsume, "Content-Length: 9999999999")); a.status != http.StatusRequestEntityTooLarge {
			t.Errorf("%v", a)
		}
	})
	t.Run("chunks of a byte", func(t *testing.T) {
		if a := i.dial().exchange(head(wire.PathConsume, "Transfer-Encoding: chunked"), chunked(use(i.issue("alice")), 1)); a.status != http.StatusOK {
			t.Errorf("%v", a)
		}
	})
	t.Run("something behind the body", func(t *testing.T) {
		token := i.issue("alice")
		if a := i.dial().exchange(head(wire.PathConsume, "Transfer-Encoding: chunked"), chunked(use(token)+use(token), 50)); a.Code != string(wire.CodeInvalidRequest) {
			t.Errorf("%v", a)
		}
		if s := i.state("alice", token); s != "issued" {
			t.Errorf("the token is %s", s)
		}
	})
	t.Run("lengths that contradict each other", func(t *testing.T) {
		token := i.issue("alice")
		body := use(token)
		for _, lines := range [][]string{
			{fmt.Sprintf("Content-Length: %d", len(body)), "Content-Length: 3"},
			{"Content-Length: -1"},
			{"Content-Length: +5"},
			{"Transfer-Encoding: chunked, identity"},
			{"Transfer-Encoding: x"},
			{"Transfer-Encoding : chunked", "Content-Length: 3"},
		} {
			c := i.dial()
			c.write(head(wire.PathConsume, lines...), body)
			if a := c.answers(1)[0]; a.status < 400 || a.status == 500 {
				t.Errorf("%q: %v", lines, a)
			}
		}
		if s := i.state("alice", token); s != "issued" {
			t.Errorf("the token is %s", s)
		}
	})
	t.Run("a request smuggled in a body", func(t *testing.T) {
		token := i.issue("alice")
		smuggled := post(wire.PathConsume, use(token))
		c := i.dial()
		c.write(post(wire.PathTokens, smuggled, "Connection: close"))
		if out := c.rest(); strings.Count(out, "HTTP/1.1 ") != 1 {
			t.Errorf("it was answered: %s", out)
		}
		if s := i.state("alice", token); s != "issued" {
			t.Errorf("the token is %s", s)
		}
	})
	t.Run("pipelined requests", func(t *testing.T) {
		const n = 20
		var out strings.Builder
		tokens := make([]string, n)
		for k := range n {
			tokens[k] = i.issue("alice")
			for try := range 3 {
				out.WriteString(post(wire.PathConsume, object(consumption("alice", tokens[k], fmt.Sprintf("a%d", try/2))),
					fmt.Sprintf("X-Request-Id: %d.%d", k, try)))
			}
		}
		c := i.dial()
		go io.WriteString(c, out.String())
		for k, a := range c.answers(3 * n) {
			want := []bool{true, true, false}[k%3] // the first attempt twice, and another
			if (a.status == http.StatusOK) != want || a.Replayed != (k%3 == 1) || a.header.Get("X-Request-Id") != fmt.Sprintf("%d.%d", k/3, k%3) {
				t.Errorf("answer %d: %v", k, a)
			}
		}
	})
	t.Run("HTTP/1.0", func(t *testing.T) {
		c := i.dial()
		c.write(strings.Replace(post(wire.PathConsume, use(i.issue("alice"))), "HTTP/1.1", "HTTP/1.0", 1))
		if out := c.rest(); !strings.Contains(out, " 200 OK") || !strings.Contains(out, `"consumed"`) {
			t.Errorf("%s", out)
		}
	})
	t.Run("Expect: 100-continue", func(t *testing.T) {
		c := i.dial()
		body := use(i.issue("alice"))
		c.write(head(wire.PathConsume, fmt.Sprintf("Content-Length: %d", len(body)), "Expect: 100-continue"))
		if line, err := bufio.NewReader(io.LimitReader(c, 25)).ReadString('\n'); err != nil || !strings.Contains(line, " 100 ") {
			t.Fatalf("%q, %v", line, err)
		}
		if a := c.exchange(body); a.status != http.StatusOK {
			t.Errorf("%v", a)
		}
		// Who is not let in is not asked for the body.
		stranger := strings.Replace(head(wire.PathConsume, "Content-Length: 10", "Expect: 100-continue"), serviceKey, "nobody", 1)
		if a := i.dial().exchange(stranger); a.status != http.StatusUnauthorized {
			t.Errorf("%v", a)
		}
		if a := i.dial().exchange(head(wire.PathConsume, "Content-Length: 10", "Expect: 200-ok")); a.status != http.StatusExpectationFailed {
			t.Errorf("%v", a)
		}
	})
	t.Run("floods of headers", func(t *testing.T) {
		for name, lines := range map[string][]string{
			"one that is long": {"X-Long: " + strings.Repeat("x", 1<<17)},
			"many":             strings.Split(strings.Repeat("X-Many: 1\n", 20000)+"X-Many: 1", "\n"),
		} {
			c := i.dial()
			go io.WriteString(c, head(wire.PathConsume, append(lines, "Content-Length: 0")...)) // may be cut
			if out, _ := io.ReadAll(c); len(out) > 0 && !strings.Contains(string(out), " 431 ") {
				t.Errorf("%s: %s", name, out)
			}
		}
	})
	t.Run("nothing but the body is read", func(t *testing.T) {
		token := i.issue("alice")
		for _, request := range []string{
			post(wire.PathConsume+"?token="+token+"&user=alice&attempt=q", `{}`),
			post(wire.PathConsume+"?attempt=q", object(consumption("bob", token, ""))),
			strings.Replace(post(wire.PathConsume, "token="+token+"&user=alice"), "application/json", "application/x-www-form-urlencoded", 1),
			post(wire.PathConsume, use(token), "Idempotency-Key: browser"),
			post(wire.PathConsume, use(token), "Content-Encoding: gzip"),
			post(wire.PathConsume, use(token), "Authorization: Bearer other"),
			strings.Replace(post(wire.PathConsume, use(token)), "POST", "GET", 1),
			strings.Replace(post(wire.PathConsume, use(token), "X-HTTP-Method-Override: POST"), "POST /", "PUT /", 1),
			post("//v1/tokens/consume", use(token)),
			post("/v1/tokens/consume/", use(token)),
			post("/v1/tokens/x/../consume", use(token)),
			post("/v1/tokens/%63onsume%2f", use(token)),
			post("/V1/tokens/consume", use(token)),
			post("/v1/tokens/status", use(token)), // attempt is not a member of it
		} {
			if a := i.dial().exchange(request); a.status < 400 || a.status >= 500 {
				t.Errorf("%.200s\n%v", strings.ReplaceAll(request, serviceKey, "…"), a)
			}
		}
		if s := i.state("alice", token); s != "issued" {
			t.Errorf("the token is %s", s)
		}
	})
	t.Run("what is no HTTP", func(t *testing.T) {
		for _, text := range []string{
			"\r\n\r\n\r\n", "GET /livez\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "POST /v1/tokens HTTP/9.9\r\n\r\n",
			"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "CONNECT x:443 HTTP/1.1\r\nHost: x:443\r\n\r\n", "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
			"TRACE / HTTP/1.1\r\nHost: x\r\n\r\n", "GET /\x00 HTTP/1.1\r\nHost: x\r\n\r\n", "GET http://evil/livez HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
			"GE\xffT /livez HTTP/1.1\r\nHost: x\r\n\r\n", "GET /livez HTTP/1.1\r\nHost: x\r\nX\x00: 1\r\n\r\n",
		} {
			c := i.dial()
			c.write(text)
			c.Conn.(*net.TCPConn).CloseWrite()
			c.rest()
		}
		for n := range 200 {
			c := i.dial()
			junk := make([]byte, 1+rand.N(300))
			for k := range junk {
				junk[k] = byte(rand.Uint32())
			}
			if n%2 == 0 {
				junk = append([]byte(head(wire.PathConsume, fmt.Sprintf("Content-Length: %d", len(junk)))), junk...)
			}
			c.Write(junk)
			c.reset()
		}
	})
	i.usable()
	if !i.running() {
		t.Error("the process has ended")
	}
}

// A caller that hangs up when it has sent all of its request has sent it: the change is
// carried out, and the same attempt again is a success.
func TestHangUpAfterRequest(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	i := startReady(t, redisURL(r.Addr), "REDIS_TIMEOUT=30s")
	idle := i.gauge(`tokend_redis_pool{state="in_use"}`)
	hangUps := map[string]func(*raw){"FIN": func(c *raw) { c.Close() }, "RST": (*raw).reset}
	for name, hangUp := range hangUps {
		t.Run(name, func(t *testing.T) {
			const n = 5
			var tokens [n]string
			for k := range n {
				tokens[k] = i.issue("alice")
			}
			r.Pause() // so that nothing is carried out before the callers have gone
			var calls [n]*raw
			for k := range n {
				calls[k] = i.dial()
				calls[k].write(post(wire.PathConsume, object(consumption("alice", tokens[k], "a1"))))
			}
			i.untilWaiting(idle + 1)
			time.Sleep(100 * time.Millisecond) // for most of the others to have been read, too
			for _, c := range calls {
				hangUp(c)
			}
			time.Sleep(100 * time.Millisecond)
			r.Resume()
			carriedOut := 0
			for _, token := range tokens {
				if name == "FIN" { // a reset also takes what has come and not been read
					until(t, "the change is carried out", func() bool { return i.state("alice", token) == "used" })
				}
				a := i.consume("alice", token, "a1")
				if a.status != http.StatusOK {
					t.Errorf("the same attempt again: %v", a)
				}
				if a.Replayed {
					carriedOut++
				}
				if a := i.consume("alice", token, "a2"); a.Code != string(wire.CodeTokenUsed) {
					t.Errorf("another attempt: %v", a)
				}
			}
			if carriedOut == 0 || name == "FIN" && carriedOut != n {
				t.Errorf("of %d changes %d were carried out", n, carriedOut)
			}
			t.Logf("%d callers hung up, %d changes were carried out", n, carriedOut)
		})
	}
}

// A caller that hangs up within its request has sent none.
func TestHangUpWithinBody(t *testing.T) {
	t.Parallel()
	i := startReady(t, redisURL(redistest.Start(t).Addr))
	token := i.issue("alice")
	body := object(consumption("alice", token, "a1"))
	for n, request := range []string{
		head(wire.PathConsume, fmt.Sprintf("Content-Length: %d", len(body)+1)) + body, // its JSON is whole
		head(wire.PathConsume, fmt.Sprintf("Content-Length: %d", len(body))) + body[:len(body)-1],
		head(wire.PathConsume, "Transfer-Encoding: chunked") + strings.TrimSuffix(chunked(body, 1000), "0\r\n\r\n"),
		head(wire.PathConsume, "Transfer-Encoding: chunked") + strings.TrimSuffix(chunked(body, 7), "\r\n\r\n"),
		head(wire.PathConsume, "Content-Length: 10000"),
	} {
		for _, hangUp := range []func(*raw){
			func(c *raw) { c.Close() }, (*raw).reset,
			func(c *raw) { c.Conn.(*net.TCPConn).CloseWrite(); c.rest() },
		} {
			c := i.dial()
			c.write(request)
			hangUp(c)
		}
		if s := i.state("alice", token); s != "issued" {
			t.Errorf("after request %d the token is %s", n, s)
		}
	}
	time.Sleep(200 * time.Millisecond) // the last of them may still be looked at
	if s := i.state("alice", token); s != "issued" {
		t.Errorf("the token is %s", s)
	}
	if a := i.consume("alice", token, "a2"); a.status != http.StatusOK {
		t.Errorf("consume: %v", a)
	}
}

// Who sends slowly is cut off, by the server's own clock, and leaves nothing behind.
func TestSlowCallersAreCutOff(t *testing.T) {
	t.Parallel()
	i := startReady(t, redisURL(redistest.Start(t).Addr))
	i.usable()
	before := i.gauge("go_goroutines")
	token := i.issue("alice")
	body := object(consumption("alice", token, "a1"))
	const each = 40
	stop := make(chan struct{})
	defer close(stop)
	var slow []*raw
	for range each {
		unfinished := i.dial()
		unfinished.write(head(wire.PathConsume, fmt.Sprintf("Content-Length: %d", len(body)+1)), body)
		headless := i.dial()
		headless.write("POST /v1/tokens/consume HTTP/1.1\r\nHost: x\r\n")
		dripping := i.dial() // a byte now and then does not keep it alive
		dripping.write(head(wire.PathConsume, "Transfer-Encoding: chunked"))
		go func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Second):
					if _, err := io.WriteString(dripping, "1\r\n \r\n"); err != nil {
						return
					}
				}
			}
		}()
		slow = append(slow, unfinished, headless, dripping)
	}
	during := i.gauge("go_goroutines")
	began := time.Now()
	for _, c := range slow {
		c.SetReadDeadline(time.Now().Add(patience))
		io.Copy(io.Discard, c) // a reset is an end, too
	}
	took := time.Since(began)
	if took > patience {
		t.Errorf("they were cut off after %v", took)
	}
	until(t, "their goroutines have ended", func() bool { return i.gauge("go_goroutines") <= before+5 })
	if s := i.state("alice", token); s != "issued" {
		t.Errorf("the token is %s", s)
	}
	t.Logf("%d slow callers were cut off after %v; goroutines: %v, %v, %v", len(slow), took, before, during, i.gauge("go_goroutines"))
}
