// Package auth tells who is calling. An [Authenticator] reads the Authorization header
// and answers with an [Identity]: a user, or a service with its scopes.
//
//	a, err := auth.New(auth.Config{Secrets: secrets, Leeway: auth.DefaultLeeway})
//	…
//	defer a.Close()
//	id, err := a.Authenticate(r.Context(), r.Header.Values("Authorization"))
//
// An error is a *[Refusal] (an answer: 401 or 403; errors.Is tells the [Reason]) or a
// *[Fault] (no answer: the keys that would tell could not be fetched).
//
// # Bearers
//
// What stands behind "Bearer" (RFC 6750; the word in any case, RFC 9110) is a JWT if it
// has exactly two dots, and is tried as a service key if not. At most 8 KiB are looked at.
//
// # JWTs
//
// A JWT (RFC 7519, in the compact form of RFC 7515) is verified by one of three kinds of
// keys: shared secrets (HS256, or HS384 or HS512, exactly one of them), public keys from
// PEM, or public keys from a JWKS URL. Public keys verify the algorithms of their own type
// only, so no header can turn a public key into a shared secret (RFC 8725, sections 3.1
// and 3.2). Keys come from the configuration alone: jwk, jku, x5u and x5c headers are never
// looked at, typ and cty neither. A JWT has one spelling: strict base64url without
// padding or line breaks, JSON in UTF-8 in which no object names a member twice. A crit
// header is refused, whatever it lists.
//
// Claim names are compared byte for byte. Of the claims
//
//   - exp must be a number, and later than now less the leeway;
//   - nbf, where present, must be a number, and no later than now plus the leeway;
//   - iat, where present, must be a number, and is not compared with the clock;
//   - iss must be the configured issuer, where one is configured;
//   - aud, a string or a list of strings, must name one of the configured audiences, where
//     any are configured;
//   - the user claim (sub) must be a string that is a valid [token.User], in every JWT,
//     services' too;
//   - the scope claim (scope), where present, must be a string of words parted by spaces
//     (RFC 8693, section 4.2) or a list of strings, each of them one word.
//
// A JWT with at least one of tokend's scopes is a service's, any other a user's. So these
// scopes must never be granted to end users. Where the issuer might, a configured service
// claim must be met too: a string, equal to the configured value.
//
// # Public keys that change
//
// The keys at a JWKS URL are fetched at start, every five minutes, and when a JWT names an
// unknown kid, but never more often than once in ten seconds, whatever is sent. Until the
// first fetch succeeds JWTs are a *Fault; later failures leave the old keys in force, and
// only what those cannot tell is a *Fault: a JWT with an unknown kid while the latest fetch
// failed. Keys for another use than verifying signatures are passed over; symmetric and
// private ones too, for whoever can read them can sign.
//
// # Cost
//
// Verified JWTs are remembered for a minute at most (see [Config.CacheSize]), under the
// SHA-256 of their text and for as long as the keys stay the same. Refusals never are.
package auth
