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

func (p *Proxy) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", p.upstream)
	if err != nil {
		return
	}
	defer server.Close()
	drop := make(chan struct{})
	go func() {
		defer server.Close()
		buf := make([]byte, 1<<16)
		for {
			n, err := client.Read(buf)
			if err != nil {
				return
			}
			if p.spot(buf[:n]) {
				close(drop)
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
			p.mu.Lock()
			p.dropped++
			p.mu.Unlock()
			return
		default:
		}
		if _, err := client.Write(buf[:n]); err != nil {
			return
		}
	}
}
