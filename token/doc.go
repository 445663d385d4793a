// Package token holds the words and the rules of one-time tokens and of claims: how a token
// or a claim's handle is minted, signed and parsed, whom it is good for, and the refusals.
//
// A token is issued to one [User], for one [Purpose], and is consumed at most once, at
// the moment of submission. Its text says, signed by a [Ring], what it is; what became
// of it is remembered by a [Store], whose clock is the only one. A [Service] puts the
// two together:
//
//	t, err := svc.Issue(ctx, token.IssueRequest{User: "alice", Purpose: "order.create"})
//	…
//	opened, err := svc.Open(token.Use{Text: t.Text, User: "alice", Purpose: "order.create"})
//	got, err := svc.Consume(ctx, token.Consumption{User: "alice", Token: opened, Attempt: token.NewAttempt()})
//
// A token, or a key that the caller's own client made, may be claimed instead: taken for
// the length of a lease while the work is done. Whoever holds the claim's [Handle] completes
// it, with a result that every later claim is answered with, or releases it; Commit marks
// the point of no return in between.
//
//	c, err := svc.Claim(ctx, token.ClaimRequest{Subject: token.TokenSubject("alice", opened), Attempt: …, Lease: 30 * time.Second})
//	…
//	_, err = svc.Complete(ctx, c.Handle, &token.Result{Status: 201, Body: page})
//
// An error is a *[Refusal] (an answer: errors.Is tells the [Reason]), an
// *[InvalidError] (a value breaks the rule for its field) or a *[Fault] (no answer).
//
// The package imports the standard library only.
package token
