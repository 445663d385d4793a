package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// command is one run of a script, for one call or for several.
//
// Much of what a script costs is the same however many calls it is for: that Redis begins
// it, asks for the time and reads. So calls of one script that fly together are answered by
// one run, where their records are on one server and, in a cluster, in one slot.
type command struct {
	calls []*call // of one script, and with the same arguments as far as those are shared
	whole bool    // sent with the script's text, not its SHA-1
	cmd   redis.Cmder
}

// share returns the commands that run calls.
func (s *Store) share(calls []*call) []*command {
	if len(calls) == 1 {
		return []*command{{calls: calls}}
	}
	type place struct {
		script *script
		same   sameArgs
		slot   string
	}
	var cmds []*command
	shared := make(map[place]*command)
	for _, c := range calls {
		if !c.script.several || c.once {
			cmds = append(cmds, &command{calls: []*call{c}})
			continue
		}
		at := place{script: c.script, same: c.same}
		if s.bySlot() {
			at.slot = tag(c.keys[0])
		}
		cmd := shared[at]
		if cmd == nil {
			cmd = &command{calls: make([]*call, 0, len(calls))}
			shared[at], cmds = cmd, append(cmds, cmd)
		}
		cmd.calls = append(cmd.calls, c)
	}
	return cmds
}

// bySlot tells whether a script's keys must be of one slot: in a cluster, and behind a proxy
// that makes one look like a single server.
func (s *Store) bySlot() bool {
	_, cluster := s.rdb.(*redis.ClusterClient)
	return cluster || s.slotted.Load()
}

// prepare returns what is sent to Redis.
func (cmd *command) prepare(ctx context.Context) redis.Cmder {
	sc := cmd.calls[0].script
	var same []any
	if s := cmd.calls[0].same; s != nil {
		same = s.args()
	}
	keys, args := 0, len(same)
	for _, c := range cmd.calls {
		keys, args = keys+len(c.keys), args+len(c.args)
	}
	all := append(make([]any, 0, 3+keys+args), "evalsha", sc.sha, keys)
	if cmd.whole {
		all[0], all[1] = "eval", sc.source
	}
	for _, c := range cmd.calls {
		for _, key := range c.keys {
			all = append(all, key)
		}
	}
	all = append(all, same...)
	for _, c := range cmd.calls {
		all = append(all, c.args...)
	}
	cmd.cmd = redis.NewCmd(ctx, all...)
	if cmd.calls[0].once {
		cmd.cmd = onceCmd{redis.NewCmd(ctx, all...)}
	}
	return cmd.cmd
}

// onceCmd is a command that go-redis never sends again after it may have been carried
// out; a redirection, which says that it was not, is followed all the same.
type onceCmd struct{ *redis.Cmd }

func (onceCmd) NoRetry() bool { return true }

// again returns what is to be sent in cmd's place, as Redis has answered it: the script
// whole, where Redis did not know it; and each call by itself, where Redis refused several at
// once, for it may mean one of them alone.
func (cmd *command) again() []*command {
	err := cmd.cmd.Err()
	var said redis.Error
	switch {
	case unknownScript(err) && !cmd.whole:
		return []*command{{calls: cmd.calls, whole: true}}
	case len(cmd.calls) > 1 && !moved(err) && errors.As(err, &said):
		each := make([]*command, len(cmd.calls))
		for i := range cmd.calls {
			each[i] = &command{calls: cmd.calls[i : i+1], whole: cmd.whole}
		}
		return each
	}
	return nil
}

// take reads the command's result into its calls.
func (cmd *command) take() {
	var said any
	err := cmd.cmd.Err()
	switch cmd := cmd.cmd.(type) {
	case *redis.Cmd:
		said = cmd.Val()
	case onceCmd:
		said = cmd.Val()
	}
	answers := []any{said}
	if cmd.calls[0].script.several && err == nil {
		if answers, _ = said.([]any); len(answers) != len(cmd.calls) {
			err = fmt.Errorf("script gave %d answers to %d calls", len(answers), len(cmd.calls))
		}
	}
	for i, c := range cmd.calls {
		if err != nil {
			c.err = fault(c.script.op, err)
			continue
		}
		text, _ := answers[i].(string)
		c.take(text)
	}
}

// take reads what the script said to c.
func (c *call) take(text string) {
	status, rest, ok := strings.Cut(text, " ")
	if !ok || len(rest) < 6 {
		c.err = fault(c.script.op, fmt.Errorf("script answered %d bytes that say nothing", len(text)))
		return
	}
	c.reply, c.err = reply{status, millis(rest), rest[6:]}, nil
}

func unknownScript(err error) bool { return err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") }
