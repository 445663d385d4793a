package auth

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"
)

const (
	refreshEvery  = 5 * time.Minute  // after a fetch that succeeded, one tenth more or less
	refreshPause  = 10 * time.Second // between two fetches at least, whoever asks for them
	fetchTimeout  = 5 * time.Second  // from dialing to the last byte
	maxKeyDoc     = 512 << 10        // bytes; a key with its certificates takes some 4 KiB
	maxRedirects  = 3
	maxFetchHeads = 64 << 10
)

// remoteKeys are those at a JWKS URL. What it holds is replaced as a whole by each fetch
// that brings other keys, and stays through each that fails.
//
// It measures its pauses on the monotonic clock, so that a step of the host's clock neither
// stops nor hurries it.
type remoteKeys struct {
	url    string
	client *http.Client
	log    *slog.Logger
	parse  func(document []byte) (keys []key, passed int, err error)
	size   int // of each set's cache

	set    atomic.Pointer[keySet]
	digest digest // of the document that set was read from; the flight's own

	ctx  context.Context // ends when the source is closed
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu      sync.Mutex
	flight  chan struct{} // closed when the fetch under way ends; nil where none is
	started time.Time     // when the latest fetch began
	err     error         // what became of the latest fetch that ended
}

// start fetches the keys, and goes on doing so until close. It does not wait: tokend must
// start while its issuer is down.
func (r *remoteKeys) start() {
	r.ctx, r.stop = context.WithCancel(context.Background())
	r.wg.Go(func() {
		for {
			pause := refreshPause
			if r.refresh(r.ctx) == nil {
				pause = refreshEvery*9/10 + rand.N(refreshEvery/5)
			}
			timer := time.NewTimer(pause)
			select {
			case <-timer.C:
			case <-r.ctx.Done():
				timer.Stop()
				return
			}
		}
	})
}

func (r *remoteKeys) close() {
	r.mu.Lock() // no flight may start between stop and Wait
	r.stop()
	r.mu.Unlock()
	r.wg.Wait()
	r.client.CloseIdleConnections()
}

func (r *remoteKeys) current() *keySet { return r.set.Load() }

// refresh fetches the keys and waits for the end of that. Any number of callers share one
// fetch, which no caller's leaving ends; less than refreshPause after the latest began it
// only tells how that one went.
func (r *remoteKeys) refresh(ctx context.Context) error {
	r.mu.Lock()
	if r.flight == nil {
		if !r.started.IsZero() && time.Since(r.started) < refreshPause || r.ctx.Err() != nil {
			defer r.mu.Unlock()
			return r.err
		}
		r.takeOff()
	}
	flight := r.flight
	r.mu.Unlock()

	select {
	case <-flight:
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// takeOff starts a fetch. The caller holds mu.
func (r *remoteKeys) takeOff() {
	flight := make(chan struct{})
	r.flight, r.started = flight, time.Now()
	r.wg.Go(func() {
		err := r.update()
		if err != nil && r.ctx.Err() == nil {
			r.log.Warn("auth: JWKS not fetched", "error", err, "keys_in_force", r.set.Load() != nil)
		}
		r.mu.Lock()
		r.flight, r.err = nil, err
		r.mu.Unlock()
		close(flight)
	})
}

// update replaces the keys by those at the URL, if they are others: the same ones keep what
// they have verified, or an unknown kid every few seconds would empty the cache for good.
func (r *remoteKeys) update() error {
	document, err := r.fetch()
	if err != nil {
		return err
	}
	sum := digest(sha256.Sum256(document))
	if r.set.Load() != nil && sum == r.digest {
		return nil
	}
	keys, passed, err := r.parse(document)
	if err != nil {
		return err
	}
	r.digest = sum
	r.set.Store(&keySet{keys: keys, named: true, verified: newCache(r.size)})
	r.log.Info("auth: JWKS fetched", "keys", len(keys), "passed_over", passed)
	return nil
}

// fetch returns what stands at the URL.
func (r *remoteKeys) fetch() ([]byte, error) {
	ctx, cancel := context.WithTimeout(r.ctx, fetchTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/jwk-set+json, application/json")
	resp, err := r.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the answer's status is %d", resp.StatusCode)
	}
	document, err := io.ReadAll(io.LimitReader(resp.Body, maxKeyDoc+1))
	if err != nil {
		return nil, fmt.Errorf("the answer broke off: %w", err)
	}
	if len(document) > maxKeyDoc {
		return nil, fmt.Errorf("the answer is longer than %d bytes", maxKeyDoc)
	}
	return document, nil
}

// newFetchClient returns a client that follows a redirect only where the URL itself could
// have pointed, and from https to https only. A nil transport stands for one of its own.
func newFetchClient(transport http.RoundTripper) *http.Client {
	if transport == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.MaxResponseHeaderBytes = maxFetchHeads
		transport = t
	}
	return &http.Client{
		Transport: transport,
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			if len(via) > maxRedirects {
				return errors.New("too many redirects")
			}
			if via[0].URL.Scheme == "https" && req.URL.Scheme != "https" {
				return errors.New("redirected away from https")
			}
			return checkKeyURL(req.URL)
		},
	}
}

// checkKeyURL tells whether keys from u can be trusted as much as u: https, or http that
// does not leave the machine.
func checkKeyURL(u *url.URL) error {
	ip := net.ParseIP(u.Hostname())
	loopback := u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
	switch {
	case u.Host == "" || u.Scheme != "https" && !(u.Scheme == "http" && loopback):
		return errors.New("must be an https URL, or an http URL of this machine (localhost, 127.0.0.1, [::1])")
	case u.User != nil:
		return errors.New("must not hold a user or password")
	}
	return nil
}
