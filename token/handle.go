package token

import (
	"crypto/subtle"
	"encoding/binary"
)

// Handle is what a claim's later steps go by: which token or key was claimed, and which
// claim of it this is. Whoever holds its text may take them.
type Handle struct {
	Kind    Kind
	User    UserHash
	ID      ID
	Fence   uint32
	Attempt Hash
}

// Ref names the token or key that was claimed.
func (h Handle) Ref() Ref { return h.Kind.ref(h.ID) }

// Refuse returns a refusal of h.
func (h Handle) Refuse(why *Reason) *Refusal { return &Refusal{Reason: why, Ref: h.Ref()} }

// A handle's text is HandlePrefix and unpadded base64url of, in this order (numbers are
// big-endian):
//
//	 1       version: 1
//	 1       1 for a token or 2 for a key in the high four bits, length of the signing
//	         key's ID less one in the low four
//	 1 … 16  signing key ID
//	16       hash of the user, as in the store's keys
//	16       ID
//	 4       fence
//	12       hash of the attempt
//	16       HMAC-SHA256 over all of the above, cut
//
// All else that later steps need stands in the record.
const (
	// HandlePrefix begins every handle.
	HandlePrefix = "otc_"

	handleFixedSize = 1 + 1 + 16 + 16 + 4 + 12 + tagSize
	handleMaxSize   = handleFixedSize + maxKeyID
)

// SignHandle returns h's text, signed with the ring's first key.
func (r *Ring) SignHandle(h Handle) string {
	k := r.keys[0]
	var buf [handleMaxSize]byte
	b := append(buf[:0], version, byte(h.Kind+1)<<4|byte(len(k.id)-1))
	b = append(b, k.id...)
	b = append(b, h.User[:]...)
	b = append(b, h.ID[:]...)
	b = binary.BigEndian.AppendUint32(b, h.Fence)
	b = append(b, h.Attempt[:]...)
	tag := k.claim.sum(b, "")
	return HandlePrefix + encoding.EncodeToString(append(b, tag[:tagSize]...))
}

// ParseHandle reads a handle that any key of the ring has signed, and tells which. Each
// handle has one spelling only. Errors: *[InvalidError] that names the field "claim".
func (r *Ring) ParseHandle(s string) (h Handle, keyID string, err error) {
	var buf [handleMaxSize]byte
	b, ok := decode(buf[:0], HandlePrefix, s)
	if !ok {
		return Handle{}, "", errHandle
	}
	high, id, rest, ok := split(b, handleFixedSize)
	if !ok || high != byte(OfToken+1) && high != byte(OfKey+1) {
		return Handle{}, "", errHandle
	}
	k := r.signer(id)
	if k == nil {
		return Handle{}, "", errHandle
	}
	want := k.claim.sum(b[:len(b)-tagSize], "")
	if subtle.ConstantTimeCompare(b[len(b)-tagSize:], want[:tagSize]) != 1 {
		return Handle{}, "", errHandle
	}
	h.Kind = Kind(high - 1)
	rest = rest[copy(h.User[:], rest):]
	rest = rest[copy(h.ID[:], rest):]
	h.Fence = binary.BigEndian.Uint32(rest)
	copy(h.Attempt[:], rest[4:])
	return h, k.id, nil
}

var errHandle = &InvalidError{Field: "claim", Rule: "must be the handle that a claim of this service was answered with, unaltered"}
