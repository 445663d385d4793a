package redisstore

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/tokend/token"
)

// watches tell those who wait for a claim to end that it may have: scripts publish, on a
// channel named as the record's key, when they end one. However many wait, there is one
// connection, which is not of the pool; while nobody waits there is none.
type watches struct {
	subscribe func(context.Context, ...string) *redis.PubSub
	timeout   time.Duration // of one subscription

	mu         sync.Mutex
	byChannel  map[string]map[chan struct{}]struct{}
	subscribed map[string]struct{} // what the listener has subscribed to, or is about to
	changed    chan struct{}       // tells the listener that byChannel has other channels; nil while there is no listener
}

// Watch has woken receive whenever the claim of sub may have ended. It does so once when
// the watch has really begun, too, and when it was interrupted: whoever asks then misses
// nothing.
func (s *Store) Watch(sub token.Subject) (woken <-chan struct{}, stop func()) {
	channel, c := s.subjectKey(sub), make(chan struct{}, 1)
	s.watches.add(channel, c)
	return c, func() { s.watches.remove(channel, c) }
}

func (w *watches) add(channel string, c chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.byChannel == nil {
		w.byChannel = make(map[string]map[chan struct{}]struct{})
	}
	if w.byChannel[channel] == nil {
		w.byChannel[channel] = make(map[chan struct{}]struct{})
		w.change()
	}
	w.byChannel[channel][c] = struct{}{}
	if _, ok := w.subscribed[channel]; ok {
		// No subscription will wake c, and what was published since its owner last asked,
		// others may have heard.
		c <- struct{}{}
	}
}

func (w *watches) remove(channel string, c chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.byChannel[channel], c)
	if len(w.byChannel[channel]) == 0 {
		delete(w.byChannel, channel)
		w.change()
	}
}

// change tells the listener, and starts it where there is none. w.mu is held.
func (w *watches) change() {
	if w.changed == nil {
		w.changed = make(chan struct{}, 1)
		go w.listen(w.changed)
	}
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// wake wakes all who wait for channel.
func (w *watches) wake(channel string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.byChannel[channel] {
		select {
		case c <- struct{}{}:
		default: // it has yet to look at an earlier one
		}
	}
}

// listen keeps the connection, from the first who waits to the last. go-redis connects
// again after a failure and subscribes to what was subscribed to.
func (w *watches) listen(changed <-chan struct{}) {
	conn := w.subscribe(context.Background()) // to nothing: it does not connect yet
	defer conn.Close()
	heard := conn.ChannelWithSubscriptions()
	for {
		select {
		case <-changed:
			begun, ended, last := w.compare()
			if last {
				return
			}
			// An error is no matter: go-redis tries again when it connects, and who waits
			// asks by itself, too.
			ctx, cancel := context.WithTimeout(context.Background(), w.timeout)
			if len(begun) > 0 {
				conn.Subscribe(ctx, begun...)
			}
			if len(ended) > 0 {
				conn.Unsubscribe(ctx, ended...)
			}
			cancel()
		case m, ok := <-heard:
			if !ok { // the client was closed under us: polls, and then nobody, will go on
				heard = nil
			}
			switch m := m.(type) {
			case *redis.Message:
				w.wake(m.Channel)
			case *redis.Subscription:
				w.wake(m.Channel)
			}
		}
	}
}

// compare brings subscribed up to what is waited for and tells the differences; or that
// nobody waits any more, and then the listener is done.
func (w *watches) compare() (begun, ended []string, last bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.byChannel) == 0 {
		w.changed, w.subscribed = nil, nil
		return nil, nil, true
	}
	if w.subscribed == nil {
		w.subscribed = make(map[string]struct{})
	}
	for channel := range w.byChannel {
		if _, ok := w.subscribed[channel]; !ok {
			w.subscribed[channel] = struct{}{}
			begun = append(begun, channel)
		}
	}
	for channel := range w.subscribed {
		if _, ok := w.byChannel[channel]; !ok {
			delete(w.subscribed, channel)
			ended = append(ended, channel)
		}
	}
	return begun, ended, false
}
