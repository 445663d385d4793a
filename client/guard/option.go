package guard

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"example.com/tokend/client"
	"example.com/tokend/httpapi/wire"
)

// Option changes what a guard does: all its handlers where it is given to [New], one where
// it is given to a method.
type Option func(*settings) error

type settings struct {
	purpose      client.Purpose
	user         func(*http.Request) string
	issue        []client.IssueOption
	forms        int
	consumeFirst bool
	failOpen     bool
	bodyLimit    int64
	page         func(http.ResponseWriter, *http.Request, *Refused)
	problem      func(http.ResponseWriter, *http.Request, *Refused)
	log          *slog.Logger
	observe      func(Event)

	// Of Replay.
	key          func(*http.Request, []byte) (string, error) // nil for a token
	userFunc     func(*http.Request, []byte) (string, error)
	digest       func(*http.Request, []byte) ([]byte, error)
	optional     bool
	without      []string
	jsonAnyOrder bool
	wait, lease  time.Duration
	resultLimit  int
	headers      []string
	keep5xx      bool
	commitFirst  bool
	reused       int // the status of a key that is reused; 0 for tokend's own
	background   *background
	backoff      func(n int) time.Duration
	keepFor      time.Duration
}

const (
	defaultBodyLimit   = 1 << 20
	defaultResultLimit = 256 << 10 // as tokend's results.max_bytes
	defaultWait        = 10 * time.Second
)

// defaultHeaders are what an answer means. What belongs to one exchange or one user agent
// (Set-Cookie, Date, X-Request-Id, WWW-Authenticate) is not among them.
var defaultHeaders = []string{
	"Cache-Control", "Content-Disposition", "Content-Encoding", "Content-Language", "Content-Location", "Content-Type",
	"Etag", "Last-Modified", "Link", "Location", "Vary",
}

func defaults(p client.Purpose) settings {
	return settings{
		purpose:   p,
		forms:     1,
		bodyLimit: defaultBodyLimit,
		log:       slog.Default(),
		observe:   func(Event) {},

		wait:        defaultWait,
		lease:       wire.LeaseDefault * time.Second,
		resultLimit: defaultResultLimit,
		headers:     defaultHeaders,
		background:  new(background),
		backoff:     backOff,
		keepFor:     defaultKeepFor,
	}
}

// User says whose request r is: the user that the service's session names, never one that
// the request names itself. "" is nobody, and refused as unauthenticated (401): whatever
// asks for a login stands around the guard.
func User(user func(r *http.Request) string) Option {
	return func(s *settings) error {
		s.user = user
		if user == nil {
			return errors.New("User: must not be nil")
		}
		return nil
	}
}

// IssueWith says more about the tokens that are issued: client.TTL, say.
func IssueWith(opts ...client.IssueOption) Option {
	return func(s *settings) error {
		s.issue = append(s.issue[:len(s.issue):len(s.issue)], opts...)
		return nil
	}
}

// Forms has [Guard.Issue] issue n tokens for a page of n forms that are sent one by one:
// 1 to client.BatchMax, in one call. [FieldOf] has each. It is 1 where not set.
func Forms(n int) Option {
	return func(s *settings) error {
		s.forms = n
		if n < 1 || n > client.BatchMax {
			return fmt.Errorf("Forms: must be 1 to %d", client.BatchMax)
		}
		return nil
	}
}

// ConsumeFirst has [Guard.Once] use the token up before the handler runs, for handlers that
// cannot reject what was sent. A form with mistakes needs a fresh token then, which [Field]
// fetches.
func ConsumeFirst() Option {
	return func(s *settings) error { s.consumeFirst = true; return nil }
}

// FailOpen has handlers run where tokend gives no answer, as if the token or key were good. For
// as long as the outage lasts whoever sends a form twice is served twice, so the handler must
// hold the line by itself: by a unique key on the user and [Ref], or by package sqlguard with
// that user and ref as its ID. The ref is then what the token's own text says, and nobody has
// checked it: use it together with the user, never alone. Who makes texts up is served as
// often as he does. Each such request is logged and reported as [EventOpen]. A refusal still
// refuses, what could be no token by its shape is token_invalid, and no form is shown without a
// token.
func FailOpen() Option {
	return func(s *settings) error { s.failOpen = true; return nil }
}

