package auth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// issuer answers for a JWKS URL, in a synctest bubble, where nothing real may be waited for.
type issuer struct {
	mu       sync.Mutex
	document string
	location string // of a redirect
	status   int
	delay    time.Duration
	down     bool
	asked    int
}

func (i *issuer) RoundTrip(req *http.Request) (*http.Response, error) {
	i.mu.Lock()
	document, location, status, delay, down := i.document, i.location, i.status, i.delay, i.down
	i.asked++
	i.mu.Unlock()
	select {
	case <-time.After(delay):
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
	if down {
		return nil, errors.New("connection refused")
	}
	if status == 0 {
		status = http.StatusOK
	}
	return &http.Response{
		StatusCode: status, Request: req, Header: http.Header{"Location": {location}},
		Body: io.NopCloser(strings.NewReader(document)),
	}, nil
}

// set changes the issuer and asks how often it was asked so far.
func (i *issuer) set(change func(*issuer)) (asked int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	change(i)
	return i.asked
}

func (i *issuer) count() int { return i.set(func(*issuer) {}) }

func (i *issuer) publish(keys ...string) { i.set(func(i *issuer) { i.document = jwks(keys...) }) }

func remoteConfig(transport http.RoundTripper) Config {
	return Config{
		JWKSURL: "https://issuer.example/keys", Issuer: "i", Audience: []string{"a"},
		Transport: transport, Logger: slog.New(slog.DiscardHandler),
	}
}

// es256 makes a JWT of a kid that one of two keys has signed.
func es256(kid string, byOther bool) string {
	key := private().p256
	if byOther {
		key = private().other
	}
	return sign("ES256", key, `{"alg":"ES256","kid":"`+kid+`"}`, alice(`,"iss":"i","aud":"a"`))
}

func wantFault(t *testing.T, err error) {
	t.Helper()
	var f *Fault
	var no *Refusal
	if !errors.As(err, &f) || errors.As(err, &no) {
		t.Errorf("got %v, want a fault", err)
	}
}

// inBubble runs test with an issuer that publishes one key, old, and its Authenticator, a
// moment after the first fetch.
func inBubble(t *testing.T, test func(*testing.T, *issuer, *Authenticator)) {
	private() // made outside
	synctest.Test(t, func(t *testing.T) {
		i := new(issuer)
		i.publish(public(private().p256, "old"))
		a := open(t, remoteConfig(i))
		synctest.Wait()
		test(t, i, a)
	})
}

func TestKeysAreKept(t *testing.T) {
	inBubble(t, func(t *testing.T, i *issuer, a *Authenticator) {
		for range 100 {
			_, err := ask(a, es256("old", false))
			wantReason(t, err, nil)
		}
		if n := i.count(); n != 1 {
			t.Errorf("asked %d times", n)
		}
		time.Sleep(time.Hour) // the bubble's
		if n := i.count(); n < 10 || n > 15 {
			t.Errorf("asked %d times in an hour", n)
		}
	})
}

func TestKeysRotate(t *testing.T) {
	inBubble(t, func(t *testing.T, i *issuer, a *Authenticator) {
		_, err := ask(a, es256("old", false))
		wantReason(t, err, nil)

		time.Sleep(refreshPause)
		i.publish(public(private().p256, "old"), public(private().other, "new"))
		_, err = ask(a, es256("new", true)) // the unknown kid makes it look
		wantReason(t, err, nil)
		_, err = ask(a, es256("old", false))
		wantReason(t, err, nil)
		_, err = ask(a, es256("new", false))
		wantReason(t, err, ErrSignature)

		i.publish(public(private().other, "new"))
		time.Sleep(refreshEvery * 2)
		_, err = ask(a, es256("old", false)) // verified and cached before, revoked since
		wantReason(t, err, ErrUnknownKey)
		_, err = ask(a, es256("new", true))
		wantReason(t, err, nil)
	})
}

// TestCacheBelongsToKeys: other keys empty it, the same ones fetched again do not.
func TestCacheBelongsToKeys(t *testing.T) {
	inBubble(t, func(t *testing.T, i *issuer, a *Authenticator) {
		before := a.keys.current()
		time.Sleep(refreshEvery * 2)
		if a.keys.current() != before {
			t.Error("the same keys are another set")
		}
		_, err := ask(a, es256("old", false))
		wantReason(t, err, nil)

		i.publish(public(private().other, "old")) // another key, the same kid
		time.Sleep(refreshEvery * 2)
		if a.keys.current() == before {
			t.Error("other keys are the same set")
		}
		_, err = ask(a, es256("old", false))
		wantReason(t, err, ErrSignature)
	})
}

func TestOutage(t *testing.T) {
	bad := map[string]func(*issuer){
		"down":          func(i *issuer) { i.down = true },
		"hanging":       func(i *issuer) { i.delay = time.Hour },
		"500":           func(i *issuer) { i.status = 500 },
		"404":           func(i *issuer) { i.status = 404 },
		"204":           func(i *issuer) { i.status = 204 },
		"to plain http": func(i *issuer) { i.status, i.location = 302, "http://127.0.0.1/keys" },
		"redirect loop": func(i *issuer) { i.status, i.location = 302, "https://issuer.example/keys" },
		"HTML":          func(i *issuer) { i.document = "<html>" },
		"no keys":       func(i *issuer) { i.document = jwks() },
		"too long":      func(i *issuer) { i.document = jwks(public(private().other, "new")) + strings.Repeat(" ", maxKeyDoc) },
		"no usable key": func(i *issuer) { i.document = jwks(jwk([]byte(secret), "new", nil)) },
	}
	for name, fail := range bad {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, i *issuer, a *Authenticator) {
				time.Sleep(time.Minute)
				i.set(fail)
				_, err := ask(a, es256("new", true)) // nobody can tell
				wantFault(t, err)
				time.Sleep(time.Hour)
				_, err = ask(a, es256("old", false))
				wantReason(t, err, nil)
				_, err = ask(a, es256("new", true))
				wantFault(t, err)

				i.set(func(i *issuer) { i.down, i.delay, i.status = false, 0, 0 })
				i.publish(public(private().p256, "old"))
				time.Sleep(2 * (refreshPause + fetchTimeout))
				_, err = ask(a, es256("new", true)) // now it is told
				wantReason(t, err, ErrUnknownKey)
			})
		})
	}
}

