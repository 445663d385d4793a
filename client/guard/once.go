package guard

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"example.com/tokend/client"
	"example.com/tokend/httpapi/wire"
)

// Once returns h behind a token that is good for one submission. It checks the token, which
// changes nothing, and h calls [Consume] when it does the work; with [ConsumeFirst] the
// guard does so before h runs. Requests that cannot be granted are refused and do not reach
// h. The package comment says the rest.
//
// A form that is no multipart/form-data is read whole, up to [BodyLimit], and h gets it
// unread. Of a multipart/form-data only what stands before the token is held: put the hidden
// field first, and uploads of any size are handed on as they come.
func (g *Guard) Once(h http.Handler, opts ...Option) http.Handler {
	set := g.forUsers(opts)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if passes(r) {
			h.ServeHTTP(w, r)
			return
		}
		set.once(h, w, r)
	})
}

func (s *settings) once(h http.Handler, w http.ResponseWriter, r *http.Request) {
	user := s.user(r)
	u := s.newRun(r, user)
	u.once = true
	if user == "" {
		s.refuse(w, r, newRefused(wire.CodeUnauthenticated, nil))
		return
	}
	token, body, err := s.findToken(r)
	if err != nil {
		u.refuse(w, err)
		return
	}
	u.sent = token
	if s.consumeFirst {
		err = u.consume()
	} else {
		err = u.check()
	}
	if err != nil {
		u.refuse(w, err)
		return
	}

	caller := r.Context()
	if u.done {
		caller = noCaller
	}
	ctx, letGo, end := leash(context.WithoutCancel(r.Context()), caller)
	defer end()
	u.letGo = letGo
	with := r.WithContext(u.context(ctx))
	with.Body = body
	own, out := newWriter(w, func(h http.Header) {
		if !u.consumed() {
			h.Set("Cache-Control", "no-store") // the form again, whose token may come after the header
		}
		u.noStore(h)
	})
	serve(h, out, r, with)
	u.after(own, out, with)
}

// after looks at what the handler of Once has done.
func (u *run) after(own *writer, out http.ResponseWriter, with *http.Request) {
	u.mu.Lock()
	done, refused, ref := u.done, u.refused, u.ref
	u.mu.Unlock()
	switch {
	case own.hijacked:
	case !own.began() && refused != nil:
		u.set.refuse(out, with, refused)
	case !done && own.status < 400: // nothing written is an empty 200
		text := "the handler answered 2xx or 3xx without Consume: its token is still good"
		if refused != nil {
			text = "the handler answered 2xx or 3xx although Consume failed"
		}
		u.set.report(slog.LevelError, Event{Kind: EventUnconsumed, Request: u.req, Ref: ref, Err: refused}, text)
	}
}

// check refuses a token that Consume would surely refuse, and changes nothing. What it lets
// through Consume may still refuse.
func (u *run) check() error {
	st, err := u.set.purpose.Status(u.req.Context(), u.user, u.sent)
	if err != nil {
		if err = u.opens(u.set.purpose.Token(u.user, u.sent), err); err == nil {
			return nil
		}
		return refusedFor(err)
	}
	u.ref = st.Ref
	code, bad := spentStates[st.State]
	if !bad {
		return nil
	}
	kind, _ := wire.KindOf(code)
	return refusedFor(&client.Refusal{ // as a consume would be answered
		Code: code, Next: kind.Next, Status: kind.Status, Ref: st.Ref,
		UsedAt: st.UsedAt, UsedBy: st.UsedBy, ExpiresAt: st.ExpiresAt, RevokedAt: st.RevokedAt,
	})
}

// spentStates are those that no token comes back from.
var spentStates = map[client.State]client.Code{
	client.StateUsed:    wire.CodeTokenUsed,
	client.StateRevoked: wire.CodeTokenRevoked,
	client.StateExpired: wire.CodeTokenExpired,
	client.StateStale:   wire.CodeTokenStale,
	client.StateLost:    wire.CodeTokenLost,
	client.StateGone:    wire.CodeTokenGone,
	wire.StateCompleted: wire.CodeTokenUsed,
}

// errBodyRead is a fault of the service: what stands around a guard leaves the body alone, or
// puts it back.
var errBodyRead = errors.New("the body was read before the guard, and is gone")