// BodyLimit bounds how much of a body is held in memory: what comes before the token where
// it is a field, and that is all of a form that is no multipart/form-data. More is
// body_too_large (413). It is 1 MiB where not set. In Once a token in [HeaderToken] leaves
// the body alone. Replay reads all of it in any case: its digest is of the whole.
func BodyLimit(n int64) Option {
	return func(s *settings) error {
		s.bodyLimit = n
		if n < 1 {
			return errors.New("BodyLimit: must be above 0")
		}
		return nil
	}
}

// Page has page answer instead of a problem, where the request's Accept names text/html: a
// browser that shows what it gets. Its status is no.Status unless page sets another; the
// answer is no-store, and a Retry-After stands already. [Field] fetches a fresh token, so
// page can show the form again; where no.Next is "wait" it is the one that was sent. Where
// no.Code is token_used, no.Ref finds what the first submission made.
func Page(page func(w http.ResponseWriter, r *http.Request, no *Refused)) Option {
	return func(s *settings) error {
		s.page = page
		if page == nil {
			return errors.New("Page: must not be nil")
		}
		return nil
	}
}

// Problem has problem answer instead of a problem document, where [Page] does not: for services
// whose errors have a form of their own. All else is as for Page.
func Problem(problem func(w http.ResponseWriter, r *http.Request, no *Refused)) Option {
	return func(s *settings) error {
		s.problem = problem
		if problem == nil {
			return errors.New("Problem: must not be nil")
		}
		return nil
	}
}

// Logger replaces slog.Default, which is written to about what should not happen. Neither
// tokens nor bodies stand in a line.
func Logger(l *slog.Logger) Option {
	return func(s *settings) error {
		s.log = l
		if l == nil {
			return errors.New("Logger: must not be nil")
		}
		return nil
	}
}

// Observe has f told of each [Event], for metrics. It is called while the request waits, by
// many goroutines at a time.
func Observe(f func(Event)) Option {
	return func(s *settings) error {
		s.observe = f
		if f == nil {
			return errors.New("Observe: must not be nil")
		}
		return nil
	}
}

// IdempotencyKey has [Guard.Replay] go by the key in the request's Idempotency-Key, which
// the sender's own client makes, and not by a token. A key is good for one user, method and
// path, the one that was sent to and not what http.StripPrefix leaves of it. A token is not
// looked for then: who may choose what the request goes by could spend one token twice.
func IdempotencyKey() Option {
	return func(s *settings) error { s.key = headerKey; return nil }
}

// KeyFunc is [IdempotencyKey] for a key that f finds elsewhere: the ID of a callback's event.
// "" is none. body is all of the body, and r is f's to read; an error refuses the request
// (400). Where something around the guard has parsed the form, body is empty and r has it.
func KeyFunc(f func(r *http.Request, body []byte) (string, error)) Option {
	return func(s *settings) error {
		s.key = f
		if f == nil {
			return errors.New("KeyFunc: must not be nil")
		}
		return nil
	}
}

// UserFunc is [User] for a callback without a login, whose user is whoever owns the key:
// "stripe:acct_1". Whatever checks the callback's signature stands around the guard. All
// else is as for [KeyFunc].
func UserFunc(f func(r *http.Request, body []byte) (string, error)) Option {
	return func(s *settings) error {
		s.userFunc = f
		if f == nil {
			return errors.New("UserFunc: must not be nil")
		}
		return nil
	}
}

// DigestFunc has what f returns tell one request from another with the same token or key,
// beside method and the path sent to, instead of query and body: for a callback whose body changes
// between resends. All else is as for [KeyFunc].
func DigestFunc(f func(r *http.Request, body []byte) ([]byte, error)) Option {
	return func(s *settings) error {
		s.digest = f
		if f == nil {
			return errors.New("DigestFunc: must not be nil")
		}
		return nil
	}
}

// DigestWithout leaves fields of a form out of the digest by their names: one against
// cross-site requests that is another in each page, say.
func DigestWithout(fields ...string) Option {
	return func(s *settings) error {
		s.without = append(s.without[:len(s.without):len(s.without)], fields...)
		return nil
	}
}

