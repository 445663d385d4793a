package clienttest_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"

	"example.com/tokend/client"
	"example.com/tokend/client/clienttest"
)

// keeper is a handler that keeps what it is told.
type keeper struct {
	mu    sync.Mutex
	lines []slog.Record
}

func (k *keeper) Enabled(context.Context, slog.Level) bool { return true }

func (k *keeper) Handle(_ context.Context, r slog.Record) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lines = append(k.lines, r.Clone())
	return nil
}

func (k *keeper) WithAttrs([]slog.Attr) slog.Handler { return k }
func (k *keeper) WithGroup(string) slog.Handler      { return k }

// TestLogKept has a handler keep the lines of several calls and look at them afterwards.
func TestLogKept(t *testing.T) {
	k := new(keeper)
	s := clienttest.New(t, clienttest.Log(k))
	c, err := client.New(s.URL, client.ServiceKey(s.ServiceKey))
	if err != nil {
		t.Fatal(err)
	}
	p := c.Purpose("p")
	issued, err := p.Issue(t.Context(), "alice")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Consume(t.Context(), "alice", issued.Value); err != nil {
		t.Fatal(err)
	}
	s.Close() // a line is written behind its answer
	var ops []string
	for _, r := range k.lines {
		r.Attrs(func(a slog.Attr) bool {
			if a.Key == "op" {
				ops = append(ops, a.Value.String())
			}
			return true
		})
	}
	if len(ops) != 2 || ops[0] != "issue" || ops[1] != "consume" {
		t.Errorf("the lines kept are of %q, want issue and consume", ops)
	}
}
