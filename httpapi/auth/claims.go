package auth

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"example.com/tokend/token"
)

// rules are what a JWT's claims must satisfy.
type rules struct {
	issuer       string   // empty: any, or none
	audience     []string // empty: any, or none
	leeway       time.Duration
	userClaim    string
	scopeClaim   string
	serviceClaim string // empty: none is asked for
	serviceValue string
}

// judge returns what a JWT with these claims is good for, and refuses one that is good for
// nothing now.
func (r *rules) judge(payload []byte, now time.Time) (grant, error) {
	c, err := parseClaims(payload)
	if err != nil {
		return grant{}, err
	}
	g := grant{}
	if g.from, g.until, err = r.times(c); err != nil {
		return grant{}, err
	}
	switch {
	case !now.Before(g.until):
		return grant{}, refuse(ErrExpired)
	case now.Before(g.from):
		return grant{}, refuse(ErrNotYet)
	}
	if err := r.parties(c); err != nil {
		return grant{}, err
	}
	g.id, err = r.identity(c)
	return g, err
}

// times returns when a JWT is valid, leeway included: from (inclusive) until (exclusive).
func (r *rules) times(c claims) (from, until time.Time, err error) {
	exp, ok := c.time("exp")
	if !ok {
		return from, until, refuse(ErrExpiry)
	}
	if c.has("nbf") {
		nbf, ok := c.time("nbf")
		if !ok {
			return from, until, refuse(ErrNotBefore)
		}
		from = nbf.Add(-r.leeway)
	}
	if _, ok := c.time("iat"); c.has("iat") && !ok {
		return from, until, refuse(ErrIssuedAt)
	}
	return from, exp.Add(r.leeway), nil
}

// parties checks who made the JWT, and for whom.
func (r *rules) parties(c claims) error {
	if r.issuer != "" {
		if iss, ok := c.text("iss"); !ok || iss != r.issuer {
			return refuseFor(ErrIssuer, "iss", string(c["iss"]))
		}
	}
	if len(r.audience) > 0 {
		aud, ok := c.texts("aud")
		if !ok || !slices.ContainsFunc(aud, func(a string) bool { return slices.Contains(r.audience, a) }) {
			return refuseFor(ErrAudience, "aud", string(c["aud"]))
		}
	}
	return nil
}

// identity tells whose the JWT is.
func (r *rules) identity(c claims) (Identity, error) {
	text, ok := c.text(r.userClaim)
	if !ok {
		return Identity{}, refuse(ErrUserClaim)
	}
	user, err := token.ParseUser(text)
	if err != nil {
		return Identity{}, refuse(ErrUserClaim)
	}
	scopes, err := r.scopes(c)
	if err != nil {
		return Identity{}, err
	}
	if scopes == 0 {
		return Identity{Kind: User, User: user}, nil
	}
	if r.serviceClaim != "" {
		if v, ok := c.text(r.serviceClaim); !ok || v != r.serviceValue {
			return Identity{}, refuseFor(ErrServiceClaim, r.serviceClaim, string(c[r.serviceClaim]))
		}
	}
	client, _ := c.text("client_id") // RFC 8693, section 4.3; RFC 9068 requires it
	return Identity{Kind: Service, Name: loggable(cmp.Or(client, text)), Scopes: scopes}, nil
}

// scopes returns those of tokend's scopes that the JWT holds.
func (r *rules) scopes(c claims) (Scopes, error) {
	if !c.has(r.scopeClaim) {
		return 0, nil
	}
	words, ok := c.texts(r.scopeClaim)
	if !ok {
		return 0, refuse(ErrScopeClaim)
	}
	if s, ok := c.text(r.scopeClaim); ok {
		words = strings.Split(s, " ")
	}
	var scopes Scopes
	for _, w := range words {
		scopes |= scopeOf(w)
	}
	return scopes, nil
}

// claims are a JWT's, by their names, byte for byte. Their values are read only where they
// are asked for, so a claim that nobody asks for may be anything.
type claims map[string]jsontext.Value

// parseClaims reads one JSON object, strictly: valid UTF-8, no member twice in any object,
// nothing behind it.
func parseClaims(payload []byte) (claims, error) {
	var c claims
	if err := json.Unmarshal(payload, &c); err != nil || c == nil {
		return nil, refuse(ErrClaims) // err may quote the claims
	}
	return c, nil
}

func (c claims) has(name string) bool { _, ok := c[name]; return ok }

// time returns a NumericDate (RFC 7519, section 2): seconds since 1970, a fraction allowed.
// One that is not a number, or lies behind the year 9999 either way, is not ok.
func (c claims) time(name string) (t time.Time, ok bool) {
	const most = 253402300799 // 9999-12-31T23:59:59Z; what is larger would overflow later
	v := c[name]
	if len(v) == 0 || v.Kind() != jsontext.KindNumber {
		return time.Time{}, false
	}
	f, err := strconv.ParseFloat(string(v), 64)
	if err != nil || math.Abs(f) > most {
		return time.Time{}, false
	}
	sec, frac := math.Modf(f)
	return time.Unix(int64(sec), int64(frac*1e9)), true
}

// text returns a string.
func (c claims) text(name string) (s string, ok bool) {
	v := c[name]
	if len(v) == 0 || v.Kind() != jsontext.KindString {
		return "", false
	}
	return s, json.Unmarshal(v, &s) == nil
}

// texts returns a list of strings, or a string as a list of one.
func (c claims) texts(name string) ([]string, bool) {
	if s, ok := c.text(name); ok {
		return []string{s}, true
	}
	v := c[name]
	if len(v) == 0 || v.Kind() != jsontext.KindBeginArray {
		return nil, false
	}
	var items []jsontext.Value
	if json.Unmarshal(v, &items) != nil {
		return nil, false
	}
	list := make([]string, len(items))
	for i, item := range items {
		// A null would pass for an empty string.
		if item.Kind() != jsontext.KindString || json.Unmarshal(item, &list[i]) != nil {
			return nil, false
		}
	}
	return list, true
}