func TestStartsWhileDown(t *testing.T) {
	private()
	synctest.Test(t, func(t *testing.T) {
		i := &issuer{down: true}
		i.publish(public(private().p256, "old"))
		key, sum := NewServiceKey()
		c := remoteConfig(i)
		c.ServiceKeys = must(ParseServiceKeys("orders:" + sum + ":tokend.consume"))
		a := open(t, c)
		_, err := ask(a, es256("old", false))
		wantFault(t, err)
		_, err = ask(a, key)
		wantReason(t, err, nil)

		i.set(func(i *issuer) { i.down = false })
		time.Sleep(refreshPause + time.Second)
		_, err = ask(a, es256("old", false))
		wantReason(t, err, nil)
	})
}

// TestFirstCallersShareOneFetch: they wait for it, and no longer than they want to.
func TestFirstCallersShareOneFetch(t *testing.T) {
	private()
	synctest.Test(t, func(t *testing.T) {
		i := &issuer{delay: 2 * time.Second}
		i.publish(public(private().p256, "old"))
		a := open(t, remoteConfig(i))
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				_, err := ask(a, es256("old", false))
				wantReason(t, err, nil)
			})
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := a.Authenticate(ctx, []string{"Bearer " + es256("old", false)})
		wantFault(t, err)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		wg.Wait()
		if n := i.count(); n != 1 {
			t.Errorf("asked %d times", n)
		}
	})
}

// TestFloodOfUnknownKids: two minutes of them cost the issuer a fetch every ten seconds,
// and callers with good JWTs nothing.
func TestFloodOfUnknownKids(t *testing.T) {
	for _, down := range []bool{false, true} {
		t.Run(fmt.Sprintf("down %t", down), func(t *testing.T) {
			inBubble(t, func(t *testing.T, i *issuer, a *Authenticator) {
				i.set(func(i *issuer) { i.down = down })
				keys := a.keys.current()
				begin := time.Now()
				for n := 0; time.Since(begin) < 2*time.Minute; n++ {
					var wg sync.WaitGroup
					for j := range 5 {
						wg.Go(func() {
							_, err := ask(a, b64(fmt.Sprintf(`{"alg":"ES256","kid":"%d-%d"}`, n, j))+"."+b64(alice(""))+".AAAA")
							if !errors.Is(err, ErrUnknownKey) && !down {
								t.Errorf("got %v", err)
							}
						})
					}
					wg.Wait()
					time.Sleep(100 * time.Millisecond)
				}
				if n := i.count(); n > 13 {
					t.Errorf("asked %d times in two minutes", n)
				}
				if a.keys.current() != keys {
					t.Error("the cache was emptied")
				}
			})
		})
	}
}

