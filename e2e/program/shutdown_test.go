package program_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.com/tokend/httpapi/wire"
	"example.com/tokend/internal/redistest"
)

// On SIGTERM the instance says at once that it is not to be sent more, and serves what is
// sent all the same until shutdown.delay is over.
func TestTerminateServesDuringDelay(t *testing.T) {
	t.Parallel()
	const delay = 3 * time.Second
	i := startReady(t, redisURL(redistest.Start(t).Addr), "SHUTDOWN_DELAY="+delay.String())
	kept := i.dial() // a connection that is kept open must not hold the end up
	kept.write("GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
	if resp, err := http.ReadResponse(bufio.NewReader(kept), nil); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp, err)
	}
	token := i.issue("alice")
	told := time.Now()
	i.terminate()
	i.untilUnready()
	unready := time.Since(told)
	if a := i.get(wire.PathLivez); a.status != http.StatusOK {
		t.Errorf("livez while it drains: %v", a)
	}
	if a := i.consume("alice", token, "a1"); a.status != http.StatusOK {
		t.Errorf("consume while it drains: %v", a)
	}
	i.usable()
	if status := i.status(); status != 0 {
		t.Errorf("exit status %d", status)
	}
	if took := time.Since(told); took < delay {
		t.Errorf("it ended after %v", took)
	}
	t.Logf("unready %v after SIGTERM, ended after %v", unready, time.Since(told))
}

// halfSent sends an issue whose body is not finished, and returns when it is in flight.
func (i *instance) halfSent() *raw {
	i.t.Helper()
	c := i.dial()
	c.write("POST /v1/tokens HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ", serviceKey,
		"\r\nContent-Type: application/json\r\nContent-Length: 16\r\nExpect: 100-continue\r\n\r\n")
	line := make([]byte, len("HTTP/1.1 100 Continue\r\n\r\n"))
	if _, err := io.ReadFull(c, line); err != nil || !strings.Contains(string(line), " 100 ") {
		i.t.Fatalf("%q, %v", line, err)
	}
	c.write(`{"user":`)
	return c
}

// untilClosed waits until nothing listens any more.
func (i *instance) untilClosed() {
	i.t.Helper()
	until(i.t, "it listens no more", func() bool {
		c, err := net.Dial("tcp", i.addr)
		if err == nil {
			c.Close()
		}
		return err != nil
	})
}

// What is in flight ends, and so does the program, well.
func TestTerminateLetsRequestsEnd(t *testing.T) {
	t.Parallel()
	for _, sig := range []os.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			i := startReady(t, redisURL(redistest.Start(t).Addr))
			c := i.halfSent()
			i.send(sig)
			i.untilClosed()
			c.write(`"alice"}`)
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil || resp.StatusCode != http.StatusCreated {
				t.Errorf("the request in flight: %v, %v", resp, err)
			}
			if status := i.status(); status != 0 {
				t.Errorf("exit status %d:\n%s", status, i.log())
			}
		})
	}
}

// Redis is still there for what is in flight: it is closed last.
func TestTerminateWaitsForRedis(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	i := startReady(t, redisURL(r.Addr), "REDIS_TIMEOUT=30s", "SHUTDOWN_TIMEOUT=30s")
	token := i.issue("alice")
	r.Pause()
	got := make(chan answer, 1)
	go func() {
		a, _ := i.request("POST", wire.PathConsume, serviceKey, object(consumption("alice", token, "a1")))
		got <- a
	}()
	i.untilWaiting(1)
	i.terminate()
	i.untilClosed()
	r.Resume()
	if a := <-got; a.status != http.StatusOK {
		t.Errorf("the consume in flight: %v", a)
	}
	if status := i.status(); status != 0 {
		t.Errorf("exit status %d:\n%s", status, i.log())
	}
}

// untilWaiting waits until n calls wait for Redis.
func (i *instance) untilWaiting(n float64) {
	i.t.Helper()
	until(i.t, "calls wait for Redis", func() bool { return i.gauge(`tokend_redis_pool{state="in_use"}`) >= n })
}

// shutdown.timeout bounds the end, and whoever started the program hears of it.
func TestTerminateIsBounded(t *testing.T) {
	t.Parallel()
	i := startReady(t, redisURL(redistest.Start(t).Addr), "SHUTDOWN_TIMEOUT=300ms")
	c := i.halfSent()
	told := time.Now()
	i.terminate()
	status := i.status()
	if took := time.Since(told); status <= 0 || took > slack {
		t.Errorf("exit status %d after %v", status, took)
	}
	c.rest()
}

// A second signal ends the program at once.
func TestSecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	for _, more := range []string{"SHUTDOWN_DELAY=5m", "SHUTDOWN_TIMEOUT=5m"} {
		i := startReady(t, redisURL(redistest.Start(t).Addr), more)
		i.halfSent()
		i.terminate()
		if strings.Contains(more, "DELAY") {
			i.untilUnready()
		} else {
			i.untilClosed()
		}
		told := time.Now()
		i.terminate()
		status := i.status()
		if took := time.Since(told); status == 0 || took > slack {
			t.Errorf("%s: exit status %d after %v", more, status, took)
		}
	}
}

// A connection that was opened and never used (browsers and proxies do that) is no
// request in flight.
func TestTerminateIgnoresUnusedConnections(t *testing.T) {
	t.Parallel()
	i := startReady(t, redisURL(redistest.Start(t).Addr), "SHUTDOWN_TIMEOUT=1s")
	i.dial()
	i.usable() // that connection was accepted before this one
	i.terminate()
	if status := i.status(); status != 0 {
		t.Errorf("exit status %d:\n%s", status, i.log())
	}
}
