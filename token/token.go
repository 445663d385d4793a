package token

import (
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"time"
)

// Mode says how a token is consumed. It is signed into the token, so a change of
// configuration never makes two stores of one token.
type Mode uint8

const (
	// Record keeps a used token's record in place: every outcome can be told.
	Record Mode = 1
	// Delete deletes the key: least memory, and used cannot be told from lost.
	Delete Mode = 2
)

// String returns the mode's name in the configuration.
func (m Mode) String() string {
	switch m {
	case Record:
		return "record"
	case Delete:
		return "delete"
	}
	return fmt.Sprintf("mode(%d)", uint8(m))
}

// ParseMode returns the mode named s.
func ParseMode(s string) (Mode, error) {
	switch s {
	case "record":
		return Record, nil
	case "delete":
		return Delete, nil
	}
	return 0, fmt.Errorf("must be record or delete")
}

// Grant is what a token says, before it is signed.
type Grant struct {
	ID        ID
	User      User
	Purpose   Purpose
	Mode      Mode
	ExpiresAt time.Time     // by the store's clock; kept to the millisecond
	Retention time.Duration // kept to the second, at most 2³²-1 of them
}

// Token is a token whose signature was found good. It does not hold its user and
// purpose, only keyed hashes of them: see [Token.Check].
type Token struct {
	ID        ID
	Mode      Mode
	ExpiresAt time.Time
	Retention time.Duration
	KeyID     string // the signing key's

	signer  *signer
	user    [userSize]byte
	purpose [purposeSize]byte
}

// A token's text is Prefix and unpadded base64url of, in this order (numbers are
// big-endian):
//
//	 1       version: 1
//	 1       mode in the high four bits, length of the key ID less one in the low four
//	 1 … 16  signing key ID
//	 6       expiry, Unix milliseconds on the store's clock
//	 4       retention, seconds
//	16       ID
//	16       keyed hash of ID and user
//	 8       keyed hash of ID and purpose
//	16       HMAC-SHA256 over all of the above, cut
//
// That the ID goes into both hashes keeps two tokens of one user from being known as
// such by who merely sees them.
const (
	// Prefix begins every token; secret scanners can look for it.
	Prefix = "ott_"
	// MaxLen is the length of the longest token.
	MaxLen = 116

	version     = 1
	maxKeyID    = 16
	userSize    = 16
	purposeSize = 8
	tagSize     = 16
	fixedSize   = 1 + 1 + 6 + 4 + 16 + userSize + purposeSize + tagSize
	maxSize     = fixedSize + maxKeyID
)

var encoding = base64.RawURLEncoding.Strict()

// Sign returns g's token, signed with the ring's first key. It panics on a mode or
// time that the layout cannot hold: callers check their input first.
func (r *Ring) Sign(g Grant) string {
	k := r.keys[0]
	ms, secs := g.ExpiresAt.UnixMilli(), int64(g.Retention/time.Second)
	if g.Mode != Record && g.Mode != Delete || ms < 0 || ms >= 1<<48 || secs < 0 || secs >= 1<<32 {
		panic(fmt.Sprintf("token: cannot sign mode %v, expiry %d ms, retention %d s", g.Mode, ms, secs))
	}
	var buf [maxSize]byte
	b := append(buf[:0], version, byte(g.Mode)<<4|byte(len(k.id)-1))
	b = append(b, k.id...)
	b = append(b, byte(ms>>40), byte(ms>>32), byte(ms>>24), byte(ms>>16), byte(ms>>8), byte(ms))
	b = binary.BigEndian.AppendUint32(b, uint32(secs))
	b = append(b, g.ID[:]...)
	user, purpose := k.user.sum(g.ID[:], string(g.User)), k.purpose.sum(g.ID[:], string(g.Purpose))
	b = append(b, user[:userSize]...)
	b = append(b, purpose[:purposeSize]...)
	tag := k.token.sum(b, "")
	b = append(b, tag[:tagSize]...)

	var text [MaxLen]byte
	return string(encoding.AppendEncode(append(text[:0], Prefix...), b))
}

