package auth

import (
	"context"
	"slices"

	"github.com/golang-jwt/jwt/v5"
)

// key verifies JWTs.
type key struct {
	id         string // its kid in a JWKS; empty where it has none
	algorithms []string
	verifier   jwt.VerificationKey
}

// keySet is the keys in force at one time, and what they have verified. It never changes:
// other keys are another set, with an empty cache.
type keySet struct {
	keys     []key
	named    bool // a JWT's kid picks the key; where false it is a remark
	verified *cache
}

// find returns the keys that may have signed a JWT with this algorithm and kid (empty where
// it has none). The refusals are ErrUnknownKey and ErrAlgorithm.
func (s *keySet) find(alg, kid string) ([]jwt.VerificationKey, error) {
	known := !s.named || kid == ""
	var found []jwt.VerificationKey
	for _, k := range s.keys {
		if s.named && kid != "" && k.id != kid {
			continue
		}
		known = true
		if slices.Contains(k.algorithms, alg) {
			found = append(found, k.verifier)
		}
	}
	switch {
	case !known:
		return nil, refuseFor(ErrUnknownKey, "kid", kid)
	case len(found) == 0:
		return nil, refuseFor(ErrAlgorithm, "alg", alg)
	}
	return found, nil
}

// keySource is where the keys come from.
type keySource interface {
	// current returns the keys in force, or nil where none could be had yet.
	current() *keySet
	// refresh looks for newer keys, if it is time to. An error says that none could be
	// had, and that current is the best that there is.
	refresh(ctx context.Context) error
	// close ends what the source started.
	close()
}

// fixedKeys come from the configuration.
type fixedKeys struct{ set *keySet }

func (f fixedKeys) current() *keySet              { return f.set }
func (f fixedKeys) refresh(context.Context) error { return nil }
func (f fixedKeys) close()                        {}
