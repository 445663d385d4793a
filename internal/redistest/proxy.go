package redistest

import (
	"bytes"
	"net"
	"sync"
	"testing"
)

// Proxy stands between a client and a server and loses replies on demand.
type Proxy struct {
	Addr string // host:port

	upstream string
	mu       sync.Mutex
	needles  [][]byte
	dropped  int
	hold     chan struct{} // closed when held replies are let through; nil: none is held
	held     int
}

// NewProxy starts a proxy to the server at upstream, ended with the test.
func NewProxy(t testing.TB, upstream string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	p := &Proxy{Addr: l.Addr().String(), upstream: upstream}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(c)
		}
	}()
	return p
}

// DropReply has the reply to the next commands that hold one of needles (in any case)
// swallowed, and the connection closed: the server has carried them out.
func (p *Proxy) DropReply(needles ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.needles = nil
	for _, n := range needles {
		p.needles = append(p.needles, []byte(n))
	}
}

// HoldReply has the reply to the next commands that hold needle (in any case) held back,
// and with it all that comes on the same connection, until release is called.
func (p *Proxy) HoldReply(needle string) (release func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.needles = [][]byte{[]byte(needle)}
	p.hold = make(chan struct{})
	hold := p.hold
	return func() { close(hold) }
}

// Held returns how many replies were held back so far.
func (p *Proxy) Held() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held
}

// Dropped returns how many replies were dropped so far.
func (p *Proxy) Dropped() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dropped
}

// spot tells whether b is to lose its reply.
func (p *Proxy) spot(b []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	b = bytes.ToLower(b)
	for _, n := range p.needles {
		if bytes.Contains(b, bytes.ToLower(n)) {
			p.needles = nil
			return true
		}
	}
	return false
}

// holdBack waits until a held reply is let through; it tells whether there is one, and counts
// it as dropped if not.
func (p *Proxy) holdBack() bool {
	p.mu.Lock()
	hold := p.hold
	if hold == nil {
		p.dropped++
		p.mu.Unlock()
		return false
	}
	p.held++
	p.mu.Unlock()
	<-hold
	return true
}

func (p *Proxy) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", p.upstream)
	if err != nil {
		return
	}
	defer server.Close()
	drop := make(chan struct{})
	dropping := sync.OnceFunc(func() { close(drop) })
	go func() {
		defer server.Close()
		buf := make([]byte, 1<<16)
		for {
			n, err := client.Read(buf)
			if err != nil {
				return
			}
			if p.spot(buf[:n]) {
				dropping()
			}
			if _, err := server.Write(buf[:n]); err != nil {
				return
			}
		}
	}()
	buf := make([]byte, 1<<16)
	for {
		n, err := server.Read(buf)
		if err != nil {
			return
		}
		select {
		case <-drop:
			if !p.holdBack() {
				return
			}
		default:
		}
		if _, err := client.Write(buf[:n]); err != nil {
			return
		}
	}
}
