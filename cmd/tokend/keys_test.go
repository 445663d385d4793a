package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"

	"example.com/tokend/config"
	"example.com/tokend/httpapi/auth"
	"example.com/tokend/token"
)

// written writes text to a file and returns its path.
func written(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestKeygenSigning(t *testing.T) {
	seen := map[string]bool{}
	for range 3 {
		got := runCommand(t, nil, "", "keygen", "signing")
		keys, err := token.ParseKeys(strings.TrimSuffix(got.stdout, "\n"))
		if got.status != exitOK || err != nil || len(keys) != 1 || seen[keys[0].ID] {
			t.Fatalf("%+v, %v", got, err)
		}
		seen[keys[0].ID] = true
	}
	if got := runCommand(t, nil, "", "keygen", "signing", "--id=2027a"); !strings.HasPrefix(got.stdout, "2027a:") {
		t.Errorf("%+v", got)
	}
}

func TestKeygenService(t *testing.T) {
	got := runCommand(t, nil, "", "keygen", "service", "--name=form", "--scope=tokend.consume")
	lines := strings.Split(got.stdout, "\n")
	if got.status != exitOK || len(lines) != 3 {
		t.Fatalf("%+v", got)
	}
	secret := lines[0][strings.LastIndex(lines[0], " ")+1:]
	entry := lines[1][strings.LastIndex(lines[1], " ")+1:]
	id := identify(t, config.Auth{ServiceKeys: config.Secret(entry)}, secret)
	if id.Name != "form" || !id.Has("tokend.consume") || id.Has("tokend.issue") {
		t.Errorf("%+v", id)
	}
}

// identify returns whom a server with a takes the bearer for.
func identify(t *testing.T, a config.Auth, bearer string) auth.Identity {
	t.Helper()
	faults := new(config.Faults)
	callers := newCallers(a, faults, slog.New(slog.DiscardHandler))
	if err := faults.Err(); err != nil {
		t.Fatal(err)
	}
	defer callers.Close()
	id, err := callers.Authenticate(t.Context(), []string{"Bearer " + bearer})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// A JWT that is signed with serve's settings is one that serve accepts.
func TestJWT(t *testing.T) {
	secret := "TOKEND_AUTH_JWT_SECRET=" + testSecret
	tests := []struct {
		name    string
		environ []string
		args    []string
		service bool
	}{
		{"user", []string{secret}, nil, false},
		{"service", []string{secret}, []string{"--scope=tokend.issue tokend.consume"}, true},
		{"the first of two secrets", []string{secret + "," + strings.Repeat("x", 32)}, nil, false},
		{"issuer and audience", []string{secret, "TOKEND_AUTH_ISSUER=i", "TOKEND_AUTH_AUDIENCE=a,b"}, nil, false},
		{"audience by flag", []string{secret, "TOKEND_AUTH_ISSUER=i", "TOKEND_AUTH_AUDIENCE=a,b"}, []string{"--aud=b", "--iss=i"}, false},
		{"claims", []string{secret, "TOKEND_AUTH_USER_CLAIM=uid", "TOKEND_AUTH_SCOPE_CLAIM=roles", "TOKEND_AUTH_SERVICE_CLAIM=gty=cc"}, []string{"--scope=tokend.issue"}, true},
		{"algorithm", []string{secret, "TOKEND_AUTH_JWT_ALGORITHM=HS512"}, nil, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := runCommand(t, tt.environ, "", append([]string{"jwt", "--sub=alice"}, tt.args...)...)
			if got.status != exitOK {
				t.Fatalf("%+v", got)
			}
			cfg, _ := config.Load(config.Sources{Environ: tt.environ})
			id := identify(t, cfg.Auth, strings.TrimSpace(got.stdout))
			if id.IsUser() == tt.service || id.IsUser() && id.User != "alice" {
				t.Errorf("%+v", id)
			}
		})
	}
	for name, args := range map[string][]string{
		"flag":                       {"--secret=" + testSecret},
		"file":                       {"--secret-file=" + written(t, testSecret+"\n")},
		"file instead of a variable": {"--secret-file=" + written(t, testSecret)},
	} {
		environ := []string{"TOKEND_AUTH_JWT_SECRET=" + strings.Repeat("y", 40)}
		got := runCommand(t, environ, "", append([]string{"jwt", "--sub=alice"}, args...)...)
		if got.status != exitOK {
			t.Fatalf("%s: %+v", name, got)
		}
		identify(t, config.Auth{JWTSecrets: []config.Secret{config.Secret(testSecret)}, UserClaim: "sub"}, strings.TrimSpace(got.stdout))
	}
}

func TestRef(t *testing.T) {
	got := runCommand(t, []string{"TOKEND_REDIS_KEY_PREFIX=x"}, "", "ref", "--user=alice", "--ref=t_00225c7e7f80ff000000000000000041")
	want := "user_ref " + token.User("alice").Hash().String() + "\n" +
		`redis_key "x:t:{4-QMxX}\x00\"\\~\x7f\x80\xff\x00\x00\x00\x00\x00\x00\x00\x00A"` + "\n"
	if got.status != exitOK || got.stdout != want {
		t.Errorf("got %q, want %q", got.stdout, want)
	}
}

func TestVersion(t *testing.T) {
	if got := runCommand(t, nil, "", "version"); got.status != exitOK || !strings.HasPrefix(got.stdout, "tokend ") {
		t.Errorf("%+v", got)
	}
	revision := "0123456789abcdef0123456789abcdef01234567"
	for _, tt := range []struct {
		version, revision, modified, want string
	}{
		{"v1.2.3", "", "", "v1.2.3"},
		{"(devel)", revision, "false", "(devel)+0123456789ab"},
		{"", revision, "true", "(devel)+0123456789ab.dirty"},
		{"v0.0.0-20260801000000-0123456789ab", revision, "false", "v0.0.0-20260801000000-0123456789ab"},
	} {
		info := &debug.BuildInfo{Main: debug.Module{Version: tt.version}, Settings: []debug.BuildSetting{
			{Key: "vcs.revision", Value: tt.revision}, {Key: "vcs.modified", Value: tt.modified},
		}}
		if got := versionOf(info); got != tt.want {
			t.Errorf("%+v: got %s", tt, got)
		}
	}
}

func TestConfigCommand(t *testing.T) {
	environ := []string{
		"TOKEND_REDIS_URL=redis://tokend:" + canary + "@h:6379", "TOKEND_AUTH_JWT_SECRET_FILE=" + written(t, testSecret),
		"TOKEND_CONFIG=" + written(t, "tokens: {max_ttl: 1h}\npurposes: {order.create: {ttl: 30m}}\n"),
	}
	got := runCommand(t, environ, "", "config", "--tokens-ttl=2m")
	if got.status != exitOK || strings.Contains(got.stdout+got.stderr, canary) {
		t.Fatalf("%+v", got)
	}
	if !strings.HasPrefix(got.stderr, "tokend: serve would not start with these settings: a fault in the configuration:\n  --signing-keys,") {
		t.Errorf("of what serve lacks it says %q", got.stderr)
	}
	lines := map[string]string{}
	for line := range strings.Lines(got.stdout) {
		name, rest, _ := strings.Cut(line, " ")
		lines[name] = strings.Join(strings.Fields(rest), " ")
	}
	for name, want := range map[string]string{
		"tokens.ttl":                "2m --tokens-ttl",
		"tokens.max_ttl":            "1h file:1",
		"tokens.retention":          "24h default",
		"redis.url":                 "redis://tokend@h:6379 TOKEND_REDIS_URL",
		"redis.password":            `"" default`,
		"auth.jwt_secret":           "******** TOKEND_AUTH_JWT_SECRET_FILE",
		"purposes.order.create.ttl": "30m file:2",
	} {
		if lines[name] != want {
			t.Errorf("%s: %q, want %q", name, lines[name], want)
		}
	}
}

// Who calls Redis is shown, but for what may be a password.
func TestRedisPlace(t *testing.T) {
	for _, tt := range []struct {
		url, password, want string
	}{
		{"redis://u:" + canary + "@h:1/2?addr=x:1", "", "redis://u@h:1/2"},
		{"redis://u@h", canary, "redis://u@h"},
		{"redis://u:" + canary + "@h", canary, "redis://u@h"},
		{"redis://:" + canary + "@h", "", "redis://h"},
		{"redis://" + canary + "@h", "", "redis://h"},
		{"unix://u:" + canary + "@/run/redis.sock?db=3", "", "unix://u@/run/redis.sock"},
		{"redis://u:" + canary + "%x@h", "", "********"},
		{"", canary, ""},
	} {
		if got := redisPlace(config.Redis{URL: config.Secret(tt.url), Password: config.Secret(tt.password)}); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.url, got, tt.want)
		}
	}
}

