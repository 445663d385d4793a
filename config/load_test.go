package config

import (
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"example.com/tokend/token"
)

// canary stands in every secret of these tests; no message may hold it.
const canary = "canary7f3a"

var (
	goodKey    = "k1:" + base64.StdEncoding.EncodeToString([]byte("a-signing-key-of-32-bytes-" + canary)[:32])
	goodSecret = strings.Repeat(canary, 4)
)

// sources makes Sources of flags, variables and the text of a YAML file.
func sources(t *testing.T, args, environ []string, yaml string) Sources {
	t.Helper()
	if yaml != "" {
		path := filepath.Join(t.TempDir(), "tokend.yaml")
		if err := os.WriteFile(path, []byte(yaml), 0o600); err != nil {
			t.Fatal(err)
		}
		environ = append([]string{"TOKEND_CONFIG=" + path}, environ...)
	}
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	Register(fs)
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	return Sources{Flags: fs, Environ: environ}
}

// secretFile writes text to a file and returns its path.
func secretFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// here returns the path of the file called name in the working directory.
func here(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(name)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func origins(c *Config) map[string]Origin {
	m := map[string]Origin{}
	for _, v := range c.Values() {
		m[v.Name] = v.Origin
	}
	return m
}

func TestDefaults(t *testing.T) {
	c, faults := Load(Sources{})
	if err := faults.Err(); err != nil {
		t.Fatal(err)
	}
	c.values = nil
	want := &Config{
		Listen: ":8080", AdminListen: "127.0.0.1:9090",
		Redis:   Redis{Mode: Standalone, Timeout: time.Second, KeyPrefix: "tokend", WaitTimeout: 100 * time.Millisecond},
		Tokens:  Tokens{Settings: token.Settings{TTL: 5 * time.Minute, MaxTTL: 24 * time.Hour, Retention: 24 * time.Hour}, Mode: token.Record},
		Keys:    Keys{Retention: 24 * time.Hour},
		Results: Results{MaxBytes: 262144},
		Auth:    Auth{Leeway: 30 * time.Second, UserClaim: "sub", ScopeClaim: "scope"},
		Gateway: Gateway{AllowedStatus: 204},
		Rate:    token.Rate{PerMinute: 120, Burst: 120},
		Limits:  Limits{BodyBytes: 65536},
		Log:     Log{Format: LogJSON, Outcomes: LogAll, User: UserHash},
		Shutdown: Shutdown{
			Timeout: 15 * time.Second,
		},
	}
	if d := cmp.Diff(want, c, cmp.AllowUnexported(Config{})); d != "" {
		t.Error(d)
	}
}

func TestPrecedence(t *testing.T) {
	const yaml = "tokens: {ttl: 1m, max_ttl: 2m}\nlog:\n  format: text\n"
	env := []string{"TOKEND_TOKENS_TTL=90s", "PATH=/bin", "TOKEND_LOG_LEVEL=debug"}
	c, faults := Load(sources(t, []string{"--log-level=warn"}, env, yaml))
	if err := faults.Err(); err != nil {
		t.Fatal(err)
	}
	if got := c.Tokens.TTL; got != 90*time.Second {
		t.Errorf("ttl = %v, want the variable's", got)
	}
	if got := c.Tokens.MaxTTL; got != 2*time.Minute {
		t.Errorf("max_ttl = %v, want the file's", got)
	}
	got := origins(c)
	for name, want := range map[string]Origin{
		"log.level":        "--log-level",
		"tokens.ttl":       "TOKEND_TOKENS_TTL",
		"tokens.max_ttl":   "tokend.yaml:1",
		"log.format":       "tokend.yaml:3",
		"tokens.retention": Default,
	} {
		if got[name] != want {
			t.Errorf("origin of %s = %q, want %q", name, got[name], want)
		}
	}
}

// Every setting can be given by flag, by variable and in YAML.
func TestEverySettingFromEverySource(t *testing.T) {
	example := map[string]string{
		"address": "127.0.0.1:1234", "bool": "true", "duration": "7s", "number": "2000", "file": "x",
		"url": "https://issuer.example/keys", "password": "p" + canary, "text": "abc", "level": "warn",
		"format": "text", "which": "none", "how": "plain", "alg": "HS512", "claim": "uid",
		"claim=value": "gty=client", "header": "X-Own", "status": "200", "list": "https://a.example", "secrets": goodSecret, "keys": goodKey,
	}
	for _, s := range Settings() {
		text := example[s.Type]
		switch s.Name {
		case "config":
			continue
		case "redis.mode":
			text = "cluster"
		case "tokens.mode":
			text = "delete"
		case "redis.wait_replicas":
			text = "2"
		}
		if text == "" {
			t.Errorf("%s: no example of a %s", s.Name, s.Type)
			continue
		}
		for source, src := range map[string]Sources{
			"--" + s.Flag(): sources(t, []string{"--" + s.Flag() + "=" + text}, nil, ""),
			s.Variable():    sources(t, nil, []string{s.Variable() + "=" + text}, ""),
			"tokend.yaml:1": sources(t, nil, nil, s.Name+": '"+text+"'\n"),
		} {
			c, faults := Load(src)
			if faults.Has(s.Name) {
				t.Errorf("%s from %s: %v", s.Name, source, faults)
			}
			if got := origins(c)[s.Name]; string(got) != source {
				t.Errorf("%s from %s: origin %q", s.Name, source, got)
			}
		}
	}
}

func TestSecretFiles(t *testing.T) {
	const url = "redis://:" + canary + "@localhost:6379/0"
	tests := []struct {
		name, in, want string
	}{
		{"no newline", url, url},
		{"one newline", url + "\n", url},
		{"one of two newlines", url + "\n\n", url + "\n"},
		{"a Windows newline", url + "\r\n", url},
		{"spaces stay", url + " \n", url + " "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := secretFile(t, tt.in)
			for source, src := range map[string]Sources{
				"--redis-url-file":      sources(t, []string{"--redis-url-file", path}, nil, ""),
				"TOKEND_REDIS_URL_FILE": sources(t, nil, []string{"TOKEND_REDIS_URL_FILE=" + path}, ""),
				"tokend.yaml:2":         sources(t, nil, nil, "redis:\n  url_file: "+path+"\n"),
			} {
				c, faults := Load(src)
				if err := faults.Err(); err != nil {
					t.Fatal(err)
				}
				if got := c.Redis.URL.Reveal(); got != tt.want {
					t.Errorf("%s: got %q, want %q", source, got, tt.want)
				}
				if got := origins(c)["redis.url"]; string(got) != source {
					t.Errorf("origin %q, want %q", got, source)
				}
			}
		})
	}

	t.Run("a flag overrides a file in YAML", func(t *testing.T) {
		c, faults := Load(sources(t, []string{"--redis-url=redis://other"}, nil, "redis: {url_file: "+secretFile(t, url)+"}"))
		if err := faults.Err(); err != nil || c.Redis.URL != "redis://other" {
			t.Errorf("got %q, %v", c.Redis.URL.Reveal(), err)
		}
	})
}

