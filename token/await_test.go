package token_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"example.com/tokend/token"
)

// busyStore is a store in which something is claimed until free is closed.
type busyStore struct {
	token.Store
	began  time.Time
	lease  time.Duration // of the other claim, from the beginning
	free   time.Duration // when it ends, unless that is 0
	fault  error         // what is answered then, where it is set
	woken  chan struct{}
	asked  []time.Duration // when it was, since the beginning
	closed int             // watches that were ended
}

func (b *busyStore) Claim(_ context.Context, c token.Claiming) (token.Claimed, error) {
	now := time.Since(b.began)
	b.asked = append(b.asked, now)
	switch {
	case b.free == 0 || now < b.free:
		no := c.Refuse(token.ErrInProgress)
		no.RetryAfter = max(b.lease-now, 0)
		return token.Claimed{}, no
	case b.fault != nil:
		return token.Claimed{}, b.fault
	}
	return token.Claimed{State: token.StateClaimed, Handle: handle()}, nil
}

func (b *busyStore) Watch(token.Subject) (<-chan struct{}, func()) {
	return b.woken, func() { b.closed++ }
}

// waited has a service wait for b and returns its answer, and when it came.
func (b *busyStore) waited(t *testing.T, ctx context.Context, wait time.Duration) (token.Claimed, time.Duration, error) {
	b.began = time.Now()
	if b.lease == 0 {
		b.lease = time.Hour
	}
	svc := token.NewService(newRing(t, key("k1", 1)), b, token.Options{Mode: token.Record})
	got, err := svc.Claim(ctx, token.ClaimRequest{Subject: token.KeySubject("alice", "p", "k"), Purpose: "p", Attempt: "a", Lease: time.Second, Wait: wait})
	return got, time.Since(b.began), err
}

func TestAwait(t *testing.T) {
	fault := &token.Fault{Op: "claim", Err: errors.New("down")}
	tests := []struct {
		name  string
		store busyStore
		wait  time.Duration
		want  error
		after time.Duration
	}{
		{"no wait", busyStore{}, 0, token.ErrInProgress, 0},
		{"the time is up", busyStore{}, 10 * time.Second, token.ErrInProgress, 10 * time.Second},
		{"free at the first look", busyStore{free: 1}, 10 * time.Second, nil, time.Second}, // by then it is past 0
		{"nobody tells, the poll finds it", busyStore{free: 3500 * time.Millisecond}, 10 * time.Second, nil, 4 * time.Second},
		{"the lease ends", busyStore{lease: 2500 * time.Millisecond, free: 2500 * time.Millisecond}, 10 * time.Second, nil, 2500 * time.Millisecond},
		{"at the last moment", busyStore{free: 10 * time.Second}, 10 * time.Second, nil, 10 * time.Second},
		{"the store goes down", busyStore{free: 2 * time.Second, fault: fault}, 10 * time.Second, fault, 2 * time.Second},
	}
	for _, tt := range tests {
		synctest.Test(t, func(t *testing.T) {
			b := tt.store
			got, after, err := b.waited(t, t.Context(), tt.wait)
			if !errors.Is(err, tt.want) || after != tt.after {
				t.Errorf("%s: %v after %v, want %v after %v", tt.name, err, after, tt.want, tt.after)
			}
			if err == nil && (got.Text == "" || got.KeyID != "k1") {
				t.Errorf("%s: the handle is not signed: %+v", tt.name, got)
			}
			if tt.wait > 0 && b.closed != 1 || tt.wait == 0 && (b.closed != 0 || len(b.asked) != 1) {
				t.Errorf("%s: asked at %v, %d watches were ended", tt.name, b.asked, b.closed)
			}
		})
	}
}

// TestAwaitIsWoken asks at once when it is told to, and a lease that is over but not taken
// over is not asked after without end.
func TestAwaitIsWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &busyStore{free: 300 * time.Millisecond, woken: make(chan struct{})}
		go func() {
			time.Sleep(100 * time.Millisecond)
			b.woken <- struct{}{} // too early
			time.Sleep(200 * time.Millisecond)
			b.woken <- struct{}{}
		}()
		if _, after, err := b.waited(t, t.Context(), time.Minute); err != nil || after != 300*time.Millisecond || len(b.asked) != 3 {
			t.Errorf("%v after %v, asked at %v", err, after, b.asked)
		}
		over := &busyStore{lease: 1}
		if _, _, err := over.waited(t, t.Context(), time.Second); !errors.Is(err, token.ErrInProgress) || len(over.asked) > 250 {
			t.Errorf("%v, asked %d times in a second", err, len(over.asked))
		}
	})
}

// TestAwaitHangUp has the caller hang up: what it waited for is not claimed for nobody.
func TestAwaitHangUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, hangUp := context.WithCancel(t.Context())
		b := &busyStore{free: 1500 * time.Millisecond, woken: make(chan struct{}, 1)}
		go func() {
			time.Sleep(1500 * time.Millisecond)
			hangUp()
			b.woken <- struct{}{} // at the same moment
		}()
		_, after, err := b.waited(t, ctx, time.Minute)
		if !errors.Is(err, token.ErrInProgress) || after != 1500*time.Millisecond || len(b.asked) != 2 || b.closed != 1 {
			t.Errorf("%v after %v, asked at %v, %d watches were ended", err, after, b.asked, b.closed)
		}
	})
}
