package auth

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// DefaultLeeway is the leeway where an operator states none.
const DefaultLeeway = 30 * time.Second

// minSecret is the length of the shortest shared secret, in bytes.
const minSecret = 32

// Config says who may call. At most one of Secrets, PublicKeys and JWKSURL is set, and at
// least one of them or ServiceKeys.
type Config struct {
	// Secrets verify JWTs by HMAC, all of them; each is 32 bytes or longer.
	Secrets [][]byte
	// PublicKeys verify JWTs: a PEM file's content, of RSA (2048 bits or more), EC (P-256,
	// P-384, P-521) or Ed25519 keys, as PKIX, PKCS #1 or certificates. All keys verify.
	PublicKeys []byte
	// JWKSURL is where the public keys that verify JWTs are fetched: https, or http of
	// this machine. It needs Issuer and Audience, as an issuer signs for others too.
	JWKSURL string
	// ServiceKeys are known beside any of the above.
	ServiceKeys []ServiceKey

	// Algorithm narrows what Secrets (HS256 where empty, HS384, HS512) or public keys (all
	// that fit a key's type where empty) verify, to one.
	Algorithm string
	// Issuer is what iss must be; where empty, it is not looked at.
	Issuer string
	// Audience is what aud must name one of; where empty, it is not looked at.
	Audience []string
	// Leeway is granted on exp and nbf. Zero grants none: see DefaultLeeway.
	Leeway time.Duration
	// UserClaim is the claim that names the user; sub where empty.
	UserClaim string
	// ScopeClaim is the claim that holds the scopes; scope where empty.
	ScopeClaim string
	// ServiceClaim, NAME=VALUE, is the claim that a service's JWT must hold too; where
	// empty, the scope is enough. VALUE may hold further equals signs.
	ServiceClaim string

	// CacheSize is how many verified JWTs are remembered, about; 10,000 where zero.
	CacheSize int
	// Logger hears of fetched keys; slog.Default where nil.
	Logger *slog.Logger
	// Clock tells the host's time; time.Now where nil.
	Clock func() time.Time
	// Transport fetches the keys; one of its own where nil.
	Transport http.RoundTripper
}

// SettingError says that a setting breaks its rule. It never quotes the value.
type SettingError struct {
	Setting string // the setting's name in the configuration: "auth.jwt_secret"
	Rule    string // the rule that was broken: "must be …"
}

func (e *SettingError) Error() string { return e.Setting + " " + e.Rule }

// problems collects all that is wrong with a Config.
type problems []error

func (p *problems) add(setting, rule string, args ...any) {
	*p = append(*p, &SettingError{Setting: setting, Rule: fmt.Sprintf(rule, args...)})
}

// New returns an Authenticator, which is to be closed. An error joins a *SettingError for
// each thing that is wrong. New does not wait for the keys of a JWKSURL.
func New(c Config) (*Authenticator, error) {
	var wrong problems
	a := &Authenticator{
		rules:       c.rules(&wrong),
		serviceKeys: newServiceKeys(c.ServiceKeys),
		clock:       c.Clock,
	}
	if a.clock == nil {
		a.clock = time.Now
	}
	if err := checkServiceKeys(c.ServiceKeys); err != nil {
		wrong.add("auth.service_keys", "is wrong: %v", err)
	}
	algorithms, keys := c.keys(&wrong)
	if len(wrong) > 0 {
		return nil, errors.Join(wrong...)
	}
	a.envelope, a.keys = newEnvelope(algorithms), keys
	if r, ok := keys.(*remoteKeys); ok {
		r.start()
	}
	return a, nil
}

// keys returns what verifies JWTs, nil where nothing does, and the algorithms to accept.
func (c *Config) keys(wrong *problems) (algorithms []string, source keySource) {
	set := 0
	for _, is := range []bool{len(c.Secrets) > 0, c.PublicKeys != nil, c.JWKSURL != ""} {
		if is {
			set++
		}
	}
	switch {
	case set > 1:
		wrong.add("auth.jwt_secret", "excludes auth.public_key_file and auth.jwks_url, and they each other: set at most one")
		return nil, nil
	case len(c.Secrets) > 0:
		return c.secretKeys(wrong)
	case c.PublicKeys != nil:
		return c.pemKeys(wrong)
	case c.JWKSURL != "":
		return c.remoteKeys(wrong)
	case len(c.ServiceKeys) == 0:
		wrong.add("auth.jwt_secret", "or auth.public_key_file, auth.jwks_url or auth.service_keys must be set: nobody could call otherwise")
	}
	return nil, nil
}

