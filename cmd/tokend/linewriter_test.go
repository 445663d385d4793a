package main

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// slowWriter holds its first write until it is let go.
type slowWriter struct {
	bytes.Buffer
	writes int
	hold   chan struct{}
}

func (w *slowWriter) Write(p []byte) (int, error) {
	w.writes++
	<-w.hold
	return w.Buffer.Write(p)
}

func TestLineWriterSharesWrites(t *testing.T) {
	slow := &slowWriter{hold: make(chan struct{})}
	l := newLineWriter(slow)
	l.last = time.Now().Add(time.Hour) // no line is a lone one, however slow the machine
	var want strings.Builder
	for i := range 100 { // none of them waits for the writer
		fmt.Fprintf(&want, "line %d\n", i)
		fmt.Fprintf(l, "line %d\n", i)
	}
	close(slow.hold)
	l.Flush()
	if slow.String() != want.String() {
		t.Errorf("written:\n%s", slow.String())
	}
	if slow.writes > 2 {
		t.Errorf("%d writes, want at most 2", slow.writes)
	}
}

func TestLineWriterIsBounded(t *testing.T) {
	slow := &slowWriter{hold: make(chan struct{})}
	l := newLineWriter(slow)
	l.last = time.Now().Add(time.Hour)
	line := bytes.Repeat([]byte("x"), 1<<10)
	var wg sync.WaitGroup
	const lines = 4 * maxPending / 1024
	for range 8 {
		wg.Go(func() {
			for range lines / 8 {
				l.Write(line)
				l.mu.Lock()
				if n := len(l.pending); n > maxPending+len(line) {
					t.Errorf("%d bytes are pending, at most %d and a line may", n, maxPending)
				}
				l.mu.Unlock()
			}
		})
	}
	close(slow.hold)
	wg.Wait()
	l.Flush()
	if slow.Len() != lines*len(line) {
		t.Errorf("%d bytes were written, want %d", slow.Len(), lines*len(line))
	}
	l.Flush() // again, with nothing to do
}

// TestLineWriterWritesALoneLineAtOnce: it stands in the log when Write returns.
func TestLineWriterWritesALoneLineAtOnce(t *testing.T) {
	var log bytes.Buffer
	l := newLineWriter(&log)
	l.Write([]byte("a line\n"))
	if log.String() != "a line\n" {
		t.Errorf("log: %q", log.String())
	}
}
