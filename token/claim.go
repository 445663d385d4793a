package token

import (
	"context"
	"time"
)

// ClaimRequest asks for a claim of a token or key.
type ClaimRequest struct {
	Subject
	Purpose Purpose // of a key: what is claimed is scoped to it
	Attempt Attempt
	Digest  Digest        // none where empty
	Lease   time.Duration // whole seconds
	Commit  bool          // commits in the same step
	// Resolve claims what is committed and was not completed before its lease ended: whoever
	// asks has looked for the business record, and completes or releases.
	Resolve bool
	// Wait is how long to wait for what is in progress to end.
	Wait time.Duration
}

// Claiming is what a store is asked to claim.
type Claiming struct {
	Subject
	Attempt   Attempt
	Digest    Digest
	Lease     time.Duration
	Commit    bool
	Resolve   bool
	Retention time.Duration // a key's: how long it is remembered from now on
}

// Claimed says that the claim is this attempt's, or what was the result of an earlier one.
type Claimed struct {
	State State // StateClaimed or StateCompleted

	// Of StateClaimed:
	Handle         Handle
	Text           string // the handle's, signed; empty in a store's answer
	KeyID          string // of the key that signed it
	Takeover       bool   // of a claim whose lease had ended
	Committed      bool
	LeaseExpiresAt time.Time

	Result   *Result // of StateCompleted; nil where none was given
	Replayed bool    // this attempt had the answer before; always, where a result is replayed
}

// Held says that a claim is still its holder's.
type Held struct {
	Committed      bool
	LeaseExpiresAt time.Time
}

// Completed says that a claim's result is kept: this one, or the one that it was completed
// with before.
type Completed struct {
	At       time.Time
	Replayed bool
}

// Result is what every later claim is answered with. It is kept byte for byte.
type Result struct {
	Status      int // of HTTP
	Headers     map[string]string
	Body        []byte
	BodyOmitted bool // the body was too big to be kept
}

// Claim claims a token that [Service.Open] has opened, or a key. While another claim is in
// progress it waits for up to req.Wait, or until ctx ends: then the answer is the last
// one, and nothing is claimed any more. Errors: *[InvalidError] on purpose, *[Refusal],
// *[Fault].
func (s *Service) Claim(ctx context.Context, req ClaimRequest) (Claimed, error) {
	c, err := s.claiming(req)
	if err != nil {
		return Claimed{}, err
	}
	got, err := s.store.Claim(ctx, c)
	if req.Wait > 0 && inProgress(err) {
		got, err = s.await(ctx, c, req.Wait, err)
	}
	if err == nil && got.State == StateClaimed {
		got.Text, got.KeyID = s.ring.SignHandle(got.Handle), s.ring.keys[0].id
	}
	return got, err
}

// claiming returns what the store is to be asked, or the refusal where it need not be.
func (s *Service) claiming(req ClaimRequest) (Claiming, error) {
	c := Claiming{
		Subject: req.Subject, Attempt: req.Attempt, Digest: req.Digest,
		Lease: req.Lease, Commit: req.Commit, Resolve: req.Resolve,
	}
	if req.Kind == OfKey {
		set, err := s.settings(req.Purpose)
		if err != nil {
			return Claiming{}, err
		}
		c.Retention = set.KeysRetention
	}
	return c, s.claimable(req.Subject)
}

// claimable tells whether sub can be claimed: a token's own mode decides, and for keys the
// configured one.
func (s *Service) claimable(sub Subject) error {
	mode := s.opts.Mode
	if sub.Kind == OfToken {
		mode = sub.Token.Mode
	}
	if mode != Record {
		return sub.Refuse(ErrModeUnsupported)
	}
	return nil
}

// ClaimStatus tells the state of a token that [Service.Open] has opened, or of a key, and
// the result of what is completed. Errors: *[Refusal] of ErrModeUnsupported, *[Fault].
func (s *Service) ClaimStatus(ctx context.Context, sub Subject) (Status, error) {
	if err := s.claimable(sub); err != nil {
		return Status{}, err
	}
	return s.store.ClaimStatus(ctx, sub)
}

// OpenHandle reads the handle of a claim, and tells the ID of the key that signed it.
// Errors: *[InvalidError] on claim. The store is not asked.
func (s *Service) OpenHandle(text string) (h Handle, keyID string, err error) {
	return s.ring.ParseHandle(text)
}

// Commit marks the point of no return of h's claim: nobody takes it over from here on,
// whatever its lease. Errors: *[Refusal] of ErrSuperseded or ErrClaimEnded, *[Fault].
func (s *Service) Commit(ctx context.Context, h Handle) (Held, error) {
	return s.store.Commit(ctx, h)
}

// Renew has the lease of h's claim last for lease from now on, and never shortens it.
// Errors: as Commit's.
func (s *Service) Renew(ctx context.Context, h Handle, lease time.Duration) (Held, error) {
	return s.store.Renew(ctx, h, lease)
}

// Complete ends h's claim and keeps r, which may be nil. A second result does not replace
// the first. Errors: as Commit's.
func (s *Service) Complete(ctx context.Context, h Handle, r *Result) (Completed, error) {
	return s.store.Complete(ctx, h, r)
}

// Release ends h's claim, of which nothing was done: a token is good again for what is left
// of its life. Errors: as Commit's, and *[Refusal] of ErrClaimCommitted.
func (s *Service) Release(ctx context.Context, h Handle) error {
	return s.store.Release(ctx, h)
}
