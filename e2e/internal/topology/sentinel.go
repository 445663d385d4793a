package topology

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// MasterName is what Sentinels call the master.
const MasterName = "tokend"

// Sentinel is a master with replicas and the Sentinels that watch over them.
type Sentinel struct {
	Master    *Node // as it was started; after a failover a replica stands in
	Replicas  []*Node
	Sentinels []*Node
}

// StartSentinel starts a master with replicas and three Sentinels below dir, and waits until
// these know of each other and of the replicas. args are options of every redis-server.
func StartSentinel(dir string, replicas int, args ...string) (*Sentinel, error) {
	s := new(Sentinel)
	if err := s.start(dir, replicas, args); err != nil {
		s.Close()
		return nil, fmt.Errorf("start Sentinels: %w", err)
	}
	return s, nil
}

func (s *Sentinel) start(dir string, replicas int, args []string) (err error) {
	args = append([]string{"--repl-diskless-sync-delay", "0"}, args...)
	if s.Master, err = launch(dir, "", args...); err != nil {
		return err
	}
	for range replicas {
		r, err := launch(dir, "", args...)
		if err != nil {
			return err
		}
		s.Replicas = append(s.Replicas, r)
		if err := r.replicate(s.Master); err != nil {
			return err
		}
	}
	host, port, _ := net.SplitHostPort(s.Master.Addr)
	for range 3 {
		// A master that a loaded machine holds up for less than down-after is not taken for
		// a dead one. A failover takes about this and two seconds.
		n, err := launch(dir, fmt.Sprintf("sentinel monitor %[1]s %[2]s %[3]s 2\n"+
			"sentinel down-after-milliseconds %[1]s 4000\nsentinel failover-timeout %[1]s 10000\n",
			MasterName, host, port), "--sentinel")
		if err != nil {
			return err
		}
		s.Sentinels = append(s.Sentinels, n)
	}
	return Until("the Sentinels know of all", func() bool {
		for _, n := range s.Sentinels {
			about := s.about(n)
			if about["num-slaves"] != strconv.Itoa(replicas) || about["num-other-sentinels"] != "2" || about["flags"] != "master" {
				return false
			}
		}
		return true
	})
}

// about returns what the Sentinel n knows of the master.
func (s *Sentinel) about(n *Node) map[string]string {
	flat, _ := n.Client.Do(context.Background(), "sentinel", "master", MasterName).StringSlice()
	known := make(map[string]string)
	for pair := range slices.Chunk(flat, 2) {
		known[pair[0]] = pair[len(pair)-1]
	}
	return known
}

// UntilPromoted waits until a replica has taken over, by all Sentinels' word, and returns it.
func (s *Sentinel) UntilPromoted() (*Node, error) {
	var promoted *Node
	err := Until("a replica has taken over", func() bool {
		for _, r := range s.Replicas {
			if r.IsMaster() {
				promoted = r
			}
		}
		if promoted == nil {
			return false
		}
		for _, n := range s.Sentinels {
			about := s.about(n)
			if net.JoinHostPort(about["ip"], about["port"]) != promoted.Addr {
				return false
			}
		}
		return true
	})
	return promoted, err
}

// URL returns the Sentinels', for redis.mode sentinel.
func (s *Sentinel) URL() string { return url(s.Sentinels, "master_name="+MasterName) }

// NewClient returns a client of the master that is bounded as tokend's are.
func (s *Sentinel) NewClient() *redis.Client {
	return redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: MasterName, SentinelAddrs: addrs(s.Sentinels), ContextTimeoutEnabled: true, DialerRetries: 1, Protocol: 2,
	})
}

// Close ends all nodes.
func (s *Sentinel) Close() {
	for _, n := range append(append(s.Sentinels, s.Replicas...), s.Master) {
		if n != nil {
			n.close()
		}
	}
}
