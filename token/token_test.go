package token_test

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"example.com/tokend/token"
)

func newRing(t testing.TB, keys ...token.Key) *token.Ring {
	t.Helper()
	r, err := token.NewRing(keys...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func key(id string, secret byte) token.Key { return token.Key{ID: id, Secret: [32]byte{secret}} }

func grant() token.Grant {
	return token.Grant{
		ID: token.ID{1, 2, 3}, User: "alice", Purpose: "order.create", Mode: token.Record,
		ExpiresAt: time.UnixMilli(1_800_000_000_123).UTC(), Retention: 24 * time.Hour,
	}
}

// TestSpelling pins the layout, worked out by another program: tokens outlive releases.
func TestSpelling(t *testing.T) {
	got := newRing(t, key("k1", 1)).Sign(grant())
	const want = "ott_ARFrMQGjGFxQewABUYABAgMAAAAAAAAAAAAAAAAAvMwQOvm6dYba5iGnvRJzjmBMbE2mFmj1T0exRCsNYasZdx1wyJfGkw"
	if got != want {
		t.Errorf("token is %s, want %s", got, want)
	}
}

func TestLongestToken(t *testing.T) {
	g := grant()
	g.User = token.User(strings.Repeat("u", 256))
	g.Purpose = token.Purpose(strings.Repeat("p", 64))
	for n := 1; n <= 16; n++ {
		text := newRing(t, key(strings.Repeat("k", n), 1)).Sign(g)
		if len(text) > token.MaxLen || n == 16 && len(text) != token.MaxLen {
			t.Errorf("key ID of %d: %d characters, at most %d are promised", n, len(text), token.MaxLen)
		}
		if strings.Trim(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-") != "" {
			t.Errorf("%s holds a character that is not in [A-Za-z0-9_-]", text)
		}
	}
}

// grants draws anything that may be signed.
func grants(t *rapid.T) token.Grant {
	return token.Grant{
		ID:        token.ID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id")),
		User:      token.User(rapid.StringN(1, 64, 256).Draw(t, "user")),
		Purpose:   token.Purpose(rapid.StringMatching(`[a-z0-9][a-z0-9._-]{0,63}`).Draw(t, "purpose")),
		Mode:      rapid.SampledFrom([]token.Mode{token.Record, token.Delete}).Draw(t, "mode"),
		ExpiresAt: time.UnixMilli(rapid.Int64Range(0, 1<<48-1).Draw(t, "expires")).UTC(),
		Retention: time.Duration(rapid.Int64Range(0, 1<<32-1).Draw(t, "retention")) * time.Second,
	}
}

func TestSignParse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := grants(t)
		id := rapid.StringMatching(`[A-Za-z0-9_-]{1,16}`).Draw(t, "key")
		ring, err := token.NewRing(key(id, 7))
		if err != nil {
			t.Fatal(err)
		}
		text := ring.Sign(g)
		got, err := ring.Parse(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		want := &token.Token{ID: g.ID, Mode: g.Mode, ExpiresAt: g.ExpiresAt, Retention: g.Retention, KeyID: id}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(token.Token{})); diff != "" {
			t.Fatalf("(-signed +parsed):\n%s", diff)
		}
		if err := got.Check(g.User, g.Purpose); err != nil {
			t.Fatalf("the token's own user and purpose: %v", err)
		}
		if err := got.Check(g.User+"x", g.Purpose); !errors.Is(err, token.ErrWrongUser) {
			t.Fatalf("another user: %v", err)
		}
		if err := got.Check(g.User+"x", g.Purpose+"x"); !errors.Is(err, token.ErrWrongUser) {
			t.Fatalf("another user and purpose: %v, want the user to be looked at first", err)
		}
		if err := got.Check(g.User, g.Purpose+"x"); !errors.Is(err, token.ErrWrongPurpose) {
			t.Fatalf("another purpose: %v", err)
		}
	})
}

