package token

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"unicode"
	"unicode/utf8"
)

// User is the identity that a token is bound to: 1 to 256 bytes of valid UTF-8
// without control characters (Unicode Cc). Users are compared byte for byte and
// never normalised. The zero User is not valid.
type User string

// ParseUser returns s as a User, or an *InvalidError that names the field "user".
func ParseUser(s string) (User, error) {
	const rule = "must be 1 to 256 bytes of valid UTF-8 without control characters"
	if len(s) < 1 || len(s) > 256 || !utf8.ValidString(s) {
		return "", &InvalidError{Field: "user", Rule: rule}
	}
	for _, r := range s {
		if unicode.IsControl(r) {
			return "", &InvalidError{Field: "user", Rule: rule}
		}
	}
	return User(s), nil
}

// Hash identifies u where u itself must not stand: in the store's keys and in logs.
// It is the first 16 bytes of the SHA-256 of u behind its length (4 bytes, big-endian).
// It is not keyed, so whoever can guess a user can confirm the guess.
func (u User) Hash() UserHash {
	var buf [4 + 256]byte
	b := append(buf[:0], byte(len(u)>>24), byte(len(u)>>16), byte(len(u)>>8), byte(len(u)))
	b = append(b, u...)
	sum := sha256.Sum256(b)
	return UserHash(sum[:16])
}

// UserHash is a user's hash; see [User.Hash].
type UserHash [16]byte

// String returns h in base64url, 22 characters: the user_ref of log lines.
func (h UserHash) String() string { return base64.RawURLEncoding.EncodeToString(h[:]) }

// Purpose says what a submission does: [a-z0-9][a-z0-9._-]{0,63}. A token for one
// purpose is no good for another.
type Purpose string

// DefaultPurpose stands where a caller names none.
const DefaultPurpose Purpose = "default"

// ParsePurpose returns s as a Purpose, or an *InvalidError that names the field
// "purpose". An empty s is refused: leaving the purpose out is the caller's case
// to tell, and means [DefaultPurpose].
func ParsePurpose(s string) (Purpose, error) {
	if len(s) < 1 || len(s) > 64 {
		return "", errPurpose
	}
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9':
		case i > 0 && (c == '.' || c == '_' || c == '-'):
		default:
			return "", errPurpose
		}
	}
	return Purpose(s), nil
}

var errPurpose = &InvalidError{Field: "purpose", Rule: "must match [a-z0-9][a-z0-9._-]{0,63}"}

// Attempt names one execution: one logical call of consume or claim, with all its
// re-sends. Whoever will do the work makes it up, fresh for each request that it
// serves; it is never taken from what a user sent, nor from the token. It is 1 to
// 255 visible ASCII characters, and case matters. The zero Attempt is not valid.
type Attempt string

// ParseAttempt returns s as an Attempt, or an *InvalidError that names the field
// "attempt".
func ParseAttempt(s string) (Attempt, error) {
	if len(s) > 255 || !visible(s) {
		return "", &InvalidError{Field: "attempt", Rule: "must be 1 to 255 visible ASCII characters"}
	}
	return Attempt(s), nil
}

// NewAttempt makes an attempt up: 26 random characters.
func NewAttempt() Attempt { return Attempt(rand.Text()) }

// Hash returns the hash that stands for a in the store: the first 12 bytes of the
// SHA-256 of a's text.
func (a Attempt) Hash() Hash { return hash(string(a)) }

// Digest is the caller's fingerprint of the request that a token stands for: 1 to
// 128 visible ASCII characters. A request with another digest is a different
// request. The zero Digest means that there is none.
type Digest string

// ParseDigest returns s as a Digest, or an *InvalidError that names the field
// "digest".
func ParseDigest(s string) (Digest, error) {
	if len(s) > 128 || !visible(s) {
		return "", &InvalidError{Field: "digest", Rule: "must be 1 to 128 visible ASCII characters"}
	}
	return Digest(s), nil
}

