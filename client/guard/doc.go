// Package guard is middleware for form services: plain net/http, so it works under the
// standard mux, chi and Echo alike.
//
//	g := guard.New(c.Purpose("order.create"), guard.User(sessionUser))
//	mux.Handle("GET /orders/new", requireLogin(g.Issue(page)))  // the page's form holds guard.Field(ctx)
//	mux.Handle("POST /orders", requireLogin(g.Once(create)))    // create calls guard.Consume(ctx)
//	mux.Handle("POST /orders", requireLogin(g.Replay(create)))  // or: repeats get create's first answer
//	mux.Handle("POST /token", requireLogin(g.IssueHandler()))   // where a script fetches a token
//
// # Authorisation comes first
//
// Guards tell submissions apart, not users. Whatever decides who may call stands around
// them: a guard answers repeats itself, and asks nobody whether their sender still may.
// The user comes from the service's session, never from the form. A form without login
// binds to a random session id: see the example of [Guard.Issue].
//
// # Once
//
// [Guard.Once] reads the token from the header [HeaderToken] or the form or JSON field
// [FieldToken], and checks it without using it. The handler looks at what was sent, and
// calls [Consume] when there is nothing left to complain about. From then on this request,
// and no other, does the work. A handler that returns without it leaves the token good, so
// a form with mistakes can be mended and sent again with the token that it has: [Field]
// gives the same one.
//
// A handler that answers 2xx or 3xx without Consume has most likely forgotten it. That is
// logged as an error and reported as [EventUnconsumed]. Handlers that cannot reject input
// take [ConsumeFirst].
//
// The attempt that tokend is told is made up for each request. Nothing that a browser sent
// is one, an Idempotency-Key neither: two requests are two attempts, and one wins.
//
// # Replay
//
// [Guard.Replay] claims the token, or with [IdempotencyKey] or [KeyFunc] a key, for as long
// as the handler runs, keeps its answer, and gives it to every repeat: status, header (see
// [Headers]) and exact bytes, with Idempotent-Replayed: true. A repeat that comes while the
// first is at work waits (see [Wait]). One that says something else than the first is
// idempotency_key_reused (422): method, path, query and body are compared by a digest. The
// path, here and in keys, is the one that the request was sent to (its RequestURI), whatever
// http.StripPrefix or the like has made of it: what is mounted twice is two things.
//
// What is kept:
//
//   - 2xx and 3xx are. For a 200 page that shows the form with its mistakes the handler calls
//     [Release], and it is not.
//   - 4xx are not: nothing was done, and the token or key is good again.
//   - 5xx and panics, http.ErrAbortHandler too, are not either, so the next request runs the
//     handler again. Without [Commit] a 5xx is at least once, and not at most once.
//     [Keep5xx] keeps them.
//   - After [Commit] every answer is kept, and nothing is ever run again. Call it right
//     before what must not be done twice, and go on only if it returns nil. After a declined
//     charge, too, the handler has committed, and its 402 is kept. A panic or a crash after
//     it leaves repeats with claim_unfinished, and somebody has to look. [CommitFirst] does it
//     before the handler runs.
//
// What becomes of the claim is settled before the first byte of the answer leaves, so it is
// held back up to [ResultLimit]. Where it cannot be, because it is flushed, hijacked or
// longer, the guard commits first and then hands it on as it is written; one of 4xx or 5xx is
// released first. If that commit fails, Write, Flush or Hijack do, the context ends, and the
// sender gets a problem. A longer answer is kept without its body, and its replay has
// [HeaderBodyOmitted]; so is one whose sender hangs up while it is handed on, as its handler
// may have stopped there; one that was hijacked is kept without any, and its repeat is
// token_used. Trailers are not kept, and a 1xx is not sent.
//
// Where the work is done and its result cannot be kept, the sender gets the answer all the
// same, and keeping it is tried on in the background: [Guard.Drain] waits for that at the
// end. Until then a repeat is told to wait. If this process ends before, or tokend stays away
// for longer than the lease, a repeat runs the handler again, or is told to look if it has
// committed. Where another has taken the claim over meanwhile, its result counts, and the
// sender is told to ask for it (request_in_progress). A handler whose writes can be compared
// by [Fence] cannot be overtaken.
//
// # What is refused
//
// A request that is not handed on gets a problem (application/problem+json) with a code and
// a next, or where its sender takes HTML the service's own [Page], or the service's own
// [Problem]. The codes are tokend's; [CodeTokenMissing] is that of a form without its token. Its
// request_id, and the answer's X-Request-Id, is that of tokend's log where tokend refused, and
// else the request's own. Next is what the sender can do, and never tokend's retry, which is
// meant for tokend's own callers: "reissue" (nothing was done: the form again, with a fresh
// token), "wait" (the same again, after Retry-After), "verify" (nobody can tell: look first),
// "fix" (the request is wrong), "stop" (not again: token_used, or the token is no good, and
// this submission did nothing).
//
// A tokend that cannot be reached is a 503, and the handler does not run; [FailOpen] alone
// changes that, and [Ref] is unchecked then. A consume that was given up after faults is outcome_unknown.
//
// # What passes
//
// GET, HEAD, OPTIONS and TRACE pass through untouched: only a submission uses a token.
//
// What stands around a guard may parse the form, as a check against cross-site requests
// does. Where it has read the body in another way and not put it back, the request is a 500:
// a digest of nothing would match anything.
//
// The caller that hangs up ends the handler's context, as net/http has it, but only until
// Consume or Commit has begun: past the point of no return it ends with the handler, and has
// no deadline but the handler's own. Where it has ended before, Consume and Commit are errors
// and tokend is not asked, so the token or key is good for a repeat. With [ConsumeFirst] and
// [CommitFirst], and where [FailOpen] has let a request of Replay through, the handler begins
// past that point, and its context never ends with its caller. Under Replay it also ends,
// with its cause, where the claim is lost.
//
// The ResponseWriter that handlers see keeps Flush, Hijack and what
// http.ResponseController does.
//
// # Echo
//
// Under Echo a handler's error is written when all middleware has returned, so a guard
// would take it for an empty 200. Write it within: see the example for Echo.
package guard
