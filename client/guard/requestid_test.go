package guard_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"example.com/tokend/client/guard"
	"example.com/tokend/httpapi/wire"
)

// Every problem names its request, so that whoever shows it to somebody can be helped: by
// tokend's id where tokend refused, else by the request's own. The header says it too.
func TestRequestID(t *testing.T) {
	t.Parallel()
	s := newService(t, guard.Problem(func(w http.ResponseWriter, _ *http.Request, no *guard.Refused) {
		w.Header().Set("X-Said", no.RequestID)
	}))
	used := s.token()
	once, plain := s.guard.Once(http.HandlerFunc(s.work)), guard.New(s.forms, guard.User(sessionUser))
	send(once, form(used))
	token := s.token()
	named := func(outer string, h http.Handler) http.Handler { // by what stands around the guard
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if outer != "" {
				w.Header().Set("X-Request-Id", outer)
			}
			h.ServeHTTP(w, r)
		})
	}
	for name, tt := range map[string]struct {
		h     http.Handler
		token string
	}{
		"once, missing":     {plain.Once(http.HandlerFunc(s.work)), ""},
		"once, a repeat":    {plain.Once(http.HandlerFunc(s.work)), used},
		"once, invalid":     {plain.Once(http.HandlerFunc(s.work)), "ott_x"},
		"replay, missing":   {plain.Replay(http.HandlerFunc(s.run)), ""},
		"replay, a repeat":  {plain.Replay(http.HandlerFunc(s.run)), used},
		"Problem, a repeat": {once, used},
		"Refuse": {http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			guard.Refuse(w, r, guard.ErrNotGuarded)
		}), token},
	} {
		tokends := strings.HasSuffix(name, "invalid") || name == "replay, a repeat" // whose log has the request
		for sent, own := range map[string]string{"": "", "mine-1": "mine-1", "not one": ""} {
			for _, outer := range []string{"", "outer"} {
				r := form(tt.token)
				if sent != "" {
					r.Header.Set("X-Request-Id", sent)
				}
				w := httptest.NewRecorder()
				named(outer, tt.h).ServeHTTP(w, r)
				head, said := w.Header().Get("X-Request-Id"), w.Header().Get("X-Said")
				if said == "" {
					var p wire.Problem
					if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
						t.Fatalf("%s: %v in %s", name, err, w.Body)
					}
					said = p.RequestID
				}
				want := own
				if outer != "" {
					want = outer
				}
				switch {
				case said == "" || head == "":
					t.Errorf("%s, sent %q: the problem names %q, the header %q", name, sent, said, head)
				case tokends && outer == "" && head != said, tokends && outer != "" && head != outer, tokends && said == want:
					t.Errorf("%s, sent %q, around it %q: the problem names %q, the header %q, want tokend's", name, sent, outer, said, head)
				case !tokends && (head != said || want != "" && said != want || said == "not one"):
					t.Errorf("%s, sent %q, around it %q: the problem names %q, the header %q, want %q", name, sent, outer, said, head, want)
				}
			}
		}
	}
}
