package token_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"

	"example.com/tokend/token"
)

func TestWords(t *testing.T) {
	parse := map[string]func(string) error{
		"user":    func(s string) error { _, err := token.ParseUser(s); return err },
		"purpose": func(s string) error { _, err := token.ParsePurpose(s); return err },
		"attempt": func(s string) error { _, err := token.ParseAttempt(s); return err },
		"digest":  func(s string) error { _, err := token.ParseDigest(s); return err },
		"key":     func(s string) error { _, err := token.ParseIdempotencyKey(s); return err },
		"ref":     func(s string) error { _, _, err := token.ParseRef(s); return err },
	}
	hex32 := strings.Repeat("0123abcd", 4)
	tests := []struct {
		field     string
		good, bad []string
	}{
		{"user",
			[]string{"a", "alice@example.com", "用户:42}{", " ", "\u00a0", "\u200b", strings.Repeat("u", 256), strings.Repeat("用", 85)},
			[]string{"", strings.Repeat("u", 257), strings.Repeat("用", 86), "\xff", "a\x00", "a\n", "\t", "\x7f", "\u0080", "\u009f", "\xed\xa0\x80"}},
		{"purpose",
			[]string{"a", "0", "order.create", "a-b_c.d", strings.Repeat("p", 64)},
			[]string{"", ".a", "-a", "_a", "A", "a b", "a/b", "é", "a\n", strings.Repeat("p", 65)}},
		{"attempt",
			[]string{"a", "!~", "A-1", strings.Repeat("a", 255)},
			[]string{"", " ", "a b", "é", "a\n", "\x7f", strings.Repeat("a", 256)}},
		{"digest",
			[]string{"a", "sha-256=:abc=:", strings.Repeat("d", 128)},
			[]string{"", " ", "é", strings.Repeat("d", 129)}},
		{"key",
			[]string{"a", "!~", "evt_1:{a}", strings.Repeat("k", 255)},
			[]string{"", " ", "a b", "é", "a\n", "\x00", "\x7f", strings.Repeat("k", 256)}},
		{"ref",
			[]string{"t_" + hex32, "k_" + hex32},
			[]string{"", hex32, "t_" + strings.ToUpper(hex32), "r_" + hex32, "t_" + hex32 + "0", "t_" + hex32[1:], "T_" + hex32, "t_" + hex32[:31] + "g"}},
	}
	for _, tt := range tests {
		for _, s := range tt.good {
			if err := parse[tt.field](s); err != nil {
				t.Errorf("%s %.20q: %v", tt.field, s, err)
			}
		}
		for _, s := range tt.bad {
			err := parse[tt.field](s)
			var invalid *token.InvalidError
			if !errors.As(err, &invalid) || invalid.Field != tt.field || len(s) > 3 && strings.Contains(err.Error(), s) {
				t.Errorf("%s %.20q: %v, want an InvalidError that names the field and does not quote it", tt.field, s, err)
			}
		}
	}
}

// TestHashes pins what outlives a release: keys in Redis, and used_by, which a person can
// work out with sha256sum.
func TestHashes(t *testing.T) {
	if got, want := token.User("alice").Hash().String(), "4-QMxXiW3NrGcx9gyxdIvQ"; got != want {
		t.Errorf("user_ref of alice is %s, want %s", got, want)
	}
	if got, want := token.Attempt("a1").Hash().Ref(), "f55ff16f"; got != want {
		t.Errorf("attempt_ref of a1 is %s, want %s", got, want)
	}
	if token.User("ab").Hash() == token.User("a").Hash() {
		t.Error("two users, one hash")
	}
}

func TestParseKeys(t *testing.T) {
	secret := func(b byte) string {
		return base64.StdEncoding.EncodeToString([]byte(strings.Repeat(string(rune(b)), 32)))
	}
	good := "k1:" + secret('a') + ",k_2-B:" + secret('b')
	keys, err := token.ParseKeys(good)
	if err != nil || len(keys) != 2 || keys[0].ID != "k1" || keys[1].ID != "k_2-B" || keys[1].Secret[31] != 'b' {
		t.Fatalf("%v, %v", keys, err)
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x"} {
		if text := fmt.Sprintf(verb, keys); strings.Contains(text, "aaaa") || strings.Contains(text, "61616161") || strings.Contains(text, "0x61") {
			t.Errorf("%s shows the secret: %s", verb, text)
		}
	}
	canary := secret('C')
	for _, bad := range []string{
		"", ":", "k1", canary, "k1:", ":" + canary, "k1:" + canary[1:], "k1:" + canary + "=", "k1:" + canary[:len(canary)-1],
		"k1:" + strings.TrimRight(canary, "="), "k1:" + canary + ",", "k1:" + canary + ",k1:" + canary, "k 1:" + canary,
		strings.Repeat("k", 17) + ":" + canary, "k1:" + canary + "\n", "k1:\r\n" + canary, " k1:" + canary,
		"k1:" + base64.StdEncoding.EncodeToString(make([]byte, 31)), "k1:" + base64.StdEncoding.EncodeToString(make([]byte, 33)),
		"k1:" + strings.Repeat("z", 64),
	} {
		keys, err := token.ParseKeys(bad)
		if err == nil {
			t.Errorf("%q was taken for %v", bad, keys)
		} else if strings.Contains(err.Error(), canary[1:20]) {
			t.Errorf("the error quotes the secret: %v", err)
		}
	}
	if _, err := token.NewRing(); err == nil {
		t.Error("a ring without keys")
	}
	if _, err := token.NewRing(key("a", 1), key("a", 2)); err == nil {
		t.Error("a ring with two keys of one ID")
	}
	if _, err := token.NewRing(key("a b", 1)); err == nil {
		t.Error("a ring with a bad ID")
	}
}

func TestNewAttempt(t *testing.T) {
	seen := map[token.Attempt]bool{}
	for range 1000 {
		a := token.NewAttempt()
		if _, err := token.ParseAttempt(string(a)); err != nil || seen[a] {
			t.Fatalf("attempt %q: %v, seen before: %v", a, err, seen[a])
		}
		seen[a] = true
	}
}

// TestKeyID pins what the store knows a key by, worked out by another program, and that no
// two triples run together.
func TestKeyID(t *testing.T) {
	got := token.KeySubject("alice", "order.create", "k-1").Ref()
	if want := token.Ref("k_9138f30925cd2ec42fc3c319dff3aeea"); got != want {
		t.Errorf("ref %s, want %s", got, want)
	}
	seen := map[token.ID]string{}
	for _, parts := range [][3]string{
		{"a", "b", "c"}, {"ab", "b", "c"}, {"a", "bb", "c"}, {"a", "b", "bc"}, {"a:b", "c", "d"}, {"a", "b:c", "d"}, {"a", "b", "c:d"},
		{"a\x01", "b", "c"}, {"a", "b", "\x01c"}, {"", "ab", "c"}, {"", "", "abc"}, {"abc", "", ""},
	} {
		id := token.IdempotencyKey(parts[2]).ID(token.User(parts[0]), token.Purpose(parts[1]))
		if before, ok := seen[id]; ok {
			t.Errorf("%q has the ID of %s", parts, before)
		}
		seen[id] = fmt.Sprintf("%q", parts)
	}
	longest := token.IdempotencyKey(strings.Repeat("k", 255)).ID(token.User(strings.Repeat("u", 256)), token.Purpose(strings.Repeat("p", 64)))
	if longest == (token.ID{}) {
		t.Error("the longest key has no ID")
	}
}
