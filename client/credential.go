package client

import (
	"context"
	"errors"
)

// Credential tells tokend who is calling; [ServiceKey] and [TokenSource] make one.
// Printing it shows no secret.
type Credential struct {
	source func(context.Context) (string, error)
	err    error // found when it was made, reported by New
}

// ServiceKey is the secret of a service that tokend's configuration names.
func ServiceKey(key string) Credential {
	return Credential{
		source: func(context.Context) (string, error) { return key, nil },
		err:    checkBearer(key),
	}
}

// TokenSource calls source for a JWT, a service's or a user's. It is called for each
// try, by many goroutines at a time, so it should keep what it has until that is about
// to expire. After a 401 it is called once more; where it returns the same JWT again,
// or the next one is refused too, the call ends with [ErrUnauthenticated].
//
// Its context is the call's, so one Client can act for the user whose JWT the context
// holds. Its error ends the call with a [*Fault] and is not tried again: a source
// knows best what is worth another try.
func TokenSource(source func(context.Context) (string, error)) Credential {
	if source == nil {
		return Credential{err: errors.New("the TokenSource must not be nil")}
	}
	return Credential{source: source}
}

// check returns what was wrong with cr when it was made.
func (cr Credential) check() error {
	if cr.source == nil && cr.err == nil {
		return errors.New("a Credential is required: ServiceKey or TokenSource")
	}
	return cr.err
}

// bearer returns what stands behind "Bearer" in this try.
func (cr Credential) bearer(ctx context.Context) (string, error) {
	s, err := cr.source(ctx)
	if err != nil {
		return "", err
	}
	return s, checkBearer(s)
}

func checkBearer(s string) error {
	ok := s != ""
	for i := range len(s) {
		ok = ok && '!' <= s[i] && s[i] <= '~'
	}
	if !ok {
		return errors.New("a credential must be one or more visible ASCII characters, no space or line break among them")
	}
	return nil
}