func TestEachSecretHasAFile(t *testing.T) {
	secrets := map[string]bool{
		"redis.url": true, "redis.password": true, "signing.keys": true, "auth.jwt_secret": true, "auth.service_keys": true,
	}
	for _, s := range Settings() {
		if s.Secret != secrets[s.Name] {
			t.Errorf("%s: secret is %v", s.Name, s.Secret)
		}
		if _, ok := variables[variableOf(s.Name+fileSuffix)]; ok != s.Secret {
			t.Errorf("%s: a variable with _FILE is %v", s.Name, ok)
		}
	}
}

// No variable may end like one that Kubernetes injects: it would be taken for one, or
// an injected one for it.
func TestNoVariableLooksInjected(t *testing.T) {
	for variable := range variables {
		if injected.MatchString(variable) || injectedPort.MatchString(variable) {
			t.Errorf("%s looks injected", variable)
		}
	}
}

func TestInjectedVariables(t *testing.T) {
	ignored := []string{
		"TOKEND_SERVICE_HOST=10.0.0.1", "TOKEND_SERVICE_PORT=8080", "TOKEND_SERVICE_PORT_HTTP_WEB=8080",
		"TOKEND_PORT=tcp://10.0.0.1:8080", "TOKEND_PORT_8080_TCP=tcp://10.0.0.1:8080",
		"TOKEND_PORT_8080_TCP_PROTO=tcp", "TOKEND_PORT_8080_TCP_PORT=8080", "TOKEND_PORT_8080_TCP_ADDR=10.0.0.1",
		"TOKEND_REDIS_SERVICE_HOST=10.0.0.2", "TOKEND_REDIS_PORT=tcp://10.0.0.2:6379", "TOKEND_REDIS_PORT_6379_TCP=tcp://10.0.0.2:6379",
		"TOKEND_DNS_PORT=udp://10.0.0.3:53", "TOKEND_DNS_PORT_53_UDP_ADDR=10.0.0.3", "TOKEND_X_PORT_9_SCTP=sctp://10.0.0.4:9",
		"TOKEND_URL=http://x", "TOKEND_TOKEN=" + canary, "TOKEND_TOKEN_FILE=/x", "TOKENDX=1",
	}
	if _, faults := Load(Sources{Environ: ignored}); faults.Err() != nil {
		t.Error(faults)
	}
	for _, e := range []string{
		"TOKEND_PORT=8080", "TOKEND_REDIS_PORT=6379", "TOKEND_PORT_8080_ICMP=x", "TOKEND_PORT_X_TCP=x",
		"TOKEND_SERVICE=x", "TOKEND_PORT_8080_TCP_HOST=x", "TOKEND_=x", "TOKEND_LISTEN_=x", "TOKEND_listen=x",
	} {
		if _, faults := Load(Sources{Environ: []string{e}}); faults.Err() == nil {
			t.Errorf("%s was ignored", e)
		}
	}
}

