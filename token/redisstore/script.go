package redisstore

import (
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/tokend/token"
)

// What scripts begin with; prelude.lua says which of it when.
var (
	//go:embed prelude.lua
	prelude string
	//go:embed getex.lua
	getex string
	//go:embed get.lua
	get string
	//go:embed read.lua
	read string
	//go:embed functions.lua
	functions string
	//go:embed several.lua
	several string
	//go:embed several_end.lua
	severalEnd string
)

// script is one call's Lua.
type script struct {
	op     string // the call's name in faults and metrics
	change bool   // whether it writes, so that replicas may be waited for
	source string
	sha    string
	// several: it takes the keys and arguments of any number of calls, one after another, behind
	// the arguments that they have in common, and answers with a reply for each; else those of
	// one call, and answers with its reply.
	several bool
}

func newScript(op string, change bool, parts ...string) *script {
	source := prelude + strings.Join(parts, "")
	sum := sha1.Sum([]byte(source))
	return &script{op: op, change: change, source: source, sha: hex.EncodeToString(sum[:])}
}

// newSharedScript returns a script of several calls.
func newSharedScript(op string, change bool, parts ...string) *script {
	sc := newScript(op, change, parts...)
	sc.several = true
	return sc
}

// reply is what every script answers; see prelude.lua.
type reply struct {
	status string
	now    time.Time
	record string
}

// sameArgs make arguments. Calls of one script whose sameArgs are equal may share a run, and
// those arguments.
type sameArgs interface{ args() []any }

// call is one script with what it is told, and then what it said.
type call struct {
	script *script
	keys   []string // the first is the one whose server is asked
	same   sameArgs // the first arguments; nil: none
	args   []any
	once   bool // never sent twice by go-redis

	reply reply
	err   error // a *token.Fault: a script's refusals are replies

	shared int // how many calls the round trip carried, this one too

	// For the batcher, of a call that waits:
	called chan *flight // one to lead in; or nil when it is answered; or overdue
	until  time.Time    // when it is given up
}

// untraced is run without its span.
func (s *Store) untraced(ctx context.Context, c *call) (reply, error) {
	if c.script.change {
		ctx = context.WithoutCancel(ctx)
	}
	began := time.Now()
	defer func() { s.opts.Observe(c.script.op, time.Since(began)) }()
	nd, err := s.nodeOf(ctx, c.keys[0])
	if err != nil {
		return reply{}, fault(c.script.op, err)
	}
	switch {
	case c.once || c.script.change && s.opts.WaitReplicas > 0:
		// These keep to themselves: a pipeline with a command that is not to be sent twice
		// is not sent twice whole, and one that waits for replicas holds its connection.
		ctx, cancel := context.WithTimeout(ctx, s.opts.Timeout)
		defer cancel()
		s.runOn(ctx, nd, []*call{c})
	case s.opts.NoBatching:
		ctx, cancel := context.WithTimeout(ctx, s.opts.Timeout)
		defer cancel()
		cmd := &command{calls: []*call{c}}
		s.alone(ctx, cmd)
		cmd.take()
	default:
		if err := s.batcher(nd).do(ctx, c, s.opts.Timeout); err != nil {
			return reply{}, fault(c.script.op, err)
		}
	}
	return c.reply, c.err
}

// runSafely is runOn, but that a panic makes faults of the calls: a batch is many callers',
// and none of them may wait for ever.
func (s *Store) runSafely(ctx context.Context, nd node, calls []*call) {
	defer func() {
		if p := recover(); p != nil {
			err := fmt.Errorf("panic: %v\n%s", p, debug.Stack())
			for _, c := range calls {
				c.err = fault(c.script.op, err)
			}
		}
	}()
	s.runOn(ctx, nd, calls)
}

// runOn runs calls on node, in one pipeline. Where a change is to reach replicas, they are
// waited for on the same connection.
func (s *Store) runOn(ctx context.Context, node node, calls []*call) {
	for _, c := range calls {
		c.shared = len(calls)
	}
	for cmds := s.share(calls); len(cmds) > 0; {
		waited, err := s.pipeline(ctx, node, calls[0].script.change, func(p redis.Pipeliner) {
			for _, cmd := range cmds {
				p.Process(ctx, cmd.prepare(ctx))
			}
		})
		var again []*command
		for _, cmd := range cmds {
			if err := cmd.cmd.Err(); err != nil && redis.HasErrorPrefix(err, "CROSSSLOT") {
				s.slotted.Store(true)
			}
			if next := cmd.again(); len(next) > 0 {
				again = append(again, next...)
				continue
			}
			if moved(cmd.cmd.Err()) {
				s.follow(ctx, node, cmd)
				continue
			}
			cmd.take()
			for _, c := range cmd.calls {
				if c.err == nil && !waited {
					c.err = fault(c.script.op, err)
				}
			}
		}
		cmds = again
	}
}

// alone sends cmd by itself. A cluster's client goes where it is told to.
func (s *Store) alone(ctx context.Context, cmd *command) {
	if unknownScript(s.rdb.Process(ctx, cmd.prepare(ctx))) && !cmd.whole {
		cmd.whole = true
		s.rdb.Process(ctx, cmd.prepare(ctx))
	}
}

// fault says that the store gave no answer to op, and that asking again is safe.
func fault(op string, err error) error { return &token.Fault{Op: op, Err: err} }

// unlisted says that a script gave a status that its caller does not list.
func unlisted(op string, r reply) error {
	return fault(op, fmt.Errorf("script answered %q, which its caller does not know", r.status))
}
