package guard

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"example.com/tokend/client"
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
	log          *slog.Logger
	observe      func(Event)
}

const (
	defaultBodyLimit = 1 << 20
)

func defaults(p client.Purpose) settings {
	return settings{
		purpose:   p,
		forms:     1,
		bodyLimit: defaultBodyLimit,
		log:       slog.Default(),
		observe:   func(Event) {},
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

// FailOpen has handlers run where tokend gives no answer, as if the token were good. For as
// long as the outage lasts whoever sends a form twice is served twice, so the handler must
// hold the line by itself: by a unique key, say. Each such request is logged and reported as
// [EventOpen]. A refusal still refuses, and no form is shown without a token.
func FailOpen() Option {
	return func(s *settings) error { s.failOpen = true; return nil }
}

// BodyLimit bounds how much of a body is held in memory: what comes before the token where
// it is a field, and that is all of a form that is no multipart/form-data. More is
// body_too_large (413). It is 1 MiB where not set. A token in [HeaderToken] leaves the body
// alone.
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
// page can show the form again. Where no.Code is token_used, no.Ref finds what the first
// submission made.
func Page(page func(w http.ResponseWriter, r *http.Request, no *Refused)) Option {
	return func(s *settings) error {
		s.page = page
		if page == nil {
			return errors.New("Page: must not be nil")
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
