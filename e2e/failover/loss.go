package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"time"

	"example.com/tokend/e2e/internal/callers"
	"example.com/tokend/e2e/internal/topology"
)

// trial is one thing to break.
type trial struct {
	mode  string   // redis.mode
	event string   // as main's comment has them
	file  []string // options of redis-server: of an append-only file
	wait  int      // redis.wait_replicas
}

var (
	noFile   []string
	everysec = []string{"--appendonly", "yes", "--appendfsync", "everysec"}
	always   = []string{"--appendonly", "yes", "--appendfsync", "always"}
)

func (t trial) String() string {
	file := "no file"
	if len(t.file) > 0 {
		file = t.file[len(t.file)-1]
	}
	return fmt.Sprintf("%s, %s, %s, wait %d", t.mode, t.event, file, t.wait)
}

func trials() (all []trial) {
	for _, mode := range []string{"sentinel", "cluster"} {
		for _, t := range []trial{
			{event: "killed"}, {event: "killed", file: everysec}, {event: "behind"},
			{event: "restarted"}, {event: "restarted", file: everysec}, {event: "restarted", file: always},
		} {
			for t.wait = range 2 {
				t.mode = mode
				all = append(all, t)
			}
		}
	}
	return all
}

// figures are those of a trial, over all rounds.
type figures struct {
	before int // acknowledged when the master was broken
	callers.Tally
	outage []time.Duration // until each user was served again
}

func losses(program *topology.Program, dir string, picked *regexp.Regexp) error {
	got := make(map[int]*figures)
	chosen := slices.DeleteFunc(trials(), func(t trial) bool { return !picked.MatchString(t.String()) })
	for round := range *rounds {
		for i, t := range chosen {
			if got[i] == nil {
				got[i] = new(figures)
			}
			fmt.Fprintf(os.Stderr, "round %d: %v\n", round+1, t)
			if err := t.run(program, dir, got[i]); err != nil {
				return fmt.Errorf("%v: %w", t, err)
			}
		}
	}
	fmt.Println("| | acknowledged before it | revived | expired | lost | without an answer | served again after |")
	fmt.Println("| --- | --- | --- | --- | --- | --- | --- |")
	for i, t := range chosen {
		f := got[i]
		fmt.Printf("| %v | %d | %d | %d | %d | %d | %.1f s |\n", t, f.before, f.Revived, f.Expired, f.Lost, f.Faults, median(f.outage).Seconds())
	}
	fmt.Println()
	return nil
}

// site is what a trial breaks.
type site struct {
	url      string
	users    []string // whose keys master holds
	master   *topology.Node
	replicas []*topology.Node
	promoted func() (*topology.Node, error) // waits until one has taken over
	close    func()
}

const replicas = 2

func start(mode, dir string, args []string) (*site, error) {
	if mode == "sentinel" {
		s, err := topology.StartSentinel(dir, replicas, args...)
		if err != nil {
			return nil, err
		}
		return &site{s.URL(), []string{"alice", "bob", "carol", "dave"}, s.Master, s.Replicas, s.UntilPromoted, s.Close}, nil
	}
	c, err := topology.StartCluster(dir, 3, replicas, args...)
	if err != nil {
		return nil, err
	}
	return &site{c.URL(), c.UsersOf(0, 4), c.Masters[0], c.Replicas[0], func() (*topology.Node, error) { return c.UntilPromoted(0) }, c.Close}, nil
}

func (t trial) run(program *topology.Program, dir string, f *figures) error {
	s, err := start(t.mode, dir, t.file)
	if err != nil {
		return err
	}
	defer s.close()
	i, err := program.Serve(s.url, t.mode, fmt.Sprint("REDIS_WAIT_REPLICAS=", t.wait))
	if err != nil {
		return err
	}
	defer i.Close()
	load := callers.Start(i.Client(), s.users, callers.Habits{
		AtOnce: *atOnce, Pace: time.Millisecond,
		Age: 2 * time.Second, Short: 5 * time.Second, // so that an issue is long replicated
	})
	err = t.under(s, load, f)
	load.Stop()
	if err != nil {
		return err
	}
	got, err := load.Audit(i.Persistent())
	if err != nil {
		return err
	}
	if len(got.Wrong) > 0 {
		return fmt.Errorf("%d wrong answers: %w", len(got.Wrong), errors.Join(got.Wrong[:min(3, len(got.Wrong))]...))
	}
	f.Revived, f.Expired, f.Lost, f.Faults = f.Revived+got.Revived, f.Expired+got.Expired, f.Lost+got.Lost, f.Faults+got.Faults
	return nil
}

// under breaks s under load, and waits until all is served again.
func (t trial) under(s *site, load *callers.Callers, f *figures) error {
	time.Sleep(4 * time.Second)
	if t.event == "behind" {
		for _, r := range s.replicas {
			r.Pause()
			defer r.Resume()
		}
		// What is on its way to a stopped process stays there for it; so its connection goes.
		if err := s.master.Client.ClientKillByFilter(context.Background(), "type", "replica").Err(); err != nil {
			return err
		}
		time.Sleep(time.Second)
	}
	broken := time.Now()
	f.before += load.Acknowledged()
	s.master.Kill()
	switch t.event {
	case "restarted":
		if err := s.master.Relaunch(); err != nil {
			return err
		}
	case "behind":
		for _, r := range s.replicas {
			r.Resume()
		}
		fallthrough
	default:
		if _, err := s.promoted(); err != nil {
			return err
		}
	}
	if err := topology.Until("all are served again", func() bool { return load.Answered(broken.Add(10 * time.Millisecond)) }); err != nil {
		return err
	}
	f.outage = append(f.outage, time.Since(broken))
	if t.event == "restarted" { // the replicas sync with what it has kept
		for _, r := range s.replicas {
			if err := topology.UntilFollowing(r, s.master); err != nil {
				return err
			}
		}
	}
	return nil
}

func median[T time.Duration | float64](of []T) T {
	if len(of) == 0 {
		return 0
	}
	of = slices.Sorted(slices.Values(of))
	return of[len(of)/2]
}
