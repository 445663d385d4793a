package main

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"example.com/tokend/httpapi/wire"
)

// target is a service under load. Its calls cost as little as they can, as the load and
// the service often share a machine: a connection is one goroutine's at a time, a request
// is one write, and there are no proxies, redirects and re-sends. (With net/http's client,
// which has two goroutines a connection, a call takes half as long again.)
type target struct {
	addr    string
	tls     *tls.Config // nil: plain
	path    string      // in front of the calls' own
	headers string      // of every request
	timeout time.Duration

	mu   sync.Mutex
	idle []*benchConn // the last one was used last
}

// benchConn is a connection with its buffers.
type benchConn struct {
	net.Conn
	r    *bufio.Reader
	w    []byte
	used time.Time
}

// idleAtMost is how long a connection may have been idle to be used again: no server
// closes one that soon.
const idleAtMost = 3 * time.Second

// newTarget returns the service at base for the caller bearer. It does not connect.
func newTarget(base, bearer string, timeout time.Duration) (*target, error) {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, usagef("the URL must be http://HOST or https://HOST")
	}
	t := &target{
		path:    strings.TrimSuffix(u.EscapedPath(), "/"),
		headers: " HTTP/1.1\r\nHost: " + u.Host + "\r\nUser-Agent: tokend/" + buildVersion() + "\r\nAuthorization: Bearer " + bearer + "\r\nContent-Type: application/json\r\nContent-Length: ",
		timeout: timeout,
	}
	port := u.Port()
	if u.Scheme == "https" {
		t.tls = &tls.Config{ServerName: u.Hostname(), MinVersion: tls.VersionTLS12}
		if port == "" {
			port = "443"
		}
	} else if port == "" {
		port = "80"
	}
	t.addr = net.JoinHostPort(u.Hostname(), port)
	return t, nil
}

// maxAnswer is more than any answer to one call is.
const maxAnswer = 64 << 10

// benchReply is what a call was answered with.
type benchReply struct {
	status    int
	body      []byte
	requestID string
}

// post sends body to path and returns the answer. Its error says that there is none.
func (t *target) post(path, body string) (benchReply, error) {
	c, err := t.take()
	if err != nil {
		return benchReply{}, err
	}
	now := time.Now()
	c.SetDeadline(now.Add(t.timeout))
	c.w = append(append(append(append(c.w[:0], "POST "...), t.path...), path...), t.headers...)
	c.w = append(append(strconv.AppendInt(c.w, int64(len(body)), 10), "\r\n\r\n"...), body...)
	if _, err := c.Write(c.w); err != nil {
		c.Close()
		return benchReply{}, err
	}
	resp, err := http.ReadResponse(c.r, nil)
	if err != nil {
		c.Close()
		return benchReply{}, err
	}
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err == nil && len(answer) > maxAnswer {
		err = errors.New("the answer is too long")
	}
	if err != nil || resp.Close {
		c.Close()
	} else {
		c.used = now
		t.give(c)
	}
	return benchReply{resp.StatusCode, answer, resp.Header.Get(wire.HeaderRequestID)}, err
}

// take returns an idle connection, or a new one.
func (t *target) take() (*benchConn, error) {
	t.mu.Lock()
	if n := len(t.idle); n > 0 {
		c := t.idle[n-1]
		t.idle = t.idle[:n-1]
		t.mu.Unlock()
		if time.Since(c.used) < idleAtMost {
			return c, nil
		}
		c.Close()
		t.close() // the others are older still
	} else {
		t.mu.Unlock()
	}
	dialer := &net.Dialer{Timeout: t.timeout}
	var conn net.Conn
	var err error
	if t.tls != nil {
		conn, err = tls.DialWithDialer(dialer, "tcp", t.addr, t.tls)
	} else {
		conn, err = dialer.Dial("tcp", t.addr)
	}
	if err != nil {
		return nil, err
	}
	return &benchConn{Conn: conn, r: bufio.NewReader(conn)}, nil
}

func (t *target) give(c *benchConn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.idle = append(t.idle, c)
}

// close closes the idle connections.
func (t *target) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.idle {
		c.Close()
	}
	t.idle = nil
}

// faultOf names why there was no answer, in few words of a bounded number.
func faultOf(err error) string {
	if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() {
		return "timeout"
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return "cannot connect"
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return "connection closed"
	}
	return fmt.Sprintf("%T", err)
}