// Each of these is a fault, whose message holds want.
func TestFaults(t *testing.T) {
	tests := []struct {
		name    string
		args    []string
		environ []string
		yaml    string
		want    []string
	}{
		{name: "unknown variable", environ: []string{"TOKEND_REDIS_ULR=" + canary}, want: []string{"TOKEND_REDIS_ULR", "did you mean TOKEND_REDIS_URL?"}},
		{name: "unknown variable like none", environ: []string{"TOKEND_SOMETHING_ELSE=" + canary}, want: []string{"TOKEND_SOMETHING_ELSE: no setting has this variable: unset or rename it"}},
		{name: "purposes by variable", environ: []string{"TOKEND_PURPOSES=" + canary}, want: []string{"YAML file only"}},
		{name: "unknown name", yaml: "tokens:\n  tll: 5m\n", want: []string{"tokend.yaml:2: no setting is called tokens.tll", "did you mean tokens.ttl?"}},
		{name: "unknown section", yaml: "\nredsi: {url: " + canary + "}", want: []string{"tokend.yaml:2: no setting is called redsi: remove or mend it; did you mean redis?"}},
		{name: "unknown section like tokens", yaml: "tokns: {ttl: 5m}", want: []string{"no setting is called tokns: remove or mend it; did you mean tokens?"}},
		{name: "section left out", yaml: "max_ttl: 5m", want: []string{"no setting is called max_ttl: remove or mend it; did you mean tokens.max_ttl?"}},
		{name: "name of two sections", yaml: "timeout: 5m", want: []string{"no setting is called timeout: remove or mend it"}},
		{name: "unknown client's variable", environ: []string{"TOKEND_TOKEN_FIEL=" + canary}, want: []string{"did you mean TOKEND_TOKEN_FILE?"}},
		{name: "config in YAML", yaml: "config: x", want: []string{"no setting is called config"}},
		{name: "a name that might be a secret", yaml: "redis: {'redis://:" + canary + "@h': 1}", want: []string{"tokend.yaml:1: no setting has the name"}},
		{name: "merge key", yaml: "x: &x {ttl: 5m}\ntokens: {<<: *x}", want: []string{"no setting is called x", "tokend.yaml:2: no setting has the name"}},
		{name: "twice", yaml: "tokens: {ttl: 5m, ttl: 6m}", want: []string{"tokens.ttl in YAML: stands twice"}},
		{name: "twice in two spellings", yaml: "tokens: {ttl: 5m}\ntokens.ttl: 6m", want: []string{"remove tokend.yaml:2"}},
		{name: "section is a text", yaml: "redis: " + canary, want: []string{"redis is a section"}},
		{name: "value is a mapping", yaml: "redis: {password: {" + canary + "}}", want: []string{"redis.password in YAML", "quotes"}},
		{name: "value is a list", yaml: "tokens: {ttl: [5m]}", want: []string{"tokens.ttl in YAML"}},
		{name: "no value", yaml: "tokens: {ttl: }", want: []string{"tokens.ttl in YAML: must have a value"}},
		{name: "list of lists", yaml: "cors: {origins: [[a]]}", want: []string{"cors.origins in YAML"}},
		{name: "not YAML", yaml: "redis: {password: *" + canary + "}", want: []string{"--config, TOKEND_CONFIG: tokend.yaml is not YAML near line 1: a text that begins with * needs quotes"}},
		{name: "broken YAML", yaml: "redis:\n  password: \"" + canary, want: []string{"tokend.yaml is not YAML near line 2: found unexpected end of stream"}},
		{name: "broken first line", yaml: "redis: " + canary + ": {", want: []string{"tokend.yaml is not YAML near line 1: mapping values are not allowed in this context"}},
		{name: "a control character", yaml: "listen: :1\nredis: \x01" + canary, want: []string{"tokend.yaml is not YAML near line 2: control characters are not allowed"}},
		{name: "no UTF-8", yaml: "listen: :1\n\nredis: \xff" + canary, want: []string{"tokend.yaml is not YAML near line 3"}},
		{name: "broken second document", yaml: "listen: :1\n---\n- ]" + canary, want: []string{"tokend.yaml is not YAML near line"}},
		{name: "a list", yaml: "- " + canary, want: []string{"must be a mapping"}},
		{name: "a text", yaml: canary, want: []string{"must be a mapping"}},
		{name: "two documents", yaml: "listen: :1\n---\nlisten: :2", want: []string{"one YAML document"}},
		{name: "no such file", environ: []string{"TOKEND_CONFIG=/nonexistent/tokend yaml"}, want: []string{"--config, TOKEND_CONFIG: the file cannot be read: /nonexistent/tokend yaml: no such file"}},
		{name: "no such file here", args: []string{"--config=nope"}, want: []string{"cannot be read: " + here(t, "nope") + ": no such file"}},
		{name: "no such secret", environ: []string{"TOKEND_REDIS_URL_FILE=secrets/redis.url"}, want: []string{"names cannot be: " + here(t, "secrets/redis.url") + ": no such file"}},
		{name: "no such secret in YAML", yaml: "signing: {keys_file: /nonexistent/signing.keys}", want: []string{"the one that tokend.yaml:1 names cannot be: /nonexistent/signing.keys: no such file"}},
		{name: "password as a path", environ: []string{"TOKEND_REDIS_PASSWORD_FILE=" + canary}, want: []string{"TOKEND_REDIS_PASSWORD_FILE names cannot be: no such file"}},
		{name: "keys as a path", environ: []string{"TOKEND_SIGNING_KEYS_FILE=" + goodKey}, want: []string{"TOKEND_SIGNING_KEYS_FILE names cannot be: no such file"}},
		{name: "large secret", environ: []string{"TOKEND_SIGNING_KEYS_FILE=" + secretFile(t, strings.Repeat("x", maxFile+1))}, want: []string{"/secret: it is larger than 1048576 bytes"}},
		{name: "secret as a path", environ: []string{"TOKEND_REDIS_URL_FILE=redis://:" + canary + "@h"}, want: []string{"--redis-url, TOKEND_REDIS_URL, redis.url in YAML", "TOKEND_REDIS_URL_FILE names cannot be: no such file"}},
		{name: "secret and file", environ: []string{"TOKEND_REDIS_URL=redis://" + canary, "TOKEND_REDIS_URL_FILE=" + os.DevNull}, want: []string{"given twice, by TOKEND_REDIS_URL and by TOKEND_REDIS_URL_FILE"}},
		{name: "directory", environ: []string{"TOKEND_SIGNING_KEYS_FILE=."}, want: []string{"is a directory"}},
		{name: "address", args: []string{"--listen=8080"}, want: []string{"--listen, TOKEND_LISTEN, listen in YAML: must be HOST:PORT or :PORT", "(set by --listen)"}},
		{name: "port", args: []string{"--listen=:65536"}, want: []string{"from 0 to 65535"}},
		{name: "no unit", args: []string{"--tokens-ttl=300"}, want: []string{"whole seconds, from 1s to"}},
		{name: "half seconds", args: []string{"--tokens-ttl=1500ms"}, want: []string{"whole seconds"}},
		{name: "no seconds", args: []string{"--keys-retention=0s"}, want: []string{"from 1s"}},
		{name: "negative", args: []string{"--tokens-retention=-5s"}, want: []string{"from 1s"}},
		{name: "more than four bytes of seconds", args: []string{"--tokens-retention=4294967296s"}, want: []string{"to 4294967295s, 136 years"}},
		{name: "ttl above max", args: []string{"--tokens-ttl=2h", "--tokens-max-ttl=1h"}, want: []string{"tokens.ttl in YAML: must not be above tokens.max_ttl, which is 1h"}},
		{name: "bool", environ: []string{"TOKEND_ADMIN_PPROF=yes"}, want: []string{"must be true or false"}},
		{name: "number", environ: []string{"TOKEND_RATE_BURST=0"}, want: []string{"from 1 to"}},
		{name: "redis mode", environ: []string{"TOKEND_REDIS_MODE=x"}, want: []string{"must be standalone, sentinel or cluster"}},
		{name: "mode", environ: []string{"TOKEND_TOKENS_MODE=x"}, want: []string{"must be record or delete"}},
		{name: "level", environ: []string{"TOKEND_LOG_LEVEL=INFO"}, want: []string{"must be debug, info, warn or error"}},
		{name: "prefix", environ: []string{"TOKEND_REDIS_KEY_PREFIX=a{b}"}, want: []string{"1 to 32 of"}},
		{name: "no prefix", environ: []string{"TOKEND_REDIS_KEY_PREFIX="}, want: []string{"1 to 32 of"}},
		{name: "certificate alone", environ: []string{"TOKEND_TLS_CERT_FILE=x"}, want: []string{"tls.key_file in YAML: is required with tls.cert_file"}},
		{name: "key alone", environ: []string{"TOKEND_TLS_KEY_FILE=x"}, want: []string{"tls.cert_file in YAML: is required with tls.key_file"}},
		{name: "profiles for all", args: []string{"--admin-pprof", "--admin-listen=:9090"}, want: []string{"admin_pprof in YAML: needs admin_listen on a loopback"}},
		{name: "profiles nowhere", args: []string{"--admin-pprof", "--admin-listen="}, want: []string{"admin_pprof in YAML: needs admin_listen"}},
		{name: "one address", args: []string{"--admin-listen=127.0.0.1:8080"}, want: []string{"must not be the address of listen"}},
		{name: "wait longer than the timeout", args: []string{"--redis-wait-replicas=1", "--redis-wait-timeout=1s"}, want: []string{"must be below redis.timeout, which is 1s"}},
		{name: "keys", environ: []string{"TOKEND_SIGNING_KEYS=k1:" + canary}, want: []string{`signing key "k1"`}},
		{name: "user claim", environ: []string{"TOKEND_AUTH_USER_CLAIM="}, want: []string{"must not be empty"}},
		{name: "empty audience", environ: []string{"TOKEND_AUTH_AUDIENCE=a,,b"}, want: []string{"item 2 must not be empty"}},
		{name: "no header", environ: []string{"TOKEND_GATEWAY_USER_HEADER=X User"}, want: []string{"must be the name of a header"}},
		{name: "a client's header for the attempt", environ: []string{"TOKEND_GATEWAY_ATTEMPT_HEADER=X-Request-Id"}, want: []string{"must be a header that gateways overwrite"}},
		{name: "a browser's key for the attempt", environ: []string{"TOKEND_GATEWAY_ATTEMPT_HEADER=idempotency-key"}, want: []string{"must be a header that gateways overwrite"}},
		{name: "one header for two things", environ: []string{"TOKEND_GATEWAY_USER_HEADER=X-A", "TOKEND_GATEWAY_ATTEMPT_HEADER=x-a"}, want: []string{"gateway.attempt_header in YAML: must not be the header of gateway.user_header"}},
		{name: "the method for the user", environ: []string{"TOKEND_GATEWAY_USER_HEADER=X-Forwarded-Method"}, want: []string{"must not be a header that holds a method"}},
		{name: "status of a gateway", environ: []string{"TOKEND_GATEWAY_ALLOWED_STATUS=201"}, want: []string{"must be 204 or 200"}},
		{name: "any origin", environ: []string{"TOKEND_CORS_ORIGINS=*"}, want: []string{"must not be *"}},
		{name: "origin with a path", environ: []string{"TOKEND_CORS_ORIGINS=https://a.example/"}, want: []string{"as browsers send it"}},
		{name: "origin in capitals", environ: []string{"TOKEND_CORS_ORIGINS=https://A.example"}, want: []string{"as browsers send it"}},
		{name: "origin with its port", environ: []string{"TOKEND_CORS_ORIGINS=https://a.example:443"}, want: []string{"scheme's own port"}},
		{name: "null origin", environ: []string{"TOKEND_CORS_ORIGINS=null"}, want: []string{"as browsers send it"}},
		{name: "no purposes", yaml: "purposes:", want: []string{"purposes in YAML: must map at least one"}},
		{name: "empty purposes", yaml: "purposes: {}", want: []string{"purposes in YAML: must map at least one"}},
		{name: "list of purposes", yaml: "purposes: [a]", want: []string{"purposes in YAML: must map"}},
		{name: "bad purpose", yaml: "purposes: {Order: {}}", want: []string{"Order: purpose must match", "; did you mean order? (tokend.yaml:1)"}},
		{name: "purpose that might be a secret", yaml: "purposes: {'redis://:" + canary + "@h': {}}", want: []string{"purposes in YAML: purpose must match"}},
		{name: "purpose twice", yaml: "purposes:\n  a: {}\n  a: {}", want: []string{"a stands twice (tokend.yaml:3)"}},
		{name: "purpose is a text", yaml: "purposes: {a: 5m}", want: []string{"a must map settings"}},
		{name: "purpose setting", yaml: "purposes: {a: {tll: 5m}}", want: []string{"a has a setting other than ttl, max_ttl, retention and keys_retention: tll; did you mean ttl? (tokend.yaml:1)"}},
		{name: "purpose setting that might be a secret", yaml: "purposes: {a: {'redis://:" + canary + "@h': 5m}}", want: []string{"and keys_retention (tokend.yaml:1)"}},
		{name: "purpose setting twice", yaml: "purposes: {a: {ttl: 5m, ttl: 5m}}", want: []string{"a: ttl stands twice"}},
		{name: "purpose duration", yaml: "purposes: {a: {ttl: 5}}", want: []string{"a: ttl must be a duration"}},
		{name: "purpose ttl above max", yaml: "purposes: {a: {ttl: 48h}}", want: []string{"a: ttl must not be above max_ttl, 24h here"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, faults := Load(sources(t, tt.args, tt.environ, tt.yaml))
			if faults.Err() == nil {
				t.Fatal("no fault")
			}
			msg := faults.Error()
			for _, want := range tt.want {
				if !strings.Contains(msg, want) {
					t.Errorf("the message lacks %q:\n%s", want, msg)
				}
			}
			if strings.Contains(msg, canary) {
				t.Errorf("a secret in the message:\n%s", msg)
			}
			if n := strings.Count(msg, "\n"); n != max(1, len(tt.want)) && n != 1 {
				t.Errorf("%d lines:\n%s", n, msg)
			}
		})
	}
}

