package scale_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"example.com/tokend/client"
	"example.com/tokend/e2e/internal/topology"
	"example.com/tokend/httpapi/wire"
)

// program is the program under test.
var program *topology.Program

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	flag.Parse()
	flag.Set("test.parallel", "16") // the suite's tests mostly wait
	dir, err := os.MkdirTemp("", "tokend")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if program, err = topology.Build(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func startCluster(t *testing.T, replicas int) *topology.Cluster {
	t.Helper()
	c, err := topology.StartCluster(t.TempDir(), 3, replicas)
	must(t, err)
	t.Cleanup(c.Close)
	return c
}

func startSentinel(t *testing.T) *topology.Sentinel {
	t.Helper()
	s, err := topology.StartSentinel(t.TempDir(), 2)
	must(t, err)
	t.Cleanup(s.Close)
	return s
}

// serve starts an instance. What a loaded machine takes its time for is no fault here.
func serve(t *testing.T, url, mode string, settings ...string) *topology.Instance {
	t.Helper()
	i, err := program.Serve(url, mode, append([]string{"REDIS_TIMEOUT=5s", "RATE_ISSUE_PER_MINUTE=0"}, settings...)...)
	must(t, err)
	t.Cleanup(i.Close)
	return i
}

func onCluster(t *testing.T, c *topology.Cluster, settings ...string) *topology.Instance {
	t.Helper()
	return serve(t, c.URL(), "cluster", settings...)
}

// waiting has an instance wait for a replica.
var waiting = []string{"REDIS_WAIT_REPLICAS=1", "REDIS_WAIT_TIMEOUT=500ms"}

// asUser signs the requests of user.
func asUser(user string) client.Credential {
	return client.TokenSource(func(context.Context) (string, error) {
		claims := jwt.MapClaims{"sub": user, "exp": time.Now().Add(time.Hour).Unix()}
		return jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString(program.JWTSecret())
	})
}

// unavailable tells whether err is a store_unavailable.
func unavailable(err error) bool {
	var down *client.Fault
	return errors.As(err, &down) && down.Code == wire.CodeStoreUnavailable
}

// eventually calls do until it succeeds.
func eventually(t *testing.T, what string, do func() error) {
	t.Helper()
	var last error
	if err := topology.Until(what, func() bool { last = do(); return last == nil }); err != nil {
		t.Fatalf("%v: %v", err, last)
	}
}
