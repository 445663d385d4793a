package guard_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"example.com/tokend/client"
	"example.com/tokend/client/guard"
	"example.com/tokend/httpapi/wire"
)

// What is mounted twice is two things, though it sees the same paths.
func TestMountedTwice(t *testing.T) {
	t.Parallel()
	for _, form := range []string{"origin", "absolute"} {
		s := newService(t)
		mux := http.NewServeMux()
		byKey, byToken := s.guard.Replay(http.HandlerFunc(s.run), guard.IdempotencyKey()), s.guard.Replay(http.HandlerFunc(s.run))
		for _, mount := range []string{"/shop1", "/shop2", "/caf%C3%A9"} {
			mount = strings.ReplaceAll(mount, "%C3%A9", "é")
			mux.Handle(mount+"/orders", http.StripPrefix(mount, byKey))
			mux.Handle(mount+"/forms", http.StripPrefix(mount, byToken))
		}
		post := func(path, query, key, token string) *httptest.ResponseRecorder {
			target := path + query
			if form == "absolute" {
				target = "http://example.com" + target
			}
			r := httptest.NewRequest(http.MethodPost, target, strings.NewReader("{}"))
			r.Header.Set("X-Test-User", user)
			r.Header.Set("Content-Type", "application/json")
			if key != "" {
				r.Header.Set("Idempotency-Key", key)
			}
			if token != "" {
				r.Header.Set(guard.HeaderToken, token)
			}
			return send(mux, r)
		}
		for i, mount := range []string{"/shop1", "/shop2", "/caf%C3%A9"} {
			first := post(mount+"/orders", "", "k", "")
			wantAnswer(t, first, http.StatusCreated, fmt.Sprint("run ", i+1))
			wantReplay(t, post(mount+"/orders", "", "k", ""), first)
			wantProblem(t, post(mount+"/orders", "?a=b", "k", ""), 422, wire.CodeIdempotencyKeyReused, client.NextFix)
		}
		// A token is no other one in another mount; but what it was sent to is something else.
		token := s.token()
		wantAnswer(t, post("/shop1/forms", "", "", token), http.StatusCreated, "run 4")
		if w := post("/shop2/forms", "", "", token); w.Code != 422 {
			t.Errorf("%s: %d %s", form, w.Code, w.Body)
		}
		s.wantRuns(4)
	}
}

// What did not come from a connection has no RequestURI, or whatever it was made with: it
// goes by its URL.
func TestPathWithoutRequestURI(t *testing.T) {
	t.Parallel()
	s := newService(t, guard.IdempotencyKey())
	h := s.guard.Replay(http.HandlerFunc(s.run))
	n := 0
	for _, requestURI := range []string{"", "*", "example.com:443", "orders", "%zz"} {
		for _, path := range []string{"/a", "/b", "/a%2Fb", "/a/b"} {
			ask := func() *httptest.ResponseRecorder {
				r, err := http.NewRequest(http.MethodPost, "http://example.com"+path, strings.NewReader("{}"))
				if err != nil {
					t.Fatal(err)
				}
				r.RequestURI = requestURI
				r.Header.Set("X-Test-User", user)
				r.Header.Set("Idempotency-Key", "k"+fmt.Sprintf("%x", requestURI))
				return send(h, r)
			}
			n++
			first := ask()
			wantAnswer(t, first, http.StatusCreated, fmt.Sprint("run ", n))
			wantReplay(t, ask(), first)
		}
	}
	// The same path is the same, whether it came from a connection or not.
	r := httptest.NewRequest(http.MethodPost, "/a", strings.NewReader("{}"))
	r.Header.Set("X-Test-User", user)
	r.Header.Set("Idempotency-Key", "k")
	wantAnswer(t, send(h, r), http.StatusCreated, "run 1")
}
