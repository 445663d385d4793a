package clienttest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"example.com/tokend/client"
	"example.com/tokend/client/clienttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Without a test to end with, a server is started and closed.
func ExampleStart() {
	tokend, err := clienttest.Start()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer tokend.Close()
	c, ctx := tokend.Client(), context.Background()

	t, _ := c.Issue(ctx, "alice")
	tokend.Advance(t.TTL)
	_, err = c.Consume(ctx, "alice", t.Value)
	fmt.Println(errors.Is(err, client.ErrExpired))
	// Output: true
}

// A closed server's clients find nobody, even if another has taken its port.
func TestClosedPort(t *testing.T) {
	t.Parallel()
	tokend := clienttest.New(t)
	c := tokend.Client()
	if _, err := c.Issue(t.Context(), "alice"); err != nil {
		t.Fatal(err)
	}
	tokend.Close()
	// Where this fails, another test has the port: so much the better.
	if l, err := net.Listen("tcp", strings.TrimPrefix(tokend.URL, "http://")); err == nil {
		other := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("another server was asked") })}
		go other.Serve(l)
		defer other.Close()
	}
	if _, err := c.Issue(t.Context(), "alice"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("after the server was closed: %v", err)
	}
}

// What the manual shows are tests that run.
func TestManual(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "doc.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	src, err := os.ReadFile("order_test.go")
	if err != nil {
		t.Fatal(err)
	}
	shown := 0
	for block := range strings.SplitSeq(file.Doc.Text(), "\n\n") {
		code, ok := strings.CutPrefix(block, "\t")
		if !ok {
			continue
		}
		shown++
		if code = strings.ReplaceAll(code, "\n\t", "\n"); !strings.Contains(string(src), strings.TrimSpace(code)) {
			t.Errorf("in doc.go, but in no test:\n%s", code)
		}
	}
	if shown == 0 {
		t.Error("the manual shows no code")
	}
}

// The clock stands still; Advance moves it, and nobody's login with it.
func TestClock(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t, clienttest.TTL(time.Minute))
	ctx, alice := t.Context(), s.UserClient("alice")
	began := s.Now()
	tok, err := alice.Issue(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	if !tok.IssuedAt.Equal(began) || tok.TTL != time.Minute || tok.User != "alice" {
		t.Errorf("issued at %v, server's time %v, ttl %v, user %s", tok.IssuedAt, began, tok.TTL, tok.User)
	}
	s.Advance(1000 * time.Hour)
	if got := s.Now().Sub(began); got != 1000*time.Hour {
		t.Errorf("the clock moved by %v", got)
	}
	if st, err := alice.Status(ctx, "", tok.Value); err != nil || st.State != client.StateStale {
		t.Errorf("got %v, %v", st.State, err)
	}
}

// A service that makes its own client needs the URL and the key.
func TestOwnClient(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t)
	c, err := client.New(s.URL, client.ServiceKey(s.ServiceKey))
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseIdleConnections()
	if _, err := c.Issue(t.Context(), "alice"); err != nil {
		t.Error(err)
	}
	other := clienttest.New(t)
	if other.URL == s.URL || other.ServiceKey == s.ServiceKey || other.UserToken("a") == s.UserToken("a") {
		t.Error("two servers share something")
	}
}

func TestLog(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	s := clienttest.New(t, clienttest.Log(slog.NewTextHandler(&log, nil)))
	if _, err := s.Client().Issue(t.Context(), "alice"); err != nil {
		t.Fatal(err)
	}
	s.Close() // so that nothing is written any more
	if !strings.Contains(log.String(), "op=issue code=issued") {
		t.Errorf("logged %q", log.String())
	}
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	_, err := clienttest.Start(
		clienttest.TTL(25*time.Hour), clienttest.Retention(-1), clienttest.Rate(1, 0), clienttest.Purposes("a", "A"),
		clienttest.KeysRetention(time.Second/2), clienttest.ResultBytes(0))
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"TTL", "Retention", "Rate", "Purposes", "KeysRetention", "ResultBytes"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s is not in %v", want, err)
		}
	}
}

// A server that was closed early, and once more at the end, lets nothing through.
func TestCloseEarly(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t)
	c := s.Client()
	s.Close()
	s.Close()
	_, err := c.Issue(t.Context(), "alice")
	if down, ok := errors.AsType[*client.Fault](err); !ok || down.MaybeDone {
		t.Errorf("got %v", err)
	}
}
