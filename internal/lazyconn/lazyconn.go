// Package lazyconn makes connections cheaper for a net/http server whose calls are short.
//
// For each request net/http sets some nine deadlines, of which nearly all are replaced before
// they are due. And while the handler works it has a goroutine read one byte, to hear early
// that the client has gone: a system call that mostly finds nothing, and the network poller
// to end it. Together that was more than a twentieth of what a short call costs.
//
// The connections of this package keep to the contract of [net.Conn], but put both off: the
// system is told of a deadline only where it does not know of an earlier one, and a read of
// one byte without a deadline waits for a while before it asks, in case it is ended first.
package lazyconn

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

// Listener returns a listener whose connections are those of l, made lazy. A read of one
// byte without a deadline hears of what came, or of the connection's end, after twice patience
// at the latest.
func Listener(l net.Listener, patience time.Duration) net.Listener { return &listener{l, patience} }

type listener struct {
	net.Listener
	patience time.Duration
}

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return newConn(c, l.patience), nil
}

// conn is a lazy connection.
type conn struct {
	net.Conn
	patience time.Duration

	writing sync.Mutex // one write after another, each in one piece

	mu            sync.Mutex
	reads, writes deadline
	closed        bool

	// One read may wait before it asks the system.
	waiting bool
	wait    uint64 // which wait it is, or was
	ended   *sync.Cond
	alarm   *time.Timer // nil before the first wait
	alarmed uint64      // the wait that alarm is set for; 0 where it is not set
}

func newConn(c net.Conn, patience time.Duration) *conn {
	lazy := &conn{Conn: c, patience: patience}
	lazy.reads.tell, lazy.writes.tell = c.SetReadDeadline, c.SetWriteDeadline
	lazy.ended = sync.NewCond(&lazy.mu)
	return lazy
}

// deadline is that of reads or of writes. The connection's mutex guards it.
type deadline struct {
	tell  func(time.Time) error // tells the system
	asked time.Time             // the one that counts
	told  time.Time             // what the system knows: none, or an earlier one, or asked
	busy  int                   // calls that are with the system
}

// ask changes the deadline.
func (d *deadline) ask(t time.Time) error {
	d.asked = t
	if d.busy == 0 {
		return nil // the next call sees to it
	}
	return d.hasten()
}

// hasten sees to it that the system ends calls in time. It may end them too early.
func (d *deadline) hasten() error {
	if d.asked.IsZero() || !d.told.IsZero() && !d.asked.Before(d.told) {
		return nil
	}
	d.told = d.asked
	return d.tell(d.told)
}

func (d *deadline) passed() bool { return !d.asked.IsZero() && !time.Now().Before(d.asked) }

// call has do called until its error is not that of a deadline that does not count.
func (c *conn) call(d *deadline, do func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := d.hasten(); err != nil {
		return err
	}
	for {
		d.busy++
		c.mu.Unlock()
		err := do()
		c.mu.Lock()
		d.busy--
		if !errors.Is(err, os.ErrDeadlineExceeded) || d.passed() {
			return err
		}
		d.told = d.asked
		if err := d.tell(d.told); err != nil {
			return err
		}
	}
}

func (c *conn) Read(p []byte) (n int, err error) {
	if len(p) == 1 && !c.linger() {
		return 0, os.ErrDeadlineExceeded
	}
	err = c.call(&c.reads, func() (err error) {
		n, err = c.Conn.Read(p)
		return err
	})
	return n, err
}

func (c *conn) Write(p []byte) (n int, err error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	err = c.call(&c.writes, func() error {
		m, err := c.Conn.Write(p[n:])
		n += m
		return err
	})
	return n, err
}

// linger waits for a while, and tells whether the system is to be asked: not where the
// deadline has passed, but by it a closed connection is told from that.
func (c *conn) linger() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reads.asked.IsZero() && !c.waiting && !c.closed {
		c.waiting = true
		c.wait++
		if c.alarmed == 0 {
			c.setAlarm()
		}
		for mine := c.wait; c.waiting && c.wait == mine; {
			c.ended.Wait()
		}
	}
	return c.closed || !c.reads.passed()
}

// setAlarm has the present wait ended in time. One alarm mostly does for many waits: it finds
// that its own has ended, and is set anew if there is another.
func (c *conn) setAlarm() {
	c.alarmed = c.wait
	if c.alarm == nil {
		c.alarm = time.AfterFunc(c.patience, c.ring)
	} else {
		c.alarm.Reset(c.patience)
	}
}

// ring is alarm's.
func (c *conn) ring() {
	c.mu.Lock()
	defer c.mu.Unlock()
	late := c.wait == c.alarmed
	c.alarmed = 0
	switch {
	case c.waiting && late:
		c.endWait()
	case c.waiting:
		c.setAlarm()
	}
}

func (c *conn) endWait() {
	c.waiting = false
	c.ended.Broadcast()
}

func (c *conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

func (c *conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return c.Conn.SetReadDeadline(t) // says so
	}
	if !t.IsZero() && c.waiting {
		c.endWait()
	}
	return c.reads.ask(t)
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return c.Conn.SetWriteDeadline(t)
	}
	return c.writes.ask(t)
}

func (c *conn) Close() error {
	err := c.Conn.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.waiting {
		c.endWait()
	}
	return err
}
