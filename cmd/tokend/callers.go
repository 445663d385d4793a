package main

import (
	"errors"
	"fmt"
	"log/slog"

	"example.com/tokend/config"
	"example.com/tokend/httpapi/auth"
)

// newCallers returns what tells callers apart, or nil where a has faults, which it adds,
// or gives no way to tell any.
func newCallers(a config.Auth, faults *config.Faults, log *slog.Logger) *auth.Authenticator {
	if !a.Given() {
		return nil
	}
	c := auth.Config{
		JWKSURL:      a.JWKSURL,
		Algorithm:    a.JWTAlgorithm,
		Issuer:       a.Issuer,
		Audience:     a.Audience,
		Leeway:       a.Leeway,
		UserClaim:    a.UserClaim,
		ScopeClaim:   a.ScopeClaim,
		ServiceClaim: a.ServiceClaim,
		Logger:       log,
	}
	for _, s := range a.JWTSecrets {
		c.Secrets = append(c.Secrets, []byte(s.Reveal()))
	}
	if a.PublicKeyFile != "" {
		pem, err := config.ReadFile(a.PublicKeyFile)
		if err != nil {
			faults.Add("auth.public_key_file", fmt.Sprintf("must name a file that can be read: %v", err))
		}
		c.PublicKeys = pem
	}
	if a.ServiceKeys != "" {
		keys, err := auth.ParseServiceKeys(a.ServiceKeys.Reveal())
		for _, err := range parted(err) {
			faults.Add("auth.service_keys", err.Error())
		}
		c.ServiceKeys = keys
	}
	nothingLeft := len(c.Secrets) == 0 && c.PublicKeys == nil && c.JWKSURL == "" && len(c.ServiceKeys) == 0
	callers, err := auth.New(c)
	for _, err := range parted(err) {
		wrong, ok := errors.AsType[*auth.SettingError](err)
		switch {
		case !ok:
			faults.Add("auth.jwt_secret", err.Error())
		case nothingLeft && wrong.Setting == "auth.jwt_secret": // is set, and has a fault above
		default:
			faults.Add(wrong.Setting, wrong.Rule)
		}
	}
	return callers
}

// parted returns what errors.Join joined, so that each fault has its own line.
func parted(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	if err == nil {
		return nil
	}
	return []error{err}
}