// TestEveryBitCounts turns every bit of a token over, and every character into each other.
func TestEveryBitCounts(t *testing.T) {
	ring := newRing(t, key("k1", 1)) // one that leaves bits of the last character unused
	text := ring.Sign(grant())
	raw, err := base64.RawURLEncoding.DecodeString(text[len(token.Prefix):])
	if err != nil {
		t.Fatal(err)
	}
	if len(raw)%3 == 0 {
		t.Fatal("the test wants a token with unused bits")
	}
	for i := range len(raw) * 8 {
		raw[i/8] ^= 1 << (i % 8)
		if got, err := ring.Parse(token.Prefix + base64.RawURLEncoding.EncodeToString(raw)); err == nil {
			t.Errorf("bit %d turned over: %+v", i, got)
		}
		raw[i/8] ^= 1 << (i % 8)
	}
	for i := range text {
		for c := range 256 {
			if other := text[:i] + string([]byte{byte(c)}) + text[i+1:]; other != text {
				if _, err := ring.Parse(other); err == nil {
					t.Errorf("%q is taken for %q", other, text)
				}
			}
		}
	}
	for _, other := range []string{
		"", token.Prefix, text + "=", text + "A", text[:len(text)-1], text[1:], strings.ToUpper(text), " " + text,
		text + "\n", text[:20] + "\r\n" + text[20:], text + "\x00", "OTT_" + text[4:], strings.Repeat("A", 1<<20),
	} {
		if _, err := ring.Parse(other); !errors.Is(err, token.ErrMalformed) {
			t.Errorf("%.60q: %v, want %v", other, err, token.ErrMalformed)
		}
	}
}

func TestRotation(t *testing.T) {
	old, next := key("2026-01", 1), key("2026-02", 2)
	before, during, moved, after := newRing(t, old), newRing(t, old, next), newRing(t, next, old), newRing(t, next)
	byOld, byNext := before.Sign(grant()), moved.Sign(grant())
	if during.Sign(grant()) != byOld {
		t.Error("a key that was added last signs")
	}
	tests := []struct {
		name string
		ring *token.Ring
		text string
		want *token.Reason
	}{
		{"old by before", before, byOld, nil},
		{"old by during", during, byOld, nil},
		{"old by moved", moved, byOld, nil},
		{"old by after", after, byOld, token.ErrUnknownKey},
		{"next by before", before, byNext, token.ErrUnknownKey},
		{"next by during", during, byNext, nil},
		{"next by after", after, byNext, nil},
		{"same ID, other secret", newRing(t, key("2026-01", 9)), byOld, token.ErrForged},
	}
	for _, tt := range tests {
		got, err := tt.ring.Parse(tt.text)
		if tt.want == nil && err != nil || tt.want != nil && !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
		if err == nil && got.Check("alice", "order.create") != nil {
			t.Errorf("%s: not alice's", tt.name)
		}
	}
}

// TestMACsAreApart takes the hash that stands for a user where the tag should be.
func TestMACsAreApart(t *testing.T) {
	g := grant()
	a := newRing(t, key("k", 1)).Sign(g)
	g.User = "bob"
	b := newRing(t, key("k", 1)).Sign(g)
	g.User, g.ID = "alice", token.ID{9}
	c := newRing(t, key("k", 1)).Sign(g)
	const from, to = 42, 60 // within the hash of the user
	if a[from:to] == b[from:to] || a[from:to] == c[from:to] {
		t.Error("the hash of the user does not depend on user and ID")
	}
}

func FuzzParse(f *testing.F) {
	ring := newRing(f, key("k1", 1), key("another-key-id-x", 2))
	f.Add(ring.Sign(grant()))
	f.Add(newRing(f, key("another-key-id-x", 2)).Sign(grant()))
	f.Add("ott_")
	f.Add("ott_AREA")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := ring.Parse(text)
		if err != nil {
			var no *token.Refusal
			if !errors.As(err, &no) {
				t.Errorf("%T, want *token.Refusal", err)
			}
			return
		}
		// Whatever parses was signed by the ring: only the seeds were.
		if got.ID != grant().ID || got.Check("alice", "order.create") != nil {
			t.Errorf("%q was taken for %+v", text, got)
		}
	})
}

func FuzzWords(f *testing.F) {
	for _, s := range []string{"", "alice", "用户", "a\nb", "\xff", "order.create", "t_00000000000000000000000000000000", strings.Repeat("a", 256)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if u, err := token.ParseUser(s); err == nil && (string(u) != s || len(s) > 256 || strings.ContainsAny(s, "\x00\n\x7f")) {
			t.Errorf("user %q", s)
		}
		if p, err := token.ParsePurpose(s); err == nil && (string(p) != s || len(s) > 64) {
			t.Errorf("purpose %q", s)
		}
		if kind, id, err := token.ParseRef(s); err == nil && string((token.Subject{Kind: kind, ID: id}).Ref()) != s {
			t.Errorf("ref %q has two spellings", s)
		}
		if a, err := token.ParseAttempt(s); err == nil && (string(a) != s || len(s) > 255) {
			t.Errorf("attempt %q", s)
		}
		if d, err := token.ParseDigest(s); err == nil && (string(d) != s || len(s) > 128) {
			t.Errorf("digest %q", s)
		}
		if keys, err := token.ParseKeys(s); err == nil {
			newRing(t, keys...)
		}
	})
}
