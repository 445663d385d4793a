package wire

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestTimeStandsWithMilliseconds: as the layout of RFC 3339 with milliseconds has it.
func TestTimeStandsWithMilliseconds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// From the year 0 to 9999, in any zone.
		at := time.Unix(rapid.Int64Range(-62167219200, 253402300799).Draw(t, "seconds"), rapid.Int64Range(0, 999999999).Draw(t, "ns"))
		at = at.In(time.FixedZone("", rapid.IntRange(-12, 14).Draw(t, "zone")*3600))
		want := at.UTC().Format("2006-01-02T15:04:05.000Z")
		if got := TimeOf(at).String(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	})
}
