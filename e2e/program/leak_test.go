package program_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/tokend/httpapi/wire"
	"example.com/tokend/internal/redistest"
)

// Whatever has come in, in whatever state Redis was: nothing of it stays in the process,
// and nothing of it in the metrics' labels.
func TestNothingGrows(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	i := startReady(t, redisURL(r.Addr), "REDIS_TIMEOUT=200ms", "ADMIN_PPROF=true", "RATE_ISSUE_PER_MINUTE=60")
	transport := &http.Transport{MaxIdleConnsPerHost: callers}
	t.Cleanup(transport.CloseIdleConnections)
	hc := &http.Client{Transport: transport, Timeout: patience}

	type size struct{ goroutines, heap, fds, series float64 }
	measure := func() (s size) {
		transport.CloseIdleConnections()
		if _, err := exchange("GET", "http://"+i.adminAddr+"/debug/pprof/heap?gc=1", "", http.NoBody); err != nil {
			t.Fatal(err)
		}
		s.goroutines, s.heap, s.fds = i.gauge("go_goroutines"), i.gauge("go_memstats_heap_alloc_bytes"), i.gauge("process_open_fds")
		s.series = float64(len(i.metrics()))
		return s
	}

	start := measure()
	seen := make(map[int]int)
	burst(t, i, hc, seen, 40)
	warm := measure()
	for n := range 3 {
		switch n {
		case 0:
			time.AfterFunc(50*time.Millisecond, r.Pause)
			resumed := make(chan struct{})
			time.AfterFunc(600*time.Millisecond, func() {
				r.Resume()
				close(resumed)
			})
			burst(t, i, hc, seen, 10)
			<-resumed
		case 1:
			r.Kill()
			burst(t, i, hc, seen, 5)
			r.Restart()
		}
		i.untilReady()
		burst(t, i, hc, seen, 20)
	}
	var end size
	until(t, "goroutines and connections are back where they were", func() bool {
		end = measure()
		return end.goroutines <= start.goroutines+10 && end.fds <= start.fds+40
	})
	const grown = 8 << 20
	if end.heap > warm.heap+grown {
		t.Errorf("the heap has grown from %.0f to %.0f bytes", warm.heap, end.heap)
	}
	if end.series > 1500 {
		t.Errorf("there are %.0f metrics", end.series)
	}
	for _, line := range i.metrics() {
		for _, mine := range []string{"mallory", "grow", "ott_", "BREW"} {
			if strings.Contains(line, mine) {
				t.Errorf("a metric shows what came in: %s", line)
			}
		}
	}
	t.Logf("answers by status: %v; at the start %+v, after a first burst %+v, at the end %+v", seen, start, warm, end)
	i.usable()
}

const callers = 16

// burst sends requests of every kind, each with names of its own, in rounds.
func burst(t *testing.T, i *instance, hc *http.Client, seen map[int]int, rounds int) {
	t.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	jwt := userJWT(t, "mallory")
	for c := range callers {
		wg.Go(func() {
			for n := range rounds {
				name := fmt.Sprintf("mallory.%d.%d.%x", c, n, rand.Uint64())
				token := "ott_" + strings.Repeat("A", 112)
				if n%2 == 0 {
					a := send(hc, i, "POST", wire.PathTokens, serviceKey, members{"user": name, "purpose": "grow." + name[8:]})
					if a.status == http.StatusCreated {
						token = a.Token
					}
				}
				use := consumption(name, token, name)
				use["purpose"] = "grow." + name[8:]
				for _, a := range []answer{
					send(hc, i, "POST", wire.PathConsume, serviceKey, use),
					send(hc, i, "POST", wire.PathConsumeBatch, serviceKey, members{"items": []members{use, use}}),
					send(hc, i, "POST", wire.PathTokens, userJWT(t, name), members{}),
					send(hc, i, "POST", wire.PathTokens, jwt, members{}),
					send(hc, i, "POST", wire.PathConsume, name, use),
					send(hc, i, "BREW", "/grow/"+name, serviceKey, members{}),
					send(hc, i, "POST", wire.PathStatus, serviceKey, members{name: name}),
				} {
					mu.Lock()
					seen[a.status]++
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
}

// send makes a call on a connection that is kept. Its status is 0 where there is no answer.
func send(hc *http.Client, i *instance, method, path, bearer string, body members) answer {
	req, err := http.NewRequest(method, "http://"+i.addr+path, strings.NewReader(object(body)))
	if err != nil {
		panic(err)
	}
	req.Header.Set("Authorization", "Bearer "+bearer)
	req.Header.Set("Content-Type", wire.TypeJSON)
	resp, err := hc.Do(req)
	if err != nil {
		return answer{}
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return readAnswer(resp, b, 0)
}
