// Package token holds the words and the rules of one-time tokens: how a token is
// minted, signed and parsed, whom it is good for, and the refusals.
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
// An error is a *[Refusal] (an answer: errors.Is tells the [Reason]), an
// *[InvalidError] (a value breaks the rule for its field) or a *[Fault] (no answer).
//
// The package imports the standard library only.
package token
