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
	// Issue makes the records of new tokens, all or none. Its own earlier send, which
	// left the records there, is a success and not counted again. The refusal is
	// ErrRateLimited, and leaves nothing behind.
	Issue(context.Context, NewRecords) (Issued, error)
	// Consume uses a token up. In Record mode, sending the same attempt again gives the
	// same answer, so a re-send after a lost reply cannot read as a second consume; in
	// Delete mode nothing is ever sent again by the store itself.
	Consume(context.Context, Consumption) (Consumed, error)
	// ConsumeBatch does what Consume does to each of cs by itself, in one round trip to
	// each server that is concerned. It returns as many of both as cs has.
	ConsumeBatch(ctx context.Context, cs []Consumption) ([]Consumed, []error)
	// Status tells a state and changes nothing.
	Status(context.Context, Subject) (Status, error)
	// Revoke makes a token unusable that is neither used, completed, committed nor past its
	// life, and tells what its state is then. The refusal is ErrModeUnsupported.
	Revoke(context.Context, Subject) (Status, error)

	// Claim takes a token or key for the length of a lease, or finds that it is completed.
	// Sending the same attempt again gives the same answer for as long as its claim is
	// current and was not committed by a later call.
	Claim(context.Context, Claiming) (Claimed, error)
	// ClaimStatus tells what Status does, and the result of what is completed.
	ClaimStatus(context.Context, Subject) (Status, error)
	// Watch has woken receive whenever the claim of a subject may have ended, by a call to
	// any store on the same data; but it may miss an end, and tell of none. stop ends it.
	Watch(Subject) (woken <-chan struct{}, stop func())
	// Commit marks a claim's point of no return: nobody takes it over from here on. Commit,
	// Renew, Complete and Release do once what they are sent twice, work after the lease's
	// end while nobody has taken over, and are refused with ErrSuperseded or ErrClaimEnded.
	Commit(context.Context, Handle) (Held, error)
	// Renew has a claim's lease last from now on, and never shortens it.
	Renew(ctx context.Context, h Handle, lease time.Duration) (Held, error)
	// Complete ends a claim and keeps r, which may be nil. A second result does not replace
	// the first.
	Complete(ctx context.Context, h Handle, r *Result) (Completed, error)
	// Release ends a claim of which nothing was done. A further refusal is
	// ErrClaimCommitted, but not to a claim that resolves.
	Release(context.Context, Handle) error
}

// NewRecords is what a store is asked to remember of new tokens of one user.
type NewRecords struct {
	IDs       []ID
	User      User
	Mode      Mode
	TTL       time.Duration // whole seconds
	Retention time.Duration // whole seconds
	Rate      Rate          // the zero Rate does not limit
}

// Rate limits how many tokens a user may be issued: Burst at once, PerMinute in the
// long run.
type Rate struct{ PerMinute, Burst int }

// Consumption is one consume of a token that [Service.Open] has opened.
type Consumption struct {
	User    User
	Token   *Token
	Attempt Attempt
	Digest  Digest // none where empty
}

// Subject is the token or key that is asked about.
type Subject struct {
	Kind Kind
	User User
	ID   ID
	// Token is what a token's text says; nil where only the ID is known. Then the record
	// alone tells, and where there is none the state is StateGone.
	Token *Token
	// Named says that a key's own text was given: where there is no record, it is known to
	// be StateUnknown.
	Named bool
}

// TokenSubject returns u's token t.
func TokenSubject(u User, t *Token) Subject { return Subject{User: u, ID: t.ID, Token: t} }

// KeySubject returns u's key k for p.
func KeySubject(u User, p Purpose, k IdempotencyKey) Subject {
	return Subject{Kind: OfKey, User: u, ID: k.ID(u, p), Named: true}
}

// Ref names the subject.
func (s Subject) Ref() Ref { return s.Kind.ref(s.ID) }

// Refuse returns a refusal of s.
func (s Subject) Refuse(why *Reason) *Refusal {
	if s.Token != nil {
		return s.Token.Refuse(why)
	}
	return &Refusal{Reason: why, Ref: s.Ref()}
}

// Issued holds the times of a new record.
type Issued struct{ IssuedAt, ExpiresAt time.Time }

// Consumed says that the token was this attempt's.
type Consumed struct {
	UsedAt   time.Time
	Replayed bool // this attempt had the answer before: information, never a reason not to do the work
	Takeover bool // a claim whose lease had ended was taken over
	Fence    uint32
}

// State is what became of a token or key.
type State string

// The states of a token.
const (
	StateIssued    State = "issued"
	StateClaimed   State = "claimed" // its lease may be over
	StateCompleted State = "completed"
	StateUsed      State = "used"
	StateRevoked   State = "revoked"
	StateExpired   State = "expired" // never used
	StateStale     State = "stale"   // too old to tell
	StateLost      State = "lost"    // unexpired, but the store has no record
	StateGone      State = "gone"    // no record, and no way to tell
)

// StateUnknown is a key's that was never claimed, or was released, as far as is remembered.
// Its other states are StateClaimed and StateCompleted.
const StateUnknown State = "unknown"

