package config

import "log/slog"

// mask stands where a secret must not.
const mask = "********"

// Secret is a text that is never shown: printing, logging and marshalling it give a
// mask. [Secret.Reveal] gives the text. The zero Secret means that there is none.
type Secret string

// Reveal returns the secret itself.
func (s Secret) Reveal() string { return string(s) }

// String returns a mask, or nothing for the zero Secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return mask
}

// GoString returns what String does.
func (s Secret) GoString() string { return s.String() }

// LogValue returns what String does.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText returns what String does.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
