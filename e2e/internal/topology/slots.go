package topology

import (
	"context"
	"net"
	"slices"
)

// Move is a slot on its way from one master to another.
type Move struct {
	c        *Cluster
	Slot     int
	From, To *Node
}

// BeginMove opens slot for a move: what is not found in from is to be looked for in to.
func (c *Cluster) BeginMove(slot int, from, to *Node) (*Move, error) {
	ctx := context.Background()
	if err := to.Client.Do(ctx, "cluster", "setslot", slot, "importing", c.ID(from)).Err(); err != nil {
		return nil, err
	}
	if err := from.Client.Do(ctx, "cluster", "setslot", slot, "migrating", c.ID(to)).Err(); err != nil {
		return nil, err
	}
	return &Move{c, slot, from, to}, nil
}

// Keys moves keys, which may be gone.
func (m *Move) Keys(keys ...string) error {
	host, port, _ := net.SplitHostPort(m.To.Addr)
	args := []any{"migrate", host, port, "", 0, 10000, "keys"}
	for _, key := range keys {
		args = append(args, key)
	}
	return m.From.Client.Do(context.Background(), args...).Err()
}

// Finish moves what is left, and has all nodes know that the slot is moved.
func (m *Move) Finish() error {
	ctx := context.Background()
	for {
		keys, err := m.From.Client.ClusterGetKeysInSlot(ctx, m.Slot, 100).Result()
		if err != nil {
			return err
		}
		if len(keys) == 0 {
			break
		}
		if err := m.Keys(keys...); err != nil {
			return err
		}
	}
	id := m.c.ID(m.To)
	for _, n := range slices.Concat([]*Node{m.To, m.From}, m.c.Masters) {
		if err := n.Client.Do(ctx, "cluster", "setslot", m.Slot, "node", id).Err(); err != nil {
			return err
		}
	}
	return Until("the slot is moved", func() bool {
		return !slices.ContainsFunc(m.c.nodes(), func(n *Node) bool { return holder(n, m.Slot) != m.To.Addr })
	})
}
