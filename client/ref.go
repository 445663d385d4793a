package client

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"strings"
)

// UncheckedRef returns the ref that tokend gives s, without asking it: for as long as it is
// away. Nobody has checked it. A token's stands in its text, and whoever makes a text up makes
// its ref up, another user's too: use it together with the user. ok is false where s is no
// token or key by its shape, and tokend would surely refuse it.
func (s Subject) UncheckedRef() (ref string, ok bool) {
	switch {
	case s.token != nil:
		return tokenRef(*s.token)
	case s.key != nil && s.user != nil:
		return keyRef(*s.user, *s.purpose, *s.key)
	}
	return "", false
}

// A token's text is tokenPrefix and unpadded base64url of what package token lays down:
// version, mode and length of the signing key's ID in a byte each, that ID, an expiry and a
// retention, the token's ID, and hashes.
const (
	tokenPrefix  = "ott_"
	tokenVersion = 1
	beforeKeyID  = 1 + 1
	afterKeyID   = 6 + 4
	refSize      = 16
	afterID      = 16 + 8 + 16
)

var tokenEncoding = base64.RawURLEncoding.Strict()

// tokenRef reads the ref out of a token's text.
func tokenRef(text string) (string, bool) {
	spelt, ok := strings.CutPrefix(text, tokenPrefix)
	if !ok || len(text) > maxToken {
		return "", false
	}
	b, err := tokenEncoding.DecodeString(spelt)
	if err != nil || tokenEncoding.EncodeToString(b) != spelt { // it skips CR and LF
		return "", false
	}
	if len(b) < beforeKeyID || b[0] != tokenVersion || b[1]>>4 != 1 && b[1]>>4 != 2 {
		return "", false
	}
	keyID := int(b[1]&0xf) + 1
	if len(b) != beforeKeyID+keyID+afterKeyID+refSize+afterID || !isKeyID(b[beforeKeyID:beforeKeyID+keyID]) {
		return "", false
	}
	id := b[beforeKeyID+keyID+afterKeyID:][:refSize]
	return "t_" + hex.EncodeToString(id), true
}

func isKeyID(id []byte) bool {
	for _, c := range id {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}

// keyRef hashes what a key is known by, each part behind its length.
func keyRef(user, purpose, key string) (string, bool) {
	if len(key) < 1 || len(key) > 255 {
		return "", false
	}
	for i := range len(key) {
		if key[i] < '!' || '~' < key[i] {
			return "", false
		}
	}
	var b []byte
	for _, part := range []string{user, purpose, key} {
		b = binary.BigEndian.AppendUint32(b, uint32(len(part)))
		b = append(b, part...)
	}
	sum := sha256.Sum256(b)
	return refOfKey + hex.EncodeToString(sum[:refSize]), true
}
