package guard

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"example.com/tokend/httpapi/wire"
)

// Issue returns page with a token for each of its forms: [Field] in the context that page
// is given. The token is fetched before page runs, and where tokend gives none page does not
// run: 503. The answer is no-store, whatever page says, since a page out of a cache would
// come with a token that is used.
//
// HEAD and OPTIONS fetch no token, and other methods but GET only when page asks for it, so
// that Issue can stand around a handler that answers GET and POST.
func (g *Guard) Issue(page http.Handler, opts ...Option) http.Handler {
	set := g.forUsers(opts)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodHead || r.Method == http.MethodOptions || r.Method == http.MethodTrace {
			page.ServeHTTP(w, r)
			return
		}
		user := set.user(r)
		if user == "" {
			set.refuse(w, r, newRefused(wire.CodeUnauthenticated, nil))
			return
		}
		u := set.newRun(r, user)
		if r.Method == http.MethodGet {
			if err := u.fetch(); err != nil {
				set.refuse(w, r, undone(err))
				return
			}
			u.private = true
		}
		_, out := newWriter(w, u.noStore)
		serve(page, out, r, r.WithContext(u.context(r.Context())))
	})
}

// undone returns what is said of a call that failed with err and has done nothing that could
// be looked for: a token that nobody knows, a claim that nobody holds.
func undone(err error) *Refused {
	no := refusedFor(err)
	if no.Code != wire.CodeOutcomeUnknown {
		return no
	}
	sure := newRefused(wire.CodeStoreUnavailable, no.Err)
	sure.RequestID = no.RequestID
	return sure
}

// noStore keeps an answer that holds a token out of caches.
func (u *run) noStore(h http.Header) {
	if u.holdsToken() {
		h.Set("Cache-Control", "no-store")
	}
}

// IssueHandler returns an endpoint from which a page's script fetches a token for the
// session's user: POST, from a page of the same origin. It answers 201 and
//
//	{"token": "ott_…", "ref": "t_…", "expires_at": "2026-01-02T03:04:05.678Z", "ttl": 300}
//
// no-store, and a problem where it does not. "Same origin" is what the browser says of the
// request (Sec-Fetch-Site, or Origin against Host); a program that is no browser says
// nothing, and is no risk to anybody's session.
func (g *Guard) IssueHandler(opts ...Option) http.Handler {
	set := g.forUsers(opts)
	set.page = nil // a script asks
	var origin http.CrossOriginProtection
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			set.refuse(w, r, newRefused(wire.CodeMethodNotAllowed, nil))
			return
		}
		if err := origin.Check(r); err != nil {
			set.refuse(w, r, newRefused(wire.CodeForbidden, err))
			return
		}
		user := set.user(r)
		if user == "" {
			set.refuse(w, r, newRefused(wire.CodeUnauthenticated, nil))
			return
		}
		t, err := set.purpose.Issue(r.Context(), user, set.issue...)
		if err != nil {
			set.refuse(w, r, undone(err))
			return
		}
		body, err := json.Marshal(issued{t.Value, t.Ref, wire.TimeOf(t.ExpiresAt), int64(t.TTL / time.Second)})
		if err != nil {
			set.refuse(w, r, err)
			return
		}
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("Content-Type", wire.TypeJSON)
		h.Set("Content-Length", strconv.Itoa(len(body)))
		w.WriteHeader(http.StatusCreated)
		w.Write(body)
	})
}

// issued is what IssueHandler answers. The user stays out of it: it may be the session.
type issued struct {
	Token     string    `json:"token"`
	Ref       string    `json:"ref"`
	ExpiresAt wire.Time `json:"expires_at"`
	TTL       int64     `json:"ttl"`
}
