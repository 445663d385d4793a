package history

import "example.com/tokend/httpapi/wire"

type phase uint8

const (
	free phase = iota // issued, released, or a key that nobody holds
	used
	claimed
	completed
	revoked
	deleted // of delete mode: its key is gone
)

// How a claim is committed.
const (
	notCommitted = iota
	byClaim
	later
	resolving
)

// state is what a token or key is. Where nobody was told a time, two are known between which
// it lies.
type state struct {
	phase              phase
	attempt, digest    uint8 // that it is used, claimed or completed by
	released           bool  // the claim of fence was released
	commit             uint8
	takeover           bool
	fence              int32
	result             int32
	leaseMin, leaseMax int64
	atMin, atMax       int64 // used, completed or revoked at
	end                int64 // before that nothing of it is forgotten
}

// branch is one of the things that a call may do to a state, and what it must be answered
// with then.
type branch struct {
	code string
	next state
	is   string // the state that a status or a revocation tells
	// What of next the answer tells.
	fence, takeover, commit bool
	// replayed: whether the answer must say so. A first answer may say so as well, as its
	// command may have been sent again.
	replayed bool
	lease    bool // when its lease ends
	at       bool // when it was used, completed or revoked
	by       bool // its attempt
	result   bool
}

// admits tells whether a branch may have been answered with out, and the state after it,
// which what the answer tells has made exact.
func (b *branch) admits(o *Op) (state, bool) {
	out, n := &o.Out, b.next
	if out.Code != b.code || out.State != b.is || b.replayed && !out.Replayed {
		return n, false
	}
	if b.fence && out.Fence != n.fence || b.takeover && out.Takeover != n.takeover ||
		b.commit && out.Committed != (n.commit != notCommitted) ||
		b.result && out.Result != n.result || b.by && out.By != n.attempt {
		return n, false
	}
	if b.lease {
		if out.Lease < n.leaseMin || out.Lease > n.leaseMax {
			return n, false
		}
		n.leaseMin, n.leaseMax = out.Lease, out.Lease
	}
	if b.at {
		if out.At < n.atMin || out.At > n.atMax {
			return n, false
		}
		n.atMin, n.atMax = out.At, out.At
	}
	return n, true
}

// branches returns all that o may do to was.
func (s *Subject) branches(was state, o *Op) []branch {
	if o.Wrong != "" {
		return []branch{{code: o.Wrong, next: was}}
	}
	if s.Delete {
		return s.deleteMode(was, o)
	}
	switch o.Kind {
	case Consume:
		return s.consume(was, o)
	case Claim:
		return s.claim(was, o)
	case Commit, Renew, Complete, Release:
		return s.later(was, o)
	case Status:
		return s.status(was, o)
	case Revoke:
		return s.revoke(was, o)
	}
	return nil
}

func (s *Subject) deleteMode(was state, o *Op) (all []branch) {
	from, to := o.from, o.to
	gone := was
	gone.phase = deleted
	switch o.Kind {
	case Consume:
		if from < s.Expires && was.phase == free {
			n := gone
			n.atMin, n.atMax = from, to
			all = append(all, branch{code: ok, next: n, at: true})
		}
		if from < s.Expires && was.phase == deleted {
			all = append(all, branch{code: code(wire.CodeTokenUsed), next: was})
		}
		if to >= s.Expires {
			all = append(all, branch{code: code(wire.CodeTokenGone), next: gone})
		}
	case Status:
		if from < s.Expires {
			all = append(all, branch{code: ok, next: was, is: map[phase]string{free: "issued", deleted: "used"}[was.phase]})
		}
		if to >= s.Expires {
			all = append(all, branch{code: ok, next: was, is: "gone"})
		}
	default:
		all = append(all, branch{code: code(wire.CodeModeUnsupported), next: was})
	}
	return all
}

// good returns the branches in which a token that nobody has used is no good any more; and
// whether it may be good.
func (s *Subject) good(was state, o *Op, is func(wire.Code) branch) (all []branch, good bool) {
	if s.Key {
		return nil, true
	}
	from, to := o.from, o.to
	if to >= s.Expires && from < s.last() {
		all = append(all, is(wire.CodeTokenExpired))
	}
	return all, from < s.Expires
}

// forgotten adds the branch in which was is too old to tell.
func (s *Subject) forgotten(all []branch, was state, o *Op, b branch) []branch {
	if to := o.to; !s.Key && to >= s.last() && (was.phase == free || to > was.end) {
		b.next = was
		all = append(all, b)
	}
	return all
}

