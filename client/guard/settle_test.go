package guard_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"example.com/tokend/client/guard"
)

// post sends a keyed request to srv, and returns the answer and its body.
func post(t *testing.T, srv *httptest.Server, path, key string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequest(http.MethodPost, srv.URL+path, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Test-User", user)
	r.Header.Set("Idempotency-Key", key)
	resp, err := srv.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Errorf("%s: %v", path, err)
	}
	return resp, string(body)
}

// What is committed stays so while tokend is away: whatever would commit once more asks
// nothing, and the work that was done is answered and kept.
func TestCommittedIsNotAskedAgain(t *testing.T) {
	t.Parallel()
	const raw = "HTTP/1.1 201 Created\r\nConnection: close\r\nContent-Length: 20\r\n\r\n"
	for name, again := range map[string]func(*testing.T, http.ResponseWriter, *http.Request){
		"overflow": func(*testing.T, http.ResponseWriter, *http.Request) {},
		"flush": func(t *testing.T, w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusCreated)
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
		},
		"hijack": func(t *testing.T, w http.ResponseWriter, _ *http.Request) {
			c, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			io.WriteString(c, raw+strings.Repeat("x", 20))
			c.Close()
		},
		"commit": func(t *testing.T, _ http.ResponseWriter, r *http.Request) {
			if err := guard.Commit(r.Context()); err != nil {
				t.Error(err)
			}
		},
	} {
		for first, opts := range map[string][]guard.Option{"Commit": nil, "CommitFirst": {guard.CommitFirst()}} {
			t.Run(name+" after "+first, func(t *testing.T) {
				t.Parallel()
				s := newService(t, append(opts, guard.IdempotencyKey(), guard.ResultLimit(10), guard.RetryAtOnce())...)
				returned := make(chan struct{}, 1)
				replay := s.guard.Replay(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if opts == nil {
						if err := guard.Commit(r.Context()); err != nil {
							t.Error(err)
						}
					}
					s.ran()
					s.tokend.Down(true)
					again(t, w, r)
					if name != "hijack" {
						w.WriteHeader(http.StatusCreated)
						if n, err := io.WriteString(w, strings.Repeat("x", 20)); n != 20 || err != nil {
							t.Errorf("wrote %d, %v", n, err)
						}
					}
					if err := r.Context().Err(); err != nil {
						t.Error(err)
					}
				}))
				srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					replay.ServeHTTP(w, r)
					returned <- struct{}{}
				}))
				defer srv.Close()
				if resp, body := post(t, srv, "/orders", "k1"); resp.StatusCode != http.StatusCreated || body != strings.Repeat("x", 20) {
					t.Errorf("%d %q", resp.StatusCode, body)
				}
				<-returned
				s.tokend.Down(false)
				if err := s.guard.Drain(t.Context()); err != nil {
					t.Error(err)
				}
				s.wantEvents(guard.EventNotKept, guard.EventKeptLate)
				resp, body := post(t, srv, "/orders", "k1")
				if name == "hijack" {
					if resp.StatusCode != http.StatusConflict || !strings.Contains(body, `"token_used"`) {
						t.Errorf("the repeat got %d %q", resp.StatusCode, body)
					}
				} else if resp.StatusCode != http.StatusCreated || body != "" || resp.Header.Get(guard.HeaderBodyOmitted) != "true" {
					t.Errorf("the repeat got %d %q %v", resp.StatusCode, body, resp.Header)
				}
				s.wantRuns(1)
			})
		}
	}
}
