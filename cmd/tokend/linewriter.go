package main

import (
	"io"
	"runtime"
	"sync"
)

// lineWriter lets lines that are written at about the same time share a system call, which
// under load costs more than all else about a log line. A line is handed on as soon as the
// one before it is through: nothing waits for more to come. Lines that were not handed on
// yet are lost if the process is killed, as what the system had not written would be.
//
// Write never fails. It waits while more than maxPending bytes are to be handed on, so that
// a reader that has stopped reading costs no more memory than that.
type lineWriter struct {
	w io.Writer

	mu      sync.Mutex
	room    sync.Cond // signalled when pending has been taken, and when all is written
	pending []byte
	writing bool
}

const maxPending = 1 << 20

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
	l.pending = append(l.pending, p...)
	if !l.writing {
		l.writing = true
		go l.handOn()
	}
	return len(p), nil
}

// handOn writes until nothing is pending.
func (l *lineWriter) handOn() {
	runtime.Gosched() // whoever is about to write a line may
	var spare []byte
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.pending) > 0 {
		lines := l.pending
		l.pending = spare[:0]
		l.room.Broadcast()
		l.mu.Unlock()
		l.w.Write(lines) // where the log cannot be written, nobody can be told
		l.mu.Lock()
		spare = lines
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
