package httpapi

import "example.com/tokend/httpapi/wire"

// explanation says to people what a code says to programs. Lines are broken for
// terminals.
type explanation struct {
	Means string
	Do    string // for the developer of tokend's caller
	Show  string // for the user behind that caller
}

// nextMeans says what each next asks for.
var nextMeans = map[wire.Next]string{
	wire.NextStop:    "never send this token again",
	wire.NextReissue: "nothing was done: fetch a new token and submit again",
	wire.NextWait:    "send the same request again later",
	wire.NextRetry:   "send the same request with the same attempt again",
	wire.NextVerify:  "nobody can tell: look for the business record first",
	wire.NextFix:     "the request itself is wrong",
}

// explanations has an entry for every code, and no other.
var explanations = map[wire.Code]explanation{
	wire.CodeTokenUsed: {
		Means: `Another attempt was granted this token before. That does not say that its
work succeeded. used_at and used_by tell when it was, and who: used_by is 8 hex
digits of the winning attempt's hash. In delete mode both are left out, and a
token that the store has lost is told as used too.`,
		Do: `Do not do the work, and never send this token again. Show the first attempt's
result if there is one; if there is none, look for the business record (the
order, the payment). The winner's line in tokend's log has used_by as its
attempt_ref. If you sent the request twice yourself, send the same attempt with
each try: then a lost reply does not come back as this problem.`,
		Show: `The result of the first submission: most often the user clicked twice, which is
no error. If the result is not known: "You have already sent this form. We are
checking what became of it."`,
	},
	wire.CodeIdempotencyKeyReused: {
		Means: `The token or key stands for another request: it was used or claimed with a
digest that differs from this one's. This request changed nothing.`,
		Do: `Find out why the digest differs. Either the form was changed and sent again
with its old token, or the digest covers something that changes with each try,
such as a time or a multipart boundary. A request that is really new needs a
token or key of its own.`,
		Show: `What became of the first submission, and the form again with a fresh token:
"This form was already sent with other contents. Do you want to send the changed
one as well?"`,
	},
	wire.CodeTokenExpired: {
		Means: `The token was good until expires_at, and nobody used it. Nothing was done. (If
the store has lost data, a token that was used may read as expired.)`,
		Do: `Fetch a new token and submit again; that may happen without asking the user. If
it happens often, the tokens' life (ttl) is shorter than people take to fill in
the form.`,
		Show: `Nothing, where you submit again by yourself. Where you do not: "This page was
open for too long. Please send it again", with everything that was filled in.`,
	},
	wire.CodeTokenStale: {
		Means: `The token expired so long ago that the service no longer remembers whether it
was used: the time for which it remembers (retention) has passed too.`,
		Do: `Look for the business record first. If it is there, the form was sent: show
it. If there is none, start over with a new token. Do not submit again without
looking.`,
		Show: `The record, if you find it. If not: "This page is too old to be sent. Please
fill in the form again."`,
	},
	wire.CodeTokenLost: {
		Means: `The token is authentic and has not expired, but the store has no record of it:
it has lost data, by eviction, a restart without persistence or a failover. The
token may have been used before that.`,
		Do: `Look for the business record first. If it is there, the form was sent: show
it. If there is none, start over with a new token. Tell whoever runs tokend: a
store that keeps its data never leads here.`,
		Show: `The record, if you find it. If not: "Something went wrong on our side. Please
send the form again", with everything that was filled in.`,
	},
	wire.CodeTokenGone: {
		Means: `The token was used or has expired. It was issued in delete mode, which keeps
nothing about a token that is used, so which of the two it was cannot be told.`,
		Do: `Look for the business record first. If it is there, the form was sent: show
it. If there is none, start over with a new token. Record mode
(tokens.mode: record) tells the two apart.`,
		Show: `The record, if you find it. If not: "This page was open for too long. Please
send it again", with everything that was filled in.`,
	},
	wire.CodeTokenRevoked: {
		Means: `The token was revoked before this submission, which did nothing. revoked_at
tells when.`,
		Do: `Never send this token again. Show the form with a fresh token, for a person to
send; do not submit by yourself, as somebody took the token back on purpose.`,
		Show: `"This page is no longer valid. Please check the form and send it again."`,
	},
	wire.CodeWrongUser: {
		Means: `The token was issued to another user than the one named in the request. It is
untouched: its own user can still use it. This submission did nothing.`,
		Do: `Show the form with a fresh token, for a person to send. Users are compared byte
for byte, so name the same identifier when you issue and when you consume, and
take it from the session, never from the form. The usual cause is a login as
somebody else in another tab; many of these from one caller may be an attack.`,
		Show: `"You have logged in as somebody else since you opened this page. Please check
the form and send it again."`,
	},
	wire.CodeWrongPurpose: {
		Means: `The token was issued for another purpose than the one named in the request. It
is untouched: it is still good for its own purpose. This submission did nothing.`,
		Do: `Name the same purpose when you issue and when you consume; where it is left
out, it is "default". Most often the form of one action was given the token of
another. Show the form with a fresh token, for a person to send.`,
		Show: `"Something went wrong on our side. Please check the form and send it again."`,
	},
	wire.CodeTokenInvalid: {
		Means: `This is not a token that this service has signed: it is malformed, cut short,
altered, or signed by a key that is not known here; detail says which. The store
was not asked, and this submission did nothing.`,
		Do: `Check that the whole token reaches you as it was issued: no space or line break
around it, no field that cuts it short (a token has up to 128 characters). Check
that it was issued by this installation. If many fail at once, a signing key may
have been taken out of the configuration too early. Show the form with a fresh
token, for a person to send.`,
		Show: `"Something went wrong with this page. Please check the form and send it again."`,
	},
	wire.CodeTokenMissing: {
		Means: `A form came in without a token. A gateway that asks tokend about a request looks
for it in the header Tokend-Token, and a service behind the guard in the field
tokend_token too. This submission did nothing.`,
		Do: `Fetch a token when the page is shown, and send it with the form. Behind a
gateway a script must send it as the header Tokend-Token: what a plain form
sends in its body is not seen there. If the token was sent, look for a proxy on
the way that drops headers which it does not know.`,
		Show: `The form again, with a token and everything that was filled in: "Please send the
form again."`,
	},
	wire.CodeModeUnsupported: {
		Means: `The token was issued in delete mode, or tokend runs in it, and only record mode
can do what was asked: revoke or claim a token, claim a key. Nothing was changed.`,
		Do: `Leave this call out for tokens in delete mode, or have tokend run with
tokens.mode: record. A token keeps the mode in which it was issued, so only
tokens issued from then on can do it; keys can at once.`,
		Show: `Nothing of this: "Something went wrong on our side." It is a fault of the
set-up, which no user can mend.`,
	},
	wire.CodeStoreUnavailable: {
		Means: `The service could not ask its store, or had no answer in time: it is down,
full, restarting or too slow. Or there are more calls than the service can answer
in time, or the keys that verify JWTs could not be fetched: detail says so, and
the store was not asked. Nobody is told "consumed" in any of these cases; but
where the store was asked, the token may be used by this very request.`,
		Do: `Wait as long as Retry-After says and send the same request with the same
attempt again, a few times: that is safe even if the first try got through. Make
the attempt up yourself, once for each request that you serve; left out, each
try is an attempt of its own, and the second may read the first as token_used.
Never do the work without a success, and never relay this answer to a browser:
its retry would be another attempt. When you give up, look for the business
record; if there is none, show the form with a fresh token, as soon as there is
one to be had. The same form sent again is another attempt: where the first one
has used the token it ends in token_used, with nothing done by anybody.`,
		Show: `The record, if you find it. If not: "We cannot take this at the moment. Please
try again in a minute", and then the form with a fresh token and everything that
was filled in.`,
	},
	wire.CodeOutcomeUnknown: {
		Means: `The request reached the store, and the answer was lost. The token was issued in
delete mode, which cannot tell afterwards whether this request used it up.`,
		Do: `Do not send the token again: the answer would not tell whose use it was. Look
for the business record. If there is none, start over with a new token. Record
mode (tokens.mode: record) makes such a request safe to repeat.`,
		Show: `The record, if you find it. If not: "We could not take this. Please send it
again", with everything that was filled in.`,
	},
	wire.CodeInvalidRequest: {
		Means: `The request breaks a rule of the API: field names the member or header, detail
the rule. Nothing was changed.`,
		Do: `Mend the caller's code; the same request will fail again. Members are matched
by their exact names, and an unknown or repeated one, a null, a fraction where a
whole number is due, or anything behind the JSON document is refused.
Idempotency-Key is refused where it could be taken for an attempt.`,
		Show: `Nothing of this: "Something went wrong on our side." Only a mistake in what the
user chose may be told to the user.`,
	},
	wire.CodeUnauthenticated: {
		Means: `The caller is not known: there is no bearer, or it is not a valid JWT or service
key; detail says what is wrong. Nothing else was looked at, and nothing was
changed.`,
		Do: `Send one header "Authorization: Bearer ..." with a JWT or a service key. If the
JWT has expired, get a new one and send the same request with the same attempt
again.`,
		Show: `To a user whose own JWT this was: "Please log in again." Nothing otherwise: a
service's own credentials are no business of its users.`,
	},
	wire.CodeForbidden: {
		Means: `The caller is known but may not do this; detail names the scope that is missing,
or the rule. Nothing was changed.`,
		Do: `Consuming needs a service with the scope tokend.consume; a user's JWT can never
consume. Issuing for others needs a service with tokend.issue; a user's JWT
issues for that user only, and asks only after that user's tokens. Never grant
tokend's scopes to end users.`,
		Show: `Nothing of this: "Something went wrong on our side." It is a fault of the
set-up, which no user can mend.`,
	},
	wire.CodeNotFound: {
		Means: `There is nothing at this path. Nothing was changed.`,
		Do: `Compare the path with /openapi.yaml, byte for byte: case counts, and so does a
slash at the end. Also check that no proxy in between rewrites it.`,
		Show: `Nothing of this: "Something went wrong on our side."`,
	},
	wire.CodeMethodNotAllowed: {
		Means: `There is something at this path, but it does not take this method; the header
Allow names those that it takes. Nothing was changed.`,
		Do: `Use a method that Allow names. If you did send a POST, a redirect in between
has turned it into a GET: call the service at its final address.`,
		Show: `Nothing of this: "Something went wrong on our side."`,
	},
	wire.CodeBodyTooLarge: {
		Means: `The body has more bytes than detail allows, or the result's body, which field
names then, has. Nothing was changed.`,
		Do: `Send a shorter body: in a batch, fewer items; instead of a whole request, its
digest. A claim whose result is too big is completed with body_omitted instead:
its work is done and must not run again. Whoever runs tokend can raise
limits.body_bytes and results.max_bytes.`,
		Show: `Nothing of this: "Something went wrong on our side."`,
	},
	wire.CodeUnsupportedMediaType: {
		Means: `The body does not say that it is JSON in UTF-8, or it is compressed. It was not
looked at, and nothing was changed.`,
		Do: `Send the body uncompressed, with "Content-Type: application/json". A request
without a body needs no content type.`,
		Show: `Nothing of this: "Something went wrong on our side."`,
	},
	wire.CodeRateLimited: {
		Means: `This user has been issued too many tokens in a short time. None was issued by
this request. A batch counts as many times as it has tokens. Services' calls are
not limited.`,
		Do: `Wait as long as Retry-After says, then send the same request. Fetch a token
once for each form that is shown, and keep it until the form is sent.`,
		Show: `"That was a little too fast. Please try again in a moment", or nothing, where
you wait by yourself.`,
	},
	wire.CodeRequestInProgress: {
		Means: `Another attempt has claimed the token or key and is at work; its lease runs until
lease_expires_at, and may be renewed. used_by is 8 hex digits of that attempt's
hash. This request changed nothing.`,
		Do: `Wait as long as Retry-After says and send the same request again. By then there
is a result to replay, or the claim was released and is yours. A claim can be
told to wait by itself: with the member wait it is answered as soon as the other
one ends.`,
		Show: `"Your first submission is being worked on." Show its result when it is there; do
not ask the user to send again.`,
	},
	wire.CodeClaimUnfinished: {
		Means: `An attempt claimed the token or key and committed, which says that it was about
to do what cannot be undone; then it went silent until its lease was over.
Whether the work was done is not known here, and nobody is let in to do it again
by itself. used_by is 8 hex digits of that attempt's hash.`,
		Do: `Look for the business record (the order, the payment). Then claim again with
"resolve": true, and complete the claim with the result if there is a record, or
release it if there is none. Leave this to a person, or to code that looks first:
never send resolve automatically.`,
		Show: `"We are checking what became of your submission. Please do not send it again."`,
	},
	wire.CodeClaimSuperseded: {
		Means: `The claim is not its holder's any more: its lease ended before it was completed
or committed, and a later attempt took over; or it was released, and the token or
key was claimed anew. This call changed nothing.`,
		Do: `Stop, and do not do the work, or what is left of it: somebody else does. Renew
a claim while its work goes on, commit before what cannot be undone, and hand the
fence to what you write to, so that it can refuse an older one.`,
		Show: `Nothing of this: what the later attempt answers is the result.`,
	},
	wire.CodeClaimEnded: {
		Means: `The claim has ended: it was completed or released before, its token was revoked,
or its record is gone, since it was too old or the store has lost it. This call
changed nothing.`,
		Do: `Stop, and do not do the work, or what is left of it. If it was done already, the
business record is what counts. Ask /v1/claims/status what became of the token or
key.`,
		Show: `The business record, if there is one. If not: "Something went wrong on our side.
Please send the form again", with everything that was filled in.`,
	},
	wire.CodeClaimCommitted: {
		Means: `The claim was committed, so the work may have been done, and it cannot be
released. This call changed nothing.`,
		Do: `Complete the claim with what came of the work, a failure too: every repeat is
answered with that. Commit only when nothing but what cannot be undone is left.`,
		Show: `What came of the work.`,
	},
	wire.CodeInternal: {
		Means: `Something went wrong inside that the service has no word for. The request may
have been carried out or not.`,
		Do: `Send the same request with the same attempt again, a few times: in record
mode that is safe even if the first try got through. If it stays, give
request_id to whoever runs tokend: it leads to the cause in the log. Never do
the work without a success. When you give up, look for the business record; if
there is none, show the form with a fresh token: the old one may be used.`,
		Show: `The record, if you find it. If not: "Something went wrong on our side. Please
try again in a minute", and then the form with a fresh token and everything that
was filled in.`,
	},
}
