package auth

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestNewRefuses names each setting that is wrong, and none of the others.
func TestNewRefuses(t *testing.T) {
	k := private()
	remote := Config{JWKSURL: "https://issuer.example/keys", Issuer: "i", Audience: []string{"a"}}
	with := func(c Config, change func(*Config)) Config { change(&c); return c }

	tests := []struct {
		name   string
		config Config
		want   []string
	}{
		{"nothing", Config{}, []string{"auth.jwt_secret"}},
		{"short secret", Config{Secrets: [][]byte{secret[:31]}}, []string{"auth.jwt_secret"}},
		{"empty secret", Config{Secrets: [][]byte{secret, {}}}, []string{"auth.jwt_secret"}},
		{"secret and PEM", Config{Secrets: [][]byte{secret}, PublicKeys: pkix(k.ed.Public())}, []string{"auth.jwt_secret"}},
		{"secret and URL", with(remote, func(c *Config) { c.Secrets = [][]byte{secret} }), []string{"auth.jwt_secret"}},
		{"PEM and URL", with(remote, func(c *Config) { c.PublicKeys = pkix(k.ed.Public()) }), []string{"auth.jwt_secret"}},
		{"empty PEM", Config{PublicKeys: []byte{}}, []string{"auth.public_key_file"}},
		{"RS256 with a secret", Config{Secrets: [][]byte{secret}, Algorithm: "RS256"}, []string{"auth.jwt_algorithm"}},
		{"none with a secret", Config{Secrets: [][]byte{secret}, Algorithm: "none"}, []string{"auth.jwt_algorithm"}},
		{"HS256 with PEM", Config{PublicKeys: pkix(k.rsa.Public()), Algorithm: "HS256"}, []string{"auth.jwt_algorithm"}},
		{"RS256 with an EC key", Config{PublicKeys: pkix(k.p256.Public()), Algorithm: "RS256"}, []string{"auth.public_key_file"}},
		{"HS256 with URL", with(remote, func(c *Config) { c.Algorithm = "HS256" }), []string{"auth.jwt_algorithm"}},
		{"URL without issuer and audience", Config{JWKSURL: remote.JWKSURL}, []string{"auth.audience", "auth.issuer"}},
		{"empty audience", Config{Secrets: [][]byte{secret}, Audience: []string{"a", ""}}, []string{"auth.audience"}},
		{"negative leeway", Config{Secrets: [][]byte{secret}, Leeway: -time.Second}, []string{"auth.leeway"}},
		{"service claim without =", Config{Secrets: [][]byte{secret}, ServiceClaim: "gty"}, []string{"auth.service_claim"}},
		{"service claim without name", Config{Secrets: [][]byte{secret}, ServiceClaim: "=cc"}, []string{"auth.service_claim"}},
		{"service claim without value", Config{Secrets: [][]byte{secret}, ServiceClaim: "gty="}, []string{"auth.service_claim"}},
		{"service key without scopes", Config{ServiceKeys: []ServiceKey{{Name: "a"}}}, []string{"auth.service_keys"}},
		{"service key of a bad name", Config{ServiceKeys: []ServiceKey{{Name: "a b", Scopes: ScopeIssue}}}, []string{"auth.service_keys"}},
		{"all at once", Config{Secrets: [][]byte{{1}}, Algorithm: "x", Leeway: -1, ServiceClaim: "x", Audience: []string{""}},
			[]string{"auth.audience", "auth.jwt_algorithm", "auth.jwt_secret", "auth.leeway", "auth.service_claim"}},
	}
	for _, u := range []string{
		"http://issuer.example/keys", "http://127.0.0.1.example/", "http://localhost.example/", "ftp://localhost/",
		"https://", "issuer.example/keys", "//issuer.example", "file:///keys", "https://u:p@issuer.example/", "http://10.0.0.1/", "%",
	} {
		tests = append(tests, struct {
			name   string
			config Config
			want   []string
		}{u, with(remote, func(c *Config) { c.JWKSURL = u }), []string{"auth.jwks_url"}})
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a, err := New(tt.config)
			if err == nil {
				a.Close()
				t.Fatal("accepted")
			}
			if got := settings(err); !slices.Equal(got, tt.want) {
				t.Errorf("%v names %v, want %v", err, got, tt.want)
			}
			if strings.Contains(err.Error(), string(secret[:31])) || strings.Contains(err.Error(), "u:p") {
				t.Errorf("%v quotes a secret", err)
			}
		})
	}
}

// settings returns the names in the joined SettingErrors, each once.
func settings(err error) []string {
	var names []string
	for _, e := range err.(interface{ Unwrap() []error }).Unwrap() {
		var s *SettingError
		if !errors.As(e, &s) {
			return []string{e.Error()}
		}
		names = append(names, s.Setting)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
