package main

import (
	"io"
	"runtime"
	"sync"
	"time"
)

// lineWriter lets lines that come in quick succession share a system call, which under load
// costs more than all else about a log line. A lone line is written at once. Lines that
// were not handed on yet are lost if the process is killed, as what the system had not
// written would be; that is a matter of microseconds.
//
// Write never fails. It waits while more than maxPending bytes are to be handed on, so that
// a reader that has stopped reading costs no more memory than that.
type lineWriter struct {
	w io.Writer

	mu      sync.Mutex
	room    sync.Cond // signalled when pending has been taken, and when all is written
	pending []byte
	spare   []byte // what pending is next
	writing bool
	last    time.Time // when the latest line came
}

const (
	maxPending = 1 << 20
	// quick is how soon after another a line must come to be written in the background:
	// the time in which starting that costs more than the system call.
	quick = 50 * time.Microsecond
)

func newLineWriter(w io.Writer) *lineWriter {
	l := &lineWriter{w: w}
	l.room.L = &l.mu
	return l
}

func (l *lineWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.pending) > maxPending {
		l.room.Wait()
	}
	now := time.Now()
	lone := now.Sub(l.last) > quick
	l.last = now
	l.pending = append(l.pending, p...)
	if !l.writing {
		l.writing = true
		if lone {
			l.handOn()
		} else {
			go l.handOnSoon()
		}
	}
	return len(p), nil
}

// handOnSoon hands on, after whoever is about to write a line.
func (l *lineWriter) handOnSoon() {
	runtime.Gosched()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.handOn()
}

// handOn writes until nothing is pending. l.mu is held, but for the writing.
func (l *lineWriter) handOn() {
	for len(l.pending) > 0 {
		lines := l.pending
		l.pending, l.spare = l.spare[:0], nil
		l.room.Broadcast()
		l.mu.Unlock()
		l.w.Write(lines) // where the log cannot be written, nobody can be told
		l.mu.Lock()
		l.spare = lines
	}
	l.writing = false
	l.room.Broadcast()
}

// Flush returns when all that was written has been handed on.
func (l *lineWriter) Flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.writing {
		l.room.Wait()
	}
}
