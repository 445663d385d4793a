package devredis

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

func client(t *testing.T, s *Server) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: s.Addr()})
	t.Cleanup(func() { c.Close() })
	return c
}

var epoch = time.Date(2031, 5, 6, 7, 8, 9, 123_000_000, time.UTC)

func standing(t *testing.T) (*Server, *redis.Client) {
	t.Helper()
	s, err := StartAt("127.0.0.1:0", epoch)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s, client(t, s)
}

func TestAdvanceMovesTimeAndTTL(t *testing.T) {
	s, c := standing(t)
	ctx := context.Background()
	if err := c.Set(ctx, "k", "v", 10*time.Second).Err(); err != nil {
		t.Fatal(err)
	}
	s.Advance(4 * time.Second)
	if got := c.PTTL(ctx, "k").Val(); got != 6*time.Second {
		t.Errorf("PTTL = %v, want 6s", got)
	}
	if got := c.Time(ctx).Val().UTC(); !got.Equal(epoch.Add(4*time.Second)) || !s.Now().Equal(got) {
		t.Errorf("TIME = %v, Now = %v", got, s.Now())
	}
	s.Advance(6 * time.Second)
	if n := c.Exists(ctx, "k").Val(); n != 0 {
		t.Error("the key outlived its TTL")
	}
}

// A script that sets an absolute end and one that reads TIME see one clock.
func TestScriptsSeeTheSameClock(t *testing.T) {
	s, c := standing(t)
	ctx := context.Background()
	const script = `local t = redis.call('TIME')
redis.call('SET', KEYS[1], 'v', 'PXAT', string.format('%.0f', t[1] * 1000 + math.floor(t[2] / 1000) + 5000))
return redis.call('PTTL', KEYS[1])`
	for range 3 {
		if got := c.Eval(ctx, script, []string{"k"}).Val(); got != int64(5000) {
			t.Errorf("PTTL = %v, want 5000", got)
		}
		s.Advance(90 * time.Minute)
	}
	if n := c.Exists(ctx, "k").Val(); n != 0 {
		t.Error("the key outlived its end")
	}
}

// The clock of Start runs by itself. The bubble's clock stands for the host's.
func TestClockRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mini := newServer(time.Time{}).Mini() // a listener would keep the bubble's clock standing
		if err := mini.Set("k", "v"); err != nil {
			t.Fatal(err)
		}
		mini.SetTTL("k", 10*time.Second)
		time.Sleep(4 * time.Second)
		if got := mini.TTL("k"); got != 6*time.Second {
			t.Errorf("TTL = %v, want 6s", got)
		}
		time.Sleep(6 * time.Second)
		if mini.Exists("k") {
			t.Error("the key outlived its TTL")
		}
	})
}

func TestOnlyAStandingClockIsMoved(t *testing.T) {
	s, err := Start("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	defer func() {
		if recover() == nil {
			t.Error("the host's clock was moved")
		}
	}()
	s.Advance(time.Second)
}

func TestAddressInUse(t *testing.T) {
	s, _ := standing(t)
	if other, err := Start(s.Addr()); err == nil {
		other.Close()
		t.Error("two servers on one address")
	}
}
