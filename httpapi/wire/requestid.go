package wire

import (
	"math/rand/v2"
	"net/http"
	"strconv"
)

// RequestID returns the id that h's request brings along, if it is 1 to 64 of
// [A-Za-z0-9._-], and a new one if not.
func RequestID(h http.Header) string {
	if ids := h[HeaderRequestID]; len(ids) == 1 && ValidRequestID(ids[0]) {
		return ids[0]
	}
	var room [26]byte // it names a request and is no secret
	id := strconv.AppendUint(room[:0], rand.Uint64(), 36)
	return string(strconv.AppendUint(id, rand.Uint64(), 36))
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
