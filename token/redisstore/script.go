package redisstore

import (
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"errors"
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
)

// script is one call's Lua.
type script struct {
	op     string // the call's name in faults and metrics
	change bool   // whether it writes, so that replicas may be waited for
	source string
	sha    string
}

func newScript(op string, change bool, parts ...string) *script {
	source := prelude + strings.Join(parts, "")
	sum := sha1.Sum([]byte(source))
	return &script{op, change, source, hex.EncodeToString(sum[:])}
}

// reply is what every script answers; see prelude.lua.
type reply struct {
	status string
	now    time.Time
	record string
}

// call is one script with what it is told, and then what it said.
type call struct {
	script *script
	keys   []string // the first is the one whose server is asked
	args   []any
	once   bool // never sent twice by go-redis

	reply reply
	err   error // a *token.Fault: a script's refusals are replies

	called chan *flight // for the batcher: one to lead in, or nil when answered
}

// command returns c as a command: by the script's SHA-1, or whole where Redis does not
// know that yet.
func (c *call) command(ctx context.Context, whole bool) redis.Cmder {
	name, script := "evalsha", c.script.sha
	if whole {
		name, script = "eval", c.script.source
	}
	args := make([]any, 0, 3+len(c.keys)+len(c.args))
	args = append(args, name, script, len(c.keys))
	for _, key := range c.keys {
		args = append(args, key)
	}
	cmd := redis.NewCmd(ctx, append(args, c.args...)...)
	if c.once {
		return onceCmd{cmd}
	}
	return cmd
}

// onceCmd is a command that go-redis never sends again after it may have been carried
// out; a redirection, which says that it was not, is followed all the same.
type onceCmd struct{ *redis.Cmd }

func (onceCmd) NoRetry() bool { return true }

// take reads cmd's result into c.
func (c *call) take(cmd redis.Cmder) {
	if err := cmd.Err(); err != nil {
		c.err = fault(c.script.op, err)
		return
	}
	var text string
	switch cmd := cmd.(type) {
	case *redis.Cmd:
		text, _ = cmd.Val().(string)
	case onceCmd:
		text, _ = cmd.Val().(string)
	}
	status, rest, ok := strings.Cut(text, " ")
	if !ok || len(rest) < 6 {
		c.err = fault(c.script.op, fmt.Errorf("script answered %d bytes that say nothing", len(text)))
		return
	}
	c.reply, c.err = reply{status, millis(rest), rest[6:]}, nil
}

// run runs c in one round trip, within the store's timeout. A change is carried out even
// if its caller hangs up.
func (s *Store) run(ctx context.Context, c *call) (reply, error) {
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
		c.take(s.alone(ctx, c))
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

// runOn runs calls on node, in one pipeline; those whose script it does not know, whole in
// a second one. Where a change is to reach replicas, they are waited for on the same
// connection.
func (s *Store) runOn(ctx context.Context, node node, calls []*call) {
	for _, whole := range []bool{false, true} {
		var unknown []*call
		cmds := make([]redis.Cmder, len(calls))
		waited, err := s.pipeline(ctx, node, calls[0].script.change, func(p redis.Pipeliner) {
			for i, c := range calls {
				cmds[i] = c.command(ctx, whole)
				p.Process(ctx, cmds[i])
			}
		})
		for i, c := range calls {
			if unknownScript(cmds[i].Err()) {
				unknown = append(unknown, c)
				continue
			}
			if moved(cmds[i].Err()) {
				cmds[i] = s.alone(ctx, c) // the node does not hold the key any more
			}
			if c.take(cmds[i]); c.err == nil && !waited {
				c.err = fault(c.script.op, err)
			}
		}
		if calls = unknown; len(calls) == 0 {
			return
		}
	}
	for _, c := range calls {
		c.err = fault(c.script.op, errors.New("the server forgets its scripts at once"))
	}
}

// alone sends c by itself. A cluster's client goes where it is told to.
func (s *Store) alone(ctx context.Context, c *call) redis.Cmder {
	cmd := c.command(ctx, false)
	if unknownScript(s.rdb.Process(ctx, cmd)) {
		cmd = c.command(ctx, true)
		s.rdb.Process(ctx, cmd)
	}
	return cmd
}

func moved(err error) bool {
	return err != nil && (redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK"))
}

func unknownScript(err error) bool { return err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") }

// fault says that the store gave no answer to op, and that asking again is safe.
func fault(op string, err error) error { return &token.Fault{Op: op, Err: err} }

// unlisted says that a script gave a status that its caller does not list.
func unlisted(op string, r reply) error {
	return fault(op, fmt.Errorf("script answered %q, which its caller does not know", r.status))
}
