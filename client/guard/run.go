package guard

import (
	"context"
	"crypto/rand"
	"errors"
	"html/template"
	"log/slog"
	"net/http"
	"sync"

	"example.com/tokend/client"
	"example.com/tokend/httpapi/wire"
)

// ErrNotGuarded is returned to a handler that no guard of the right kind stands before, or
// whose request passed it: a GET, say. There is nothing that holds, so it must not go on.
var ErrNotGuarded = errors.New("guard: the request is not guarded")

// run is one request that a guard has let through, as its handler's context holds it.
type run struct {
	set  *settings
	req  *http.Request
	user string

	// letGo has the handler's context end with the handler alone, and tells whether it has not
	// ended before.
	letGo func() bool

	mu      sync.Mutex
	forms   []client.Token // what the page's forms get; fetched when it is needed
	spent   bool           // sent is not good any more
	sent    string         // the token that the request came with
	ref     string
	attempt string
	once    bool
	open    bool  // FailOpen let it through
	done    bool  // consumed, or as good as
	refused error // what Consume said last
	private bool  // the answer holds a token

	// Of Replay.
	unguarded bool // neither token nor key, or FailOpen
	claim     *client.Claim
	fence     int64
	rec       *recorder
	released  bool // the handler says that nothing was done
	over      bool // the claim's end has been seen to
	// handedOver says that the claim is kept for what goes on after the request.
	handedOver bool
	broken     error // an answer could not be handed on, as it could not be committed first
}

type runKey struct{}

func (u *run) context(ctx context.Context) context.Context {
	return context.WithValue(ctx, runKey{}, u)
}

// runOf returns the innermost run of ctx, or nil.
func runOf(ctx context.Context) *run {
	u, _ := ctx.Value(runKey{}).(*run)
	return u
}

// newRun begins a run for r.
func (s *settings) newRun(r *http.Request, user string) *run {
	here := func() bool { return r.Context().Err() == nil }
	return &run{set: s, req: r, user: user, letGo: here, attempt: rand.Text()}
}

// Field returns the hidden field that carries the token, for the page's form. A request
// that came with a token, and has not used it up, gets the same one again: a form with
// mistakes is sent anew with the token that it had. Otherwise it is a fresh one. The answer
// is no-store from then on.
//
// Where no guard stands before the handler, and where tokend gives none after the request's
// own was used, the field is empty, and the form that holds it is refused as token_missing.
func Field(ctx context.Context) template.HTML { return FieldOf(ctx, 0) }

// FieldOf is [Field] for the form i of a page that has several, the first being 0: the n of
// [Forms] have a token each, so they are sent one by one and in any order. There is none
// beyond n.
func FieldOf(ctx context.Context, i int) template.HTML {
	// Some browsers fill fields in again when a page is reloaded: with a token that is spent.
	return template.HTML(`<input type="hidden" name="` + FieldToken + `" autocomplete="off" value="` +
		template.HTMLEscapeString(TokenOf(ctx, i)) + `">`)
}

// Token returns what [Field] would carry, for a page's script to send in [HeaderToken].
func Token(ctx context.Context) string { return TokenOf(ctx, 0) }

// TokenOf is [Token] for the form i, as [FieldOf] says.
func TokenOf(ctx context.Context, i int) string {
	u := runOf(ctx)
	if u == nil {
		return ""
	}
	return u.form(i)
}

func (u *run) form(i int) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.private = true
	if i == 0 && u.sent != "" && u.staysGood() {
		return u.sent
	}
	if u.forms == nil {
		if err := u.fetch(); err != nil {
			u.set.report(slog.LevelError, Event{Kind: EventNoToken, Request: u.req, Err: err}, "a form is shown without a token")
			return ""
		}
	}
	if i < 0 || i >= len(u.forms) {
		return ""
	}
	return u.forms[i].Value
}

// staysGood tells whether the token that the request came with can be sent again. Under a
// claim it can where the handler has said that nothing was done, and not once that is
// committed, whatever is answered.
func (u *run) staysGood() bool {
	if u.spent || u.claim == nil {
		return !u.spent
	}
	return u.released || !u.claim.Committed() && u.rec != nil && 400 <= u.rec.status && u.rec.status < 500
}

