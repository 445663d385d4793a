package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/netutil"

	"example.com/tokend/internal/lazyconn"
)

// listener is a server and where it listens.
type listener struct {
	net.Listener
	server *http.Server
	log    *slog.Logger
	most   int64 // connections

	open   atomic.Int64 // connections, but for those that leave
	conns  sync.Map     // of all, to the *atomic.Int64 that says how each is
	rested atomic.Int64 // how often one came to rest
	warned atomic.Int64 // when it was last said that there are too many, Unix seconds
}

// How a connection is; else the number of its rest.
const (
	connUnused = -1 // no request has come by it
	connLeaves = -2 // it is closed for others
	connBusy   = 0
)

// maxConns bounds a listener's connections. At that many, those that have rested longest are
// closed for new ones, and where none rests new ones wait to be accepted: a flood of them
// costs the callers that are there nothing, and keeps nobody out for longer than a request
// may take.
const maxConns = 10_000

// patience is how late it may be noticed that a client has gone whose call is being answered,
// and up to twice as late. Only a call that waits for a claim to end is ended by that.
const patience = 250 * time.Millisecond

// listen listens on addr, which is the setting called name.
func listen(name, addr string, h http.Handler, log *slog.Logger) (*listener, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		dashed := strings.ReplaceAll(name, "_", "-")
		return nil, fmt.Errorf("--%s, TOKEND_%s, %s in YAML: %w", dashed, strings.ToUpper(name), name, err)
	}
	return newListener(l, maxConns, h, log), nil
}

func newListener(l net.Listener, most int, h http.Handler, log *slog.Logger) *listener {
	ln := &listener{
		Listener: lazyconn.Listener(netutil.LimitListener(l, most), patience),
		server:   newServer(h, log), log: log, most: int64(most),
	}
	ln.server.ConnState = ln.note
	return ln
}

// note is the server's ConnState.
func (l *listener) note(c net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		is := new(atomic.Int64)
		is.Store(connUnused)
		l.conns.Store(c, is)
		if l.open.Add(1) >= l.most {
			l.makeRoom()
		}
	case http.StateActive:
		l.set(c, connBusy)
	case http.StateIdle:
		l.set(c, l.rested.Add(1))
		if l.open.Load() >= l.most { // new ones may wait, and bring nobody here
			l.makeRoom()
		}
	case http.StateClosed, http.StateHijacked:
		if is, ok := l.conns.LoadAndDelete(c); ok && is.(*atomic.Int64).Load() != connLeaves {
			l.open.Add(-1)
		}
	}
}

func (l *listener) set(c net.Conn, how int64) {
	is, ok := l.conns.Load(c)
	if !ok {
		return
	}
	if is, was := is.(*atomic.Int64), is.(*atomic.Int64).Load(); was != connLeaves {
		is.CompareAndSwap(was, how) // else it leaves by now
	}
}

// makeRoom closes the connections that have rested longest, a hundredth of the most there may
// be: so it is seldom called.
func (l *listener) makeRoom() {
	type resting struct {
		net.Conn
		is    *atomic.Int64
		since int64
	}
	var all []resting
	l.conns.Range(func(c, is any) bool {
		if is := is.(*atomic.Int64); is.Load() > connBusy {
			all = append(all, resting{c.(net.Conn), is, is.Load()})
		}
		return true
	})
	slices.SortFunc(all, func(a, b resting) int { return int(a.since - b.since) })
	all = all[:min(len(all), max(1, int(l.most/100)))]
	for _, c := range all {
		if c.is.CompareAndSwap(c.since, connLeaves) { // else it works again, or leaves already
			l.open.Add(-1)
			go c.Close() // which TLS may be held up in
		}
	}
	now, last := time.Now().Unix(), l.warned.Load()
	if now-last >= 60 && l.warned.CompareAndSwap(last, now) {
		l.log.Warn("connections are at their limit", "addr", l.Addr().String(), "limit", l.most, "resting_closed", len(all))
	}
}

// cutOff tells whether a Shutdown that came to its deadline left a request unanswered. It
// waits some seconds for the first one of each new connection, too, and browsers and
// proxies open some that they never use.
func (l *listener) cutOff() bool {
	n := l.open.Load()
	l.conns.Range(func(_, is any) bool {
		if is.(*atomic.Int64).Load() == connUnused {
			n--
		}
		return true
	})
	return n > 0
}

// newServer returns a server that no caller can hold up. A long call waits 30 s for its
// answer.
func newServer(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       20 * time.Second,
		WriteTimeout:      time.Minute,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    32 << 10,
		HTTP2:             &http.HTTP2Config{WriteByteTimeout: time.Minute}, // WriteTimeout is each stream's, not the connection's
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

// serve serves in the background and sends its error, if it is not the end.
func (l *listener) serve(failed chan<- error) {
	go func() {
		var err error
		if l.server.TLSConfig != nil {
			err = l.server.ServeTLS(l.Listener, "", "")
		} else {
			err = l.server.Serve(l.Listener)
		}
		if !errors.Is(err, http.ErrServerClosed) {
			failed <- err
		}
	}()
}

// close ends the server at once, or the listener where it was never served.
func (l *listener) close() {
	l.server.Close()
	l.Listener.Close()
}
