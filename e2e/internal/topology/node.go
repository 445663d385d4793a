package topology

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/tokend/internal/redistest"
)

// Node is a redis-server of a topology.
type Node struct {
	*redistest.Server
	Client *redis.Client // to look into it, and to tell it what to do
}

// launch starts a node in a new directory below dir.
func launch(dir, conf string, args ...string) (*Node, error) {
	own, err := os.MkdirTemp(dir, "redis")
	if err != nil {
		return nil, err
	}
	if conf != "" {
		file := filepath.Join(own, "conf")
		if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
			return nil, err
		}
		conf = file
	}
	s, err := redistest.Launch(own, conf, args...)
	if err != nil {
		return nil, err
	}
	return &Node{Server: s, Client: redis.NewClient(&redis.Options{
		Addr: s.Addr, ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1, Protocol: 2,
	})}, nil
}

func (n *Node) close() {
	n.Kill()
	n.Client.Close()
}

// info returns the value of name in the node's INFO, or "".
func (n *Node) info(name string) string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	text, _ := n.Client.Info(ctx, "replication", "cluster").Result()
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), name+":"); ok {
			return value
		}
	}
	return ""
}

// IsMaster tells whether the node says that it is one.
func (n *Node) IsMaster() bool { return n.info("role") == "master" }

// following tells whether the node is a replica of master and up to date.
func (n *Node) following(master *Node) bool {
	_, port, _ := net.SplitHostPort(master.Addr)
	return n.info("role") == "slave" && n.info("master_port") == port && n.info("master_link_status") == "up"
}

// replicate makes the node one of master's and waits until it is up to date.
func (n *Node) replicate(master *Node) error {
	host, port, _ := net.SplitHostPort(master.Addr)
	if err := n.Client.ReplicaOf(context.Background(), host, port).Err(); err != nil {
		return err
	}
	return UntilFollowing(n, master)
}

// UntilFollowing waits until replica is one of master's and up to date.
func UntilFollowing(replica, master *Node) error {
	return Until(replica.Addr+" follows "+master.Addr, func() bool { return replica.following(master) })
}

// url returns the nodes' addresses as tokend wants them, behind one another.
func url(nodes []*Node, params ...string) string {
	for _, n := range nodes[1:] {
		params = append(params, "addr="+n.Addr)
	}
	return fmt.Sprintf("redis://%s?%s", nodes[0].Addr, strings.Join(params, "&"))
}

func addrs(nodes []*Node) []string {
	var list []string
	for _, n := range nodes {
		list = append(list, n.Addr)
	}
	return list
}