// TestKidPicksTheKey tries kids against a set with several keys, one of them without.
func TestKidPicksTheKey(t *testing.T) {
	k := private()
	synctest.Test(t, func(t *testing.T) {
		i := new(issuer)
		i.publish(public(k.p256, "ec"), public(k.rsa, "rsa"), public(k.rsa2, "both"), public(k.other, "both"), public(k.ed, ""))
		a := open(t, remoteConfig(i))
		claims := alice(`,"iss":"i","aud":"a"`)
		tests := []struct {
			name   string
			alg    string
			key    any
			header string // behind alg
			want   *Reason
		}{
			{"its own", "ES256", k.p256, `,"kid":"ec"`, nil},
			{"another's", "ES256", k.p256, `,"kid":"both"`, ErrSignature},
			{"another type's", "ES256", k.p256, `,"kid":"rsa"`, ErrAlgorithm},
			{"two keys of one kid, EC", "ES256", k.other, `,"kid":"both"`, nil},
			{"two keys of one kid, RSA", "PS256", k.rsa2, `,"kid":"both"`, nil},
			{"unknown", "ES256", k.p256, `,"kid":"EC"`, ErrUnknownKey},
			{"a path", "ES256", k.p256, `,"kid":"../ec"`, ErrUnknownKey},
			{"none: any key of the type", "RS256", k.rsa2, ``, nil},
			{"none: the key without", "EdDSA", k.ed, ``, nil},
			{"empty is none", "ES256", k.p256, `,"kid":""`, nil},
			{"none: no key of the type", "ES384", k.p384, ``, ErrAlgorithm},
			{"a number", "ES256", k.p256, `,"kid":0`, ErrHeader},
			{"HS256 with the kid of an RSA key", "HS256", pkix(k.rsa.Public()), `,"kid":"rsa"`, ErrAlgorithm},
			{"HS256 with an empty secret", "HS256", []byte{}, ``, ErrAlgorithm},
		}
		for _, tt := range tests {
			_, err := ask(a, sign(tt.alg, tt.key, `{"alg":"`+tt.alg+`"`+tt.header+`}`, claims))
			t.Log(tt.name)
			wantReason(t, err, tt.want)
		}
	})
}

func TestCloseEndsFetching(t *testing.T) {
	inBubble(t, func(t *testing.T, i *issuer, a *Authenticator) {
		i.set(func(i *issuer) { i.delay = time.Minute })
		time.Sleep(refreshPause)
		done := make(chan struct{})
		go func() { // leaves a fetch under way
			defer close(done)
			ask(a, es256("new", true))
		}()
		synctest.Wait()
		a.Close()
		a.Close()
		<-done
		asked := i.count()
		time.Sleep(time.Hour)
		_, err := ask(a, es256("old", false))
		wantReason(t, err, nil)
		ask(a, es256("new", true))
		if n := i.count(); n != asked {
			t.Errorf("asked %d times after the end", n-asked)
		}
	})
}

// TestRealServer goes over HTTP, with the transport of production.
func TestRealServer(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/keys", func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, jwks(public(private().p256, "old")))
	})
	mux.Handle("/moved", http.RedirectHandler("/keys", http.StatusFound))
	mux.Handle("/away", http.RedirectHandler("http://issuer.example/keys", http.StatusFound))
	mux.Handle("/loop", http.RedirectHandler("/loop", http.StatusFound))
	server := httptest.NewServer(mux)
	defer server.Close()

	for path, fetched := range map[string]bool{"/keys": true, "/moved": true, "/away": false, "/loop": false, "/none": false} {
		t.Run(path, func(t *testing.T) {
			c := remoteConfig(nil)
			c.JWKSURL = server.URL + path
			a := open(t, c)
			_, err := ask(a, es256("old", false))
			if fetched {
				wantReason(t, err, nil)
			} else {
				wantFault(t, err)
			}
		})
	}
}

func TestKeyURL(t *testing.T) { // TestNewRefuses has those that are refused
	for _, u := range []string{
		"https://issuer.example/keys?v=1", "https://10.0.0.1:8443/", "http://localhost:8080/keys",
		"http://127.0.0.1/", "http://127.8.9.1/", "http://[::1]:80/",
	} {
		if err := checkKeyURL(must(url.Parse(u))); err != nil {
			t.Errorf("%s %v", u, err)
		}
	}
}
