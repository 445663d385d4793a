package program_test

import (
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"example.com/tokend/e2e/internal/serve"
	"example.com/tokend/httpapi/wire"
	"example.com/tokend/internal/redistest"
)

// refusedStart runs serve with a configuration that it must refuse, and returns what it
// says.
func refusedStart(t *testing.T, environ map[string]string, args ...string) string {
	t.Helper()
	cmd := exec.Command(binary, append([]string{"serve"}, args...)...)
	cmd.Env = serve.Variables(environ)
	out, _ := cmd.CombinedOutput()
	if status := cmd.ProcessState.ExitCode(); status != 2 {
		t.Errorf("exit status %d:\n%s", status, out)
	}
	return string(out)
}

// All that is wrong is said at once, by name, and no secret among it.
func TestBadConfigurationSaysAllAndNoSecret(t *testing.T) {
	t.Parallel()
	const canary = "canary7f3a"
	tests := []struct {
		name    string
		environ map[string]string
		args    []string
		want    []string
	}{
		{"nothing given", nil, nil, []string{
			"redis.url", "TOKEND_REDIS_URL", "--redis-url", "signing.keys", "TOKEND_SIGNING_KEYS", "auth.jwt_secret", "TOKEND_AUTH_JWT_SECRET",
		}},
		{"everything wrong", map[string]string{
			"REDIS_URL":                "redis://user:" + canary + "@/#%+=@127.0.0.1:6379/0",
			"SIGNING_KEYS":             "k1:" + canary,
			"AUTH_JWT_SECRET":          canary,
			"AUTH_SERVICE_KEYS":        "form:" + canary + ":tokend.consume",
			"TOKENS_TTL":               canary,
			"TOKENS_MAX_TTL":           "0s",
			"TOKENS_MODE":              canary,
			"REDIS_TIMEOUT":            "1",
			"RATE_BURST":               "-1",
			"LISTEN":                   canary,
			"LOG_LEVEL":                canary,
			"TLS_CERT_FILE":            canary,
			"REDIS_PASSWORD_FILE":      canary,
			"REDIS_PASWORD":            canary,
			"CORS_ORIGINS":             "*",
			"SHUTDOWN_DELAY":           "-1s",
			"PURPOSES":                 canary,
			"REDIS_MODE":               canary,
			"TOKENS_MAX_TTL_SERVICE_X": canary,
		}, nil, []string{
			"redis.password", "signing.keys", "auth.jwt_secret", "auth.service_keys", "tokens.ttl", "tokens.max_ttl", "tokens.mode",
			"redis.timeout", "rate.burst", "listen", "log.level", "tls.key_file", "TOKEND_REDIS_PASWORD", "TOKEND_REDIS_PASSWORD",
			"cors.origins", "shutdown.delay", "purposes", "redis.mode",
		}},
		{"a URL that does not parse", settings("redis://:" + canary + "@/#%+=@127.0.0.1:6379"), nil, []string{"redis.url"}},
		{"a URL of another kind", settings("http://:" + canary + "@127.0.0.1:6379"), nil, []string{"redis.url"}},
		{"a URL with parameters", settings("redis://:" + canary + "@127.0.0.1:6379/0?pool_size=1&" + canary + "=1"), nil, []string{"redis.url"}},
		{"a database that is none", settings("redis://:" + canary + "@127.0.0.1:6379/" + canary), nil, []string{"redis.url"}},
		{"a secret where a file's name is due", settings("redis://127.0.0.1:6379", "REDIS_PASSWORD_FILE="+canary, "TLS_CERT_FILE="+canary, "TLS_KEY_FILE="+canary,
			"AUTH_PUBLIC_KEY_FILE="+canary, "REDIS_CA_FILE="+canary), nil, []string{"redis.password", "tls.cert_file", "auth.public_key_file"}},
		{"files that are not there", settings("redis://127.0.0.1:6379", "REDIS_PASSWORD_FILE=/nonexistent/redis.password", "REDIS_CA_FILE=x"), []string{"--tls-cert-file=/nonexistent/cert.pem", "--tls-key-file=key.pem"},
			[]string{"/nonexistent/redis.password: no such file", "/nonexistent/cert.pem: no such file"}},
		{"a secret given twice", settings("redis://127.0.0.1:6379", "SIGNING_KEYS_FILE=/"+canary), nil, []string{"signing.keys"}},
		{"a secret as a flag's value", settings("redis://127.0.0.1:6379"), []string{"--tokens-ttl=" + canary, "--rate-burst=" + canary}, []string{"tokens.ttl", "rate.burst"}},
		{"a secret as an argument", settings("redis://127.0.0.1:6379"), []string{canary}, []string{"arguments"}},
		{"a secret as an unknown flag's value", settings("redis://127.0.0.1:6379"), []string{"--redis-pasword=" + canary}, []string{"--redis-pasword", "--redis-password"}},
	}
	for _, tt := range tests {
		t.Run(strings.ReplaceAll(tt.name, " ", "-"), func(t *testing.T) {
			out := refusedStart(t, tt.environ, tt.args...)
			for _, want := range tt.want {
				if !strings.Contains(out, want) {
					t.Errorf("%s is not named:\n%s", want, out)
				}
			}
			for _, secret := range []string{canary, signingKey, jwtSecret, serviceHash} {
				if strings.Contains(out, secret) {
					t.Errorf("the secret %s is shown:\n%s", secret, out)
				}
			}
		})
	}
}

