package auth

import (
	"context"
	"crypto/sha256"
	"errors"
	"time"
)

// Authenticator tells who is calling. It is safe for concurrent use.
type Authenticator struct {
	rules       rules
	envelope    envelope
	keys        keySource // nil where no JWT is accepted
	serviceKeys serviceKeys
	clock       func() time.Time
}

// Close ends the fetching of keys. The Authenticator then answers from those that it has.
func (a *Authenticator) Close() {
	if a.keys != nil {
		a.keys.close()
	}
}

// Authenticate returns the caller that the values of a request's Authorization header
// name: all of its values, as two are refused. Errors: *[Refusal], *[Fault].
//
// It may wait for keys that are being fetched, for some seconds at most and no longer than
// ctx lasts.
func (a *Authenticator) Authenticate(ctx context.Context, authorization []string) (Identity, error) {
	text, err := bearer(authorization)
	if err != nil {
		return Identity{}, err
	}
	if !isJWT(text) {
		return a.serviceKeys.identify(text)
	}
	if a.keys == nil {
		return Identity{}, refuse(ErrNoJWTs)
	}
	var room [1024]byte // for any usual JWT
	sum, now := digest(sha256.Sum256(append(room[:0], text...))), a.clock()
	keys := a.keys.current()
	if keys != nil {
		if id, ok := keys.verified.get(sum, now); ok {
			return id, nil
		}
	} else if keys, err = a.fetchedKeys(ctx); err != nil {
		return Identity{}, err
	}

	payload, err := a.envelope.open(text, keys)
	if errors.Is(err, ErrUnknownKey) {
		payload, keys, err = a.openWithNewer(ctx, text, keys, err)
	}
	if err != nil {
		return Identity{}, err
	}
	g, err := a.rules.judge(payload, now)
	if err != nil {
		return Identity{}, err
	}
	keys.verified.put(sum, g, now)
	return g.id, nil
}

// fetchedKeys waits for the first keys.
func (a *Authenticator) fetchedKeys(ctx context.Context) (*keySet, error) {
	err := a.keys.refresh(ctx)
	if keys := a.keys.current(); keys != nil {
		return keys, nil
	}
	if err == nil {
		err = errors.New("not fetched yet")
	}
	return nil, &Fault{Err: err}
}

// openWithNewer opens a JWT whose kid is unknown to keys, if there are newer ones. Where
// none could be had nobody can tell whether the kid is: a fault, no refusal.
func (a *Authenticator) openWithNewer(ctx context.Context, text string, keys *keySet, unknown error) ([]byte, *keySet, error) {
	stale := a.keys.refresh(ctx)
	newer := a.keys.current()
	if newer != keys {
		payload, err := a.envelope.open(text, newer)
		if err == nil || !errors.Is(err, ErrUnknownKey) {
			return payload, newer, err
		}
	}
	if stale != nil {
		return nil, nil, &Fault{Err: stale}
	}
	return nil, nil, unknown
}
