package history

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"example.com/tokend/httpapi/wire"
	"example.com/tokend/token"
)

// work is a subject and those who work on it.
type work struct {
	*Subject
	load  *Load
	user  string
	text  string // the token, or the key
	ttl   int64  // s
	brief bool
	plain bool // it is only consumed

	mu       sync.Mutex
	handles  []handle
	attempts map[string]uint8 // by ref
	results  int32
}

// handle is a claim that was granted.
type handle struct {
	text    string
	fence   int32
	attempt uint8
}

// caller makes calls, one after another.
type caller struct {
	*work
	rng    *rand.Rand
	number int
	last   *Op // its latest consume or claim
}

// act makes a few calls.
func (c *caller) act(ctx context.Context) {
	for range 3 + c.rng.IntN(4) {
		if ctx.Err() != nil {
			return
		}
		c.idle(ctx)
		o := c.draw()
		c.send(ctx, o)
		// Who is not answered asks again, as it should: by the same attempt.
		for try := 0; !o.answered() && try < 3 && c.rng.IntN(5) > 0 && ctx.Err() == nil; try++ {
			pause(ctx, time.Duration(10+c.rng.IntN(90))*time.Millisecond)
			o = o.repeat()
			c.send(ctx, o)
		}
	}
}

// repeat returns what is sent again.
func (o *Op) repeat() *Op {
	again := *o
	again.Again, again.Out = false, Outcome{}
	return &again
}

// idle waits a little, and now and then until leases and lives of a second are over.
func (c *caller) idle(ctx context.Context) {
	d := time.Duration(c.rng.IntN(20)) * time.Millisecond
	switch n := c.rng.IntN(100); {
	case c.brief && n < 20:
		d = time.Second + time.Duration(c.rng.IntN(200))*time.Millisecond
	case n < 40:
		d = time.Duration(c.rng.IntN(200)) * time.Millisecond
	}
	pause(ctx, d)
}

// share is a kind of call, and where its part of a hundred ends.
type share struct {
	kind Kind
	end  int
}

var (
	plainly = []share{{Consume, 75}, {Status, 90}, {Revoke, 94}, {Claim, 100}}
	mixed   = []share{
		{Consume, 15}, {Claim, 45}, {Commit, 55}, {Renew, 64}, {Complete, 74}, {Release, 85}, {Status, 98}, {Revoke, 100},
	}
)

// kind draws what to ask for.
func (c *caller) kind() Kind {
	shares := mixed
	if c.plain {
		shares = plainly
	}
	n := c.rng.IntN(100)
	for _, s := range shares {
		if n >= s.end {
			continue
		}
		switch {
		case c.Key && s.kind == Consume:
			return Claim
		case c.Key && s.kind == Revoke:
			return Status
		}
		return s.kind
	}
	panic("the shares are less than a hundred")
}

// draw makes up a call.
func (c *caller) draw() *Op {
	if c.last != nil && c.rng.IntN(6) == 0 {
		again := c.last.repeat() // though it was answered
		if c.rng.IntN(10) == 0 {
			again.Digest = c.digest()
		}
		return again
	}
	o := &Op{Caller: c.number, Kind: c.kind()}
	switch o.Kind {
	case Commit, Renew, Complete, Release:
		h, there := c.handle()
		if !there {
			o.Kind = Claim
			break
		}
		o.Fence, o.Attempt = h.fence, h.attempt
		if o.Kind == Renew {
			o.Lease = c.lease()
		}
		if o.Kind == Complete {
			c.mu.Lock()
			c.results++
			o.Result = c.results
			c.mu.Unlock()
		}
		return o
	}
	if !c.Key && c.rng.IntN(40) == 0 {
		o.Wrong = code([]wire.Code{wire.CodeWrongUser, wire.CodeWrongPurpose}[c.rng.IntN(2)])
	}
	if o.Kind == Status || o.Kind == Revoke {
		return o
	}
	o.Attempt, o.Digest = c.attempt(), c.digest()
	if o.Kind == Claim {
		o.Lease = c.lease()
		o.Commit, o.Resolve, o.Wait = c.rng.IntN(5) == 0, c.rng.IntN(4) == 0, c.rng.IntN(8) == 0
	}
	if o.Wrong == "" {
		c.last = o
	}
	return o
}

// handle returns one of the claims that were granted, mostly the latest.
func (c *caller) handle() (handle, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(c.handles)
	if n == 0 {
		return handle{}, false
	}
	if c.rng.IntN(4) == 0 {
		return c.handles[c.rng.IntN(n)], true
	}
	return c.handles[n-1], true
}

func (c *caller) lease() int64 {
	if c.brief {
		return 1000
	}
	return int64(1000 * (1 + c.rng.IntN(30)))
}

func (c *caller) digest() uint8 { return []uint8{0, 0, 0, 1, 1, 2}[c.rng.IntN(6)] }

// attempt makes up an attempt.
func (c *caller) attempt() uint8 {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := uint8(len(c.attempts) + 1)
	c.attempts[token.Attempt(c.attemptText(n)).Hash().Ref()] = n
	return n
}

// by returns the attempt that used_by names.
func (w *work) by(ref string) uint8 {
	if ref == "" {
		return 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if n, there := w.attempts[ref]; there {
		return n
	}
	return nobody
}
