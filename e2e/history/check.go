package history

import (
	"slices"

	"github.com/anishathalye/porcupine"

	"example.com/tokend/httpapi/wire"
)

// A call that was answered is one of the checker's operations. One that was not, and a copy
// that may have come, are none: they are possible, and happen where the model has them happen,
// before an answer that cannot be explained without them or that could be.

// possible is a set of possible calls, by their place.
type possible [6]uint64

func (p possible) has(n int) bool { return p[n/64]&(1<<(n%64)) != 0 }

func (p possible) with(n int) possible {
	p[n/64] |= 1 << (n % 64)
	return p
}

// world is what may be the case at a moment: the state, and which of the possible calls have
// happened. Nothing happens before now, in Unix microseconds, any more.
type world struct {
	state
	happened possible
	now      int64
}

// worlds are all that may be the case.
type worlds struct {
	list []world
	in   map[world]struct{}
}

func (ws *worlds) add(w world) {
	if _, there := ws.in[w]; !there {
		ws.in[w] = struct{}{}
		ws.list = append(ws.list, w)
	}
}

func (ws *worlds) equal(o *worlds) bool {
	if len(ws.list) != len(o.list) {
		return false
	}
	for _, w := range ws.list {
		if _, there := o.in[w]; !there {
			return false
		}
	}
	return true
}

// resends is how often go-redis sends a command again, as tokend sets it.
const resends = 3

// most bounds a search. The bound is one of work, not of time: what is given up does not
// depend on the machine.
const most = 5_000_000

// check is one search.
type check struct {
	*Subject
	possible []*Op
	same     []int // by place: the place of the one before it that asks for the same, or -1
	left     int   // of the work that the search may be
	// beyond is how many possible calls happen beyond those without which an answer cannot be
	// explained. What is found with few is right; where nothing is, more are looked at.
	beyond int
}

// request is what a call asks for, whoever sends it and whenever.
type request struct {
	kind            Kind
	attempt, digest uint8
	lease           int64
	commit, resolve bool
	fence, result   int32
}

func (o *Op) request() request {
	return request{o.Kind, o.Attempt, o.Digest, o.Lease, o.Commit, o.Resolve, o.Fence, o.Result}
}

// when returns o as it happens in w, no later than until.
func (o *Op) when(w *world, until int64) *Op {
	at := *o
	at.from, at.to = max(o.Call, w.now)/1000, until/1000+1
	return &at
}

// further adds to ws what one possible call may make of each of its worlds from the place on,
// when an answer is looked at that came at until.
func (c *check) further(ws *worlds, place int, until int64) {
	for _, w := range ws.list[place:] {
		for i, o := range c.possible {
			if o.Call > until {
				break
			}
			// Of those that ask for the same, the one that was sent first may do all that the
			// others may.
			if w.happened.has(i) || c.earlier(w.happened, i) {
				continue
			}
			for _, b := range c.branches(w.state, o.when(&w, until)) {
				if b.next != w.state {
					ws.add(world{b.next, w.happened.with(i), max(w.now, o.Call)})
				}
			}
		}
		if c.left -= len(c.possible) + 1; c.left < 0 {
			return
		}
	}
}

// answer returns what may be the case after o's answer.
func (c *check) answer(from *worlds, o *Op) *worlds {
	after := &worlds{in: map[world]struct{}{}}
	before := &worlds{in: make(map[world]struct{}, len(from.list))}
	for _, w := range from.list {
		before.add(w)
	}
	for place, beyond := 0, 0; place < len(before.list) && c.left > 0; {
		for _, w := range before.list[place:] {
			if w.now > o.Return {
				continue
			}
			branches := c.branches(w.state, o.when(&w, o.Return))
			for i := range branches {
				if n, ok := branches[i].admits(o); ok {
					after.add(world{n, w.happened, max(w.now, o.Call)})
				}
			}
		}
		if len(after.list) > 0 {
			if beyond++; beyond > c.beyond {
				break
			}
		}
		next := len(before.list)
		c.further(before, place, o.Return)
		place = next
	}
	return after
}

// earlier tells whether a possible call that asks for what the one at place i does was sent
// before it, and has not happened.
func (c *check) earlier(happened possible, i int) bool {
	for n := c.same[i]; n >= 0; n = c.same[n] {
		if !happened.has(n) {
			return true
		}
	}
	return false
}

// model returns what s must do.
func (c *check) model() porcupine.Model {
	return porcupine.Model{
		Init: func() any {
			ws := &worlds{in: make(map[world]struct{}, 1)}
			ws.add(world{state: state{end: c.last()}})
			return ws
		},
		Step: func(from, in, _ any) (bool, any) {
			after := c.answer(from.(*worlds), in.(*Op))
			return len(after.list) > 0 && c.left > 0, after
		},
		Equal: func(a, b any) bool { return a.(*worlds).equal(b.(*worlds)) },
	}
}

// again tells whether another copy of o, before the one that was answered or after it, could
// do what o's answer does not say: most calls do once what they are sent twice.
func (o *Op) again() bool {
	if !o.Again || o.Wrong != "" || o.Kind == Status {
		return false
	}
	if !o.answered() {
		return true
	}
	switch o.Out.Code {
	case code(wire.CodeRequestInProgress), code(wire.CodeClaimUnfinished), code(wire.CodeIdempotencyKeyReused):
		return true // it may be granted later
	case code(wire.CodeClaimSuperseded), code(wire.CodeClaimEnded):
		return true // by what came between two copies: a release, and then another's claim
	case code(wire.CodeTokenUsed), code(wire.CodeTokenRevoked), replay:
		return o.Kind == Claim // the same
	case ok:
		// What a later copy tells may be newer than what an earlier one did.
		return o.Kind == Claim || o.Kind == Renew || o.Kind == Commit || o.Out.State == "claimed"
	}
	return false
}

// Check tells whether there is an order of s's calls in which every answer is right; known is
// false where there are too many to be looked at.
func (s *Subject) Check() (right, known bool) {
	c := &check{Subject: s}
	var ops []porcupine.Operation
	for _, o := range s.sorted() {
		// In delete mode store_unavailable says that nothing was done, and nothing is sent twice.
		nothing := s.Delete && o.Out.Why == code(wire.CodeStoreUnavailable) || o.Kind == Status || o.Wrong != ""
		if o.answered() {
			ops = append(ops, porcupine.Operation{ClientId: o.Caller, Input: o, Call: o.Call, Return: o.Return})
		} else if !nothing {
			c.possible = append(c.possible, o)
		}
		if o.again() && !s.Delete {
			c.possible = append(c.possible, slices.Repeat([]*Op{o}, resends)...)
		}
	}
	if len(c.possible) > len(possible{})*64 {
		return false, false
	}
	latest := map[request]int{}
	c.same = make([]int, len(c.possible))
	for i, o := range c.possible {
		c.same[i] = -1
		if n, there := latest[o.request()]; there {
			c.same[i] = n
		}
		latest[o.request()] = i
	}
	for _, c.beyond = range []int{0, 1, 2, len(c.possible)} {
		c.left = most
		if right = porcupine.CheckOperations(c.model(), ops); right || len(c.possible) == 0 {
			break
		}
	}
	return right, right || c.left > 0
}
