package scale_test

import (
	"strings"
	"sync"
	"testing"

	"example.com/tokend/client"
	"example.com/tokend/e2e/internal/callers"
	"example.com/tokend/e2e/internal/topology"
	"example.com/tokend/internal/redistest"
	"example.com/tokend/token"
	"example.com/tokend/token/redisstore"
)

// TestSlotHalfMoved stops the move of a slot where some of its keys are at its new master and
// some still at the old one. What keeps to one key goes on there, wherever the key is; what
// touches two has to wait until the slot is moved.
func TestSlotHalfMoved(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1)
	// As the user whom docs/operations.md describes.
	must(t, c.AddUser(append(redistest.ForCluster, "+asking", "+info", "+config|get")...))
	start := func(settings ...string) *topology.Instance {
		url := strings.Replace(c.URL(), "://", "://tokend:"+redistest.Password+"@", 1)
		return serve(t, url, "cluster", settings...)
	}
	plain, replicated, deleting := start(), start(waiting...), start("TOKENS_MODE=delete")
	limited := start("RATE_ISSUE_PER_MINUTE=6000", "RATE_BURST=100")
	users := c.UsersOf(0, 2)
	user, bystander := users[0], users[1]

	// Half of what each instance has issued to the user is moved.
	of := map[string]*topology.Instance{"plain": plain, "replicated": replicated, "deleting": deleting}
	moved, stayed := map[string][]client.Token{}, map[string][]client.Token{}
	var keys []string
	for name, i := range of {
		tokens, err := i.Persistent().IssueBatch(t.Context(), user, 8)
		must(t, err)
		moved[name], stayed[name] = tokens[:4], tokens[4:]
		for _, tok := range moved[name] {
			_, id, err := token.ParseRef(tok.Ref)
			must(t, err)
			keys = append(keys, redisstore.TokenKey("tokend", token.User(user).Hash(), id))
		}
	}
	must(t, limitedIssue(t, limited, user)) // so that the user's rate has a key, which stays
	move, err := c.BeginMove(c.Slot(user), c.Masters[0], c.Masters[1])
	must(t, err)
	must(t, move.Keys(keys...))

	for name, i := range of {
		p := i.Persistent()
		for where, tokens := range map[string][]client.Token{"moved": moved[name], "stayed": stayed[name]} {
			what := name + ", " + where
			if name != "deleting" {
				if _, err := p.Status(t.Context(), user, tokens[0].Value); err != nil {
					t.Fatalf("%s: status: %v", what, err)
				}
				if _, err := p.Do(t.Context(), client.TokenOf(user, "default", tokens[1].Value), work); err != nil {
					t.Fatalf("%s: claim and complete: %v", what, err)
				}
			}
			_, err := p.Consume(t.Context(), user, tokens[0].Value)
			if err != nil {
				t.Fatalf("%s: consume: %v", what, err)
			}
			got, err := p.ConsumeBatch(t.Context(), []client.Item{{User: user, Token: tokens[2].Value}, {User: user, Token: tokens[3].Value}})
			if err != nil || got[0].Err != nil || got[1].Err != nil {
				t.Fatalf("%s: batch: %v, %v", what, got, err)
			}
		}
		if _, err := p.Issue(t.Context(), user); err != nil {
			t.Fatalf("%s: issue of one token that is not limited: %v", name, err)
		}
	}

	// What was redirected is acknowledged by a replica of its new master, too, or not at all.
	fresh, err := replicated.Persistent().Issue(t.Context(), user) // its key is at the new master
	must(t, err)
	attempt := client.Attempt(string(token.NewAttempt()))
	c.Replicas[1][0].Pause()
	defer c.Replicas[1][0].Resume()
	if _, err := replicated.Client(client.TryTimeout(topology.Patience)).Consume(t.Context(), user, fresh.Value, attempt); !unavailable(err) {
		t.Errorf("redirected, and without a replica: %v, want store_unavailable", err)
	}
	c.Replicas[1][0].Resume()
	if got, err := replicated.Persistent().Consume(t.Context(), user, fresh.Value, attempt); err != nil || !got.Replayed {
		t.Errorf("the same attempt: %+v, %v", got, err)
	}

	// Two keys are one too many: the token's and the rate's, or those of two tokens.
	if err := limitedIssue(t, limited, user); !unavailable(err) {
		t.Errorf("issue with the rate: %v, want store_unavailable", err)
	}
	if _, err := plain.Client().IssueBatch(t.Context(), user, 2); !unavailable(err) {
		t.Errorf("issue of two: %v, want store_unavailable", err)
	}
	if log := limited.Log(); !strings.Contains(log, "TRYAGAIN") {
		t.Errorf("it is not for TRYAGAIN: %s", log)
	}
	eventually(t, "users of other slots are not touched", func() error { return limitedIssue(t, limited, bystander) })

	must(t, move.Finish())
	eventually(t, "issue goes on", func() error { return limitedIssue(t, limited, user) })
	for name, i := range of {
		for _, tokens := range [][]client.Token{moved[name], stayed[name]} {
			for _, n := range []int{0, 2, 3} {
				if _, err := i.Persistent().Consume(t.Context(), user, tokens[n].Value); err == nil {
					t.Errorf("%s: consumed again after the move", name)
				}
			}
		}
	}
	if denied := c.Denied(); len(denied) > 0 {
		t.Errorf("denied: %q", denied)
	}
}

