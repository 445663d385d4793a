package redisstore

import (
	"strings"

	"example.com/tokend/token"
)

// Every key that tokend writes is spelled here. All keys of one user share a hash tag,
// six characters of the user's hash, and so a Cluster slot: issue may touch the user's
// rate beside the token. The tag holds nothing that the user chose.

const tagLen = 6

// TokenKey returns the key of the record of u's token id.
func TokenKey(prefix string, u token.UserHash, id token.ID) string {
	return RecordKey(prefix, token.OfToken, u, id)
}

// RecordKey returns the key of the record of a token or idempotency key of u: PREFIX:t:{TAG}
// or PREFIX:k:{TAG}, and the 16 raw bytes of the ID. Its length does not depend on u.
func RecordKey(prefix string, kind token.Kind, u token.UserHash, id token.ID) string {
	letter := [...]string{token.OfToken: "t", token.OfKey: "k"}[kind]
	var room [64]byte // for any usual prefix
	b := tagged(room[:0], prefix, letter, u.String())
	return string(append(b, id[:]...))
}

// RateKey returns the key of u's issue rate: PREFIX:r:{TAG} and what is left of u's
// hash in base64url.
func RateKey(prefix string, u token.UserHash) string {
	text := u.String()
	return string(append(tagged(nil, prefix, "r", text), text[tagLen:]...))
}

func tagged(b []byte, prefix, kind, hash string) []byte {
	b = append(append(append(append(b, prefix...), ':'), kind...), ":{"...)
	return append(append(b, hash[:tagLen]...), '}')
}

// tag returns key's hash tag.
func tag(key string) string {
	_, behind, _ := strings.Cut(key, "{")
	return behind[:tagLen]
}
