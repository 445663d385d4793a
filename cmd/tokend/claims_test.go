package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/tokend/config"
	"example.com/tokend/httpapi/wire"
	"example.com/tokend/token"
)

// call calls the server at url as a service and returns the status; a success is read into
// into.
func call(t *testing.T, method, url, path, body string, into any) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+bearer(t, "form-svc", wire.ScopeConsume))
	req.Header.Set("Content-Type", wire.TypeJSON)
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		t.Error(err)
		return 0
	}
	defer resp.Body.Close()
	if into != nil {
		if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
			t.Error(err)
		}
	}
	return resp.StatusCode
}

// TestServeClaims holds what is configured about claims to reach them, and a shutdown to
// answer those who wait, at once, although a wait may be longer than it.
func TestServeClaims(t *testing.T) {
	store := testStore(t)
	r := startCommand(t, serveEnviron(store.URL(), "TOKEND_RESULTS_MAX_BYTES=3", "TOKEND_KEYS_RETENTION=1h"), "serve")
	var claimed wire.Claimed
	if status := call(t, "POST", r.url, wire.PathClaims, `{"key":"k","user":"alice"}`, &claimed); status != http.StatusCreated {
		t.Fatalf("claim: %d", status)
	}
	if status := call(t, "PUT", r.url, wire.PathResult(claimed.Claim), `{"result":{"status":200,"body":"AAAAAA=="}}`, nil); status != http.StatusRequestEntityTooLarge {
		t.Errorf("a result of 4 bytes: %d", status)
	}
	rdb := redis.NewClient(&redis.Options{Addr: store.Addr()})
	defer rdb.Close()
	keys := rdb.Keys(t.Context(), "tokend:k:*").Val()
	if len(keys) != 1 {
		t.Fatalf("%d keys", len(keys))
	}
	if left := rdb.PTTL(t.Context(), keys[0]).Val(); left < 59*time.Minute || left > 62*time.Minute {
		t.Errorf("the key's record is kept for %v", left)
	}

	answered := make(chan int, 1)
	go func() {
		answered <- call(t, "POST", r.url, wire.PathClaims, `{"key":"k","user":"alice","wait":30}`, nil)
	}()
	r.until("the call waits", func() bool { return rdb.PubSubNumSub(t.Context(), keys[0]).Val()[keys[0]] == 1 })
	began := time.Now()
	if status := r.stop(); status != exitOK {
		t.Errorf("status %d:\n%s", status, r.stderr)
	}
	if status := <-answered; status != http.StatusConflict {
		t.Errorf("the call that waited: %d", status)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("shut down after %v", took)
	}
}

func TestKeysRetentions(t *testing.T) {
	o := tokenOptions(&config.Config{
		Keys:     config.Keys{Retention: time.Hour},
		Purposes: map[token.Purpose]config.Purpose{"p": {Settings: token.Settings{KeysRetention: time.Minute}}},
	})
	if o.KeysRetention != time.Hour || o.Purposes["p"].KeysRetention != time.Minute {
		t.Errorf("%+v", o)
	}
}