// What Kubernetes injects for Services whose names begin with tokend does no harm, nor do
// the variables of the other commands.
func TestInjectedVariablesAreTolerated(t *testing.T) {
	t.Parallel()
	i := startReady(t, redisURL(redistest.Start(t).Addr),
		"SERVICE_HOST=10.0.0.1", "SERVICE_PORT=8080", "SERVICE_PORT_HTTP=8080", "PORT=tcp://10.0.0.1:8080",
		"PORT_8080_TCP=tcp://10.0.0.1:8080", "PORT_8080_TCP_PROTO=tcp", "PORT_8080_TCP_PORT=8080", "PORT_8080_TCP_ADDR=10.0.0.1",
		"REDIS_SERVICE_HOST=10.0.0.2", "REDIS_SERVICE_PORT=6379", "REDIS_SERVICE_PORT_REDIS=6379", "REDIS_PORT=tcp://10.0.0.2:6379",
		"REDIS_PORT_6379_TCP=tcp://10.0.0.2:6379", "REDIS_PORT_6379_UDP_ADDR=10.0.0.2", "ADMIN_LISTEN_PORT_9_SCTP=sctp://10.0.0.2:9",
		"URL=http://127.0.0.1:1", "TOKEN=secret",
	)
	i.usable()
}

// A YAML file, an environment and flags together: flags win, and secrets come from files.
func TestConfigurationFromAllSources(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		writeFile(t, path, text)
		return path
	}
	yaml := write("tokend.yaml", `
redis:
  url_file: `+write("url", redisURL(r.Addr)+"\n")+`
signing:
  keys_file: `+write("keys", "k1:"+signingKey+"\n")+`
tokens:
  ttl: 7m
  max_ttl: 10m
log:
  user: none
purposes:
  order.create: {ttl: 6m}
`)
	i := start(t, "", "REDIS_URL", "SIGNING_KEYS", "CONFIG="+yaml, "TOKENS_MAX_TTL=8m")
	i.untilReady()
	for _, tt := range []struct {
		body members
		want int
	}{
		{members{"user": "alice", "purpose": "order.create", "ttl": 480}, http.StatusCreated},
		{members{"user": "alice", "purpose": "order.delete"}, http.StatusBadRequest},
	} {
		if a := i.post(wire.PathTokens, serviceKey, tt.body); a.status != tt.want {
			t.Errorf("%v: %v", tt.body, a)
		}
	}
	if strings.Contains(i.log(), "alice") {
		t.Error("log.user is none, and the log names one")
	}
}
