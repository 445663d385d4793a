package auth

import (
	"strings"

	"example.com/tokend/httpapi/wire"
)

// Scopes is a set of tokend's own scopes. The zero Scopes is empty.
type Scopes uint8

// The scopes.
const (
	ScopeIssue   Scopes = 1 << iota // wire.ScopeIssue
	ScopeConsume                    // wire.ScopeConsume
)

// scopeOf returns the set that holds the scope named word, or the empty one where it is
// none of tokend's. Words are compared byte for byte.
func scopeOf(word string) Scopes {
	switch word {
	case wire.ScopeIssue:
		return ScopeIssue
	case wire.ScopeConsume:
		return ScopeConsume
	}
	return 0
}

// String returns the scopes' words, parted by spaces.
func (s Scopes) String() string {
	var words []string
	for _, w := range []string{wire.ScopeIssue, wire.ScopeConsume} {
		if s&scopeOf(w) != 0 {
			words = append(words, w)
		}
	}
	return strings.Join(words, " ")
}
