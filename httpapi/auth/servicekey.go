package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// ServiceKeyPrefix begins every key that [NewServiceKey] makes; secret scanners can look
// for it.
const ServiceKeyPrefix = "tsk_"

// ServiceKey is a service's key, as the configuration knows it: by its SHA-256. A plain
// hash is enough where the key is random; one that a person made up is not.
type ServiceKey struct {
	Name   string            // 1 to 64 of [A-Za-z0-9._-], not tsk_ in front; two keys may share one, to rotate
	SHA256 [sha256.Size]byte // of the whole key, prefix included
	Scopes Scopes            // at least one
}

// String returns the name alone.
func (k ServiceKey) String() string { return k.Name + ":…" }

// GoString returns the name alone.
func (k ServiceKey) GoString() string { return k.String() }

// NewServiceKey makes a service key up: the text that the service sends as its bearer, and
// the text's SHA-256 in hex for the configuration.
func NewServiceKey() (text, sha256hex string) {
	var secret [32]byte
	rand.Read(secret[:]) // never fails: crypto/rand ends the program rather than do so
	text = ServiceKeyPrefix + base64.RawURLEncoding.EncodeToString(secret[:])
	sum := sha256.Sum256([]byte(text))
	return text, hex.EncodeToString(sum[:])
}

// ParseServiceKeys reads "NAME:SHA256HEX:SCOPE+SCOPE[,NAME:…]". All that is wrong is
// reported at once, by place and name; no error quotes a hash, nor a key that stands where
// its hash should.
func ParseServiceKeys(s string) ([]ServiceKey, error) {
	if s == "" {
		return nil, errors.New("no service key: want NAME:SHA256HEX:SCOPE+SCOPE[,…]")
	}
	var keys []ServiceKey
	var errs []error
	for i, entry := range strings.Split(s, ",") {
		k, err := parseServiceKey(entry)
		if err != nil {
			errs = append(errs, fmt.Errorf("service key %s: %w", place(i, k.Name), err))
			continue
		}
		keys = append(keys, k)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	if err := checkServiceKeys(keys); err != nil {
		return nil, err
	}
	return keys, nil
}

// parseServiceKey reads one entry. With an error it returns the name, if that is one.
func parseServiceKey(entry string) (ServiceKey, error) {
	parts := strings.Split(entry, ":")
	var k ServiceKey
	if !validKeyName(parts[0]) {
		return k, errKeyName
	}
	k.Name = parts[0]
	if len(parts) != 3 {
		return k, errors.New("want NAME:SHA256HEX:SCOPE+SCOPE")
	}
	if n, err := hex.Decode(k.SHA256[:], []byte(parts[1][:min(len(parts[1]), 2*sha256.Size)])); err != nil ||
		n != sha256.Size || hex.EncodeToString(k.SHA256[:]) != parts[1] {
		return k, errors.New("the second part must be the key's SHA-256, 64 lowercase hex digits, never the key itself")
	}
	for _, word := range strings.Split(parts[2], "+") {
		scope := scopeOf(word)
		if scope == 0 {
			return k, errKeyScopes
		}
		k.Scopes |= scope
	}
	return k, nil
}

// checkServiceKeys holds keys to the rules that [ServiceKey] states, and each hash to one
// key: no bearer may be two services.
func checkServiceKeys(keys []ServiceKey) error {
	var errs []error
	for i, k := range keys {
		switch {
		case !validKeyName(k.Name):
			errs = append(errs, fmt.Errorf("service key %s: %w", place(i, ""), errKeyName))
		case k.Scopes == 0 || k.Scopes&^(ScopeIssue|ScopeConsume) != 0:
			errs = append(errs, fmt.Errorf("service key %s: %w", place(i, k.Name), errKeyScopes))
		}
		for j, other := range keys[:i] {
			if other.SHA256 == k.SHA256 {
				errs = append(errs, fmt.Errorf("service key %s is the same key as %s", place(i, k.Name), place(j, other.Name)))
			}
		}
	}
	return errors.Join(errs...)
}

var (
	errKeyName   = errors.New("the name must be 1 to 64 of [A-Za-z0-9._-], and no key (tsk_…)")
	errKeyScopes = errors.New("the scopes must be tokend.issue, tokend.consume or both with a + between")
)

// place names an entry, by its name too where it has one.
func place(i int, name string) string {
	if name == "" {
		return fmt.Sprint(i + 1)
	}
	return fmt.Sprintf("%d (%s)", i+1, name)
}

// validKeyName refuses a key that stands where its name should: names are shown.
func validKeyName(s string) bool {
	if len(s) < 1 || len(s) > maxName || strings.HasPrefix(s, ServiceKeyPrefix) {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}

// serviceKeys finds identities by the SHA-256 of the bearer. Which hash a guess has is
// nothing that its timing could teach anybody.
type serviceKeys map[digest]Identity

func newServiceKeys(keys []ServiceKey) serviceKeys {
	m := make(serviceKeys, len(keys))
	for _, k := range keys {
		m[k.SHA256] = Identity{Kind: KeyService, Name: k.Name, Scopes: k.Scopes}
	}
	return m
}

func (m serviceKeys) identify(text string) (Identity, error) {
	id, ok := m[sha256.Sum256([]byte(text))]
	if !ok {
		return Identity{}, refuse(ErrUnknownServiceKey)
	}
	return id, nil
}