func TestAllFaultsAtOnce(t *testing.T) {
	c, faults := Load(sources(t,
		[]string{"--tokens-ttl=x"},
		[]string{"TOKEND_LISTEN=x", "TOKEND_NOPE=1"},
		"log: {level: loud}\nnope: 1\npurposes: {A: {}}\n"))
	c.Require(faults)
	faults.Add("auth.service_keys", "key 2 must have a scope")
	want := `10 faults in the configuration:
  --listen, TOKEND_LISTEN, listen in YAML: must be HOST:PORT or :PORT, [::1]:8080 say (set by TOKEND_LISTEN)
  --redis-url, TOKEND_REDIS_URL, redis.url in YAML: is required: the URL of a Redis, redis://HOST:6379/0 say, or a file that holds it by --redis-url-file, TOKEND_REDIS_URL_FILE or redis.url_file
  --tokens-ttl, TOKEND_TOKENS_TTL, tokens.ttl in YAML: must be a duration with its unit (90s, 5m, 24h) in whole seconds, from 1s to 4294967295s, 136 years (set by --tokens-ttl)
  --signing-keys, TOKEND_SIGNING_KEYS, signing.keys in YAML: is required: what tokend keygen signing prints, or a file that holds it by --signing-keys-file, TOKEND_SIGNING_KEYS_FILE or signing.keys_file
  --auth-jwt-secret, TOKEND_AUTH_JWT_SECRET, auth.jwt_secret in YAML: is required, or a file that holds it by --auth-jwt-secret-file, TOKEND_AUTH_JWT_SECRET_FILE or auth.jwt_secret_file, or another way to authenticate: auth.public_key_file (--auth-public-key-file, TOKEND_AUTH_PUBLIC_KEY_FILE), auth.jwks_url (--auth-jwks-url, TOKEND_AUTH_JWKS_URL) or auth.service_keys (--auth-service-keys, TOKEND_AUTH_SERVICE_KEYS)
  --auth-service-keys, TOKEND_AUTH_SERVICE_KEYS, auth.service_keys in YAML: key 2 must have a scope
  --log-level, TOKEND_LOG_LEVEL, log.level in YAML: must be debug, info, warn or error (set by tokend.yaml:1)
  purposes in YAML: A: purpose must match [a-z0-9][a-z0-9._-]{0,63}; did you mean a? (tokend.yaml:3)
  TOKEND_NOPE: no setting has this variable: unset or rename it
  tokend.yaml:2: no setting is called nope: remove or mend it`
	if d := cmp.Diff(want, faults.Error()); d != "" {
		t.Error(d)
	}
}

