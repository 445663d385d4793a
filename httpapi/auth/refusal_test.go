package auth

import (
	"errors"
	"strings"
	"testing"

	"example.com/tokend/httpapi/wire"
)

// TestReasons holds every reason to what the wire needs of it.
func TestReasons(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range Reasons() {
		if seen[r.Detail()] {
			t.Errorf("%q stands twice", r.Detail())
		}
		seen[r.Detail()] = true
		want := wire.CodeUnauthenticated
		if r == ErrServiceClaim {
			want = wire.CodeForbidden
		}
		if r.Code() != want {
			t.Errorf("%q is %s, want %s", r.Detail(), r.Code(), want)
		}
		for _, c := range r.Detail() {
			// What RFC 6750, section 3, lets stand in error_description.
			if c < ' ' || c > '~' || c == '"' || c == '\\' {
				t.Errorf("%q holds %q", r.Detail(), c)
			}
		}
	}
}

func TestChallenge(t *testing.T) {
	for _, tt := range []struct {
		why  *Reason
		want string
	}{
		{ErrNoHeader, `Bearer realm="tokend"`},
		{ErrExpired, `Bearer realm="tokend", error="invalid_token", error_description="the JWT has expired"`},
		{ErrServiceClaim, `Bearer realm="tokend", error="insufficient_scope", error_description="` + ErrServiceClaim.Detail() + `"`},
	} {
		if got := (&Refusal{Reason: tt.why}).Challenge(); got != tt.want {
			t.Errorf("got  %s\nwant %s", got, tt.want)
		}
	}
}

// TestErrorsAreDiscreet looks for the bearer in what is logged of it, and for line breaks.
func TestErrorsAreDiscreet(t *testing.T) {
	a := open(t, Config{Secrets: [][]byte{secret}, Issuer: "i", Audience: []string{"a"}})
	long := strings.Repeat("x", 3000)
	for _, text := range []string{
		"tsk_secret",
		hs256(alice("")) + "=",
		hs256(alice(`,"iss":"` + long + `"`)),
		hs256(alice(`,"iss":"a\nb"`)),
		sign("HS256", secret, `{"alg":"`+long+`"}`, alice("")),
		sign("HS256", secret, `{"alg":"HS256","kid":1}`, alice("")),
	} {
		_, err := ask(a, text)
		if err == nil {
			t.Fatal("accepted")
		}
		got := err.Error()
		if strings.Contains(got, text) || len(got) > 400 || strings.ContainsAny(got, "\r\n") {
			t.Errorf("the error says too much: %.500s", got)
		}
		var no *Refusal
		if !errors.As(err, &no) || no.Reason.Detail() == "" {
			t.Errorf("no refusal: %v", err)
		}
	}
}
