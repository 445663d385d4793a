package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
)

// A cluster redirects: MOVED says that another server holds a slot now, ASK that the slot is
// moving and that the key, which may not exist, is looked for at its new server already.
// Neither has carried anything out.

func moved(err error) bool {
	return err != nil && (redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK"))
}

// reload has a cluster's client look anew at who holds what, where err may mean that this has
// changed. By itself it would do so once a minute, and calls for a server that has died would
// fail for as long.
func (s *Store) reload(ctx context.Context, err error) {
	cluster, ok := s.rdb.(*redis.ClusterClient)
	if !ok || err == nil {
		return
	}
	var said redis.Error
	if errors.As(err, &said) && !redis.HasErrorPrefix(err, "MOVED") && !redis.HasErrorPrefix(err, "READONLY") && !redis.HasErrorPrefix(err, "CLUSTERDOWN") {
		return
	}
	cluster.ReloadState(ctx)
}

// follow runs cmd, which was redirected from a server, where its key is, and has its calls
// answered.
func (s *Store) follow(ctx context.Context, from node, cmd *command) {
	why := cmd.cmd.Err()
	s.reload(ctx, why)
	if len(cmd.calls) > 1 {
		// Of a slot that moves, some keys may be here and some there.
		for i := range cmd.calls {
			s.follow(ctx, from, &command{calls: cmd.calls[i : i+1], whole: cmd.whole, cmd: cmd.cmd})
		}
		return
	}
	c := cmd.calls[0]
	if !c.script.change || s.opts.WaitReplicas == 0 {
		s.alone(ctx, cmd)
		cmd.take()
		return
	}
	there, asking, err := s.redirected(from, why)
	if err != nil {
		c.err = fault(c.script.op, err)
		return
	}
	defer there.Close()
	for {
		waited, err := s.pipeline(ctx, there, true, func(p redis.Pipeliner) {
			ask(ctx, p, asking)
			p.Process(ctx, cmd.prepare(ctx))
		})
		if unknownScript(cmd.cmd.Err()) && !cmd.whole {
			cmd.whole = true
			continue
		}
		if cmd.take(); c.err == nil && !waited {
			c.err = fault(c.script.op, err)
		}
		return
	}
}

// ask lets the next command of p through to a slot that is on its way to the server.
func ask(ctx context.Context, p redis.Pipeliner, asking bool) {
	if asking {
		p.Process(ctx, redis.NewStatusCmd(ctx, "asking"))
	}
}

// redirected returns a client of the server that why, a redirection from another of its
// cluster, names; its caller closes it. go-redis follows redirections by itself, but keeps
// nothing to one connection then: not the WAIT behind a change.
func (s *Store) redirected(from node, why error) (there *redis.Client, asking bool, err error) {
	known, ok := from.(*redis.Client)
	if _, cluster := s.rdb.(*redis.ClusterClient); !ok || !cluster {
		return nil, false, why
	}
	// MOVED 3999 127.0.0.1:6381
	fields := strings.Fields(why.Error())
	if len(fields) != 3 {
		return nil, false, fmt.Errorf("a redirection to nowhere: %w", why)
	}
	opts := *known.Options()
	host, _, _ := net.SplitHostPort(opts.Addr)
	opts.Addr = fields[2]
	if strings.HasPrefix(opts.Addr, ":") { // Redis may leave its own host's name out
		opts.Addr = net.JoinHostPort(host, opts.Addr[1:])
	}
	return redis.NewClient(&opts), fields[0] == "ASK", nil
}
