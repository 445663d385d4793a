// Package client speaks to tokend, the service that issues one-time tokens: strings
// that are good for one submission of one user, for one purpose, until they expire.
//
//	c, err := client.New("https://tokend.internal", client.ServiceKey(key))
//	orders := c.Purpose("order.create") // spelt once, for issue and consume
//
//	t, err := orders.Issue(ctx, user, client.TTL(time.Hour)) // t.Value goes into the form
//	…
//	got, err := orders.Consume(ctx, user, value) // nil: this submission, and no other, does the work
//
// The user comes from the service's own session, never from what was submitted.
//
// Where a repeat is to hear the first one's result, or a crash must not use a token up, the
// work is done under a claim: of a token, or of a key that the caller's own client made.
//
//	done, err := c.Do(ctx, client.Key("stripe:acct_1", "payment.callback", event.ID),
//		func(ctx context.Context, cl *client.Claim) (client.Result, error) {
//			if err := cl.Commit(ctx); err != nil { // before what cannot be undone
//				return client.Result{}, err
//			}
//			… // ctx ends if the claim is lost
//			return client.JSON(http.StatusOK, out) // done.Result, now and for each repeat
//		})
//
// Package clienttest has a tokend for tests, whose clock they move and which fails when
// told to.
//
// # Errors
//
// Each error of a call is either a [*Refusal] or a [*Fault], never both. A Refusal is
// an answer, and asking again does not change it; a Fault is the lack of one.
//
//	var no *client.Refusal
//	var down *client.Fault
//	switch {
//	case errors.Is(err, client.ErrUsed):
//		// another submission was granted the token: show its result, or look for its record
//	case errors.As(err, &no) && no.Next == client.NextReissue:
//		// nothing was done: show the form again with a new token
//	case errors.As(err, &down) && down.MaybeDone:
//		// nobody can tell: look for the business record first
//	}
//
// [Next] says what each word of Refusal.Next asks for. It speaks to the service, not
// to its users: do not relay it.
//
// # Tries
//
// A call makes several tries where one ends without an answer: a network error, a
// timeout, tokend saying retry, whatever a proxy says in its stead, or a success that
// cannot be read. Between them it waits: a random part of a time that doubles, and
// what Retry-After asks for on top. It ends with its context, and after the number of
// tries and the time that [MaxTries] and [Budget] set. A wait that would outlast these
// ends the call at once. A Refusal is never tried again, but for one case: after a 401
// the [TokenSource] is asked once more.
//
// That is safe. All tries of one Consume or Claim bear the same attempt, made up when the
// call begins, so a try whose reply was lost is answered again and not refused; the next
// call has another. What a claim is asked later is done once however often it is sent. A second try of Issue leaves at worst a token that nobody uses.
// Where a refusal could be the echo of the call's own earlier try, as it could from a
// tokend in delete mode, the call ends with a Fault that says MaybeDone.
//
// A batch is one call: its tries, too, ask only for what has no answer yet. Each of its
// items is consumed or refused, or ends in a Fault, by itself.
//
// # Claims
//
// A [Claim] keeps its lease while somebody works under it, and its context ends when that
// has failed: with [ErrSuperseded] in its cause where another has taken it over, with
// [ErrLeaseLost] where tokend did not answer for as long as the lease lasts. How long that
// is, is counted here, on the monotonic clock, from before the request was sent; the host's
// clock and tokend's need not agree.
//
// After [Claim.Commit] nobody takes it over, and its context ends only if tokend itself says
// that the claim is another's. What is committed and never completed, after a crash say, is
// [ErrUnfinished] to whoever comes next: look for the business record, and [Client.Resolve].
//
// No context stops a write that is on its way: give the Fence to what can compare it, or
// Commit first.
//
// # What is not done
//
// The package keeps no state between calls but in a Claim, which has a goroutine until it is
// over or closed. It caches nothing and logs nothing. No error quotes a token or a
// credential, and neither stands in a URL; a claim's handle does, which is worth nothing
// without the credential. Redirects are not followed, and nothing resolves by itself.
// It sends no Idempotency-Key: net/http would re-send such requests by itself, and a
// browser's key is no attempt.
package client
