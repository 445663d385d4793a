package program_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.com/tokend/httpapi/wire"
	"example.com/tokend/internal/redistest"
)

// The service starts without Redis, says that it lives and cannot serve, and serves as soon
// as Redis is there.
func TestRedisAbsentAtStart(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	r.Kill()
	i := start(t, redisURL(r.Addr), timeoutSetting)
	if a := i.get(wire.PathLivez); a.status != http.StatusOK {
		t.Errorf("livez: %v", a)
	}
	if a := i.get(wire.PathReadyz); a.status != http.StatusServiceUnavailable {
		t.Errorf("readyz: %v", a)
	}
	if a := i.post(wire.PathTokens, serviceKey, members{"user": "alice"}); a.Code != string(wire.CodeStoreUnavailable) {
		t.Errorf("issue: %v", a)
	}
	r.Restart()
	i.untilReady()
	i.usable()
	token := i.issue("alice")
	r.Kill()
	t.Logf("the longest answer without Redis took %v", storeUnavailable(t, token, i))
}

// A Redis that takes connections and answers nothing is given up in time, and nothing is
// left behind when it answers again.
func TestRedisPaused(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	i := startReady(t, redisURL(r.Addr), timeoutSetting)
	token := i.issue("alice")
	for range 2 { // with connections in the pool, and without
		r.Pause()
		longest := storeUnavailable(t, token, i)
		t.Logf("the longest answer while Redis stood still took %v", longest)
		if longest < redisTimeout {
			t.Errorf("a Redis that stands still was given up after %v, redis.timeout is %v", longest, redisTimeout)
		}
		r.Resume()
		i.untilReady()
		// What had been sent to it is carried out now, if anything: a consume with the attempt
		// a1, or a revoke.
		switch state := i.state("alice", token); state {
		case "used":
			if a := i.consume("alice", token, "a1"); a.status != http.StatusOK || !a.Replayed {
				t.Errorf("the attempt that was a fault, again: %v", a)
			}
		case "revoked", "issued":
		default:
			t.Errorf("the token is %s", state)
		}
		i.usable()
		token = i.issue("alice")
	}
}

// secretPassword is such as generators make them.
const secretPassword = "canary@/#%+=:?&! 7f3a"

func writeFile(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func passwordFile(t *testing.T, password string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "password")
	writeFile(t, path, password+"\n")
	return path
}

func TestRedisPassword(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	r := redistest.Start(t)
	admin := r.Client()
	if err := admin.Do(ctx, "ACL", "SETUSER", "form", "on", ">"+secretPassword, "~*", "+@all").Err(); err != nil {
		t.Fatal(err)
	}
	if err := admin.ConfigSet(ctx, "requirepass", secretPassword).Err(); err != nil {
		t.Fatal(err)
	}
	escaped := url.QueryEscape(secretPassword)
	escaped = strings.ReplaceAll(escaped, "+", "%20")
	for name, set := range map[string][]string{
		"file":            {"REDIS_PASSWORD_FILE=" + passwordFile(t, secretPassword)},
		"file and user":   {"REDIS_URL=redis://form@" + r.Addr, "REDIS_PASSWORD_FILE=" + passwordFile(t, secretPassword)},
		"replaces URL's":  {"REDIS_URL=redis://form:wrong@" + r.Addr, "REDIS_PASSWORD=" + secretPassword},
		"in the URL":      {"REDIS_URL=redis://:" + escaped + "@" + r.Addr},
		"URL from a file": {"REDIS_URL", "REDIS_URL_FILE=" + passwordFile(t, "redis://:"+escaped+"@"+r.Addr)},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			i := start(t, redisURL(r.Addr), set...)
			i.secrets = []string{secretPassword, escaped, "canary"}
			i.untilReady()
			i.usable()
		})
	}
	for name, set := range map[string][]string{
		"wrong":   {"REDIS_PASSWORD_FILE=" + passwordFile(t, "canary-wrong")},
		"missing": {},
		"in URL":  {"REDIS_URL=redis://form:canary-wrong@" + r.Addr},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			i := start(t, redisURL(r.Addr), append(set, "LOG_LEVEL=debug", timeoutSetting)...)
			i.secrets = []string{"canary"}
			i.untilUnready()
			a := i.post(wire.PathTokens, serviceKey, members{"user": "alice"})
			if a.status != http.StatusServiceUnavailable || a.Code != string(wire.CodeStoreUnavailable) || strings.Contains(a.body, "canary") {
				t.Errorf("issue: %v", a)
			}
			if a := i.get(wire.PathReadyz); strings.Contains(a.body, "canary") {
				t.Errorf("readyz: %v", a)
			}
		})
	}
}

