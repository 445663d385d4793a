package auth

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestServiceKeys(t *testing.T) {
	oldText, oldSum := NewServiceKey()
	newText, newSum := NewServiceKey()
	keys, err := ParseServiceKeys("orders:" + oldSum + ":tokend.consume,orders:" + newSum + ":tokend.issue+tokend.consume")
	if err != nil {
		t.Fatal(err)
	}
	a := open(t, Config{ServiceKeys: keys})

	tests := []struct {
		name   string
		bearer string
		want   Identity
		no     *Reason
	}{
		{"old", oldText, Identity{Kind: KeyService, Name: "orders", Scopes: ScopeConsume}, nil},
		{"new", newText, Identity{Kind: KeyService, Name: "orders", Scopes: ScopeIssue | ScopeConsume}, nil},
		{"the hash", oldSum, Identity{}, ErrUnknownServiceKey},
		{"cut", oldText[:len(oldText)-1], Identity{}, ErrUnknownServiceKey},
		{"without the prefix", strings.TrimPrefix(oldText, ServiceKeyPrefix), Identity{}, ErrUnknownServiceKey},
		{"another", "tsk_" + strings.Repeat("A", 43), Identity{}, ErrUnknownServiceKey},
		{"a JWT where none is accepted", hs256(alice("")), Identity{}, ErrNoJWTs},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ask(a, tt.bearer)
			wantReason(t, err, tt.no)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}

	t.Run("beside JWTs", func(t *testing.T) {
		a := open(t, Config{ServiceKeys: keys, Secrets: [][]byte{secret}})
		for _, bearer := range []string{oldText, hs256(alice(""))} {
			if _, err := ask(a, bearer); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestNewServiceKey(t *testing.T) {
	text, sum := NewServiceKey()
	if len(text) != 47 || !strings.HasPrefix(text, "tsk_") {
		t.Errorf("a key is %q", text)
	}
	if want := fmt.Sprintf("%x", sha256.Sum256([]byte(text))); sum != want {
		t.Errorf("hash is %s, want %s", sum, want)
	}
	if again, _ := NewServiceKey(); again == text {
		t.Error("the same key twice")
	}
}

func TestParseServiceKeysRefuses(t *testing.T) {
	text, sum := NewServiceKey()
	_, other := NewServiceKey()
	const nameRule, shape = "the name must be 1 to 64", "want NAME:SHA256HEX:SCOPE+SCOPE"
	const hashRule, scopeRule = "never the key itself", "the scopes must be"

	tests := []struct {
		name string
		in   string
		want []string // parts of the error
	}{
		{"empty", "", []string{"no service key"}},
		{"name alone", "orders", []string{"service key 1 (orders)", shape}},
		{"no scopes", "orders:" + sum, []string{"service key 1 (orders)", shape}},
		{"empty scopes", "orders:" + sum + ":", []string{"service key 1 (orders)", scopeRule}},
		{"four parts", "orders:" + sum + ":tokend.issue:x", []string{shape}},
		{"no name", ":" + sum + ":tokend.issue", []string{"service key 1:", nameRule}},
		{"bad name", "or ders:" + sum + ":tokend.issue", []string{"service key 1:", nameRule}},
		{"long name", strings.Repeat("n", 65) + ":" + sum + ":tokend.issue", []string{nameRule}},
		{"the key itself", "orders:" + text + ":tokend.issue", []string{"service key 1 (orders)", hashRule}},
		{"the key alone", text, []string{"service key 1:", nameRule}},
		{"upper case", "orders:" + strings.ToUpper(strings.Repeat("a", 64)) + ":tokend.issue", []string{hashRule}},
		{"short hash", "orders:" + sum[:62] + ":tokend.issue", []string{hashRule}},
		{"long hash", "orders:" + sum + "00:tokend.issue", []string{hashRule}},
		{"no hash", "orders::tokend.issue", []string{hashRule}},
		{"odd hash", "orders:" + sum[:63] + ":tokend.issue", []string{hashRule}},
		{"unknown scope", "orders:" + sum + ":tokend.admin", []string{scopeRule}},
		{"scope in another case", "orders:" + sum + ":Tokend.issue", []string{scopeRule}},
		{"scope with a space", "orders:" + sum + ": tokend.issue", []string{scopeRule}},
		{"trailing plus", "orders:" + sum + ":tokend.issue+", []string{scopeRule}},
		{"trailing comma", "orders:" + sum + ":tokend.issue,", []string{"service key 2:", nameRule}},
		{"one key twice", "a:" + sum + ":tokend.issue,b:" + sum + ":tokend.consume", []string{"service key 2 (b) is the same key as 1 (a)"}},
		{"all at once", "a:x:tokend.issue,b:" + other + ":y,c", []string{"1 (a)", "2 (b)", "3 (c)"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ParseServiceKeys(tt.in)
			if err == nil {
				t.Fatal("accepted")
			}
			for _, part := range tt.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q lacks %q", err, part)
				}
			}
			for _, hidden := range []string{sum, sum[:62], text, other} {
				if strings.Contains(err.Error(), hidden) {
					t.Errorf("%q quotes a secret", err)
				}
			}
		})
	}
}

func TestServiceKeyHidesItsHash(t *testing.T) {
	k := ServiceKey{Name: "orders", SHA256: sha256.Sum256([]byte("k")), Scopes: ScopeIssue}
	for _, verb := range []string{"%v", "%s", "%+v", "%#v"} {
		if got := fmt.Sprintf(verb, k); got != "orders:…" {
			t.Errorf("%s prints %s", verb, got)
		}
	}
}