func differ(a, b uint8) bool { return a != 0 && b != 0 && a != b }

// refused returns the branch that refuses, and changes nothing.
func refused(was state) func(wire.Code) branch {
	return func(c wire.Code) branch { return branch{code: code(c), next: was} }
}

// taken returns the branches of what a consume or claim finds used or revoked, or stands for
// another request; nil where it is neither.
func taken(was state, o *Op) []branch {
	no := refused(was)
	held := was.phase == used || was.phase == claimed || was.phase == completed
	switch {
	case held && differ(was.digest, o.Digest):
		b := no(wire.CodeIdempotencyKeyReused)
		b.by = true
		return []branch{b}
	case was.phase == revoked:
		b := no(wire.CodeTokenRevoked)
		b.at = true
		return []branch{b}
	}
	return nil
}

// usedBy refuses what is used or completed.
func usedBy(was state) branch {
	return branch{code: code(wire.CodeTokenUsed), next: was, by: true, at: true}
}

func (s *Subject) consume(was state, o *Op) (all []branch) {
	from, to := o.from, o.to
	all = s.forgotten(all, was, o, branch{code: code(wire.CodeTokenStale)})
	if no := taken(was, o); no != nil {
		return append(all, no...)
	}
	n := was
	n.phase, n.attempt, n.digest, n.commit, n.takeover = used, o.Attempt, o.Digest, notCommitted, false
	n.leaseMin, n.leaseMax, n.atMin, n.atMax = 0, 0, from, to
	n.end = max(n.end, s.last())
	switch was.phase {
	case used:
		if was.attempt != o.Attempt {
			return append(all, usedBy(was))
		}
		return append(all, branch{code: ok, next: was, replayed: true, takeover: true, at: true})
	case completed:
		return append(all, usedBy(was))
	case claimed:
		if from < was.leaseMax {
			all = append(all, branch{code: code(wire.CodeRequestInProgress), next: was, lease: true})
		}
		if to >= was.leaseMin && was.commit != notCommitted {
			all = append(all, branch{code: code(wire.CodeClaimUnfinished), next: was})
		} else if to >= was.leaseMin {
			n.takeover, n.fence, n.released = true, was.fence+1, false
			n.end = max(n.end, from+s.Retention)
			if n.digest == 0 {
				n.digest = was.digest
			}
			all = append(all, branch{code: ok, next: n, at: true, takeover: true})
		}
		return all
	}
	no, good := s.good(was, o, refused(was))
	all = append(all, no...)
	if good {
		all = append(all, branch{code: ok, next: n, at: true, takeover: true})
	}
	return all
}

func (s *Subject) claim(was state, o *Op) (all []branch) {
	from, to := o.from, o.to
	if s.Key { // where the instance's own mode is delete
		all = append(all, branch{code: code(wire.CodeModeUnsupported), next: was})
	}
	all = s.forgotten(all, was, o, branch{code: code(wire.CodeTokenStale)})
	if no := taken(was, o); no != nil {
		return append(all, no...)
	}
	var how uint8
	if o.Commit {
		how = byClaim
	}
	anew := was
	anew.phase, anew.attempt, anew.digest, anew.commit = claimed, o.Attempt, o.Digest, how
	anew.fence, anew.released, anew.takeover = was.fence+1, false, false
	anew.leaseMin, anew.leaseMax, anew.atMin, anew.atMax = from+o.Lease, to+o.Lease, 0, 0
	anew.end = max(was.end, s.last(), from+o.Lease)
	switch was.phase {
	case used:
		return append(all, usedBy(was))
	case completed:
		return append(all, branch{code: replay, next: was, result: true, replayed: true})
	case free:
		no, good := s.good(was, o, refused(was))
		all = append(all, no...)
		if good {
			all = append(all, branch{code: ok, next: anew, fence: true, takeover: true, commit: true, lease: true})
		}
		return all
	}
	again := was // the same attempt's claim, answered again
	again.commit = max(again.commit, how)
	if o.Digest != 0 {
		again.digest = o.Digest
	}
	own := was.attempt == o.Attempt
	if from < was.leaseMax {
		if own && was.commit != later {
			all = append(all, branch{code: ok, next: again, fence: true, takeover: true, commit: true, lease: true, replayed: true})
		} else {
			all = append(all, branch{code: code(wire.CodeRequestInProgress), next: was, lease: true})
		}
	}
	if to >= was.leaseMin {
		switch {
		case own && was.commit == notCommitted:
			again.leaseMin, again.leaseMax, again.end = anew.leaseMin, anew.leaseMax, anew.end
			all = append(all, branch{code: ok, next: again, fence: true, takeover: true, commit: true, lease: true, replayed: true})
		case was.commit != notCommitted && !o.Resolve:
			all = append(all, branch{code: code(wire.CodeClaimUnfinished), next: was})
		default:
			if was.commit != notCommitted {
				anew.commit = resolving
			}
			if anew.digest == 0 {
				anew.digest = was.digest
			}
			anew.takeover = true
			anew.end = max(anew.end, from+s.Retention)
			all = append(all, branch{code: ok, next: anew, fence: true, takeover: true, commit: true, lease: true})
		}
	}
	return all
}