func TestRequire(t *testing.T) {
	c, faults := Load(Sources{})
	c.Require(faults)
	for _, name := range []string{"redis.url", "signing.keys", "auth.jwt_secret"} {
		if !faults.Has(name) {
			t.Errorf("%s is not required", name)
		}
	}
	// What a file that cannot be read may hold is not asked for.
	c, faults = Load(Sources{Environ: []string{"TOKEND_CONFIG=/nonexistent"}})
	c.Require(faults)
	if n := strings.Count(faults.Error(), "\n"); n != 1 {
		t.Errorf("%d faults: %v", n, faults)
	}
	for _, auth := range []string{
		"TOKEND_AUTH_JWT_SECRET=" + goodSecret, "TOKEND_AUTH_SERVICE_KEYS=x", "TOKEND_AUTH_PUBLIC_KEY_FILE=x", "TOKEND_AUTH_JWKS_URL=x",
	} {
		c, faults := Load(Sources{Environ: []string{"TOKEND_REDIS_URL=redis://h", "TOKEND_SIGNING_KEYS=" + goodKey, auth}})
		c.Require(faults)
		if err := faults.Err(); err != nil {
			t.Errorf("%.20s: %v", auth, err)
		}
	}
}

func TestPurposes(t *testing.T) {
	c, faults := Load(sources(t, nil, nil, `
tokens: {ttl: 10m, max_ttl: 1h, retention: 2h}
purposes:
  order.create: {max_ttl: 5m, keys_retention: 3h}
  default: {ttl: 20m, retention: 48h}
  account.delete:
  plain: {}
`))
	if err := faults.Err(); err != nil {
		t.Fatal(err)
	}
	set := func(ttl, maxTTL, retention, keys time.Duration) Purpose {
		return Purpose{token.Settings{TTL: ttl, MaxTTL: maxTTL, Retention: retention, KeysRetention: keys}}
	}
	want := map[token.Purpose]Purpose{
		"order.create":   set(5*time.Minute, 5*time.Minute, 2*time.Hour, 3*time.Hour),
		"default":        set(20*time.Minute, time.Hour, 48*time.Hour, 24*time.Hour),
		"account.delete": set(10*time.Minute, time.Hour, 2*time.Hour, 24*time.Hour),
		"plain":          set(10*time.Minute, time.Hour, 2*time.Hour, 24*time.Hour),
	}
	if d := cmp.Diff(want, c.Purposes); d != "" {
		t.Error(d)
	}
	if got := origins(c)["purposes.order.create.max_ttl"]; got != "tokend.yaml:4" {
		t.Errorf("origin %q", got)
	}
}

