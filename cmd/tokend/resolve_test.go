package main

import (
	"strings"
	"testing"
	"time"

	"example.com/tokend/client"
	"example.com/tokend/client/clienttest"
)

// TestResolve ends claims whose holders have crashed after their commit.
func TestResolve(t *testing.T) {
	s := clienttest.New(t)
	c := s.Client()
	environ := []string{"TOKEND_URL=" + s.URL, "TOKEND_TOKEN=" + s.ServiceKey}
	unfinished := func(key string) client.Subject {
		t.Helper()
		subject := client.Key("alice", "pay", key)
		cl, _, err := c.Claim(t.Context(), subject, client.CommitFirst(), client.Lease(time.Second))
		if err != nil {
			t.Fatal(err)
		}
		cl.Close()
		s.Advance(2 * time.Second)
		return subject
	}
	state := func(subject client.Subject) client.State {
		t.Helper()
		got, err := c.ClaimStatus(t.Context(), subject)
		if err != nil {
			t.Fatal(err)
		}
		return got.State
	}
	resolve := func(args ...string) result {
		return runCommand(t, environ, "", append([]string{"resolve", "--user", "alice", "--purpose", "pay"}, args...)...)
	}

	k1 := unfinished("k1")
	if got := resolve("--key", "k1", "--complete", "--status", "201"); got.status != exitOK || !strings.Contains(got.stdout, "completed") {
		t.Errorf("complete: %+v", got)
	}
	if got := state(k1); got != client.StateCompleted {
		t.Errorf("completed: %q", got)
	}
	k2 := unfinished("k2")
	if got := resolve("--key", "k2", "--release", "--json"); got.status != exitOK || !strings.Contains(got.stdout, `"state":"released"`) {
		t.Errorf("release: %+v", got)
	}
	if got := state(k2); got != client.StateUnknown {
		t.Errorf("released: %q", got)
	}

	// What is not unfinished stays as it is.
	overdue, _, err := c.Claim(t.Context(), client.Key("alice", "pay", "overdue"), client.Lease(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer overdue.Close()
	s.Advance(2 * time.Second)
	tok, err := c.Purpose("pay").Issue(t.Context(), "alice")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Purpose("pay").Consume(t.Context(), "alice", tok.Value); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		subject []string
		state   string
	}{
		{[]string{"--key", "k1"}, "completed"}, {[]string{"--key", "fresh"}, "unknown"}, {[]string{"--key", "overdue"}, "claimed, and not committed"}, {[]string{tok.Value}, "used"},
	} {
		got := resolve(append(tt.subject, "--release")...)
		if got.status != exitRefused || got.stdout != "" || got.stderr != "tokend: nothing is unfinished: the state is "+tt.state+"\n" {
			t.Errorf("%s: %+v", tt.state, got)
		}
		got = resolve(append(tt.subject, "--complete", "--json")...)
		if word, _, _ := strings.Cut(tt.state, ","); got.status != exitRefused || !strings.HasPrefix(got.stdout, `{"state":"`+word+`","ref":"`) {
			t.Errorf("%s in JSON: %+v", tt.state, got)
		}
	}
	if err := overdue.Renew(t.Context(), time.Minute); err != nil {
		t.Errorf("a claim that was not resolved has another holder: %v", err)
	}
	if got := state(client.Key("alice", "pay", "fresh")); got != client.StateUnknown {
		t.Errorf("a key that nobody had claimed: %q", got)
	}
	if got := state(k1); got != client.StateCompleted {
		t.Errorf("completed, after a release was refused: %q", got)
	}
	running := client.Key("alice", "pay", "running")
	cl, _, err := c.Claim(t.Context(), running, client.CommitFirst())
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if got := resolve("--key", "running", "--release"); got.status != exitRefused || !strings.Contains(got.stderr, "request_in_progress") {
		t.Errorf("a claim that is held: %+v", got)
	}
	for _, args := range [][]string{{}, {"--key", "k"}, {"--key", "k", "--complete", "--release"}, {"--key", "k", "--release", "token"}} {
		if got := resolve(args...); got.status != exitUsage {
			t.Errorf("%q: %+v", args, got)
		}
	}
}

// TestStatusOfLease tells by the host's clock whether a claim's lease is over, and what then.
func TestStatusOfLease(t *testing.T) {
	now := time.Now()
	for want, s := range map[string]client.Status{
		"": {State: client.StateIssued},
		"(over, and unfinished: look for the record, then tokend resolve)": {State: client.StateClaimed, LeaseExpiresAt: now.Add(-time.Second), Committed: true},
		"(over: the next request takes the claim over)":                    {State: client.StateClaimed, LeaseExpiresAt: now},
		at(now.Add(time.Second)):                                           {State: client.StateClaimed, LeaseExpiresAt: now.Add(time.Second), Committed: true},
	} {
		if got := lease(s, now); !strings.HasSuffix(got, want) || !strings.HasPrefix(got, at(s.LeaseExpiresAt)) || (want == "") != (got == "") {
			t.Errorf("%+v: %q, want %q", s, got, want)
		}
	}
}

// TestStatusByRef asks by the ref of a ticket, of a token and of a key.
func TestStatusByRef(t *testing.T) {
	s := clienttest.New(t)
	c := s.Client()
	environ := []string{"TOKEND_URL=" + s.URL, "TOKEND_TOKEN=" + s.ServiceKey}
	tok, err := c.Issue(t.Context(), "alice")
	if err != nil {
		t.Fatal(err)
	}
	cl, _, err := c.Claim(t.Context(), client.Key("alice", "pay", "k"), client.CommitFirst())
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	for ref, want := range map[string]string{
		tok.Ref: "state    issued", cl.Ref: "committed  yes", "t_00000000000000000000000000000000": "gone",
	} {
		if got := runCommand(t, environ, "", "status", "--user", "alice", "--ref", ref); got.status != exitOK || !strings.Contains(got.stdout, want) {
			t.Errorf("%s: %+v, want %q", ref, got, want)
		}
	}
	if got := runCommand(t, environ, "", "status", "--user", "alice", "--ref", cl.Ref); !strings.Contains(got.stdout, "\nfence      1\n") || strings.Contains(got.stdout, "over") {
		t.Errorf("%+v", got)
	}
	if got := runCommand(t, environ, "", "status", "--user", "alice", "--ref", cl.Ref, "--json"); !strings.Contains(got.stdout, `"fence":1,"committed":true`) {
		t.Errorf("%+v", got)
	}
	if got := runCommand(t, environ, "", "status", "--user", "alice", "--ref", tok.Ref, tok.Value); got.status != exitUsage {
		t.Errorf("both a token and a ref: %+v", got)
	}
}
