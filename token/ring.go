package token

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	stdhash "hash"
	"strings"
	"sync"
)

// SecretSize is the length of a signing key's secret in bytes.
const SecretSize = 32

// Key is a signing key. Its text form never shows the secret.
type Key struct {
	ID     string // 1 to 16 of [A-Za-z0-9_-]; stands in each token that it signs
	Secret [SecretSize]byte
}

// String returns the ID alone.
func (k Key) String() string { return k.ID + ":…" }

// GoString returns the ID alone.
func (k Key) GoString() string { return k.String() }

// ParseKeys reads "ID:BASE64[,ID:BASE64 …]": IDs of 1 to 16 of [A-Za-z0-9_-], each
// once, and secrets of exactly 32 bytes in padded standard base64. Errors name the
// key by place and ID and never quote a secret.
func ParseKeys(s string) ([]Key, error) {
	if s == "" {
		return nil, fmt.Errorf("no signing key: want ID:BASE64[,ID:BASE64 …]")
	}
	if strings.ContainsAny(s, "\r\n") {
		return nil, fmt.Errorf("signing keys: found a line break; want one line, with commas between keys")
	}
	var keys []Key
	for i, part := range strings.Split(s, ",") {
		id, text, ok := strings.Cut(part, ":")
		if !ok {
			return nil, fmt.Errorf("signing key %d: want ID:BASE64, found no colon", i+1)
		}
		if !validKeyID(id) {
			return nil, fmt.Errorf("signing key %d: the ID must be 1 to 16 of [A-Za-z0-9_-]", i+1)
		}
		secret, err := base64.StdEncoding.Strict().DecodeString(text)
		if err != nil || base64.StdEncoding.EncodeToString(secret) != text {
			return nil, fmt.Errorf("signing key %q: the secret is not padded standard base64", id)
		}
		if len(secret) != SecretSize {
			return nil, fmt.Errorf("signing key %q: the secret is %d bytes, want %d", id, len(secret), SecretSize)
		}
		k := Key{ID: id, Secret: [SecretSize]byte(secret)}
		for _, other := range keys {
			if other.ID == id {
				return nil, fmt.Errorf("signing key %q stands twice", id)
			}
		}
		keys = append(keys, k)
	}
	return keys, nil
}

func validKeyID(id string) bool {
	if len(id) < 1 || len(id) > maxKeyID {
		return false
	}
	for i := range len(id) {
		switch c := id[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}

// Ring signs with its first key and verifies with all of them. It is safe for
// concurrent use.
type Ring struct {
	keys []*signer
}

// NewRing returns a ring of keys, of which the first signs. It refuses an empty list,
// a bad ID and an ID that stands twice.
func NewRing(keys ...Key) (*Ring, error) {
	if len(keys) == 0 {
		return nil, fmt.Errorf("token: a ring needs a key")
	}
	r := new(Ring)
	for _, k := range keys {
		if !validKeyID(k.ID) {
			return nil, fmt.Errorf("token: key ID must be 1 to %d of [A-Za-z0-9_-]", maxKeyID)
		}
		if r.signer([]byte(k.ID)) != nil {
			return nil, fmt.Errorf("token: key %q stands twice", k.ID)
		}
		r.keys = append(r.keys, newSigner(k))
	}
	return r, nil
}

// KeyIDs returns the ids of the ring's keys, the signing one first.
func (r *Ring) KeyIDs() []string {
	ids := make([]string, len(r.keys))
	for i, k := range r.keys {
		ids[i] = k.id
	}
	return ids
}

// signer returns the key named id, or nil. Rings are short: a walk beats a map.
func (r *Ring) signer(id []byte) *signer {
	for _, k := range r.keys {
		if k.id == string(id) {
			return k
		}
	}
	return nil
}

// signer holds a key's secrets, one derived for each use, so that a MAC made for one
// thing is never good for another.
type signer struct {
	id                          string
	token, user, purpose, claim macPool
}

func newSigner(k Key) *signer {
	return &signer{
		id:      k.ID,
		token:   newMACPool(k, "tokend v1 token"),
		user:    newMACPool(k, "tokend v1 user"),
		purpose: newMACPool(k, "tokend v1 purpose"),
		claim:   newMACPool(k, "tokend v1 claim"),
	}
}

// macPool makes HMAC-SHA256 sums without a new key schedule each time.
type macPool struct{ pool *sync.Pool }

type mac struct {
	hash stdhash.Hash
	sum  [sha256.Size]byte
	in   [len(ID{}) + 256]byte
}

func newMACPool(k Key, domain string) macPool {
	derive := hmac.New(sha256.New, k.Secret[:])
	derive.Write([]byte(domain))
	secret := derive.Sum(nil)
	return macPool{&sync.Pool{New: func() any { return &mac{hash: hmac.New(sha256.New, secret)} }}}
}

// sum returns the HMAC of a followed by b. a is of fixed length in each domain, so no
// two pairs run together.
func (p macPool) sum(a []byte, b string) [sha256.Size]byte {
	m := p.pool.Get().(*mac)
	defer p.pool.Put(m)
	m.hash.Reset()
	in := append(append(m.in[:0], a...), b...)
	m.hash.Write(in)
	m.hash.Sum(m.sum[:0])
	return m.sum
}
