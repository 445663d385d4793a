package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/tokend/httpapi/wire"
)

// jwts returns a source of each of texts in turn, and then of the last one.
func jwts(texts ...string) Credential {
	return TokenSource(func(context.Context) (string, error) {
		s := texts[0]
		if len(texts) > 1 {
			texts = texts[1:]
		}
		return s, nil
	})
}

func TestUnauthenticated(t *testing.T) {
	no, down := problemOf(wire.CodeUnauthenticated), problemOf(wire.CodeStoreUnavailable)
	tests := []struct {
		name       string
		credential Credential
		steps      []step
		wantErr    error
		want       []string // the bearer of each try
	}{
		{"a fresh JWT", jwts("a", "b"), []step{no, granted}, nil, []string{"a", "b"}},
		{"a fresh JWT is refused too", jwts("a", "b", "c"), []step{no, no}, ErrUnauthenticated, []string{"a", "b"}},
		{"the same JWT again", jwts("a"), []step{no}, ErrUnauthenticated, []string{"a"}},
		{"a service key", ServiceKey("k"), []step{no}, ErrUnauthenticated, []string{"k"}},
		{"each try asks", jwts("a", "b"), []step{down, granted}, nil, []string{"a", "b"}},
		{"the fresh JWT has all tries left", jwts("a", "b"), []step{no, down, granted}, nil, []string{"a", "b", "b"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inBubbleAs(t, tt.credential, tt.steps, func(t *testing.T, c *Client, f *fake) {
				if _, err := c.Issue(t.Context(), testUser); !errors.Is(err, tt.wantErr) {
					t.Errorf("got %v, want %v", err, tt.wantErr)
				}
				var got []string
				for _, m := range f.made() {
					got = append(got, m.bearer)
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Error(diff)
				}
			}, MaxTries(2))
		})
	}
}

func TestTokenSourceFails(t *testing.T) {
	cause := errors.New("the issuer is down")
	tests := []struct {
		name   string
		source func(context.Context) (string, error)
		want   error
	}{
		{"error", func(context.Context) (string, error) { return "", cause }, cause},
		{"empty", func(context.Context) (string, error) { return "", nil }, nil},
		{"line break", func(context.Context) (string, error) { return "SERVICE-\nKEY", nil }, nil},
		{"no ASCII", func(context.Context) (string, error) { return "SERVICE-é", nil }, nil},
		{"a refusal of its own", func(context.Context) (string, error) { return "", &Refusal{Code: wire.CodeTokenUsed} }, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inBubbleAs(t, TokenSource(tt.source), nil, func(t *testing.T, c *Client, f *fake) {
				err := consumeOnce(t.Context(), c)
				wantFault(t, err, Fault{Op: "consume"})
				if tt.want != nil && !errors.Is(err, tt.want) {
					t.Errorf("%v is not %v", err, tt.want)
				}
				if strings.Contains(err.Error(), "SERVICE") {
					t.Errorf("the credential is quoted: %v", err)
				}
			})
		})
	}
}

// A source that fails later does not undo what an earlier try may have done.
func TestTokenSourceFailsLater(t *testing.T) {
	n := 0
	source := TokenSource(func(context.Context) (string, error) {
		if n++; n > 1 {
			return "", errors.New("the issuer is down")
		}
		return "a", nil
	})
	inBubbleAs(t, source, []step{dropped}, func(t *testing.T, c *Client, f *fake) {
		wantFault(t, consumeOnce(t.Context(), c), Fault{Op: "consume", MaybeDone: true, Tries: 1})
	})
}

type callerKey struct{}

// One Client can act for many users.
func TestTokenSourceGetsContext(t *testing.T) {
	source := TokenSource(func(ctx context.Context) (string, error) { return ctx.Value(callerKey{}).(string), nil })
	inBubbleAs(t, source, []step{granted}, func(t *testing.T, c *Client, f *fake) {
		if _, err := c.Issue(context.WithValue(t.Context(), callerKey{}, "alices-jwt"), ""); err != nil {
			t.Fatal(err)
		}
		if got := f.made()[0].bearer; got != "alices-jwt" {
			t.Errorf("bearer %q", got)
		}
	})
}

func TestCredentialIsChecked(t *testing.T) {
	for _, cr := range []Credential{{}, ServiceKey(""), ServiceKey("a b"), ServiceKey("key\n"), ServiceKey("ké"), TokenSource(nil)} {
		if _, err := New("http://tokend", cr); err == nil {
			t.Errorf("no error for %v", cr)
		}
	}
}

func TestCredentialIsNotPrinted(t *testing.T) {
	for _, cr := range []Credential{ServiceKey(testKey), ServiceKey(testKey + "\n")} {
		c := Client{credential: cr}
		if s := fmt.Sprintf("%v %+v %#v %+v", cr, cr, cr, c); strings.Contains(s, testKey) {
			t.Errorf("the key stands in %s", s)
		}
	}
}
