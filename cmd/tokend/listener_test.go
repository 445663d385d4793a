package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// crowd is a listener that four connections fill.
type crowd struct {
	*testing.T
	*listener
	log  *bytes.Buffer
	held chan chan struct{} // one for each call of /held, which is answered when it is closed
}

func newCrowd(t *testing.T) *crowd {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &crowd{T: t, log: new(bytes.Buffer), held: make(chan chan struct{})}
	c.listener = newListener(l, 4, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/held" {
			let := make(chan struct{})
			c.held <- let
			<-let
		}
		io.WriteString(w, "here")
	}), slog.New(slog.NewJSONHandler(c.log, nil)))
	failed := make(chan error, 1)
	c.serve(failed)
	t.Cleanup(c.close)
	return c
}

// peer is a client's connection.
type peer struct {
	*crowd
	net.Conn
	answers *bufio.Reader
}

func (c *crowd) dial() *peer {
	c.Helper()
	conn, err := net.Dial("tcp", c.Addr().String())
	if err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(time.Minute))
	return &peer{c, conn, bufio.NewReader(conn)}
}

func (p *peer) ask(path string) {
	fmt.Fprintf(p.Conn, "GET %s HTTP/1.1\r\nHost: h\r\n\r\n", path)
}

// answered tells whether an answer comes, and no end.
func (p *peer) answered() bool {
	p.Helper()
	resp, err := http.ReadResponse(p.answers, nil)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return string(body) == "here"
}

// TestConnectionsThatRest has as many connections as there may be rest after a request: those
// that have done so for longest make room, and the others are good.
func TestConnectionsThatRest(t *testing.T) {
	c := newCrowd(t)
	var peers []*peer
	for range 9 {
		p := c.dial()
		p.ask("/")
		if !p.answered() {
			t.Fatalf("connection %d is not answered", len(peers)+1)
		}
		peers = append(peers, p)
		for c.rested.Load() < int64(len(peers)) { // it rests a moment after its answer
			time.Sleep(time.Millisecond)
		}
	}
	for _, p := range peers[:len(peers)-4] {
		if p.answered() {
			t.Error("a connection that rested is answered without having asked")
		}
	}
	if p := peers[len(peers)-1]; !p.again() {
		t.Error("the latest connection is not answered again")
	}
	c.close()
	if n := strings.Count(c.log.String(), `"connections are at their limit"`); n != 1 || !strings.Contains(c.log.String(), `"limit":4,"resting_closed":1`) {
		t.Errorf("said %d times, want it said once in a minute: %s", n, c.log)
	}
}

func (p *peer) again() bool {
	p.ask("/")
	return p.answered()
}

// TestConnectionsThatWork has as many connections as there may be be waiting for answers: none
// of them is closed, and a new one waits for one of them.
func TestConnectionsThatWork(t *testing.T) {
	c := newCrowd(t)
	var peers []*peer
	var lets []chan struct{}
	for range 4 {
		p := c.dial()
		p.ask("/held")
		peers, lets = append(peers, p), append(lets, <-c.held)
	}
	late := c.dial()
	late.ask("/")
	for i, p := range peers {
		close(lets[i])
		if !p.answered() {
			t.Errorf("connection %d is not answered", i+1)
		}
		if i == 0 && !late.answered() { // that one rests now
			t.Error("the late one is not answered")
		}
	}
}
