package topology

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/tokend/internal/redistest"
	"example.com/tokend/token"
	"example.com/tokend/token/redisstore"
)

// Slots is how many a cluster has.
const Slots = 16384

// Cluster is a Redis Cluster: masters that hold the slots evenly, and replicas of each.
type Cluster struct {
	Masters  []*Node   // as it was started; after a failover a replica stands in
	Replicas [][]*Node // of each master
}

// StartCluster starts a cluster below dir and waits until it serves and the replicas are up
// to date. args are options of every redis-server.
func StartCluster(dir string, masters, replicas int, args ...string) (*Cluster, error) {
	c := &Cluster{Replicas: make([][]*Node, masters)}
	if err := c.start(dir, masters, replicas, args); err != nil {
		c.Close()
		return nil, fmt.Errorf("start a cluster: %w", err)
	}
	return c, nil
}

func (c *Cluster) start(dir string, masters, replicas int, args []string) error {
	ctx := context.Background()
	for i := range masters {
		n, err := c.Add(dir, args...)
		if err != nil {
			return err
		}
		c.Masters = append(c.Masters, n)
		first, last := i*Slots/masters, (i+1)*Slots/masters-1
		if err := n.Client.ClusterAddSlotsRange(ctx, first, last).Err(); err != nil {
			return err
		}
		if err := n.Client.Do(ctx, "cluster", "set-config-epoch", i+1).Err(); err != nil {
			return err
		}
		for range replicas {
			r, err := c.Add(dir, args...)
			if err != nil {
				return err
			}
			c.Replicas[i] = append(c.Replicas[i], r)
		}
	}
	for _, n := range c.nodes()[1:] {
		if err := c.Meet(n); err != nil {
			return err
		}
	}
	for i, of := range c.Replicas {
		for _, r := range of {
			// It may not have heard of its master yet, which gossip tells.
			err := Until(r.Addr+" has a master", func() bool {
				return r.Client.ClusterReplicate(ctx, c.ID(c.Masters[i])).Err() == nil
			})
			if err != nil {
				return err
			}
		}
	}
	return c.UntilWhole()
}

// Add starts one more node, which the cluster does not know yet.
func (c *Cluster) Add(dir string, args ...string) (n *Node, err error) {
	for range 5 { // another program may take the bus's port
		var bus int
		if bus, err = redistest.FreePort(); err != nil {
			return nil, err
		}
		n, err = launch(dir, "", append([]string{
			"--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(bus),
			// A failover takes about this and a second; a node that a loaded machine holds up
			// for less is not taken for a dead one.
			"--cluster-node-timeout", "5000",
			"--cluster-replica-validity-factor", "0", // however old its data, a replica may take over
			"--cluster-require-full-coverage", "no",
			"--repl-diskless-sync-delay", "0",
		}, args...)...)
		if err == nil {
			return n, nil
		}
	}
	return nil, err
}

// Meet has the cluster know n, and waits until all of its nodes do.
func (c *Cluster) Meet(n *Node) error {
	ctx := context.Background()
	host, port, _ := net.SplitHostPort(n.Addr)
	bus, err := n.Client.ConfigGet(ctx, "cluster-port").Result()
	if err != nil {
		return err
	}
	id, err := n.Client.Do(ctx, "cluster", "myid").Text()
	if err != nil {
		return err
	}
	return Until("the cluster has met "+n.Addr, func() bool {
		// Again each time: a handshake that takes too long is forgotten.
		c.Masters[0].Client.Do(ctx, "cluster", "meet", host, port, bus["cluster-port"])
		for range 50 {
			if knows(c.Masters[0], id) && knows(n, c.ID(c.Masters[0])) {
				return true
			}
			time.Sleep(20 * time.Millisecond)
		}
		return false
	})
}

func knows(n *Node, id string) bool {
	for line := range strings.Lines(n.Client.ClusterNodes(context.Background()).Val()) {
		if f := strings.Fields(line); len(f) > 2 && f[0] == id && !strings.Contains(f[2], "handshake") {
			return true
		}
	}
	return false
}

// ID returns n's in the cluster.
func (c *Cluster) ID(n *Node) string {
	id, _ := n.Client.Do(context.Background(), "cluster", "myid").Text()
	return id
}

func (c *Cluster) nodes() []*Node {
	return append(slices.Clone(c.Masters), slices.Concat(c.Replicas...)...)
}