// Hash returns the hash that stands for d in the store: the first 12 bytes of the
// SHA-256 of d's text.
func (d Digest) Hash() Hash { return hash(string(d)) }

// Hash is what the store keeps of an attempt or a digest.
type Hash [12]byte

// Ref returns the first 8 hex digits of h: used_by and attempt_ref. For an attempt
// they begin what sha256sum prints for its text.
func (h Hash) Ref() string { return hex.EncodeToString(h[:4]) }

func hash(s string) Hash {
	var buf [255]byte
	sum := sha256.Sum256(append(buf[:0], s...))
	return Hash(sum[:12])
}

// ID is what is random in a token, and what the store knows it by.
type ID [16]byte

// NewID makes an ID up.
func NewID() ID {
	var id ID
	rand.Read(id[:]) // never fails: crypto/rand ends the program rather than do so
	return id
}

// Ref is the token's name where the token itself must not stand: error pages,
// tickets, log lines. It is t_ and 32 hex digits.
func (id ID) Ref() Ref { return OfToken.ref(id) }

// Kind tells tokens and keys apart, which may be claimed alike.
type Kind uint8

// The kinds.
const (
	OfToken Kind = iota
	OfKey
)

func (k Kind) ref(id ID) Ref {
	return Ref([...]string{OfToken: "t_", OfKey: "k_"}[k] + hex.EncodeToString(id[:]))
}

// IdempotencyKey is a key that the caller's own client made up: 1 to 255 visible ASCII
// characters, and case matters. It is scoped to a user and a purpose. The zero
// IdempotencyKey is not valid.
type IdempotencyKey string

// ParseIdempotencyKey returns s as an IdempotencyKey, or an *InvalidError that names the
// field "key".
func ParseIdempotencyKey(s string) (IdempotencyKey, error) {
	if len(s) > 255 || !visible(s) {
		return "", &InvalidError{Field: "key", Rule: "must be 1 to 255 visible ASCII characters"}
	}
	return IdempotencyKey(s), nil
}

// ID returns what the store knows u's key k for p by: the first 16 bytes of the SHA-256
// of the three, each behind its length (4 bytes, big-endian). It is not keyed by a
// signing key: a rotation must not open old records again.
func (k IdempotencyKey) ID(u User, p Purpose) ID {
	var buf [3*4 + 256 + 64 + 255]byte
	b := buf[:0]
	for _, part := range [...]string{string(u), string(p), string(k)} {
		b = binary.BigEndian.AppendUint32(b, uint32(len(part)))
		b = append(b, part...)
	}
	sum := sha256.Sum256(b)
	return ID(sum[:16])
}

// Ref names a token or key (t_ or k_ and 32 lowercase hex digits of its ID) and is no
// secret.
type Ref string

// ParseRef returns what the reference s names, or an *InvalidError that names the field
// "ref".
func ParseRef(s string) (Kind, ID, error) {
	var id ID
	if len(s) == 34 {
		if _, err := hex.Decode(id[:], []byte(s[2:])); err == nil {
			for _, kind := range [...]Kind{OfToken, OfKey} {
				if string(kind.ref(id)) == s {
					return kind, id, nil
				}
			}
		}
	}
	return 0, ID{}, &InvalidError{Field: "ref", Rule: "must be t_ or k_ and 32 lowercase hex digits"}
}

// InvalidError says that a value breaks the rule for its field. It never quotes the
// value.
type InvalidError struct {
	Field string // the field's name in the API
	Rule  string // the rule that was broken: "must be …"
}

func (e *InvalidError) Error() string { return fmt.Sprintf("%s %s", e.Field, e.Rule) }

func visible(s string) bool {
	if s == "" {
		return false
	}
	for i := range len(s) {
		if s[i] < '!' || s[i] > '~' {
			return false
		}
	}
	return true
}
