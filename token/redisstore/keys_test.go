package redisstore_test

import (
	"strconv"
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
	if got, want := redisstore.RecordKey("tokend", token.OfKey, alice, id), "tokend:k:{4-QMxX}"+string(id[:]); got != want {
		t.Errorf("key of an idempotency key %q, want %q", got, want)
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

// TestUsersWhoShareATag: of the user, a key shows no more than the tag, and many users are in
// the end of one tag. One's idempotency key is not the other's for that.
func TestUsersWhoShareATag(t *testing.T) {
	tag := func(u token.User) string { return u.Hash().String()[:6] }
	seen := map[string]token.User{}
	for n := 0; ; n++ {
		u := token.User("user-" + strconv.Itoa(n))
		v, there := seen[tag(u)]
		if !there {
			seen[tag(u)] = u
			continue
		}
		key := func(u token.User) string {
			sub := token.KeySubject(u, "order.create", "k")
			return redisstore.RecordKey("tokend", sub.Kind, u.Hash(), sub.ID)
		}
		if key(u) == key(v) {
			t.Errorf("%s and %s, who share the tag %s, share the key %q", u, v, tag(u), key(u))
		}
		return
	}
}
