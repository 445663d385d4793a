// Package callers has many callers issue and consume tokens through a tokend while what it
// depends on breaks. It remembers what was acknowledged, and tells afterwards what became
// of that.
package callers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"example.com/tokend/client"
	"example.com/tokend/httpapi/wire"
	"example.com/tokend/token"
)

// long is the life of half of the tokens: it outlasts every run.
const long = 30 * time.Minute

// Habits are the callers'.
type Habits struct {
	AtOnce int           // how many callers
	Pace   time.Duration // each rests for so long after each token
	Age    time.Duration // a token is consumed so long after it was issued, at least
	// Short is the life of the other half of the tokens: it is over when they are looked
	// at, and what was not used is expired by then. Above Age; 2s where 0.
	Short time.Duration
}

// Callers are under way from Start to Stop.
type Callers struct {
	client *client.Client
	users  []string
	habits Habits
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu       sync.Mutex
	spent    []spent
	answered map[string]time.Time // the last time that a user's consume was acknowledged
	tally    Tally
}

// spent is a token whose consume was acknowledged.
type spent struct {
	item  client.Item
	short bool
	at    time.Time
	rival string // another attempt that was granted it too
}

// Tally is what callers saw, and what became of the tokens that they were granted.
type Tally struct {
	Acknowledged int       // consumes
	Faults       int       // calls without an answer: each of them was a store_unavailable or a broken connection
	Revived      int       // tokens that were granted again after an acknowledged consume
	Expired      int       // used tokens that read as expired, never used
	Lost         int       // used tokens that read as token_lost
	Unissued     int       // tokens whose acknowledged issue is lost, and which nobody had used
	Wrong        []error   // answers that nothing explains
	LastRevived  time.Time // when the latest of Revived was first acknowledged
}

// Start has callers issue to users and consume, through c, whose calls are tried once.
func Start(c *client.Client, users []string, h Habits) *Callers {
	h.Short = cmp.Or(h.Short, 2*time.Second)
	cs := &Callers{client: c, users: users, habits: h, answered: make(map[string]time.Time)}
	cs.ctx, cs.cancel = context.WithCancel(context.Background())
	for range h.AtOnce {
		cs.wg.Go(func() {
			var stock []unused
			for cs.ctx.Err() == nil {
				if u, ok := cs.issue(); ok {
					stock = append(stock, u)
				}
				if len(stock) > 0 && time.Since(stock[0].issued) >= h.Age {
					cs.consume(stock[0].spent)
					stock = stock[1:]
				}
				time.Sleep(h.Pace)
			}
		})
	}
	return cs
}

// Stop ends the callers.
func (c *Callers) Stop() {
	c.cancel()
	c.wg.Wait()
}

// unused is a token that is to be consumed.
type unused struct {
	spent
	issued time.Time
}

func (c *Callers) issue() (u unused, ok bool) {
	user := c.users[rand.IntN(len(c.users))]
	u.short = rand.IntN(2) == 0
	ttl := long
	if u.short {
		ttl = c.habits.Short
	}
	u.issued = time.Now()
	got, err := c.client.Issue(c.ctx, user, client.TTL(ttl))
	if err != nil {
		c.failed("issue", u.spent, err)
		return u, false
	}
	u.item = client.Item{User: user, Token: got.Value, Attempt: string(token.NewAttempt())}
	return u, true
}

// consume consumes s's token, and asks for it once more with another attempt. A long-lived
// one it asks for, with the same attempt, until there is an answer.
func (c *Callers) consume(s spent) {
	for {
		_, err := c.client.Consume(c.ctx, s.item.User, s.item.Token, client.Attempt(s.item.Attempt))
		if err == nil {
			s.at = time.Now()
			c.acknowledged(s)
			return
		}
		if fault := c.failed("consume", s, err); !fault || s.short || c.ctx.Err() != nil {
			return
		}
		time.Sleep(c.habits.Pace)
	}
}

// acknowledged tries s's token with another attempt, and remembers it.
func (c *Callers) acknowledged(s spent) {
	rival := string(token.NewAttempt())
	switch _, err := c.client.Consume(c.ctx, s.item.User, s.item.Token, client.Attempt(rival)); {
	case err == nil:
		s.rival = rival
	case errors.Is(err, client.ErrUsed), errors.Is(err, client.ErrLost), errors.Is(err, client.ErrExpired) && s.short:
		// As it must be, or what the audit will find.
	default:
		c.failed("another consume", s, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spent = append(c.spent, s)
	c.answered[s.item.User] = s.at
}

// failed counts err, which a call for s got that was not granted it before, and tells whether
// it is a fault. That its issue is lost explains token_lost, and its time token_expired of a
// short-lived one; nothing explains any other refusal.
func (c *Callers) failed(what string, s spent, err error) (fault bool) {
	if c.ctx.Err() != nil {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var down *client.Fault
	switch {
	case errors.As(err, &down) && (down.Code == wire.CodeStoreUnavailable || down.Code == ""):
		c.tally.Faults++
		return true
	case what == "consume" && errors.Is(err, client.ErrLost):
		c.tally.Unissued++
	case what == "consume" && s.short && errors.Is(err, client.ErrExpired):
	default:
		c.tally.Wrong = append(c.tally.Wrong, fmt.Errorf("%s: %w", what, err))
	}
	return false
}

// Answered tells whether a consume of each user's was acknowledged since.
func (c *Callers) Answered(since time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !slices.ContainsFunc(c.users, func(user string) bool { return c.answered[user].Before(since) })
}

// Acknowledged returns how many consumes were, so far.
func (c *Callers) Acknowledged() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.spent)
}

// Audit asks for each token that was granted once more, with another attempt, through c,
// which goes on trying. The callers have stopped.
func (c *Callers) Audit(through *client.Client) (Tally, error) {
	time.Sleep(c.habits.Short + time.Second) // of Redis's clock, by which the short ones expire
	t := c.tally
	t.Acknowledged = len(c.spent)
	for part := range slices.Chunk(c.spent, client.BatchMax) {
		items := make([]client.Item, len(part))
		for i, s := range part {
			items[i] = client.Item{User: s.item.User, Token: s.item.Token}
		}
		got, err := through.ConsumeBatch(context.Background(), items)
		if err != nil {
			return t, err
		}
		for i, s := range part {
			t.add(s, got[i].Err)
		}
	}
	return t, nil
}

// add counts what became of s, whose token was asked for again.
func (t *Tally) add(s spent, err error) {
	var no *client.Refusal
	errors.As(err, &no)
	revived := s.rival != "" || err == nil
	switch {
	case revived:
	case errors.Is(err, client.ErrUsed) && no.UsedBy == token.Attempt(s.item.Attempt).Hash().Ref():
	case errors.Is(err, client.ErrExpired) && s.short:
		t.Expired++
	case errors.Is(err, client.ErrLost) && !s.short:
		t.Lost++
	default:
		t.Wrong = append(t.Wrong, fmt.Errorf("a used token: %w", err))
	}
	if revived {
		t.Revived++
		if s.at.After(t.LastRevived) {
			t.LastRevived = s.at
		}
	}
}
