package lazyconn

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/nettest"
)

// TestNetConn holds lazy connections to what all others do.
func TestNetConn(t *testing.T) {
	for _, patience := range []time.Duration{time.Millisecond, time.Hour} {
		nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
			l, err := nettest.NewLocalListener("tcp")
			if err != nil {
				return nil, nil, nil, err
			}
			defer l.Close()
			c1, err = net.Dial("tcp", l.Addr().String())
			if err != nil {
				return nil, nil, nil, err
			}
			c2, err = Listener(l, patience).Accept()
			if err != nil {
				c1.Close()
				return nil, nil, nil, err
			}
			c1 = newConn(c1, patience)
			return c1, c2, func() { c1.Close(); c2.Close() }, nil
		})
	}
}

// system counts what a connection asks of it.
type system struct {
	net.Conn
	mu                            sync.Mutex
	reads, ofOneByte, writes, set int
}

func (s *system) count(n *int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*n++
}

func (s *system) Read(p []byte) (int, error) {
	s.count(&s.reads)
	if len(p) == 1 {
		s.count(&s.ofOneByte)
	}
	return len(p), nil
}

func (s *system) Write(p []byte) (int, error) {
	s.count(&s.writes)
	return len(p), nil
}

func (s *system) Close() error                     { return nil }
func (s *system) SetReadDeadline(time.Time) error  { s.count(&s.set); return nil }
func (s *system) SetWriteDeadline(time.Time) error { s.count(&s.set); return nil }

// TestSparesTheSystem does what net/http does for each request, and asks the system for no
// more than to read and to write.
func TestSparesTheSystem(t *testing.T) {
	s := new(system)
	c := newConn(s, time.Hour)
	p := make([]byte, 100)
	const requests = 50
	for range requests {
		c.SetReadDeadline(time.Now().Add(2 * time.Minute)) // for the connection to be idle
		c.Read(p)
		c.SetReadDeadline(time.Time{})
		c.SetReadDeadline(time.Now().Add(time.Minute)) // for the headers
		c.SetReadDeadline(time.Now().Add(time.Hour))   // for the body
		c.SetWriteDeadline(time.Now().Add(time.Minute))
		c.SetReadDeadline(time.Time{})
		ended := make(chan error)
		go func() {
			_, err := c.Read(p[:1])
			ended <- err
		}()
		c.SetReadDeadline(time.Unix(1, 0))
		if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("a read that was ended: %v", err)
		}
		c.SetReadDeadline(time.Time{})
		c.Write(p)
		c.SetWriteDeadline(time.Time{})
	}
	if s.reads != requests || s.ofOneByte != 0 || s.writes != requests || s.set > 3 {
		t.Errorf("for %d requests: %d reads, %d of one byte, %d writes, %d deadlines", requests, s.reads, s.ofOneByte, s.writes, s.set)
	}
	c.Close()
}

// pipe returns two ends; a is lazy.
func pipe(t *testing.T, patience time.Duration) (a, b net.Conn) {
	system, b := net.Pipe()
	a = newConn(system, patience)
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

// later has do done after a while.
func later(after time.Duration, do func()) {
	go func() {
		time.Sleep(after)
		do()
	}()
}

func TestDeadlineOfReads(t *testing.T) {
	const s = time.Second
	for _, tt := range []struct {
		name         string
		first        time.Duration // the deadline when the read begins; 0: none
		after        time.Duration // when it is changed
		then         time.Duration // to what, from the start; 0: none
		data         time.Duration // when something comes; 0: never
		want         time.Duration
		wantDeadline bool
	}{
		{name: "kept", first: 2 * s, after: s, then: 2 * s, want: 2 * s, wantDeadline: true},
		{name: "put off", first: 2 * s, after: s, then: 5 * s, want: 5 * s, wantDeadline: true},
		{name: "brought forward", first: 5 * s, after: s, then: 2 * s, want: 2 * s, wantDeadline: true},
		{name: "lifted", first: 2 * s, after: s, data: 9 * s, want: 9 * s},
		{name: "set", after: s, then: 2 * s, want: 2 * s, wantDeadline: true},
		{name: "put off, and something comes", first: 2 * s, after: s, then: 5 * s, data: 4 * s, want: 4 * s},
	} {
		for _, size := range []int{1, 10} {
			t.Run(tt.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					a, b := pipe(t, 100*time.Millisecond)
					began := time.Now()
					at := func(d time.Duration) time.Time {
						if d == 0 {
							return time.Time{}
						}
						return began.Add(d)
					}
					a.SetReadDeadline(at(30 * s)) // which does not count any more
					a.SetReadDeadline(at(tt.first))
					later(tt.after, func() { a.SetReadDeadline(at(tt.then)) })
					if tt.data > 0 {
						later(tt.data, func() { b.Write([]byte("x")) })
					}
					n, err := a.Read(make([]byte, size))
					if errors.Is(err, os.ErrDeadlineExceeded) != tt.wantDeadline || time.Since(began) != tt.want || !tt.wantDeadline && n != 1 {
						t.Errorf("of %d: %d, %v after %v; want it after %v", size, n, err, time.Since(began), tt.want)
					}
				})
			})
		}
	}
}