// Nor does a password show where it was never asked for.
func TestRedisPasswordWithoutRedis(t *testing.T) {
	t.Parallel()
	i := start(t, "redis://form:canary7f3a@127.0.0.1:1/0", "LOG_LEVEL=debug", timeoutSetting)
	i.secrets = []string{"canary"}
	i.untilUnready()
	if a := i.post(wire.PathTokens, serviceKey, members{"user": "alice"}); a.Code != string(wire.CodeStoreUnavailable) || strings.Contains(a.body, "canary") {
		t.Errorf("issue: %v", a)
	}
	for _, line := range i.metrics() {
		if strings.Contains(line, "canary") {
			t.Errorf("metrics: %s", line)
		}
	}
}

func TestRedisUnixSocket(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "s") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "redis.sock")
	r := redistest.Start(t, "--unixsocket", socket)
	i := startReady(t, "unix://"+socket+"?db=2", timeoutSetting)
	i.usable()
	keysIn(t, r, 2)
	token := i.issue("alice")
	r.Kill()
	storeUnavailable(t, token, i)
	r.Restart()
	i.untilReady()
	i.usable()
}

func TestRedisDatabaseNumber(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	i := startReady(t, "redis://"+r.Addr+"/7", "REDIS_KEY_PREFIX=shop")
	i.usable()
	for _, key := range keysIn(t, r, 7) {
		if !strings.HasPrefix(key, "shop:") {
			t.Errorf("the key %q has another prefix", key)
		}
	}
}

// keysIn returns the keys in r's database db, of which there must be some, and none in 0.
func keysIn(t *testing.T, r *redistest.Server, db int) []string {
	t.Helper()
	ctx := context.Background()
	conn := r.Client().Conn()
	defer conn.Close()
	if keys, err := conn.Keys(ctx, "*").Result(); err != nil || len(keys) > 0 {
		t.Errorf("database 0: %q, %v", keys, err)
	}
	if err := conn.Select(ctx, db).Err(); err != nil {
		t.Fatal(err)
	}
	keys, err := conn.Keys(ctx, "*").Result()
	if err != nil || len(keys) == 0 {
		t.Errorf("database %d: %q, %v", db, keys, err)
	}
	return keys
}

// Redis over TLS, by a certificate of one's own making.
func TestRedisTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca, caKey := newCertificate(t, dir, "ca", nil, nil)
	newCertificate(t, dir, "redis", ca, caKey)
	newCertificate(t, dir, "stranger", nil, nil)
	file := func(name string) string { return filepath.Join(dir, name) }
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	l.Close()
	r := redistest.Start(t, "--tls-port", port, "--tls-cert-file", file("redis.crt"), "--tls-key-file", file("redis.key"),
		"--tls-ca-cert-file", file("ca.crt"), "--tls-auth-clients", "no")
	if err := r.Client().ConfigSet(context.Background(), "requirepass", secretPassword).Err(); err != nil {
		t.Fatal(err)
	}
	password := "REDIS_PASSWORD_FILE=" + passwordFile(t, secretPassword)

	i := start(t, "rediss://127.0.0.1:"+port+"/3", password, "REDIS_CA_FILE="+file("ca.crt"), timeoutSetting)
	i.secrets = []string{"canary"}
	i.untilReady()
	i.usable()
	token := i.issue("alice")
	r.Pause()
	t.Logf("the longest answer while Redis stood still took %v", storeUnavailable(t, token, i))
	t.Logf("and without a connection %v", storeUnavailable(t, token, i))
	r.Resume()
	i.untilReady()
	i.usable()

	for name, set := range map[string][]string{
		"the system's CAs": {password},
		"another CA":       {password, "REDIS_CA_FILE=" + file("stranger.crt")},
	} {
		stranger := start(t, "rediss://127.0.0.1:"+port, append(set, timeoutSetting)...)
		stranger.untilUnready()
		if a := stranger.post(wire.PathTokens, serviceKey, members{"user": "alice"}); a.Code != string(wire.CodeStoreUnavailable) {
			t.Errorf("with %s: %v", name, a)
		}
	}
}

// newCertificate writes NAME.crt and NAME.key into dir: for 127.0.0.1, signed by parent, or
// by itself where there is none.
func newCertificate(t *testing.T, dir, name string, parent *x509.Certificate, parentKey *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	if parent == nil {
		template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
		parent, parentKey = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, parentKey)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{
		name + ".crt": {Type: "CERTIFICATE", Bytes: der},
		name + ".key": {Type: "PRIVATE KEY", Bytes: keyDER},
	} {
		if err := os.WriteFile(filepath.Join(dir, file), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}
