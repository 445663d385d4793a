package scale_test

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"example.com/tokend/client"
	"example.com/tokend/e2e/internal/topology"
	"example.com/tokend/token"
	"example.com/tokend/token/redisstore"
)

// work is what is done under a claim.
func work(context.Context, *client.Claim) (client.Result, error) {
	return client.JSON(http.StatusCreated, map[string]string{"made": "once"})
}

// TestWatchAcrossNodes tells who waits on one connection to one node of claims that end on
// every node.
func TestWatchAcrossNodes(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1)
	here, there := c.NewClient(), c.NewClient()
	t.Cleanup(func() { here.Close(); there.Close() })
	opts := redisstore.Options{Timeout: 10 * time.Second}
	waiter, holder := redisstore.New(here, opts), redisstore.New(there, opts)
	for i := range c.Masters {
		for _, user := range c.UsersOf(i, 3) {
			sub := token.KeySubject(token.User(user), "p", "k")
			got, err := holder.Claim(t.Context(), token.Claiming{Subject: sub, Attempt: "a", Lease: time.Hour, Retention: time.Hour})
			must(t, err)
			woken, stop := waiter.Watch(sub)
			defer stop()
			heard := func(what string) {
				t.Helper()
				select {
				case <-woken:
				case <-time.After(topology.Patience):
					t.Fatalf("master %d: not told of %s", i, what)
				}
			}
			heard("the beginning of the watch")
			_, err = holder.Complete(t.Context(), got.Handle, nil)
			must(t, err)
			heard("the end of the claim")
		}
	}
}

// TestWaitAcrossNodes has callers wait at one instance for claims that are held at another,
// on every node.
func TestWaitAcrossNodes(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1)
	holder, waiter := onCluster(t, c).Persistent(), onCluster(t, c).Persistent()
	var claims []*client.Claim
	var wg sync.WaitGroup
	for i := range c.Masters {
		for _, user := range c.UsersOf(i, 3) {
			key := client.Key(user, "p", "k")
			cl, _, err := holder.Claim(t.Context(), key)
			must(t, err)
			claims = append(claims, cl)
			wg.Go(func() {
				_, done, err := waiter.Claim(t.Context(), key, client.Wait(30*time.Second))
				if err != nil || done == nil || done.Result.Status != http.StatusCreated {
					t.Errorf("master %d: who waits gets %+v, %v", i, done, err)
				}
			})
		}
	}
	// All wait by one connection, which is to one node.
	must(t, topology.Until("all wait", func() bool {
		for _, m := range c.Masters {
			if len(m.Client.PubSubChannels(t.Context(), "*").Val()) == len(claims) {
				return true
			}
		}
		return false
	}))
	for _, cl := range claims {
		made, err := work(t.Context(), cl)
		must(t, err)
		must(t, cl.Complete(t.Context(), made))
	}
	wg.Wait()
}

// TestBatchAcrossNodes consumes tokens of many users, on every node, in one batch; and has a
// node that does not answer take no others' outcomes with it.
func TestBatchAcrossNodes(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1)
	i := onCluster(t, c, "REDIS_TIMEOUT=2s")
	batch := func() (items []client.Item, master []int) {
		for m := range c.Masters {
			for _, user := range c.UsersOf(m, 30) {
				tok, err := i.Persistent().Issue(t.Context(), user)
				must(t, err)
				items = append(items, client.Item{User: user, Token: tok.Value, Attempt: string(token.NewAttempt())})
				master = append(master, m)
			}
		}
		return items, master
	}
	items, _ := batch()
	consumeAll(t, i.Persistent(), items)

	items, master := batch()
	const held = 2
	c.Masters[held].Pause()
	defer c.Masters[held].Resume()
	// More than once only where the machine holds up those who answer.
	missing := 0
	must(t, topology.Until("the others' items are consumed", func() bool {
		got, err := i.Client(client.TryTimeout(topology.Patience)).ConsumeBatch(t.Context(), items)
		must(t, err)
		late := 0
		missing = 0
		for n, o := range got {
			switch {
			case o.Err != nil && !unavailable(o.Err):
				t.Errorf("an item of master %d: %v", master[n], o.Err)
			case o.Err != nil && master[n] == held:
				missing++
			case o.Err != nil:
				late++
			}
		}
		return late == 0
	}))
	if missing != 30 && !c.Replicas[held][0].IsMaster() { // the cluster itself may find it dead
		t.Errorf("%d items have no outcome, want those 30 of the master that does not answer", missing)
	}
	c.Masters[held].Resume()
	consumeAll(t, i.Persistent(), items)
}

// consumeAll consumes items, each of which must be granted, and none of them a second time.
func consumeAll(t *testing.T, c *client.Client, items []client.Item) {
	t.Helper()
	got, err := c.ConsumeBatch(t.Context(), items)
	must(t, err)
	for n, o := range got {
		if o.Err != nil {
			t.Errorf("item %d: %v", n, o.Err)
		}
	}
	again := make([]client.Item, len(items))
	for n, item := range items {
		again[n] = client.Item{User: item.User, Token: item.Token}
	}
	got, err = c.ConsumeBatch(t.Context(), again)
	must(t, err)
	for n, o := range got {
		if o.Err == nil {
			t.Errorf("item %d is granted twice", n)
		}
	}
}
