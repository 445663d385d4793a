package client

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/tokend/httpapi/wire"
)

// Where no try got as far as sending its body, nothing is done.
func TestNotSentIsNotDone(t *testing.T) {
	tests := []struct {
		name string
		dial func(context.Context, string, string) (net.Conn, error)
		want int // tries
	}{
		{"refused", func(context.Context, string, string) (net.Conn, error) { return nil, errRefused }, 3},
		{"no such host", func(context.Context, string, string) (net.Conn, error) { return nil, &net.DNSError{IsNotFound: true} }, 3},
		{"no connection in time", func(context.Context, string, string) (net.Conn, error) {
			time.Sleep(30 * time.Second)
			return nil, errRefused
		}, 3},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := refuseDials(t, tt.dial, MaxTries(tt.want))
				wantFault(t, consumeOnce(t.Context(), c), Fault{Op: "consume", Tries: tt.want})
				_, err := c.Issue(t.Context(), testUser)
				wantFault(t, err, Fault{Op: "issue", Tries: tt.want})
				time.Sleep(time.Minute) // net/http lets a dial go on that nobody waits for
			})
		})
	}
}

func TestCertificateRefusedIsNotDone(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.HandlerFunc(granted))
	srv.Config.ErrorLog = discard
	srv.StartTLS()
	defer srv.Close()
	c, err := New(srv.URL, ServiceKey(testKey), MaxTries(1))
	if err != nil {
		t.Fatal(err)
	}
	wantFault(t, consumeOnce(t.Context(), c), Fault{Op: "consume", Tries: 1})
}

// One try that was sent counts, wherever it stands among the others.
func TestSentOnceMayBeDone(t *testing.T) {
	refused := func(context.Context, string, string) (net.Conn, error) { return nil, errRefused }
	for _, sent := range []int{1, 2, 3} {
		inBubble(t, []step{dropped}, func(t *testing.T, c *Client, f *fake) {
			n := 0
			c.http = &http.Client{Transport: &http.Transport{
				DisableKeepAlives: true,
				DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
					if n++; n == sent {
						return f.dial(ctx, network, addr)
					}
					return refused(ctx, network, addr)
				},
			}}
			wantFault(t, consumeOnce(t.Context(), c), Fault{Op: "consume", MaybeDone: true, Tries: 3})
		}, MaxTries(3))
	}
}

// Status changes nothing, so nothing can be done.
func TestStatusIsNeverDone(t *testing.T) {
	inBubble(t, []step{dropped, problemOf(wire.CodeStoreUnavailable)}, func(t *testing.T, c *Client, f *fake) {
		_, err := c.Status(t.Context(), testUser, testToken)
		wantFault(t, err, Fault{Op: "status", Tries: 2})
	}, MaxTries(2))
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A RoundTripper may go on when it has returned. Once the try has been found not sent,
// it must stay so.
func TestLateTransportSendsNothing(t *testing.T) {
	var late io.ReadCloser
	c, err := New("http://tokend", ServiceKey(testKey), MaxTries(1), HTTPClient(&http.Client{
		Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			late = r.Body
			return nil, errors.New("broken")
		}),
	}))
	if err != nil {
		t.Fatal(err)
	}
	wantFault(t, consumeOnce(t.Context(), c), Fault{Op: "consume", Tries: 1})
	if b, err := io.ReadAll(late); len(b) != 0 || err == nil {
		t.Errorf("read %d bytes, %v, after the try", len(b), err)
	}
}

// Seal and the first Read may race: either the try was sent, or nothing is read.
func TestSealRace(t *testing.T) {
	for range 1000 {
		p := &payload{data: []byte("x")}
		var got []byte
		var wg sync.WaitGroup
		wg.Go(func() { got, _ = io.ReadAll(p.open()) })
		sent := p.seal()
		wg.Wait()
		if sent != (string(got) == "x") {
			t.Fatalf("sent is %t, and %q was read", sent, got)
		}
	}
}

// A transport that sends a request anew asks for its body again (GOAWAY, a connection
// that had just been closed).
func TestBodyCanBeReadAgain(t *testing.T) {
	var bodies []string
	c, err := New("http://tokend", ServiceKey(testKey), HTTPClient(&http.Client{
		Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			again, err := r.GetBody()
			if err != nil {
				t.Error(err)
			}
			for _, body := range []io.Reader{r.Body, again} {
				b, err := io.ReadAll(body)
				if err != nil || int64(len(b)) != r.ContentLength {
					t.Errorf("%d bytes of %d, %v", len(b), r.ContentLength, err)
				}
				bodies = append(bodies, string(b))
			}
			w := httptest.NewRecorder()
			granted(w, r)
			return w.Result(), nil
		}),
	}))
	if err != nil {
		t.Fatal(err)
	}
	if err := consumeOnce(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(bodies[0], bodies[1]); diff != "" || !strings.Contains(bodies[0], testToken) {
		t.Error(diff, bodies)
	}
}

// A kept connection that the server closes under a request costs a try, never the
// call. It may have been closed after the request was read, so net/http sends nothing
// again by itself, and the next try bears the same attempt.
func TestKeptConnectionCloses(t *testing.T) {
	inBubble(t, []step{granted, dropped, granted}, func(t *testing.T, c *Client, f *fake) {
		for range 2 {
			if err := consumeOnce(t.Context(), c); err != nil {
				t.Error(err)
			}
		}
		if as := f.attempts(); as[0] == as[1] || as[1] != as[2] {
			t.Errorf("attempts %q", as)
		}
	})
}
