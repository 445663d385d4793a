package history

import (
	"fmt"
	"strings"
	"time"

	"example.com/tokend/httpapi/wire"
)

// Kind is what a call asks for.
type Kind string

// The kinds of calls. Issue is counted and not checked: a history begins with its answer.
const (
	Issue    Kind = "issue"
	Consume  Kind = "consume"
	Claim    Kind = "claim"
	Commit   Kind = "commit"
	Renew    Kind = "renew"
	Complete Kind = "complete"
	Release  Kind = "release"
	Status   Kind = "status"
	Revoke   Kind = "revoke"
)

// Op is one call: one request, sent once.
type Op struct {
	Kind    Kind
	Caller  int
	Attempt uint8 // 1 and up, by which the subject's attempts are named
	Digest  uint8 // 0 for none
	Lease   int64 // ms
	Commit  bool  // of a claim: commits in the same step
	Resolve bool
	Wait    bool
	Fence   int32  // of the claim that a later step is of
	Result  int32  // what it is completed with
	Wrong   string // the code that refuses it, where it asks as a stranger

	Call, Return int64 // Unix microseconds; Return is when the caller knew, or gave up
	// Again tells that tokend may have sent it to Redis more than once, so that a late
	// copy may come still.
	Again bool
	Out   Outcome

	from, to int64 // between which of Redis's milliseconds it takes effect, where that is looked at
}

// Outcome is what a call heard.
type Outcome struct {
	Code      string // ok, replay (a claim of what is completed), a problem's code, or unknown
	Why       string // of unknown: a problem's code, or what became of the request
	State     string // a status's or a revocation's
	Fence     int32
	Takeover  bool
	Committed bool
	Replayed  bool
	Lease     int64 // Unix milliseconds, as At; 0 where it is not told
	At        int64 // used, completed or revoked at
	By        uint8 // the attempt that used_by names; nobody where it names none of the subject's
	Result    int32
}

// What an Outcome's Code is beside a problem's.
const (
	ok      = "ok"
	replay  = "replay"
	unknown = "unknown"
)

// nobody is an attempt that is none of the subject's.
const nobody = 255

// answered tells whether there was an answer that settles what became of the call.
func (o *Op) answered() bool { return o.Out.Code != unknown }

// format returns o as a line, with times relative to start.
func (o *Op) format(start int64) string {
	var b strings.Builder
	at := func(us int64) string { return fmt.Sprintf("%.1f", float64(us-start)/1000) }
	fmt.Fprintf(&b, "%8s %8s  caller %d  %s", at(o.Call), at(o.Return), o.Caller, o.Kind)
	part := func(is bool, format string, args ...any) {
		if is {
			fmt.Fprintf(&b, " "+format, args...)
		}
	}
	part(o.Fence != 0, "of fence %d", o.Fence)
	part(o.Attempt != 0, "attempt %d", o.Attempt)
	part(o.Digest != 0, "digest %d", o.Digest)
	part(o.Lease != 0, "lease %v", time.Duration(o.Lease)*time.Millisecond)
	part(o.Commit, "commit")
	part(o.Resolve, "resolve")
	part(o.Wait, "wait")
	part(o.Kind == Complete, "result %d", o.Result)
	part(o.Wrong != "", "as a stranger")
	part(o.Again, "(perhaps sent again)")
	out := o.Out
	part(true, "→ %s", out.Code)
	part(out.Why != "", "(%s)", out.Why)
	part(out.State != "", "%s", out.State)
	part(out.Fence != 0, "fence %d", out.Fence)
	part(out.Takeover, "takeover")
	part(out.Committed, "committed")
	part(out.Replayed, "replayed")
	part(out.Lease != 0, "lease until %s", at(out.Lease*1000))
	part(out.At != 0, "at %s", at(out.At*1000))
	part(out.By != 0, "by attempt %d", out.By)
	part(out.Result != 0, "result %d", out.Result)
	return b.String()
}

// code returns c as an Outcome has it.
func code(c wire.Code) string { return string(c) }