// TestWriteInParts has a write be half done when the system ends it too early.
func TestWriteInParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := pipe(t, time.Hour)
		a.SetWriteDeadline(time.Now().Add(time.Second))
		later(500*time.Millisecond, func() { a.SetWriteDeadline(time.Now().Add(time.Minute)) })
		var got []byte
		later(0, func() {
			p := make([]byte, 4)
			n, _ := b.Read(p)
			got = append(got, p[:n]...)
			time.Sleep(5 * time.Second)
			rest := make([]byte, 100)
			n, _ = b.Read(rest)
			got = append(got, rest[:n]...)
		})
		n, err := a.Write([]byte("0123456789"))
		synctest.Wait()
		if n != 10 || err != nil || string(got) != "0123456789" {
			t.Errorf("%d, %v; %q came", n, err, got)
		}
		began := time.Now()
		a.SetWriteDeadline(began.Add(time.Second))
		if n, err := a.Write([]byte("x")); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("%d, %v after %v", n, err, time.Since(began))
		}
	})
}

// TestWritesDoNotMix has several write at once while the system ends each write again and again,
// too early: each comes in one piece.
func TestWritesDoNotMix(t *testing.T) {
	s := new(hasty)
	c := newConn(s, time.Hour)
	c.SetWriteDeadline(time.Now().Add(time.Hour))
	var wg sync.WaitGroup
	for _, letter := range []string{"a", "b", "c", "d"} {
		wg.Go(func() {
			if n, err := c.Write([]byte(strings.Repeat(letter, 1000))); n != 1000 || err != nil {
				t.Errorf("%d, %v", n, err)
			}
		})
	}
	wg.Wait()
	changes := 0
	for i := 1; i < len(s.got); i++ {
		if s.got[i] != s.got[i-1] {
			changes++
		}
	}
	if changes != 3 || len(s.got) != 4000 {
		t.Errorf("%d bytes came, which change %d times", len(s.got), changes)
	}
}

// hasty takes a byte of each write, and ends it too early.
type hasty struct {
	net.Conn
	mu  sync.Mutex
	got []byte
}

func (h *hasty) Write(p []byte) (int, error) {
	defer runtime.Gosched()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.got = append(h.got, p[0])
	if len(p) == 1 {
		return 1, nil
	}
	return 1, os.ErrDeadlineExceeded
}

func (h *hasty) SetReadDeadline(time.Time) error  { return nil }
func (h *hasty) SetWriteDeadline(time.Time) error { return nil }