// JSONAnyOrder has JSON bodies count as the same whatever the space between their values and
// the order of their members. Numbers and strings are compared as they are spelt, and a
// member that stands twice is not the same as one that stands once.
func JSONAnyOrder() Option {
	return func(s *settings) error { s.jsonAnyOrder = true; return nil }
}

// Optional has Replay's handler run unguarded where a request has neither token nor key, for
// services whose clients are still to learn to send one. Without it that is a 400.
func Optional() Option {
	return func(s *settings) error { s.optional = true; return nil }
}

// Wait is how long a repeat waits while the first request is at work: whole seconds, 0 to
// 30s. It is 10s where not set. After that it is request_in_progress (409) with a
// Retry-After.
func Wait(d time.Duration) Option {
	return func(s *settings) error {
		s.wait = d
		if d < 0 || d > wire.WaitMax*time.Second || d%time.Second != 0 {
			return fmt.Errorf("Wait: must be whole seconds, 0 to %ds", wire.WaitMax)
		}
		return nil
	}
}

// Lease is how long a crash of this service blocks repeats of a request that was not
// committed: whole seconds, 1s to 1h. It is 30s where not set, and kept up while the handler
// runs.
func Lease(d time.Duration) Option {
	return func(s *settings) error {
		s.lease = d
		if d < time.Second || d > wire.LeaseMax*time.Second || d%time.Second != 0 {
			return fmt.Errorf("Lease: must be whole seconds, 1 to %d", wire.LeaseMax)
		}
		return nil
	}
}

// ResultLimit is how much of an answer's body is held back and kept. A longer one commits
// first, is handed on as it is written, and kept without its body. It is 256 KiB where not
// set, as tokend's own limit.
func ResultLimit(n int) Option {
	return func(s *settings) error {
		s.resultLimit = n
		if n < 0 {
			return errors.New("ResultLimit: must not be negative")
		}
		return nil
	}
}

// Headers adds to what is kept of an answer's header: Cache-Control, Content-Disposition,
// Content-Encoding, Content-Language, Content-Location, Content-Type, ETag, Last-Modified,
// Link, Location and Vary. What belongs to one exchange is refused: Set-Cookie, say.
func Headers(names ...string) Option {
	return func(s *settings) error {
		s.headers = s.headers[:len(s.headers):len(s.headers)]
		for _, name := range names {
			name = http.CanonicalHeaderKey(name)
			if !isToken(name) {
				return fmt.Errorf("Headers: %q is no header's name", name)
			}
			if slices.Contains(neverKept, name) {
				return fmt.Errorf("Headers: %s belongs to one exchange", name)
			}
			if !slices.Contains(s.headers, name) {
				s.headers = append(s.headers, name)
			}
		}
		return nil
	}
}

// isToken tells whether name is what RFC 9110 calls a token.
func isToken(name string) bool {
	for i := range len(name) {
		c := name[i]
		alnum := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !alnum && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return name != ""
}

var neverKept = []string{
	"Connection", "Content-Length", "Date", "Keep-Alive", "Proxy-Authenticate", "Set-Cookie", "Trailer", "Transfer-Encoding",
	"Upgrade", "Www-Authenticate", "X-Request-Id", wire.HeaderIdempotentReplayed, HeaderBodyOmitted,
}

// Keep5xx keeps answers of 500 and above, too, without [Commit]: every repeat gets the same
// failure. Without it they release, and the next request runs the handler again.
func Keep5xx() Option {
	return func(s *settings) error { s.keep5xx = true; return nil }
}

// CommitFirst has Replay commit before the handler runs, for handlers that cannot tell
// themselves when the point of no return comes: nothing is ever run again, and every answer
// is kept, a 422 too.
func CommitFirst() Option {
	return func(s *settings) error { s.commitFirst = true; return nil }
}

// ReusedConflict has a token or key that comes with another request answered with 409, as an
// older convention has it, instead of 422.
func ReusedConflict() Option {
	return func(s *settings) error { s.reused = http.StatusConflict; return nil }
}
