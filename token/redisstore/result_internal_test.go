package redisstore

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"example.com/tokend/token"
)

// TestResultSpelling pins the layout: results outlive releases.
func TestResultSpelling(t *testing.T) {
	got := string(appendResult(nil, &token.Result{
		Status: 404, Headers: map[string]string{"X-B": "", "Location": "/orders/7"}, Body: []byte("\x00body"),
	}))
	const want = "\x01\x00\x01\x94\x02\x08Location\x09/orders/7\x03X-B\x00\x00body"
	if got != want {
		t.Errorf("result is %q, want %q", got, want)
	}
	if got := string(appendResult(nil, &token.Result{Status: 200, BodyOmitted: true})); got != "\x01\x01\x00\xc8\x00" {
		t.Errorf("result without its body is %q", got)
	}
	if got := appendResult(nil, nil); got != nil {
		t.Errorf("no result is %q", got)
	}
}

func TestResultRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := &token.Result{
			Status:      rapid.IntRange(100, 599).Draw(t, "status"),
			Headers:     rapid.MapOf(rapid.String(), rapid.String()).Draw(t, "headers"),
			Body:        rapid.SliceOf(rapid.Byte()).Draw(t, "body"),
			BodyOmitted: rapid.Bool().Draw(t, "omitted"),
		}
		got, err := parseResult(string(appendResult(nil, r)))
		if diff := cmp.Diff(r, got, cmpopts.EquateEmpty()); err != nil || diff != "" {
			t.Fatalf("%v (-want +got):\n%s", err, diff)
		}
	})
}

// FuzzParseResult holds that whatever is read has one spelling: nothing is dropped.
func FuzzParseResult(f *testing.F) {
	f.Add("")
	f.Add("\x01\x00\x01\x94\x02\x08Location\x09/orders/7\x03X-B\x00\x00body")
	f.Add("\x01\x01\x00\xc8\x00")
	f.Add("\x01\x00\x00\xc8\x80\x00")
	f.Add("\x01\x00\x00\xc8\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01a")
	f.Fuzz(func(t *testing.T, s string) {
		r, err := parseResult(s)
		if err != nil {
			return
		}
		if again := string(appendResult(nil, r)); again != s {
			t.Errorf("%q is read as %+v, which is written %q", s, r, again)
		}
	})
}