// TestClosed has a closed connection say so, whatever its deadline.
func TestClosed(t *testing.T) {
	a, _ := net.Pipe()
	c := newConn(closer{a}, time.Hour)
	c.SetReadDeadline(time.Unix(1, 0))
	c.Close()
	for _, size := range []int{1, 10} {
		if _, err := c.Read(make([]byte, size)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("a read of %d: %v", size, err)
		}
	}
	for name, err := range map[string]error{
		"read deadline": c.SetReadDeadline(time.Time{}), "write deadline": c.SetWriteDeadline(time.Time{}), "deadline": c.SetDeadline(time.Time{}),
	} {
		if !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// closer says of all that follows its end what a connection of package net does.
type closer struct{ net.Conn }

func (closer) Read([]byte) (int, error)         { return 0, net.ErrClosed }
func (closer) SetReadDeadline(time.Time) error  { return net.ErrClosed }
func (closer) SetWriteDeadline(time.Time) error { return net.ErrClosed }

// TestOneByte has reads of one byte wait, and be ended in every way.
func TestOneByte(t *testing.T) {
	const patience = time.Second
	for _, tt := range []struct {
		name  string
		end   func(a, b net.Conn)
		least time.Duration // how long it takes
		most  time.Duration
		want  error
	}{
		{"something has come", func(_, b net.Conn) { b.Write([]byte("x")) }, patience, patience, nil},
		{"the other end has gone", func(_, b net.Conn) { b.Close() }, patience, patience, io.EOF},
		{"a deadline that is over", func(a, _ net.Conn) { a.SetReadDeadline(time.Unix(1, 0)) }, 0, 0, os.ErrDeadlineExceeded},
		{"a deadline", func(a, _ net.Conn) { a.SetDeadline(time.Now().Add(patience / 4)) }, patience / 4, patience / 4, os.ErrDeadlineExceeded},
		{"closed", func(a, _ net.Conn) { a.Close() }, 0, 0, io.ErrClosedPipe},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := pipe(t, patience)
				began := time.Now()
				later(0, func() { tt.end(a, b) })
				_, err := a.Read(make([]byte, 1))
				if took := time.Since(began); !errors.Is(err, tt.want) || took < tt.least || took > tt.most {
					t.Errorf("%v after %v", err, took)
				}
			})
		})
	}
}

// TestManyWaits has the waits of one connection come one upon another: what comes in any of
// them is heard of within twice the patience, and an early one's alarm ends none before its time.
func TestManyWaits(t *testing.T) {
	const patience = time.Second
	synctest.Test(t, func(t *testing.T) {
		a, b := pipe(t, patience)
		for range 20 {
			later(patience*3/10, func() { a.SetReadDeadline(time.Unix(1, 0)) })
			if _, err := a.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatal(err)
			}
			a.SetReadDeadline(time.Time{})
		}
		began := time.Now()
		later(0, func() { b.Write([]byte("x")) })
		if n, err := a.Read(make([]byte, 1)); n != 1 || err != nil || time.Since(began) < patience || time.Since(began) > 2*patience {
			t.Errorf("%d, %v after %v", n, err, time.Since(began))
		}
	})
}

// TestTwoReadersOfOneByte has the second one not wait: it may be the one that matters.
func TestTwoReadersOfOneByte(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := pipe(t, time.Hour)
		first := make(chan error, 1)
		later(0, func() {
			_, err := a.Read(make([]byte, 1))
			first <- err
		})
		synctest.Wait()
		later(time.Second, func() { b.Write([]byte("x")) })
		began := time.Now()
		if n, err := a.Read(make([]byte, 1)); n != 1 || err != nil || time.Since(began) != time.Second {
			t.Errorf("the second: %d, %v after %v", n, err, time.Since(began))
		}
		a.SetReadDeadline(time.Unix(1, 0))
		if err := <-first; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the first: %v", err)
		}
	})
}

// TestServer has net/http serve by lazy connections: requests one after another and all at
// once, and one whose client hangs up, which is heard of.
func TestServer(t *testing.T) {
	hungUp := make(chan struct{})
	ts := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		if r.URL.Path == "/wait" {
			<-r.Context().Done()
			close(hungUp)
		}
		io.WriteString(w, r.URL.Path)
	}))
	ts.Listener = Listener(ts.Listener, 10*time.Millisecond)
	ts.Config.ReadHeaderTimeout, ts.Config.ReadTimeout, ts.Config.WriteTimeout = time.Minute, 2*time.Minute, time.Minute
	ts.Start()
	defer ts.Close()

	c, err := net.Dial("tcp", ts.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	const request = "POST /PATH HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc"
	answers := bufio.NewReader(c)
	mustAnswer := func(path string) {
		t.Helper()
		resp, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatal(err)
		}
		if body, _ := io.ReadAll(resp.Body); string(body) != path {
			t.Errorf("answered %q, want %s", body, path)
		}
	}
	for range 3 {
		io.WriteString(c, strings.Replace(request, "PATH", "one", 1))
		mustAnswer("/one")
	}
	io.WriteString(c, strings.Repeat(strings.Replace(request, "PATH", "many", 1), 3))
	for range 3 {
		mustAnswer("/many")
	}
	io.WriteString(c, strings.Replace(request, "PATH", "wait", 1))
	c.Close()
	<-hungUp
}