// Nobody asked for the default ttl, so it gives way to a smaller max_ttl. One that was asked
// for is a fault, and shown as it was given.
func TestDefaultTTLGivesWay(t *testing.T) {
	shown := func(c *Config) Value {
		return c.Values()[slices.IndexFunc(c.Values(), func(v Value) bool { return v.Name == "tokens.ttl" })]
	}
	c, faults := Load(sources(t, []string{"--tokens-max-ttl=1m"}, nil, ""))
	if err := faults.Err(); err != nil || c.Tokens.TTL != time.Minute || shown(c) != (Value{"tokens.ttl", "1m", Default}) {
		t.Errorf("ttl %v, shown as %+v, %v", c.Tokens.TTL, shown(c), err)
	}
	c, faults = Load(sources(t, []string{"--tokens-ttl=48h"}, nil, ""))
	if !faults.Has("tokens.ttl") || shown(c) != (Value{"tokens.ttl", "48h", "--tokens-ttl"}) {
		t.Errorf("shown as %+v, %v", shown(c), faults)
	}
}

func TestYAMLKeepsTextAsItStands(t *testing.T) {
	c, faults := Load(sources(t, nil, nil, `
redis:
  password: 0123
  pool_size: 20
  url: 'redis://h'
auth:
  jwt_secret: [`+goodSecret+`, "`+goodSecret+`2"]
  audience: ["a, b", c]
  issuer: 1e3
admin_pprof: true
cors:
limits: {body_bytes: 2048}
`))
	if err := faults.Err(); err != nil {
		t.Fatal(err)
	}
	if got := c.Redis.Password.Reveal(); got != "0123" {
		t.Errorf("password %q", got)
	}
	if c.Auth.Issuer != "1e3" || len(c.Auth.JWTSecrets) != 2 || !cmp.Equal(c.Auth.Audience, []string{"a, b", "c"}) || c.Redis.PoolSize != 20 {
		t.Errorf("%+v", c.Auth)
	}
}

