package demo

import (
	"cmp"
	"container/list"
	"crypto/rand"
	"crypto/sha256"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// What is kept, so that nobody fills the memory.
const (
	maxSessions = 500
	maxEntries  = 60 // of a time line
	maxOrders   = 60 // that are shown; all are counted
	maxTokens   = 500
)

const cookieName = "tokend_demo"

// sessions are those of the browsers that came by last.
type sessions struct {
	mu    sync.Mutex
	byID  map[string]*list.Element
	queue list.List // of *session, the latest first
}

// of returns r's session, or nil.
func (ss *sessions) of(r *http.Request) *session {
	c, err := r.Cookie(cookieName)
	if err != nil {
		return nil
	}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	e := ss.byID[c.Value]
	if e == nil {
		return nil
	}
	ss.queue.MoveToFront(e)
	return e.Value.(*session)
}

// begin begins a session that has chosen c. The one that nobody has come by with for longest
// makes room.
func (ss *sessions) begin(w http.ResponseWriter, r *http.Request, c choices) *session {
	s := &session{id: rand.Text(), made: c, letters: map[[8]byte]int{}}
	http.SetCookie(w, &http.Cookie{
		Name: cookieName, Value: s.id, Path: Path, HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: r.TLS != nil,
	})
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.byID == nil {
		ss.byID = map[string]*list.Element{}
	}
	ss.byID[s.id] = ss.queue.PushFront(s)
	if ss.queue.Len() > maxSessions {
		last := ss.queue.Back()
		ss.queue.Remove(last)
		delete(ss.byID, last.Value.(*session).id)
	}
	return s
}

// protection is what stands before the form's handler.
type protection string

const (
	off    protection = "off"
	once   protection = "once"   // guard.Once
	replay protection = "replay" // guard.Replay
)

// users are who one can be. In tokend each session has users of its own.
var users = [2]string{"alice", "bob"}

// choices are what somebody has chosen on the page.
type choices struct {
	protection
	life time.Duration // of a token
	user string
	lang string // "" for the browser's
}

// session is one browser's. It is safe for concurrent use.
type session struct {
	id string

	mu      sync.Mutex
	made    choices
	armed   crash
	version int // of what the board shows
	entries []*entry
	orders  []order
	n       struct{ requests, orders int } // of all, also those that are not shown any more
	letters map[[8]byte]int
}

// entry is a request on the time line.
type entry struct {
	n        int
	kind     kind
	at       time.Time
	took     time.Duration
	ended    bool
	step     string // what the page was about
	user     string
	token    string // its letter
	ref      string
	status   int // 0: it was cut off
	code     string
	next     string
	replayed bool
	fence    int64
	order    int // that it made
}

type kind string

const (
	ofPage  kind = "page"
	ofToken kind = "token"
	ofOrder kind = "order"
)

// order is one that was really made.
type order struct {
	N        int    `json:"order"`
	Item     string `json:"item"`
	Quantity int    `json:"quantity"`
	User     string `json:"user"`
	token    string
	at       time.Time
}

func (s *session) chosen() choices {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.made
}

func (s *session) choose(c choices) { s.change(func() { s.made = c }) }

func (s *session) arm(when crash) { s.change(func() { s.armed = when }) }

// dies tells whether the service is to die at when, once.
func (s *session) dies(when crash) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.armed != when {
		return false
	}
	s.armed = ""
	return true
}

func (s *session) clear() {
	s.change(func() { s.entries, s.orders, s.armed, s.n.requests, s.n.orders = nil, nil, "", 0, 0 })
}

// change calls f, after which the board is another one.
func (s *session) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	s.version++
}

// add puts e on the time line.
func (s *session) add(e *entry) {
	s.change(func() {
		if e.kind == ofOrder {
			s.n.requests++
			e.n = s.n.requests
		}
		s.entries = append(s.entries, e)
		if over := len(s.entries) - maxEntries; over > 0 {
			s.entries = slices.Delete(s.entries, 0, over)
		}
	})
}

// create makes an order.
func (s *session) create(o order) order {
	s.change(func() {
		s.n.orders++
		o.N, o.at = s.n.orders, time.Now()
		s.orders = append(s.orders, o)
		if over := len(s.orders) - maxOrders; over > 0 {
			s.orders = slices.Delete(s.orders, 0, over)
		}
	})
	return o
}

// letter returns a short name for a token, the same as long as it is remembered; nobody can
// send the token who has read it.
func (s *session) letter(token string) string {
	if token == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(token))
	s.mu.Lock()
	defer s.mu.Unlock()
	key := [8]byte(sum[:])
	n, known := s.letters[key]
	if !known {
		if len(s.letters) >= maxTokens {
			clear(s.letters)
		}
		n = len(s.letters)
		s.letters[key] = n
	}
	name := string(rune('A' + n%26))
	if n >= 26 {
		name += string(rune('0' + n/26%10))
	}
	return name
}

// languageOf returns the language of r: the chosen one, else the first that the browser asks
// for.
func languageOf(r *http.Request, c choices) string {
	if c.lang != "" {
		return c.lang
	}
	type wish struct {
		lang string
		q    string
	}
	var wishes []wish
	for part := range strings.SplitSeq(r.Header.Get("Accept-Language"), ",") {
		tag, params, _ := strings.Cut(strings.TrimSpace(part), ";")
		lang, _, _ := strings.Cut(strings.ToLower(tag), "-")
		q, ok := strings.CutPrefix(strings.TrimSpace(params), "q=")
		if !ok {
			q = "1"
		}
		if languages[lang] != nil {
			wishes = append(wishes, wish{lang, q})
		}
	}
	slices.SortStableFunc(wishes, func(a, b wish) int { return cmp.Compare(b.q, a.q) }) // of one digit before the point, so as texts
	if len(wishes) == 0 || strings.Trim(wishes[0].q, "0.") == "" {
		return "en"
	}
	return wishes[0].lang
}