// UntilWhole waits until every node sees all slots served, and each replica follows its
// master. It is for a cluster as it was started.
func (c *Cluster) UntilWhole() error {
	return Until("the cluster is whole", func() bool {
		for _, n := range c.nodes() {
			info := n.Client.ClusterInfo(context.Background()).Val()
			if !strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, fmt.Sprintf("cluster_size:%d\r\n", len(c.Masters))) ||
				!strings.Contains(info, fmt.Sprintf("cluster_slots_ok:%d\r\n", Slots)) {
				return false
			}
		}
		for i, of := range c.Replicas {
			for _, r := range of {
				if !r.following(c.Masters[i]) {
					return false
				}
			}
			if c.Masters[i].info("connected_slaves") != strconv.Itoa(len(of)) {
				return false
			}
		}
		return true
	})
}

// MasterOf returns the index of the master that held slot when the cluster was started.
func (c *Cluster) MasterOf(slot int) int {
	for i := range c.Masters {
		if slot < (i+1)*Slots/len(c.Masters) {
			return i
		}
	}
	panic("no such slot")
}

// Slot returns the one that all keys of user are in.
func (c *Cluster) Slot(user string) int {
	slot, err := c.Masters[len(c.Masters)-1].Client.ClusterKeySlot(context.Background(), redisstore.RateKey("", token.User(user).Hash())).Result()
	if err != nil {
		panic(err) // it knows without looking
	}
	return int(slot)
}

// UsersOf returns n users whose keys the i-th master holds.
func (c *Cluster) UsersOf(i, n int) []string {
	var users []string
	for j := 0; len(users) < n; j++ {
		if user := fmt.Sprintf("user %d", j); c.MasterOf(c.Slot(user)) == i {
			users = append(users, user)
		}
	}
	return users
}

// UntilPromoted waits until a replica of the i-th master has taken over, by all others'
// word, and returns it.
func (c *Cluster) UntilPromoted(i int) (*Node, error) {
	var promoted *Node
	err := Until("a replica of "+c.Masters[i].Addr+" has taken over", func() bool {
		for _, r := range c.Replicas[i] {
			if r.IsMaster() {
				promoted = r
			}
		}
		if promoted == nil {
			return false
		}
		slot := i * Slots / len(c.Masters)
		for j, m := range c.Masters {
			if j != i && holder(m, slot) != promoted.Addr {
				return false
			}
		}
		return true
	})
	return promoted, err
}

// holder returns the address of the master of slot, as n knows it, or "".
func holder(n *Node, slot int) string {
	ranges, _ := n.Client.Do(context.Background(), "cluster", "slots").Slice()
	for _, r := range ranges {
		// First, last, and the nodes, the master first: host, port and more.
		r, _ := r.([]any)
		if len(r) < 3 || int64(slot) < r[0].(int64) || r[1].(int64) < int64(slot) {
			continue
		}
		master, _ := r[2].([]any)
		return fmt.Sprintf("%v:%v", master[0], master[1])
	}
	return ""
}

// URL returns the cluster's, for redis.mode cluster.
func (c *Cluster) URL() string { return url(c.Masters) }

// AddUser adds the user tokend, who may do what it may with one Redis and more, on all nodes
// that are there. Its password is [redistest.Password].
func (c *Cluster) AddUser(more ...string) error {
	rules, err := redistest.Rules("tokend", redistest.Password)
	if err != nil {
		return err
	}
	args := []any{"acl", "setuser", "tokend", "reset"}
	for _, r := range append(rules, more...) {
		args = append(args, r)
	}
	for _, n := range c.nodes() {
		if err := n.Client.Do(context.Background(), args...).Err(); err != nil {
			return err
		}
	}
	return nil
}

// Denied returns what users were denied on the masters.
func (c *Cluster) Denied() (denied []string) {
	for _, m := range c.Masters {
		for _, e := range m.Client.ACLLog(context.Background(), 100).Val() {
			denied = append(denied, fmt.Sprintf("%s: %s %s", m.Addr, e.Reason, e.Object))
		}
	}
	return denied
}

// NewClient returns a client of the cluster that is bounded as tokend's are. It does not look
// by itself at who holds what but once: what has changed it must find out by what it is told.
func (c *Cluster) NewClient() *redis.ClusterClient {
	return redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: addrs(c.Masters), ContextTimeoutEnabled: true, DialerRetries: 1, Protocol: 2,
		ClusterStateReloadInterval: 24 * time.Hour,
	})
}

// Close ends all nodes.
func (c *Cluster) Close() {
	for _, n := range c.nodes() {
		n.close()
	}
}