func TestNoSecretIsShown(t *testing.T) {
	c, faults := Load(Sources{Environ: []string{
		"TOKEND_REDIS_URL=redis://:" + canary + "@h", "TOKEND_REDIS_PASSWORD=" + canary, "TOKEND_SIGNING_KEYS=" + goodKey,
		"TOKEND_AUTH_JWT_SECRET=" + goodSecret, "TOKEND_AUTH_SERVICE_KEYS=" + canary,
	}})
	if err := faults.Err(); err != nil {
		t.Fatal(err)
	}
	secret := base64.StdEncoding.EncodeToString(c.Signing.Keys[0].Secret[:])
	for _, text := range []string{
		fmt.Sprintf("%v %+v %s", c.Redis, c.Auth, c.Signing), fmt.Sprintf("%#v %#v", c.Redis, c.Auth), fmt.Sprint(c.Values()),
	} {
		if strings.Contains(text, canary) || strings.Contains(text, secret) {
			t.Errorf("a secret in %s", text)
		}
	}
	for _, v := range c.Values() {
		if _, ok := spellings[v.Name+fileSuffix]; ok && v.Text != mask {
			t.Errorf("%s is shown as %q", v.Name, v.Text)
		}
	}
}

func FuzzLoad(f *testing.F) {
	f.Add("TOKEND_LISTEN=:1\nTOKEND_X=1", "tokens: {ttl: 5m}\npurposes: {a: {}}")
	f.Add("TOKEND_CORS_ORIGINS=a,b", "a: &a [*a]\n<<: *a\n? [x]\n: y\n--- \n...")
	f.Add("", "redis: !!binary aGk=\npurposes:\n  ? {a: b}\n  : c")
	f.Fuzz(func(t *testing.T, environ, yaml string) {
		path := secretFile(t, yaml)
		c, faults := Load(Sources{Environ: append(strings.Split(environ, "\n"), "TOKEND_CONFIG="+path)})
		c.Require(faults)
		if c == nil || faults.Err() == nil { // nothing can be required and there
			return
		}
		if strings.TrimSpace(faults.Error()) == "" {
			t.Error("an empty message")
		}
	})
}

func TestMarkdownListsEverySetting(t *testing.T) {
	table := Markdown()
	for _, s := range Settings() {
		if !strings.Contains(table, "`--"+s.Flag()+"` | `"+s.Variable()+"`") {
			t.Errorf("%s is missing", s.Name)
		}
	}
	for i, line := range strings.Split(strings.TrimSpace(table), "\n") {
		if n := strings.Count(strings.ReplaceAll(line, `\|`, ""), "|"); n != 6 {
			t.Errorf("line %d has %d bars: %s", i+1, n, line)
		}
	}
}
