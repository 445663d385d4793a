package auth

import (
	"errors"
	"slices"

	"github.com/MicahParks/jwkset"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// parseJWKS reads a JWK set (RFC 7517). Keys that cannot verify JWTs here are passed over
// and counted, as section 5 asks; a set with none that can is an error, as a provider's
// half-written answer must not put all its keys out of force.
func parseJWKS(document []byte, only string) (keys []key, passed int, err error) {
	var set struct {
		Keys []jsontext.Value `json:"keys"`
	}
	if err := json.Unmarshal(document, &set); err != nil {
		return nil, 0, errors.New("the answer is not a JWK set")
	}
	for _, raw := range set.Keys {
		k, err := parseJWK(raw, only)
		if err != nil {
			passed++
			continue
		}
		keys = append(keys, k)
	}
	if len(keys) == 0 {
		return nil, passed, errors.New("the JWK set holds no key that could verify JWTs here")
	}
	return keys, passed, nil
}

// parseJWK reads one key. Where it says what it is for (alg, use, key_ops), it is good for
// nothing else.
func parseJWK(raw jsontext.Value, only string) (key, error) {
	var m jwkset.JWKMarshal
	if err := json.Unmarshal(raw, &m); err != nil {
		return key{}, err
	}
	switch {
	case m.USE != "" && m.USE != jwkset.UseSig,
		len(m.KEYOPS) > 0 && !slices.Contains(m.KEYOPS, jwkset.KeyOpsVerify):
		return key{}, errors.New("not for verifying signatures")
	case m.K != "", m.D != "":
		return key{}, errors.New("a secret, which is none once it is published")
	}
	k, err := jwkset.NewJWKFromMarshal(m, jwkset.JWKMarshalOptions{}, jwkset.JWKValidateOptions{})
	if err != nil {
		return key{}, err
	}
	algorithms, err := algorithmsOf(k.Key())
	if err != nil {
		return key{}, err
	}
	algorithms = narrow(narrow(algorithms, string(m.ALG)), only)
	if len(algorithms) == 0 {
		return key{}, errors.New("not for an algorithm that is accepted")
	}
	return key{id: m.KID, algorithms: algorithms, verifier: k.Key()}, nil
}
