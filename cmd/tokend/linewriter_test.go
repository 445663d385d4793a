package main

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// heldWriter holds its writes until it is let go.
type heldWriter struct {
	hold   chan struct{}
	began  chan struct{} // each write sends on it
	mu     sync.Mutex
	text   bytes.Buffer
	writes int
}

func newHeldWriter() *heldWriter {
	return &heldWriter{hold: make(chan struct{}), began: make(chan struct{}, 100)}
}

func (w *heldWriter) Write(p []byte) (int, error) {
	w.began <- struct{}{}
	<-w.hold
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writes++
	return w.text.Write(p)
}

func TestLineWriterSharesWrites(t *testing.T) {
	w := newHeldWriter()
	l := newLineWriter(w)
	var want strings.Builder
	for i := range 100 { // none of them waits for the writer
		fmt.Fprintf(&want, "line %d\n", i)
		fmt.Fprintf(l, "line %d\n", i)
	}
	close(w.hold)
	l.Flush(time.Minute)
	if w.text.String() != want.String() {
		t.Errorf("written:\n%s", w.text.String())
	}
	if w.writes > 2 {
		t.Errorf("%d writes, want at most 2", w.writes)
	}
	fmt.Fprintln(l, "another") // after a pause
	l.Flush(time.Minute)
	l.Flush(time.Minute) // again, with nothing to do
	if got := w.text.String(); got != want.String()+"another\n" {
		t.Errorf("written after a pause: %q", got[want.Len():])
	}
}

// TestLineWriterOfALogThatNobodyReads writes far more than is kept: nothing waits, what is
// kept is bounded, and what is lost is told.
func TestLineWriterOfALogThatNobodyReads(t *testing.T) {
	w := newHeldWriter()
	l := newLineWriter(w)
	line := append(bytes.Repeat([]byte("x"), 1023), '\n')
	l.Write(line)
	<-w.began // in the writer's hands, and stuck there
	const lines = 3 * maxPending / 1024
	for range lines {
		l.Write(line)
	}
	if len(l.pending) > maxPending {
		t.Errorf("%d bytes are kept, at most %d may be", len(l.pending), maxPending)
	}
	l.Flush(time.Nanosecond) // does not wait for ever
	close(w.hold)
	l.Flush(time.Minute)
	l.Write([]byte("read again\n"))
	l.Flush(time.Minute)
	kept := maxPending / 1024
	want := strings.Repeat(string(line), 1+kept) +
		fmt.Sprintf("tokend: %d log lines were lost, as the log was not read\n", lines-kept) + "read again\n"
	if got := w.text.String(); got != want {
		t.Errorf("%d bytes were written, want %d; the end is %q", len(got), len(want), got[max(0, len(got)-100):])
	}
}