// fetch fills u.forms.
func (u *run) fetch() (err error) {
	// Work that goes on after its caller has hung up may still render a page.
	ctx := context.WithoutCancel(u.req.Context())
	if u.set.forms == 1 {
		t, err := u.set.purpose.Issue(ctx, u.user, u.set.issue...)
		if err == nil {
			u.forms = []client.Token{t}
		}
		return err
	}
	u.forms, err = u.set.purpose.IssueBatch(ctx, u.user, u.set.forms, u.set.issue...)
	return err
}

// holdsToken tells whether the answer does, and must not be cached.
func (u *run) holdsToken() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.private
}

func (u *run) consumed() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.done
}

// Ref returns the ref of the token or key that the request came with: a name for it that is
// no secret, for a unique column beside the business row and for logs. It is "" where the
// request came with neither. Where [FailOpen] has let it through nobody has checked the ref:
// the column is unique together with the user.
func Ref(ctx context.Context) string {
	u := runOf(ctx)
	if u == nil {
		return ""
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.ref
}

// Consume uses the token up: the handler calls it at the moment of submission, when what
// was sent is fit to be carried out. Where it returns nil this request, and no other, does
// the work. After any error the handler must not go on: it returns without an answer, and
// the guard gives one, or it gives its own ([Refuse] gives the guard's).
//
// Calling it again in the same request repeats the answer, but after a fault asks anew: it
// is the same attempt. It does not end with its caller's hanging up. Where that has ended the
// handler's context before, it is an error, tokend is not asked, and the token stays good.
func Consume(ctx context.Context) error {
	u := runOf(ctx)
	if u == nil || !u.once {
		return ErrNotGuarded
	}
	return u.consume()
}

func (u *run) consume() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.done {
		return nil
	}
	if no, ok := errors.AsType[*Refused](u.refused); ok {
		if _, settled := errors.AsType[*client.Refusal](no.Err); settled {
			return no
		}
	}
	if !u.letGo() {
		u.refused = hungUp(u.req) // and the token is good
		return u.refused
	}
	ctx := context.WithoutCancel(u.req.Context())
	got, err := u.set.purpose.Consume(ctx, u.user, u.sent, client.Attempt(u.attempt))
	if err == nil {
		u.done, u.spent, u.ref, u.refused = true, true, got.Ref, nil
		return nil
	}
	if err = u.opens(u.set.purpose.Token(u.user, u.sent), err); err == nil {
		u.done, u.spent, u.refused = true, true, nil
		return nil
	}
	no := refusedFor(err)
	u.refused, u.spent = no, no.Next != client.NextWait
	return no
}

// opens returns nil where err, of asking about what, lets the request through all the same,
// and what it is refused with where not. What is let through has the ref that it says itself.
func (u *run) opens(what client.Subject, err error) error {
	_, down := errors.AsType[*client.Fault](err)
	if !down || !u.set.failOpen || u.req.Context().Err() != nil { // a caller that hangs up is no outage
		return err
	}
	if u.ref == "" {
		ref, ok := what.UncheckedRef()
		if !ok {
			return newRefused(wire.CodeTokenInvalid, err) // keys are the guard's own, and have one
		}
		u.ref = ref
	}
	u.open = true
	u.set.report(slog.LevelError, Event{Kind: EventOpen, Request: u.req, Ref: u.ref, Err: err}, "tokend gave no answer and the request is let through")
	return nil
}

// refuse answers for the guard, before or instead of the handler. A page may ask for a field
// then, too: the one that was sent, where the same is to be sent again.
func (u *run) refuse(w http.ResponseWriter, err error) {
	again := refusedFor(err).Next == client.NextWait
	u.mu.Lock()
	u.spent, u.released = !again, u.released || again
	u.mu.Unlock()
	_, out := newWriter(w, u.noStore)
	u.set.refuse(out, u.req.WithContext(u.context(u.req.Context())), err)
}

// Refuse answers with err, which [Consume] returned: as a problem or as the guard's [Page].
// A handler that returns without an answer has the guard do the same.
func Refuse(w http.ResponseWriter, r *http.Request, err error) {
	u := runOf(r.Context())
	if u == nil {
		s := defaults(client.Purpose{})
		s.refuse(w, r, err)
		return
	}
	u.set.refuse(w, r, err)
}
