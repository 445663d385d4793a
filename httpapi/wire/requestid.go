package wire

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"net/http"
)

// RequestID returns the id that h's request brings along, if it is 1 to 64 of
// [A-Za-z0-9._-], and a new one if not.
func RequestID(h http.Header) string {
	if ids := h[HeaderRequestID]; len(ids) == 1 && ValidRequestID(ids[0]) {
		return ids[0]
	}
	var id [16]byte // it names a request and is no secret
	binary.BigEndian.PutUint64(id[:8], rand.Uint64())
	binary.BigEndian.PutUint64(id[8:], rand.Uint64())
	return hex.EncodeToString(id[:])
}

// ValidRequestID tells whether id is 1 to 64 of [A-Za-z0-9._-].
func ValidRequestID(id string) bool {
	if len(id) < 1 || len(id) > 64 {
		return false
	}
	for i := range len(id) {
		switch c := id[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}
