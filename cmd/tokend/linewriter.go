package main

import (
	"fmt"
	"io"
	"runtime"
	"sync"
	"time"
)

// lineWriter writes lines in the background, so that a log that nobody reads stops nothing,
// and lines that come in quick succession share a system call, which under load costs more
// than all else about one. Lines that were not handed on yet are lost if the process is
// killed, as what the system had not written would be; that is a matter of microseconds.
//
// Write never fails and never waits. Where more than maxPending bytes are to be handed on it
// drops the line; as soon as there is room, a line says how many were lost.
type lineWriter struct {
	w io.Writer

	mu      sync.Mutex
	idle    chan struct{} // closed while nothing is to be handed on
	pending []byte
	spare   []byte // what pending is next
	lost    int
}

const maxPending = 1 << 20

func newLineWriter(w io.Writer) *lineWriter {
	l := &lineWriter{w: w, idle: make(chan struct{})}
	close(l.idle)
	return l
}

func (l *lineWriter) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.pending)+len(line) > maxPending {
		l.lost++
		return len(line), nil
	}
	if l.lost > 0 {
		l.pending = fmt.Appendf(l.pending, "tokend: %d log lines were lost, as the log was not read\n", l.lost)
		l.lost = 0
	}
	l.pending = append(l.pending, line...)
	if l.isIdle() {
		l.idle = make(chan struct{})
		go l.handOn()
	}
	return len(line), nil
}

func (l *lineWriter) isIdle() bool {
	select {
	case <-l.idle:
		return true
	default:
		return false
	}
}

// handOn writes until nothing is pending.
func (l *lineWriter) handOn() {
	runtime.Gosched() // whoever is about to write a line may
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.pending) > 0 {
		lines := l.pending
		l.pending, l.spare = l.spare[:0], nil
		l.mu.Unlock()
		l.w.Write(lines) // where the log cannot be written, nobody can be told
		l.mu.Lock()
		l.spare = lines
	}
	close(l.idle)
}

// Flush waits until all that was written has been handed on, but no longer than limit.
func (l *lineWriter) Flush(limit time.Duration) {
	l.mu.Lock()
	idle := l.idle
	l.mu.Unlock()
	select {
	case <-idle:
	case <-time.After(limit):
	}
}
