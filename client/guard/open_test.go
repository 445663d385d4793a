package guard_test

import (
	"net/http"
	"strings"
	"testing"

	"example.com/tokend/client"
	"example.com/tokend/client/guard"
	"example.com/tokend/httpapi/wire"
)

// With tokend away the database alone keeps the second click out, by its unique key on user
// and ref. So the ref must be there, and the one that tokend would have said.
func TestFailOpenRef(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		guarded func(*service, http.HandlerFunc) http.Handler
		byKey   bool
	}{
		"Once": {func(s *service, h http.HandlerFunc) http.Handler {
			return s.guard.Once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if guard.Consume(r.Context()) == nil {
					h(w, r)
				}
			}))
		}, false},
		"Once, ConsumeFirst": {func(s *service, h http.HandlerFunc) http.Handler { return s.guard.Once(h, guard.ConsumeFirst()) }, false},
		"Replay":             {func(s *service, h http.HandlerFunc) http.Handler { return s.guard.Replay(h) }, false},
		"Replay of keys":     {func(s *service, h http.HandlerFunc) http.Handler { return s.guard.Replay(h, guard.IdempotencyKey()) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t, guard.FailOpen())
			rows := map[[2]string]bool{}
			h := tt.guarded(s, func(w http.ResponseWriter, r *http.Request) {
				row := [2]string{sessionUser(r), guard.Ref(r.Context())}
				if rows[row] {
					w.WriteHeader(http.StatusConflict)
					return
				}
				rows[row] = true
				w.WriteHeader(http.StatusCreated)
			})
			order := func(name, by string) *http.Request {
				r := form(name)
				if tt.byKey {
					r = form("", "item", "tea")
					r.Header.Set("Idempotency-Key", name)
				}
				r.Header.Set("X-Test-User", by)
				return r
			}
			tokens, err := s.forms.IssueBatch(t.Context(), user, 3)
			if err != nil {
				t.Fatal(err)
			}
			names := []string{"k1", "k2", "k3"}
			if !tt.byKey {
				names = []string{tokens[0].Value, tokens[1].Value, tokens[2].Value}
			}
			wantAnswer(t, send(h, order(names[0], user)), http.StatusCreated, "")
			s.tokend.Close()
			wantAnswer(t, send(h, order(names[0], user)), http.StatusConflict, "") // made before the outage
			for _, name := range names[1:] {
				wantAnswer(t, send(h, order(name, user)), http.StatusCreated, "")
				wantAnswer(t, send(h, order(name, user)), http.StatusConflict, "")
			}
			// Another user's order is none of theirs, whatever they have made up.
			wantAnswer(t, send(h, order(names[2], "mallory")), http.StatusCreated, "")
			if len(rows) != 4 {
				t.Errorf("%d orders, want alice's three and mallory's one: %v", len(rows), rows)
			}
			if tt.byKey {
				return
			}
			for _, token := range tokens {
				if !rows[[2]string{user, token.Ref}] {
					t.Errorf("no row has the ref %s", token.Ref)
				}
			}
			for _, text := range []string{"x", "ott_x", names[1] + "x", names[1][:len(names[1])-4], strings.Repeat("x", 500)} {
				wantProblem(t, send(h, order(text, user)), http.StatusBadRequest, wire.CodeTokenInvalid, client.NextStop)
			}
			if len(rows) != 4 {
				t.Errorf("what is no token has made an order: %v", rows)
			}
		})
	}
}
