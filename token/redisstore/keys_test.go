package redisstore_test

import (
	"strings"
	"testing"

	"example.com/tokend/token"
	"example.com/tokend/token/redisstore"
)

// TestKeys pins the keys: records outlive releases.
func TestKeys(t *testing.T) {
	alice := token.User("alice").Hash()
	id := token.ID{0: 1, 15: 0xff}
	if got, want := redisstore.TokenKey("tokend", alice, id), "tokend:t:{4-QMxX}"+string(id[:]); got != want {
		t.Errorf("token key %q, want %q", got, want)
	}
	if got, want := redisstore.RateKey("tokend", alice), "tokend:r:{4-QMxX}iW3NrGcx9gyxdIvQ"; got != want {
		t.Errorf("rate key %q, want %q", got, want)
	}
	// Neither what the user contains nor how long it is shows in a key.
	for _, u := range []token.User{"}", "{}", ":", "a:b", token.User(strings.Repeat("u", 256))} {
		key := redisstore.TokenKey("tokend", u.Hash(), id)
		if len(key) != len("tokend:t:{4-QMxX}")+16 || strings.Count(key[:17], "{") != 1 || strings.Index(key, "}") != 16 {
			t.Errorf("key of user %.10q: %q", u, key)
		}
	}
}