// later is a claim's later steps.
func (s *Subject) later(was state, o *Op) (all []branch) {
	from, to := o.from, o.to
	ended := branch{code: code(wire.CodeClaimEnded), next: was}
	if !s.Key && to > was.end {
		all = append(all, ended)
	}
	switch {
	case was.fence > o.Fence:
		return append(all, branch{code: code(wire.CodeClaimSuperseded), next: was})
	case was.fence < o.Fence:
		return all
	}
	n := was
	switch held := was.phase == claimed && was.attempt == o.Attempt; {
	case held && o.Kind == Commit:
		if was.commit == notCommitted {
			n.commit = later
		}
		return append(all, branch{code: ok, next: n, commit: true, lease: true})
	case held && o.Kind == Renew:
		n.leaseMin, n.leaseMax = max(n.leaseMin, from+o.Lease), max(n.leaseMax, to+o.Lease)
		n.end = max(n.end, n.leaseMin)
		return append(all, branch{code: ok, next: n, commit: true, lease: true})
	case held && o.Kind == Complete:
		n.phase, n.result, n.leaseMin, n.leaseMax, n.atMin, n.atMax = completed, o.Result, 0, 0, from, to
		n.end = max(n.end, s.last(), from+s.Retention)
		return append(all, branch{code: ok, next: n, at: true})
	case held && was.commit != notCommitted && was.commit != resolving:
		return append(all, branch{code: code(wire.CodeClaimCommitted), next: was})
	case held:
		n = state{fence: was.fence, released: true, end: was.end}
		return append(all, branch{code: ok, next: n})
	case o.Kind == Complete && was.phase == completed && was.attempt == o.Attempt:
		return append(all, branch{code: ok, next: was, at: true, replayed: true})
	case o.Kind == Release && was.released:
		return append(all, branch{code: ok, next: was})
	}
	return append(all, ended)
}

// What a status tells.
var tells = map[phase]branch{
	used:      {code: ok, is: "used", at: true, by: true},
	claimed:   {code: ok, is: "claimed", lease: true, fence: true, commit: true},
	completed: {code: ok, is: "completed", at: true, by: true, result: true},
	revoked:   {code: ok, is: "revoked", at: true},
}

func (s *Subject) status(was state, o *Op) (all []branch) {
	if s.Key {
		all = append(all, branch{code: code(wire.CodeModeUnsupported), next: was})
	}
	all = s.forgotten(all, was, o, branch{code: ok, is: "stale"})
	if b, there := tells[was.phase]; there {
		b.next = was
		return append(all, b)
	}
	return append(all, s.unused(was, o)...)
}

// unused is what is said of the state of what nobody has used.
func (s *Subject) unused(was state, o *Op) []branch {
	if s.Key {
		return []branch{{code: ok, is: "unknown", next: was}}
	}
	all, good := s.good(was, o, func(wire.Code) branch { return branch{code: ok, is: "expired", next: was} })
	if good {
		all = append(all, branch{code: ok, is: "issued", next: was})
	}
	return all
}

func (s *Subject) revoke(was state, o *Op) (all []branch) {
	from, to := o.from, o.to
	all = s.forgotten(all, was, o, branch{code: ok, is: "stale"})
	n := state{
		phase: revoked, fence: was.fence, released: was.released && was.phase == free, atMin: from, atMax: to,
		end: max(was.end, s.last()),
	}
	now := branch{code: ok, is: "revoked", next: n}
	switch was.phase {
	case used, completed, revoked:
		return append(all, branch{code: ok, is: map[phase]string{used: "used", completed: "completed", revoked: "revoked"}[was.phase], next: was})
	case claimed:
		if was.commit != notCommitted {
			return append(all, branch{code: ok, is: "claimed", next: was})
		}
		return append(all, now)
	}
	for _, b := range s.unused(was, o) {
		if b.is == "issued" {
			b = now
		}
		all = append(all, b)
	}
	return all
}
