package clienttest

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"example.com/tokend/token"
)

// Option makes a [Server] differ from one with tokend's own defaults.
type Option func(*settings)

type settings struct {
	tokens      token.Options
	purposes    []string
	resultBytes int
	log         *slog.Logger
}

// TTL is how long tokens are good whose caller asks for no other time: whole seconds, up
// to 24h. It is 5m where not set.
func TTL(d time.Duration) Option {
	return func(s *settings) { s.tokens.TTL = d }
}

// Retention is how long it is remembered, past a token's expiry, what became of it: whole
// seconds. It is 24h where not set.
func Retention(d time.Duration) Option {
	return func(s *settings) { s.tokens.Retention = d }
}

// KeysRetention is how long a key is remembered from its latest claim, commit or completion
// on: whole seconds. It is 24h where not set.
func KeysRetention(d time.Duration) Option {
	return func(s *settings) { s.tokens.KeysRetention = d }
}

// ResultBytes is the largest body of a result that is kept. It is 256 KiB where not set.
func ResultBytes(n int) Option {
	return func(s *settings) { s.resultBytes = n }
}

// Purposes names the only purposes that tokens are issued for. Any is where not set.
func Purposes(names ...string) Option {
	return func(s *settings) { s.purposes = append(s.purposes, names...) }
}

// Rate limits how many tokens a user's own calls are issued: burst at once, and perMinute
// of the server's time. Where not set there is no limit, as a clock that stands still
// never grants another token.
func Rate(perMinute, burst int) Option {
	return func(s *settings) { s.tokens.Rate = token.Rate{PerMinute: perMinute, Burst: burst} }
}

// DeleteMode has tokens consumed by deleting their keys, which tells less of what became
// of them: it is tokend's configuration tokens.mode=delete.
func DeleteMode() Option {
	return func(s *settings) { s.tokens.Mode = token.Delete }
}

// Log writes tokend's outcome lines to h: slog.NewTextHandler(t.Output(), nil) shows them
// beside the test. Nothing is written where not set.
func Log(h slog.Handler) Option {
	return func(s *settings) { s.log = slog.New(lasting{h}) }
}

// newSettings returns tokend's defaults with opts. Its error names all that is wrong.
func newSettings(opts []Option) (*settings, error) {
	const day = 24 * time.Hour
	s := &settings{
		tokens: token.Options{
			Mode:     token.Record,
			Settings: token.Settings{TTL: 5 * time.Minute, MaxTTL: day, Retention: day, KeysRetention: day},
		},
		resultBytes: 256 << 10,
		log:         slog.New(slog.DiscardHandler),
	}
	for _, o := range opts {
		o(s)
	}
	var errs []error
	if t := s.tokens.TTL; t < time.Second || t > s.tokens.MaxTTL || t%time.Second != 0 {
		errs = append(errs, errors.New("TTL must be whole seconds, from 1s to 24h"))
	}
	if r := s.tokens.Retention; r < 0 || r%time.Second != 0 {
		errs = append(errs, errors.New("Retention must be whole seconds, and not negative"))
	}
	if r := s.tokens.KeysRetention; r < time.Second || r%time.Second != 0 {
		errs = append(errs, errors.New("KeysRetention must be whole seconds, at least 1"))
	}
	if s.resultBytes < 1 {
		errs = append(errs, errors.New("ResultBytes must be at least 1"))
	}
	if r := s.tokens.Rate; r.PerMinute < 0 || r.PerMinute > 0 && r.Burst < 1 {
		errs = append(errs, errors.New("Rate must not be negative, and its burst at least 1"))
	}
	for _, name := range s.purposes {
		p, err := token.ParsePurpose(name)
		if err != nil {
			errs = append(errs, fmt.Errorf("Purposes: %w", err))
			continue
		}
		if s.tokens.Purposes == nil {
			s.tokens.Purposes = make(map[token.Purpose]token.Settings)
		}
		s.tokens.Purposes[p] = s.tokens.Settings
	}
	return s, errors.Join(errs...)
}