// Parse reads a token. Each token has one spelling only. The refusals are
// ErrMalformed, ErrUnknownKey and ErrForged; nothing but the ring is asked.
func (r *Ring) Parse(s string) (*Token, error) {
	var buf [maxSize]byte
	b, ok := decode(buf[:0], Prefix, s)
	if !ok {
		return nil, &Refusal{Reason: ErrMalformed}
	}
	high, keyID, rest, ok := split(b, fixedSize)
	mode := Mode(high)
	if !ok || mode != Record && mode != Delete {
		return nil, &Refusal{Reason: ErrMalformed}
	}
	k := r.signer(keyID)
	if k == nil {
		return nil, &Refusal{Reason: ErrUnknownKey}
	}
	signed, tag := b[:len(b)-tagSize], b[len(b)-tagSize:]
	want := k.token.sum(signed, "")
	if subtle.ConstantTimeCompare(tag, want[:tagSize]) != 1 {
		return nil, &Refusal{Reason: ErrForged}
	}
	ms := int64(rest[0])<<40 | int64(binary.BigEndian.Uint32(rest[1:]))<<8 | int64(rest[5])
	t := &Token{
		Mode:      mode,
		ExpiresAt: time.UnixMilli(ms).UTC(),
		Retention: time.Duration(binary.BigEndian.Uint32(rest[6:])) * time.Second,
		KeyID:     k.id,
		signer:    k,
	}
	rest = rest[10:]
	rest = rest[copy(t.ID[:], rest):]
	rest = rest[copy(t.user[:], rest):]
	copy(t.purpose[:], rest)
	return t, nil
}

// decode appends the bytes that s spells behind prefix, and tells whether s is their one
// spelling: Go's strict base64 still skips CR and LF, so it is encoded again and compared.
func decode(dst []byte, prefix, s string) ([]byte, bool) {
	if len(s) <= len(prefix) || len(s) > MaxLen || s[:len(prefix)] != prefix {
		return nil, false
	}
	var in, out [MaxLen]byte
	text := append(in[:0], s[len(prefix):]...)
	b, err := encoding.AppendDecode(dst, text)
	if err != nil {
		return nil, false
	}
	return b, string(encoding.AppendEncode(out[:0], b)) == s[len(prefix):]
}

// split parts what tokens and claim handles begin with: the version, four bits of their
// own, and a key ID. b is fixed bytes without the key ID.
func split(b []byte, fixed int) (high byte, keyID, rest []byte, ok bool) {
	if len(b) <= fixed || b[0] != version || len(b) != fixed+int(b[1]&0xf)+1 {
		return 0, nil, nil, false
	}
	n := 2 + int(b[1]&0xf) + 1
	return b[1] >> 4, b[2:n], b[n:], validKeyID(string(b[2:n]))
}

// Check tells whether t is u's and for p: nil, or a *Refusal of ErrWrongUser or
// ErrWrongPurpose, looked at in this order.
func (t *Token) Check(u User, p Purpose) error {
	user := t.signer.user.sum(t.ID[:], string(u))
	if subtle.ConstantTimeCompare(user[:userSize], t.user[:]) != 1 {
		return t.Refuse(ErrWrongUser)
	}
	purpose := t.signer.purpose.sum(t.ID[:], string(p))
	if subtle.ConstantTimeCompare(purpose[:purposeSize], t.purpose[:]) != 1 {
		return t.Refuse(ErrWrongPurpose)
	}
	return nil
}

// Ref names t where t itself must not stand.
func (t *Token) Ref() Ref { return t.ID.Ref() }

// Refuse returns a refusal of t.
func (t *Token) Refuse(why *Reason) *Refusal {
	return &Refusal{Reason: why, Ref: t.Ref(), ExpiresAt: t.ExpiresAt}
}
