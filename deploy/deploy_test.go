package deploy_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"example.com/tokend/config"
)

// file returns the text of a file beside this one.
func file(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// decode reads the one YAML document in the file at path into v. A member that v does not
// have is an error, and so is one that stands twice.
func decode(t *testing.T, path string, v any) {
	t.Helper()
	d := yaml.NewDecoder(strings.NewReader(file(t, path)))
	d.KnownFields(true)
	if err := d.Decode(v); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		t.Errorf("%s holds more than one document: %v", path, err)
	}
}

// TestYAML reads every YAML file, whatever stands in it.
func TestYAML(t *testing.T) {
	n := 0
	for _, pattern := range []string{"*.yaml", "*/*.yaml", "*/*.yml", "*/*/*/*.yaml"} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			n++
			text := file(t, path)
			for d := yaml.NewDecoder(strings.NewReader(text)); ; {
				err := d.Decode(new(map[string]any))
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Errorf("%s: %v", path, err)
					break
				}
			}
			if strings.Contains(text, "\t") || bytes.Contains([]byte(text), []byte("\r")) {
				t.Errorf("%s holds a tab or a carriage return", path)
			}
		}
	}
	if n < 12 {
		t.Errorf("%d YAML files were found", n)
	}
}

// secrets are what the files that the deployments name may hold.
var secrets = map[string]string{
	"redis.url":      "redis://tokend:p@redis:6379/0",
	"redis.password": "p",
	"signing.keys":   "k1:" + base64.StdEncoding.EncodeToString(make([]byte, 32)),
	"service.keys": "form-service:" + func() string {
		sum := sha256.Sum256([]byte("x"))
		return hex.EncodeToString(sum[:])
	}() + ":tokend.issue+tokend.consume",
}

// load has package config read what a deployment sets, as tokend serve does; the secrets are
// expected in dir. It fails the test where there is an unknown name, a bad value, or
// something missing.
func load(t *testing.T, what, dir string, environ []string) *config.Config {
	t.Helper()
	local := t.TempDir()
	for name, text := range secrets {
		if err := os.WriteFile(filepath.Join(local, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	environ = slices.Clone(environ)
	for i, e := range environ {
		environ[i] = strings.ReplaceAll(e, dir+"/", local+"/")
		name, path, _ := strings.Cut(environ[i], "=")
		if name != "TOKEND_CONFIG" {
			continue
		}
		text := strings.ReplaceAll(file(t, path), dir+"/", local+"/")
		settings := filepath.Join(local, "tokend.yaml")
		if err := os.WriteFile(settings, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		environ[i] = "TOKEND_CONFIG=" + settings
	}
	c, faults := config.Load(config.Sources{Environ: environ})
	c.Require(faults)
	if err := faults.Err(); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if c.Redis.URL == "" || len(c.Signing.Keys) != 1 || c.Auth.ServiceKeys != config.Secret(secrets["service.keys"]) {
		t.Errorf("%s: the secrets are not in force", what)
	}
	return c
}

// drains fails the test unless the platform gives c the time that its end takes, and a moment.
func drains(t *testing.T, what string, c *config.Config, seconds int) {
	t.Helper()
	if c.Shutdown.Delay.Seconds() < 5 {
		t.Errorf("%s: shutdown.delay is %v", what, c.Shutdown.Delay)
	}
	if least := (c.Shutdown.Delay + c.Shutdown.Timeout).Seconds() + 5; float64(seconds) < least {
		t.Errorf("%s: the platform kills after %d s, and the end may take %v s", what, seconds, least)
	}
}

// dockerfile returns what the Dockerfile says behind an instruction's name, the last time.
func dockerfile(t *testing.T, instruction string) string {
	t.Helper()
	m := regexp.MustCompile(`(?m)^`+instruction+` (.*)$`).FindAllStringSubmatch(file(t, "../Dockerfile"), -1)
	if m == nil {
		t.Fatalf("the Dockerfile has no %s", instruction)
	}
	return m[len(m)-1][1]
}
