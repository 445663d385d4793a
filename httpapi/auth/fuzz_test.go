package auth

import (
	"context"
	"strings"
	"testing"
)

// FuzzAuthenticate sends any header: it must not panic, an error is a refusal, and whoever
// is let in sent one of the two bearers that are good.
func FuzzAuthenticate(f *testing.F) {
	user := hs256(alice(`,"nbf":1,"aud":["a"]`))
	key, sum := NewServiceKey()
	a := open(f, Config{
		Secrets: [][]byte{secret}, Audience: []string{"a"},
		ServiceKeys: must(ParseServiceKeys("orders:" + sum + ":tokend.consume")),
	})
	for _, seed := range []string{
		"Bearer " + user, "bearer  " + user + " ", "Bearer " + key, "Bearer ..", "Bearer", "",
		"Bearer " + user + "=", "Bearer " + user + "\n", "Bearer " + user[:len(user)-1] + "B",
		"Bearer " + strings.Replace(user, ".", "=.", 1), "Bearer " + b64(`{"alg":"none"}`) + "." + b64(alice("")) + ".",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		id, err := a.Authenticate(context.Background(), []string{header})
		if err != nil {
			if id != (Identity{}) {
				t.Fatalf("%q is refused, and is %v", header, id)
			}
			_ = err.(*Refusal).Challenge()
			return
		}
		sent := strings.Trim(header[len("Bearer"):], " ")
		if sent != user && sent != key {
			t.Fatalf("%q is let in as %v", header, id)
		}
	})
}

// FuzzClaims signs any claims: they must not panic, and who is let in is a valid user or a
// service with a name and a scope.
func FuzzClaims(f *testing.F) {
	a := open(f, Config{Secrets: [][]byte{secret}})
	for _, seed := range []string{
		alice(""), alice(`,"scope":"tokend.issue"`), alice(`,"scope":["tokend.consume"]`),
		`{"sub":1,"exp":1e400}`, `{"sub":"a","exp":"9"}`, `null`, `[]`, `{"exp":null}`, alice(`,"nbf":-1e9,"iat":1.5`),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, claims string) {
		id, err := ask(a, hs256(claims))
		if err != nil {
			_ = err.(*Refusal)
			return
		}
		switch {
		case id.IsUser() && id.User != "" && id.Name == "" && id.Scopes == 0:
		case id.IsService() && id.User == "" && id.Name != "" && id.Scopes != 0:
		default:
			t.Fatalf("%q is %+v", claims, id)
		}
	})
}
