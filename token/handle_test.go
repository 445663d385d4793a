package token_test

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"example.com/tokend/token"
)

func handle() token.Handle {
	return token.Handle{
		Kind: token.OfKey, User: token.User("alice").Hash(), ID: token.ID{1, 2, 3}, Fence: 7, Attempt: token.Attempt("a1").Hash(),
	}
}

// mustNameClaim fails the test unless err says that the handle is none.
func mustNameClaim(t testing.TB, text string, err error) {
	t.Helper()
	var invalid *token.InvalidError
	if !errors.As(err, &invalid) || invalid.Field != "claim" || len(text) > 3 && strings.Contains(err.Error(), text) {
		t.Errorf("%.60q: %v, want an InvalidError that names claim and does not quote it", text, err)
	}
}

// TestHandleSpelling pins the layout, worked out by another program: handles outlive
// releases.
func TestHandleSpelling(t *testing.T) {
	got := newRing(t, key("k1", 1)).SignHandle(handle())
	const want = "otc_ASFrMePkDMV4ltzaxnMfYMsXSL0BAgMAAAAAAAAAAAAAAAAAAAAAB_Vf8W9m9DNgJmuV27QGSw-lieej250r30Lglhk"
	if got != want {
		t.Errorf("handle is %s, want %s", got, want)
	}
}

func TestSignParseHandle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.StringMatching(`[A-Za-z0-9_-]{1,16}`).Draw(t, "key ID")
		ring, err := token.NewRing(token.Key{ID: id, Secret: [32]byte{1}})
		if err != nil {
			t.Fatal(err)
		}
		h := token.Handle{
			Kind:    rapid.SampledFrom([]token.Kind{token.OfToken, token.OfKey}).Draw(t, "kind"),
			User:    token.User(rapid.StringN(1, 64, 256).Draw(t, "user")).Hash(),
			Fence:   rapid.Uint32().Draw(t, "fence"),
			Attempt: token.Attempt(rapid.String().Draw(t, "attempt")).Hash(),
		}
		copy(h.ID[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "ID"))
		text := ring.SignHandle(h)
		got, keyID, err := ring.ParseHandle(text)
		if err != nil || got != h || keyID != id {
			t.Fatalf("%s: %+v by %s, %v; want %+v", text, got, keyID, err, h)
		}
		if len(text) > 128 || strings.Trim(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-") != "" {
			t.Errorf("%q does not fit into a URL", text)
		}
	})
}

// TestEveryBitOfAHandleCounts turns every bit of a handle over, and every character into
// each other.
func TestEveryBitOfAHandleCounts(t *testing.T) {
	ring := newRing(t, key("k1", 1)) // one that leaves bits of the last character unused
	text := ring.SignHandle(handle())
	raw, err := base64.RawURLEncoding.DecodeString(text[len(token.HandlePrefix):])
	if err != nil {
		t.Fatal(err)
	}
	if len(raw)%3 == 0 {
		t.Fatal("the test wants a handle with unused bits")
	}
	for i := range len(raw) * 8 {
		raw[i/8] ^= 1 << (i % 8)
		other := token.HandlePrefix + base64.RawURLEncoding.EncodeToString(raw)
		_, _, err := ring.ParseHandle(other)
		mustNameClaim(t, other, err)
		raw[i/8] ^= 1 << (i % 8)
	}
	for i := range text {
		for c := range 256 {
			if other := text[:i] + string([]byte{byte(c)}) + text[i+1:]; other != text {
				if _, _, err := ring.ParseHandle(other); err == nil {
					t.Errorf("%q is taken for %q", other, text)
				}
			}
		}
	}
	for _, other := range []string{
		"", token.HandlePrefix, text + "=", text + "A", text[:len(text)-1], text[1:], text + "\n", text[:20] + "\r\n" + text[20:],
		token.Prefix + text[4:], strings.Repeat("A", 1<<20), ring.Sign(grant()), token.HandlePrefix + ring.Sign(grant())[4:],
	} {
		_, _, err := ring.ParseHandle(other)
		mustNameClaim(t, other, err)
	}
}

// TestHandleRotation verifies a handle by any key of the ring, and by no other.
func TestHandleRotation(t *testing.T) {
	old, next := key("2026-01", 1), key("2026-02", 2)
	text := newRing(t, old).SignHandle(handle())
	for _, ring := range []*token.Ring{newRing(t, old), newRing(t, old, next), newRing(t, next, old)} {
		if got, keyID, err := ring.ParseHandle(text); err != nil || got != handle() || keyID != old.ID {
			t.Errorf("%v: %+v by %s, %v", ring.KeyIDs(), got, keyID, err)
		}
	}
	for _, ring := range []*token.Ring{newRing(t, next), newRing(t, key("2026-01", 9))} {
		_, _, err := ring.ParseHandle(text)
		mustNameClaim(t, text, err)
	}
}

func FuzzParseHandle(f *testing.F) {
	ring := newRing(f, key("k1", 1), key("another-key-id-x", 2))
	f.Add(ring.SignHandle(handle()))
	f.Add(newRing(f, key("another-key-id-x", 2)).SignHandle(handle()))
	f.Add(ring.Sign(grant()))
	f.Add("otc_AREA")
	f.Fuzz(func(t *testing.T, text string) {
		got, _, err := ring.ParseHandle(text)
		if err != nil {
			mustNameClaim(t, text, err)
			return
		}
		// Whatever parses was signed by the ring: only the seeds were.
		if got != handle() {
			t.Errorf("%q was taken for %+v", text, got)
		}
	})
}
