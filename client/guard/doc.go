// Package guard is middleware for form services: plain net/http, so it works under the
// standard mux, chi and Echo alike.
//
//	g := guard.New(c.Purpose("order.create"), guard.User(sessionUser))
//	mux.Handle("GET /orders/new", requireLogin(g.Issue(page)))  // the page's form holds guard.Field(ctx)
//	mux.Handle("POST /orders", requireLogin(g.Once(create)))    // create calls guard.Consume(ctx)
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
// # What is refused
//
// A request that is not handed on gets a problem (application/problem+json) with a code and
// a next, or where its sender takes HTML the service's own [Page]. The codes are tokend's,
// and [CodeTokenMissing]. Next is what the sender can do, and never tokend's retry, which
// is meant for tokend's own callers: "reissue" (nothing was done: the form again, with a
// fresh token), "wait" (the same again, after Retry-After), "verify" (nobody can tell: look
// first), "fix" (the request is wrong), "stop" (not again: token_used, or the token is no
// good, and this submission did nothing).
//
// A tokend that cannot be reached is a 503, and the handler does not run; [FailOpen] alone
// changes that. A consume that was given up after faults is outcome_unknown.
//
// # What passes
//
// GET, HEAD, OPTIONS and TRACE pass through untouched: only a submission uses a token.
//
// The caller that hangs up ends the handler's context, as net/http has it, but only until
// Consume has begun: past the point of no return it ends with the handler, and has no
// deadline but the handler's own.
//
// The ResponseWriter that handlers see keeps Flush, Hijack and what
// http.ResponseController does.
//
// # Echo
//
// Under Echo a handler's error is written when all middleware has returned, so a guard
// would take it for an empty 200. Write it within: see the example for Echo.
package guard
