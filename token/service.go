package token

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Store remembers what became of each token. Its clock is the only one: every time in
// an answer is the store's.
//
// Each method answers with a value, with a *[Refusal], or, where the store could not
// be asked or did not answer, with a *[Fault].
type Store interface {
	// Issue makes the record of a new token. Its own earlier send, which left the
	// record there, is a success and not counted again. The refusal is ErrRateLimited,
	// and leaves nothing behind.
	Issue(context.Context, NewRecord) (Issued, error)
	// Consume uses t up. Sending the same attempt again gives the same answer, so a
	// re-send after a lost reply cannot read as a second consume.
	Consume(ctx context.Context, u User, t *Token, a Attempt, d Digest) (Consumed, error)
	// Status tells t's state and changes nothing.
	Status(ctx context.Context, u User, t *Token) (Status, error)
}

// NewRecord is what a store is asked to remember of a new token.
type NewRecord struct {
	ID        ID
	User      User
	Mode      Mode
	TTL       time.Duration // whole seconds
	Retention time.Duration // whole seconds
	Rate      Rate          // the zero Rate does not limit
}

// Rate limits how many tokens a user may be issued: Burst at once, PerMinute in the
// long run.
type Rate struct{ PerMinute, Burst int }

// Issued holds the times of a new record.
type Issued struct{ IssuedAt, ExpiresAt time.Time }

// Consumed says that the token was this attempt's.
type Consumed struct {
	UsedAt   time.Time
	Replayed bool // this attempt had the answer before: information, never a reason not to do the work
	Takeover bool // a claim whose lease had ended was taken over
}

// State is what became of a token.
type State string

// The states of a token.
const (
	StateIssued  State = "issued"
	StateUsed    State = "used"
	StateRevoked State = "revoked"
	StateExpired State = "expired" // never used
	StateStale   State = "stale"   // too old to tell
	StateLost    State = "lost"    // unexpired, but the store has no record
	StateGone    State = "gone"    // no record, and no way to tell
)

// Status is a token's state with the times that belong to it; the others are zero.
type Status struct {
	State     State
	ExpiresAt time.Time // always
	IssuedAt  time.Time // while the record lives
	UsedAt    time.Time
	UsedBy    string // see [Hash.Ref]
	RevokedAt time.Time
}

// Settings are a purpose's.
type Settings struct {
	TTL       time.Duration // of a token whose caller asks for none; whole seconds, at least 1
	MaxTTL    time.Duration // the longest that may be asked for
	Retention time.Duration // how long after its expiry a token is remembered; whole seconds
}

// Service issues and consumes tokens. It holds the rules that need no store. It is
// safe for concurrent use.
type Service struct {
	ring  *Ring
	store Store
	opts  Options
}

// Options are a Service's.
type Options struct {
	Mode     Mode
	Settings                      // of every purpose that Purposes does not name
	Purposes map[Purpose]Settings // where not nil, the only ones that may be issued
	Rate     Rate                 // of users' own calls
}

// NewService returns a Service that signs with ring and remembers in store.
func NewService(ring *Ring, store Store, opts Options) *Service {
	return &Service{ring: ring, store: store, opts: opts}
}

// IssueRequest asks for a token.
type IssueRequest struct {
	User    User
	Purpose Purpose
	TTL     time.Duration // 0 asks for the purpose's own
	Limited bool          // a user's own call: the rate applies
}

// IssuedToken is a new token and what it is good for.
type IssuedToken struct {
	Text      string // the token
	ID        ID
	User      User
	Purpose   Purpose
	IssuedAt  time.Time
	ExpiresAt time.Time
	TTL       time.Duration
	KeyID     string // the signing key's
}

// Issue makes a token. Errors: *[InvalidError] on purpose or ttl, *[Refusal] of
// ErrRateLimited, *[Fault].
func (s *Service) Issue(ctx context.Context, req IssueRequest) (IssuedToken, error) {
	set, err := s.settings(req.Purpose)
	if err != nil {
		return IssuedToken{}, err
	}
	ttl := set.TTL
	if req.TTL != 0 {
		ttl = req.TTL
	}
	if ttl < time.Second || ttl > set.MaxTTL || ttl%time.Second != 0 {
		return IssuedToken{}, &InvalidError{
			Field: "ttl",
			Rule:  fmt.Sprintf("must be 1 to %d whole seconds for this purpose", set.MaxTTL/time.Second),
		}
	}
	rec := NewRecord{ID: NewID(), User: req.User, Mode: s.opts.Mode, TTL: ttl, Retention: set.Retention}
	if req.Limited {
		rec.Rate = s.opts.Rate
	}
	got, err := s.store.Issue(ctx, rec)
	if err != nil {
		return IssuedToken{}, err
	}
	text := s.ring.Sign(Grant{
		ID: rec.ID, User: req.User, Purpose: req.Purpose, Mode: rec.Mode,
		ExpiresAt: got.ExpiresAt, Retention: rec.Retention,
	})
	return IssuedToken{
		Text: text, ID: rec.ID, User: req.User, Purpose: req.Purpose,
		IssuedAt: got.IssuedAt, ExpiresAt: got.ExpiresAt, TTL: ttl, KeyID: s.ring.keys[0].id,
	}, nil
}

// settings returns what holds for tokens of purpose p, or says that none are issued.
func (s *Service) settings(p Purpose) (Settings, error) {
	if s.opts.Purposes == nil {
		return s.opts.Settings, nil
	}
	set, ok := s.opts.Purposes[p]
	if !ok {
		return Settings{}, &InvalidError{Field: "purpose", Rule: "must be one of the configured purposes"}
	}
	return set, nil
}

// Purposes lists the only purposes that may be issued, or nothing where any may.
func (s *Service) Purposes() []Purpose {
	ps := make([]Purpose, 0, len(s.opts.Purposes))
	for p := range s.opts.Purposes {
		ps = append(ps, p)
	}
	slices.Sort(ps)
	return ps
}

// Use names a token and those it must be good for.
type Use struct {
	Text    string
	User    User
	Purpose Purpose
}

// Open parses u's token and checks that it is u's user's and for u's purpose. Errors:
// *[Refusal] only. The store is not asked.
func (s *Service) Open(u Use) (*Token, error) {
	t, err := s.ring.Parse(u.Text)
	if err != nil {
		return nil, err
	}
	return t, t.Check(u.User, u.Purpose)
}

// Consume uses a token up that [Service.Open] has opened for u. Errors: *[Refusal],
// *[Fault].
func (s *Service) Consume(ctx context.Context, u User, t *Token, a Attempt, d Digest) (Consumed, error) {
	return s.store.Consume(ctx, u, t, a, d)
}

// Status tells the state of a token that [Service.Open] has opened for u. Errors:
// *[Fault].
func (s *Service) Status(ctx context.Context, u User, t *Token) (Status, error) {
	return s.store.Status(ctx, u, t)
}