// Status is a state with what belongs to it; the other fields are zero.
type Status struct {
	State          State
	ExpiresAt      time.Time // a token's, always
	IssuedAt       time.Time // a token's, while the record lives
	UsedAt         time.Time
	CompletedAt    time.Time
	UsedBy         string // of what is used or completed: see [Hash.Ref]
	RevokedAt      time.Time
	LeaseExpiresAt time.Time // StateClaimed, as the next two
	Fence          uint32
	Committed      bool
	Result         *Result // StateCompleted, where asked for; nil where none was given
}

// Settings are a purpose's.
type Settings struct {
	TTL       time.Duration // of a token whose caller asks for none; whole seconds, at least 1
	MaxTTL    time.Duration // the longest that may be asked for
	Retention time.Duration // how long after its expiry a token is remembered; whole seconds
	// KeysRetention is how long a key is remembered after its latest claim, commit or
	// completion; whole seconds.
	KeysRetention time.Duration
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
	Purposes map[Purpose]Settings // where not nil, the only ones that may be issued or claimed by key
	Rate     Rate                 // of users' own calls; off where PerMinute is 0
}

// NewService returns a Service that signs with ring and remembers in store.
func NewService(ring *Ring, store Store, opts Options) *Service {
	return &Service{ring: ring, store: store, opts: opts}
}

// IssueRequest asks for tokens.
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
	var one [1]IssuedToken
	if err := s.issue(ctx, req, one[:]); err != nil {
		return IssuedToken{}, err
	}
	return one[0], nil
}

// IssueBatch makes n tokens in one round trip, all or none; they count as n. Errors: as
// Issue's, and *[InvalidError] on count where a limited call asks for more than the rate
// ever lets through at once.
func (s *Service) IssueBatch(ctx context.Context, req IssueRequest, n int) ([]IssuedToken, error) {
	if req.Limited && s.opts.Rate.PerMinute > 0 && n > s.opts.Rate.Burst {
		return nil, &InvalidError{
			Field: "count",
			Rule:  fmt.Sprintf("must be at most %d, which is what the rate lets a user have at once", s.opts.Rate.Burst),
		}
	}
	tokens := make([]IssuedToken, n)
	if err := s.issue(ctx, req, tokens); err != nil {
		return nil, err
	}
	return tokens, nil
}

// issue fills tokens.
func (s *Service) issue(ctx context.Context, req IssueRequest, tokens []IssuedToken) error {
	set, err := s.settings(req.Purpose)
	if err != nil {
		return err
	}
	ttl := set.TTL
	if req.TTL != 0 {
		ttl = req.TTL
	}
	if ttl < time.Second || ttl > set.MaxTTL || ttl%time.Second != 0 {
		return &InvalidError{
			Field: "ttl",
			Rule:  fmt.Sprintf("must be 1 to %d whole seconds for this purpose", set.MaxTTL/time.Second),
		}
	}
	recs := NewRecords{IDs: make([]ID, len(tokens)), User: req.User, Mode: s.opts.Mode, TTL: ttl, Retention: set.Retention}
	for i := range recs.IDs {
		recs.IDs[i] = NewID()
	}
	if req.Limited {
		recs.Rate = s.opts.Rate
	}
	got, err := s.store.Issue(ctx, recs)
	if err != nil {
		return err
	}
	for i, id := range recs.IDs {
		tokens[i] = IssuedToken{
			Text: s.ring.Sign(Grant{
				ID: id, User: req.User, Purpose: req.Purpose, Mode: recs.Mode,
				ExpiresAt: got.ExpiresAt, Retention: recs.Retention,
			}),
			ID: id, User: req.User, Purpose: req.Purpose,
			IssuedAt: got.IssuedAt, ExpiresAt: got.ExpiresAt, TTL: ttl, KeyID: s.ring.keys[0].id,
		}
	}
	return nil
}

// settings returns what holds for tokens and keys of purpose p, or says that there are none.
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

// Purposes lists the only purposes that may be issued or claimed by key, or nothing where
// any may.
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

// Consume uses a token up that [Service.Open] has opened. Errors: *[Refusal], *[Fault].
func (s *Service) Consume(ctx context.Context, c Consumption) (Consumed, error) {
	return s.store.Consume(ctx, c)
}

// ConsumeBatch does what Consume does to each of cs by itself, and returns as many of both
// as cs has.
func (s *Service) ConsumeBatch(ctx context.Context, cs []Consumption) ([]Consumed, []error) {
	return s.store.ConsumeBatch(ctx, cs)
}

// Status tells a token's state. Errors: *[Fault].
func (s *Service) Status(ctx context.Context, sub Subject) (Status, error) {
	return s.store.Status(ctx, sub)
}

// Revoke makes a token unusable and tells its state: what is used, completed, committed,
// expired, stale or lost stays so. Errors: *[Refusal] of ErrModeUnsupported, *[Fault].
func (s *Service) Revoke(ctx context.Context, sub Subject) (Status, error) {
	if sub.Token != nil && sub.Token.Mode != Record {
		return Status{}, sub.Token.Refuse(ErrModeUnsupported)
	}
	return s.store.Revoke(ctx, sub)
}