func (c *Config) secretKeys(wrong *problems) ([]string, keySource) {
	algorithm := c.Algorithm
	if algorithm == "" {
		algorithm = "HS256"
	}
	if !slices.Contains(secretAlgorithms, algorithm) {
		wrong.add("auth.jwt_algorithm", "must be one of %s with auth.jwt_secret", strings.Join(secretAlgorithms, ", "))
	}
	algorithms := []string{algorithm}
	var keys []key
	for i, secret := range c.Secrets {
		if len(secret) < minSecret {
			wrong.add("auth.jwt_secret", "must be at least %d bytes long; secret %d is %d", minSecret, i+1, len(secret))
		}
		keys = append(keys, key{algorithms: algorithms, verifier: slices.Clone(secret)})
	}
	return algorithms, c.fixed(keys)
}

func (c *Config) pemKeys(wrong *problems) ([]string, keySource) {
	if !c.publicAlgorithm(wrong) {
		return nil, nil
	}
	keys, err := parsePEM(c.PublicKeys, c.Algorithm)
	if err != nil {
		wrong.add("auth.public_key_file", "must hold public keys in PEM: %v", err)
	}
	return narrow(publicAlgorithms, c.Algorithm), c.fixed(keys)
}

func (c *Config) remoteKeys(wrong *problems) ([]string, keySource) {
	u, err := url.Parse(c.JWKSURL)
	if err != nil {
		wrong.add("auth.jwks_url", "must be a URL")
	} else if err := checkKeyURL(u); err != nil {
		wrong.add("auth.jwks_url", "%v", err)
	}
	if c.Issuer == "" {
		wrong.add("auth.issuer", "must be set with auth.jwks_url")
	}
	if len(c.Audience) == 0 {
		wrong.add("auth.audience", "must be set with auth.jwks_url")
	}
	c.publicAlgorithm(wrong)
	log := c.Logger
	if log == nil {
		log = slog.Default()
	}
	only := c.Algorithm
	return narrow(publicAlgorithms, only), &remoteKeys{
		url:    c.JWKSURL,
		client: newFetchClient(c.Transport),
		log:    log,
		parse:  func(document []byte) ([]key, int, error) { return parseJWKS(document, only) },
		size:   c.cacheSize(),
	}
}

// publicAlgorithm tells whether the algorithm is one of public keys', or none.
func (c *Config) publicAlgorithm(wrong *problems) bool {
	if len(narrow(publicAlgorithms, c.Algorithm)) > 0 {
		return true
	}
	wrong.add("auth.jwt_algorithm", "must be one of %s with public keys", strings.Join(publicAlgorithms, ", "))
	return false
}

func (c *Config) fixed(keys []key) keySource {
	return fixedKeys{&keySet{keys: keys, verified: newCache(c.cacheSize())}}
}

func (c *Config) cacheSize() int {
	const usual = 10_000
	if c.CacheSize == 0 {
		return usual
	}
	return c.CacheSize
}

func (c *Config) rules(wrong *problems) rules {
	r := rules{
		issuer:     c.Issuer,
		audience:   slices.Clone(c.Audience),
		leeway:     c.Leeway,
		userClaim:  c.UserClaim,
		scopeClaim: c.ScopeClaim,
	}
	if r.userClaim == "" {
		r.userClaim = "sub"
	}
	if r.scopeClaim == "" {
		r.scopeClaim = "scope"
	}
	if c.Leeway < 0 {
		wrong.add("auth.leeway", "must not be negative")
	}
	if slices.Contains(c.Audience, "") {
		wrong.add("auth.audience", "must not hold an empty audience")
	}
	if c.ServiceClaim != "" {
		var ok bool
		r.serviceClaim, r.serviceValue, ok = strings.Cut(c.ServiceClaim, "=")
		if !ok || r.serviceClaim == "" || r.serviceValue == "" {
			wrong.add("auth.service_claim", "must be NAME=VALUE")
		}
	}
	return r
}
