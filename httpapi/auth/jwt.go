package auth

import (
	"encoding/base64"
	"errors"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/golang-jwt/jwt/v5"
)

// envelope opens JWTs: it looks at all but the claims.
type envelope struct {
	parser     *jwt.Parser
	algorithms []string
}

func newEnvelope(algorithms []string) envelope {
	return envelope{
		parser: jwt.NewParser(
			jwt.WithValidMethods(algorithms),
			jwt.WithStrictDecoding(),
			jwt.WithoutClaimsValidation(), // claims.go does that, strictly
		),
		algorithms: algorithms,
	}
}

// open returns the claims of the JWT text, as JSON, if one of keys has signed them.
func (e envelope) open(text string, keys *keySet) ([]byte, error) {
	if !spelledStrictly(text) {
		return nil, refuse(ErrMalformed)
	}
	var p payload
	t, err := e.parser.ParseWithClaims(text, &p, func(t *jwt.Token) (any, error) {
		found, err := signers(t, keys)
		return jwt.VerificationKeySet{Keys: found}, err
	})
	var no *Refusal
	switch {
	case err == nil:
		return p.json, nil
	case errors.As(err, &no):
		return nil, no
	case errors.Is(err, jwt.ErrTokenMalformed):
		return nil, &Refusal{Reason: ErrMalformed, Cause: err}
	case t.Method == nil || !slices.Contains(e.algorithms, t.Method.Alg()):
		alg, _ := t.Header["alg"].(string)
		return nil, refuseFor(ErrAlgorithm, "alg", alg)
	default:
		return nil, &Refusal{Reason: ErrSignature, Cause: err}
	}
}

// signers returns the keys that may have signed t, going by its header.
func signers(t *jwt.Token, keys *keySet) ([]jwt.VerificationKey, error) {
	// The parser takes the last of two members with one name, another party might take
	// the first (RFC 7515, section 4, lets a verifier refuse both).
	header, _, _ := strings.Cut(t.Raw, ".")
	raw, err := base64.RawURLEncoding.DecodeString(header)
	if err != nil || !jsontext.Value(raw).IsValid() {
		return nil, refuse(ErrHeader)
	}
	// A verifier that does not understand what crit lists must refuse (RFC 7515, section
	// 4.1.11). This one understands no extension.
	if _, ok := t.Header["crit"]; ok {
		return nil, refuse(ErrCritical)
	}
	kid := ""
	if v, ok := t.Header["kid"]; ok {
		if kid, ok = v.(string); !ok {
			return nil, refuse(ErrHeader)
		}
	}
	return keys.find(t.Method.Alg(), kid)
}

// isJWT tells a JWT in the compact form from other bearers.
func isJWT(text string) bool { return strings.Count(text, ".") == 2 }

// spelledStrictly tells whether text is made of base64url's own characters and dots. Go's
// strict base64 still skips CR and LF; without those it takes one spelling only.
func spelledStrictly(text string) bool {
	for i := range len(text) {
		switch c := text[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_', c == '.':
		default:
			return false
		}
	}
	return true
}

// payload keeps a JWT's claims as they are: what the parser would make of them takes the
// last of two members with one name.
type payload struct {
	jwt.MapClaims // always empty, and never asked
	json          []byte
}

// UnmarshalJSON keeps a copy of data.
func (p *payload) UnmarshalJSON(data []byte) error {
	p.json = slices.Clone(data)
	return nil
}
