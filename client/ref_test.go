package client_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"example.com/tokend/client"
	"example.com/tokend/token"
)

// What the client reads without asking is what tokend says: whatever the signing key's ID, and
// for every text that tokend takes for no token's either.
func TestUncheckedRef(t *testing.T) {
	t.Parallel()
	keyID := rapid.StringMatching(`[A-Za-z0-9_-]{1,16}`)
	rapid.Check(t, func(t *rapid.T) {
		ring, err := token.NewRing(token.Key{ID: keyID.Draw(t, "key id"), Secret: [32]byte{1}})
		if err != nil {
			t.Fatal(err)
		}
		id := token.NewID()
		text := ring.Sign(token.Grant{ID: id, User: "alice", Purpose: "order.create", Mode: rapid.SampledFrom([]token.Mode{token.Record, token.Delete}).Draw(t, "mode"), ExpiresAt: time.UnixMilli(1)})
		ref, ok := client.TokenOf("alice", "order.create", text).UncheckedRef()
		if want := string(id.Ref()); ref != want || !ok {
			t.Fatalf("%s: %q, %t, want %q", text, ref, ok, want)
		}

		b := []byte(text)
		b[rapid.IntRange(0, len(b)-1).Draw(t, "at")] = rapid.Byte().Draw(t, "byte")
		text = string(b)
		if cut := rapid.IntRange(0, 3).Draw(t, "cut"); cut > 0 {
			text = text[:len(text)-cut]
		}
		_, err = ring.Parse(text)
		no, _ := errors.AsType[*token.Refusal](err)
		malformed := no != nil && no.Reason == token.ErrMalformed
		if ref, ok := client.TokenOf("alice", "order.create", text).UncheckedRef(); ok == malformed || ok != (ref != "") {
			t.Fatalf("%q: %q, %t, and tokend says %v", text, ref, ok, err)
		}
	})
}

func TestUncheckedRefOfKey(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"k", strings.Repeat("k", 255), "", strings.Repeat("k", 256), "a b", "ä"} {
		want := ""
		k, err := token.ParseIdempotencyKey(key)
		if err == nil {
			want = "k_" + string(k.ID("alice", "order.create").Ref())[2:]
		}
		ref, ok := client.Key("alice", "order.create", key).UncheckedRef()
		if ref != want || ok != (err == nil) {
			t.Errorf("%q: %q, %t, want %q", key, ref, ok, want)
		}
	}
	if ref, ok := (client.Subject{}).UncheckedRef(); ok {
		t.Errorf("no subject has the ref %q", ref)
	}
}
