package client_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/tokend/client"
	"example.com/tokend/client/clienttest"
)

// These tests hold the client's claims and the real server to each other, over HTTP.

// key returns a subject of its own for each name.
func key(name string) client.Subject { return client.Key("alice", "payment", name) }

// page is a result with all that one can hold.
var page = client.Result{
	Status: 201,
	Header: map[string]string{"Content-Type": "text/csv", "Location": "/orders/7", "x-odd": "ä, b"},
	Body:   []byte("a,b\r\n\x00\xff\n"),
}

// claimed claims s, which must be free.
func claimed(t *testing.T, c *client.Client, s client.Subject, opts ...client.ClaimOption) *client.Claim {
	t.Helper()
	cl, done, err := c.Claim(t.Context(), s, opts...)
	if err != nil || done != nil {
		t.Fatalf("claim: %v, %v", done, err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// claimErr claims s, which must be refused.
func claimErr(t *testing.T, c *client.Client, s client.Subject, opts ...client.ClaimOption) error {
	t.Helper()
	cl, done, err := c.Claim(t.Context(), s, opts...)
	if err == nil {
		t.Errorf("claimed: %v, %v", cl, done)
	}
	return err
}

// returns is a fn that does its work.
func returns(r client.Result) func(context.Context, *client.Claim) (client.Result, error) {
	return func(context.Context, *client.Claim) (client.Result, error) { return r, nil }
}

// never is a fn that must not run.
func never(t *testing.T) func(context.Context, *client.Claim) (client.Result, error) {
	return func(context.Context, *client.Claim) (client.Result, error) {
		t.Error("the work was done again")
		return client.Result{}, errors.New("again")
	}
}

// A result is replayed byte for byte, of tokens as of keys.
func TestReplay(t *testing.T) {
	t.Parallel()
	s := clienttest.New(t)
	c := s.Client()
	empty := client.Result{Status: 204, Header: map[string]string{}}
	for name, r := range map[string]client.Result{"all": page, "empty": empty, "none": {}} {
		tok := issue(t, c)
		for _, sub := range []client.Subject{key(name), client.TokenOf("alice", "default", tok.Value)} {
			first, err := c.Do(t.Context(), sub, returns(r))
			if err != nil || first.Replayed {
				t.Fatalf("%s: %+v, %v", name, first, err)
			}
			again, err := c.Do(t.Context(), sub, never(t))
			if err != nil {
				t.Fatal(err)
			}
			want := client.Completed{Result: r, Ref: first.Ref, Replayed: true}
			if diff := cmp.Diff(want, again); diff != "" {
				t.Errorf("%s: %s", name, diff)
			}
		}
	}
}