// What is above its limit is shown as it was given, beside what is wrong with it; and what a
// file that is not there may hold is not missed.
func TestConfigFaults(t *testing.T) {
	got := runCommand(t, nil, "", "config", "--tokens-ttl=48h")
	if line := regexp.MustCompile(`(?m)^tokens.ttl +48h +--tokens-ttl$`); got.status != exitUsage || !line.MatchString(got.stdout) || !strings.Contains(got.stderr, "must not be above tokens.max_ttl, which is 24h") {
		t.Errorf("%+v", got)
	}
	for _, command := range []string{"serve", "doctor", "config"} {
		got := runCommand(t, nil, "", command, "--config=/nonexistent/nope.yaml")
		if want := "tokend: a fault in the configuration:\n  --config, TOKEND_CONFIG: the file cannot be read: /nonexistent/nope.yaml: no such file or directory\n"; got.status != exitUsage || got.stderr != want {
			t.Errorf("%s: %+v, want %q", command, got, want)
		}
	}
}

// All that is wrong comes out at once, from package config and from the parts alike.
func TestAllFaultsAtOnce(t *testing.T) {
	got := runCommand(t, []string{
		"TOKEND_REDIS_URL=redis://:pa#ss" + canary + "@h", "TOKEND_SIGNING_KEYS=k:" + canary, "TOKEND_AUTH_JWT_SECRET=" + canary,
		"TOKEND_AUTH_SERVICE_KEYS=a:" + canary + ":tokend.consume,b:" + strings.Repeat("0", 64) + ":" + canary, "TOKEND_AUTH_SERVICE_CLAIM=" + canary,
		"TOKEND_TLS_CERT_FILE=" + canary, "TOKEND_TLS_KEY_FILE=/nonexistent", "TOKEND_TOKENS_TTL=5", "TOKEND_NOPE=" + canary,
	}, "", "serve")
	if got.status != exitUsage || got.stdout != "" {
		t.Errorf("%+v", got)
	}
	if strings.Contains(got.stderr, canary) {
		t.Errorf("a secret in %s", got.stderr)
	}
	for _, want := range []string{
		"9 faults", "tls.cert_file in YAML: and tls.key_file must name", "redis.url in YAML: must be redis://USER", "tokens.ttl in YAML: must be a duration",
		"signing.keys in YAML: signing key", "auth.jwt_secret in YAML: must be at least 32 bytes", "auth.service_keys in YAML: service key 1 (a): the second part",
		"auth.service_keys in YAML: service key 2 (b): the scopes", "auth.service_claim in YAML: must be NAME=VALUE", "TOKEND_NOPE",
	} {
		if !strings.Contains(got.stderr, want) {
			t.Errorf("stderr lacks %q:\n%s", want, got.stderr)
		}
	}
}

