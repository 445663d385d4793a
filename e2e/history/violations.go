package history

import (
	"fmt"

	"example.com/tokend/httpapi/wire"
)

// Violations returns what in s breaks a promise, in words. It knows of no model: each
// statement is one that a reader can check in the history by eye.
func (s *Subject) Violations() (found []string) {
	ops := s.sorted()
	say := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }

	// At most one attempt is granted the token.
	winners := map[uint8]bool{}
	wasUsed := false
	for _, o := range ops {
		if o.Kind == Consume && o.Out.Code == ok {
			winners[o.Attempt] = true
		}
		if o.Out.Code == ok && (o.Kind == Consume || o.Kind == Complete) {
			wasUsed = true
		}
	}
	if len(winners) > 1 {
		say("the token was consumed by %d attempts", len(winners))
	}
	if s.Delete {
		granted := 0
		for _, o := range ops {
			if o.Kind == Consume && o.Out.Code == ok {
				granted++
			}
		}
		if granted > 1 {
			say("the token of delete mode was consumed %d times", granted)
		}
	}

	holders := map[int32]*Op{} // by fence
	for _, o := range ops {
		switch c := o.Out.Code; {
		// Expired means never used.
		case wasUsed && (c == code(wire.CodeTokenExpired) || o.Out.State == "expired"):
			if s.usedBefore(ops, o) {
				say("what was used reads as expired to the %s sent at %d", o.Kind, o.Call)
			}
		// Nothing is ever lost.
		case c == code(wire.CodeTokenLost) || o.Out.State == "lost":
			say("the record is lost to the %s sent at %d", o.Kind, o.Call)
		}
		if o.Kind != Claim || o.Out.Code != ok {
			continue
		}
		// A fence is one attempt's.
		if h := holders[o.Out.Fence]; h != nil && h.Attempt != o.Attempt {
			say("the attempts %d and %d both hold the claim of fence %d", h.Attempt, o.Attempt, o.Out.Fence)
		} else if h == nil {
			holders[o.Out.Fence] = o
		}
	}
	for _, o := range ops {
		if o.Kind == Claim && o.Out.Code == ok {
			s.overlaps(ops, o, say)
		}
	}
	if !s.Delete {
		s.taken(ops, say)
	}
	return found
}

// usedBefore tells whether s was used before o was sent.
func (s *Subject) usedBefore(ops []*Op, o *Op) bool {
	for _, p := range ops {
		if p.Out.Code == ok && (p.Kind == Consume || p.Kind == Complete) && p.Return < o.Call {
			return true
		}
	}
	return false
}

// overlaps says where a claim was granted while o, an earlier one that nobody released, was
// sure to run still.
func (s *Subject) overlaps(ops []*Op, o *Op, say func(string, ...any)) {
	for _, p := range ops {
		next := p.Kind == Claim && p.Out.Code == ok && p.Out.Fence > o.Out.Fence
		consumed := p.Kind == Consume && p.Out.Code == ok && p.Call > o.Return
		if !next && !consumed || p.Return/1000+1 >= o.Out.Lease {
			continue
		}
		ended := false
		for _, q := range ops {
			ended = ended || q.Kind == Release && q.Fence == o.Out.Fence && q.Call < p.Return
		}
		if !ended {
			say("fence %d runs until its lease ends, and the %s sent at %d was granted before that", o.Out.Fence, p.Kind, p.Call)
		}
	}
}

// taken says where an attempt that was granted the token was refused it later.
func (s *Subject) taken(ops []*Op, say func(string, ...any)) {
	for _, won := range ops {
		if won.Kind != Consume || won.Out.Code != ok {
			continue
		}
		for _, o := range ops {
			if o.Kind != Consume || o.Attempt != won.Attempt || o.Call < won.Return || o.Wrong != "" {
				continue
			}
			switch o.Out.Code {
			case ok, unknown, code(wire.CodeIdempotencyKeyReused), code(wire.CodeTokenStale):
			default:
				say("attempt %d had the token and is refused with %s", o.Attempt, o.Out.Code)
			}
		}
	}
}