// limitedIssue issues a token to user, as user.
func limitedIssue(t *testing.T, i *topology.Instance, user string) error {
	c, err := client.New(i.URL, asUser(user), client.MaxTries(1), client.TryTimeout(topology.Patience), client.Budget(topology.Patience))
	if err != nil {
		return err
	}
	defer c.CloseIdleConnections()
	_, err = c.Issue(t.Context(), "")
	return err
}

// TestSlotsMoveUnderLoad moves the slots of half the users to another master and back while
// they are issued tokens and have them consumed. Nothing is granted twice, nothing refused,
// nothing lost. What a user is issued under the rate may be unavailable meanwhile, and is again
// afterwards.
func TestSlotsMoveUnderLoad(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1)
	users := c.UsersOf(0, 8)
	var loads []*callers.Callers
	instances := []*topology.Instance{onCluster(t, c), onCluster(t, c, waiting...), onCluster(t, c, "TOKENS_MODE=record")}
	for _, i := range instances {
		loads = append(loads, callers.Start(i.Client(), users, habits))
	}
	limited := onCluster(t, c, "RATE_ISSUE_PER_MINUTE=100000", "RATE_BURST=100000")
	over := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		asked, refused := 0, 0
		for {
			select {
			case <-over:
				t.Logf("of %d issues under the rate %d were unavailable", asked, refused)
				return
			default:
			}
			user := users[asked%4]
			asked++
			if err := limitedIssue(t, limited, user); unavailable(err) {
				refused++
			} else if err != nil {
				t.Errorf("issue under the rate: %v", err)
			}
		}
	})
	from, to := c.Masters[0], c.Masters[2]
	for range 2 {
		for _, user := range users[:4] {
			move, err := c.BeginMove(c.Slot(user), from, to)
			must(t, err)
			before := loads[0].Acknowledged()
			must(t, topology.Until("there is load", func() bool { return loads[0].Acknowledged() > before+20 }))
			must(t, move.Finish())
		}
		from, to = to, from
	}
	close(over)
	wg.Wait()
	eventually(t, "issue goes on", func() error { return limitedIssue(t, limited, users[0]) })
	for i, load := range loads {
		load.Stop()
		got, err := load.Audit(instances[(i+1)%len(instances)].Persistent())
		must(t, err)
		t.Logf("%+v", got)
		if got.Revived+got.Expired+got.Lost+got.Unissued > 0 {
			t.Errorf("lost on the way: %+v", got)
		}
		noneWrong(t, got)
	}
}
