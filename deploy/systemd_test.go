package deploy_test

import (
	"slices"
	"strings"
	"testing"
)

// directives returns the unit's directives, in order, as NAME=VALUE by section.
func directives(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	section := ""
	for line := range strings.Lines(file(t, "systemd/tokend.service")) {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "[") && strings.HasSuffix(line, "]"):
			section = strings.Trim(line, "[]")
		case strings.Contains(line, "=") && section != "":
			found[section] = append(found[section], line)
		default:
			t.Errorf("a line that is no directive: %s", line)
		}
	}
	return found
}

// TestSystemd holds the unit to the program; e2e/program has systemd itself look at it.
func TestSystemd(t *testing.T) {
	unit := directives(t)
	service := unit["Service"]
	of := func(name string) (values []string) {
		for _, d := range service {
			if v, ok := strings.CutPrefix(d, name+"="); ok {
				values = append(values, v)
			}
		}
		return values
	}
	var credentials []string
	for _, c := range of("LoadCredential") {
		name, path, _ := strings.Cut(c, ":")
		if path != "/etc/tokend/"+name {
			t.Errorf("the credential %s is the file %s", name, path)
		}
		credentials = append(credentials, name)
	}
	var environ []string
	for _, e := range of("Environment") {
		if _, path, ok := strings.Cut(e, "=%d/"); ok {
			if !slices.Contains(credentials, path) {
				t.Errorf("%s: there is no such credential", e)
			}
			credentials = slices.DeleteFunc(credentials, func(c string) bool { return c == path })
		}
		environ = append(environ, strings.Replace(e, "%d/", "/credentials/", 1))
	}
	if len(credentials) > 0 {
		t.Errorf("credentials that nothing reads: %v", credentials)
	}
	cfg := load(t, "systemd", "/credentials", environ)
	if !slices.Equal(of("TimeoutStopSec"), []string{"30s"}) {
		t.Errorf("TimeoutStopSec=%v", of("TimeoutStopSec"))
	}
	drains(t, "systemd", cfg, 30)
	for _, want := range []string{
		"Type=exec", "ExecStart=/usr/local/bin/tokend serve", "DynamicUser=yes", "NoNewPrivileges=yes", "CapabilityBoundingSet=",
		"ProtectSystem=strict", "ProtectHome=yes", "PrivateTmp=yes", "MemoryDenyWriteExecute=yes", "SystemCallFilter=@system-service",
	} {
		if !slices.Contains(service, want) {
			t.Errorf("the unit does not say %s", want)
		}
	}
	if !slices.Equal(unit["Install"], []string{"WantedBy=multi-user.target"}) {
		t.Errorf("[Install] %v", unit["Install"])
	}
}