func TestCallersFaults(t *testing.T) {
	tests := []struct {
		name string
		auth config.Auth
		want string
	}{
		{"no such file", config.Auth{PublicKeyFile: "/nonexistent/jwt.pem"}, "auth.public_key_file in YAML: must name a file that can be read: /nonexistent/jwt.pem: no such file"},
		{"a key for a file", config.Auth{PublicKeyFile: "-----BEGIN PUBLIC KEY-----\n" + canary}, "auth.public_key_file in YAML: must name a file that can be read: no such file"},
		{"no PEM", config.Auth{PublicKeyFile: written(t, canary)}, "auth.public_key_file in YAML: must hold public keys in PEM"},
		{"two ways", config.Auth{PublicKeyFile: written(t, canary), JWTSecrets: []config.Secret{config.Secret(testSecret)}}, "auth.jwt_secret in YAML: excludes"},
		{"JWKS alone", config.Auth{JWKSURL: "https://i.example/k"}, "auth.issuer in YAML: must be set with auth.jwks_url"},
		{"algorithm", config.Auth{JWTSecrets: []config.Secret{config.Secret(testSecret)}, JWTAlgorithm: "RS256"}, "auth.jwt_algorithm in YAML: must be one of HS256"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			faults := new(config.Faults)
			if c := newCallers(tt.auth, faults, slog.New(slog.DiscardHandler)); c != nil {
				c.Close()
			}
			if faults.Err() == nil || !strings.Contains(faults.Error(), tt.want) || strings.Contains(faults.Error(), canary) || strings.Contains(faults.Error(), "nobody") {
				t.Errorf("got %v, want %q", faults.Err(), tt.want)
			}
		})
	}
}
