package deploy_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// composition is as much of a Compose file as compose.yaml uses.
type composition struct {
	Name     string
	Services map[string]struct {
		Image           string
		Restart         string
		User            string
		ReadOnly        bool     `yaml:"read_only"`
		CapDrop         []string `yaml:"cap_drop"`
		SecurityOpt     []string `yaml:"security_opt"`
		Command         []string
		Environment     map[string]string
		Secrets         []string
		Ports           []string
		Volumes         []string
		Networks        []string
		DependsOn       any    `yaml:"depends_on"`
		StopGracePeriod string `yaml:"stop_grace_period"`
		MemLimit        string `yaml:"mem_limit"`
		Logging         struct {
			Driver  string
			Options map[string]string
		}
		Healthcheck struct {
			Test     []string
			Interval string
			Timeout  string
			Retries  int
		}
	}
	Networks map[string]struct{ Internal bool }
	Volumes  map[string]struct{}
	Secrets  map[string]struct{ File string }
}

// TestCompose holds compose.yaml together, and to the program. e2e/program runs what it says,
// but for the containers.
func TestCompose(t *testing.T) {
	var c composition
	decode(t, "compose.yaml", &c)
	for name, s := range c.Services {
		tag := regexp.MustCompile(`:v?\d+(\.\d+)+(-alpine)?$`)
		if name != "tokend" && !tag.MatchString(s.Image) {
			t.Errorf("%s: the image %s is of no version", name, s.Image)
		}
		if !slices.Equal(s.CapDrop, []string{"ALL"}) || !slices.Equal(s.SecurityOpt, []string{"no-new-privileges:true"}) || s.MemLimit == "" {
			t.Errorf("%s may do more than it needs", name)
		}
		for _, p := range s.Ports {
			if !strings.HasPrefix(p, "127.0.0.1:") {
				t.Errorf("%s: the port %s is open to the network", name, p)
			}
		}
		for _, secret := range s.Secrets {
			if c.Secrets[secret].File != "./secrets/"+secret {
				t.Errorf("%s: the secret %s is the file %q", name, secret, c.Secrets[secret].File)
			}
			if !strings.Contains(file(t, "secrets.sh"), "> "+secret+"\n") {
				t.Errorf("secrets.sh does not make %s", secret)
			}
		}
		for _, n := range s.Networks {
			if _, ok := c.Networks[n]; !ok {
				t.Errorf("%s: there is no network %s", name, n)
			}
		}
		for _, v := range s.Volumes {
			source, _, _ := strings.Cut(v, ":")
			_, named := c.Volumes[source]
			if _, err := os.Stat(source); !named && err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		// What stands under /run/secrets somewhere must have been given.
		for _, path := range regexp.MustCompile(`/run/secrets/([\w.-]+)`).FindAllStringSubmatch(strings.Join(append(append(s.Command, s.Healthcheck.Test...), values(s.Environment)...), " "), -1) {
			if !slices.Contains(s.Secrets, path[1]) {
				t.Errorf("%s reads %s, which it is not given", name, path[0])
			}
		}
	}
	used := map[string]bool{}
	for _, s := range c.Services {
		for _, secret := range s.Secrets {
			used[secret] = true
		}
	}
	if len(used) != len(c.Secrets) {
		t.Errorf("%d secrets are declared, %d are used", len(c.Secrets), len(used))
	}

	tokend := c.Services["tokend"]
	var environ []string
	for name, value := range tokend.Environment {
		environ = append(environ, name+"="+value)
	}
	cfg := load(t, "compose.yaml", "/run/secrets", environ)
	if tokend.StopGracePeriod != "30s" {
		t.Errorf("stop_grace_period: %s", tokend.StopGracePeriod)
	}
	drains(t, "compose.yaml", cfg, 30)
	if port := ":" + dockerfile(t, "EXPOSE"); cfg.Listen != port || !strings.HasSuffix(tokend.Ports[0], port) {
		t.Errorf("the image serves %s, tokend is told %s and published as %s", port, cfg.Listen, tokend.Ports)
	}
	if l := tokend.Logging; l.Driver != "json-file" || l.Options["max-size"] == "" || l.Options["max-file"] == "" {
		t.Errorf("the log has no bound: %+v", l)
	}
	if tokend.Environment["GOMEMLIMIT"] != "200MiB" || tokend.MemLimit != "256m" {
		t.Errorf("GOMEMLIMIT %q must stand somewhat below the limit %s", tokend.Environment["GOMEMLIMIT"], tokend.MemLimit)
	}
	if !tokend.ReadOnly || !slices.Contains(tokend.Networks, "front") || !slices.Contains(tokend.Networks, "store") {
		t.Error("tokend can write into its image, or is not where its callers and Redis are")
	}

	redis := c.Services["redis"]
	options := strings.Join(redis.Command, " ")
	for _, want := range []string{"--appendonly yes", "--appendfsync always", "--maxmemory-policy noeviction", "--aclfile /run/secrets/redis.acl", "--dir /data", "--maxmemory 512mb"} {
		if !strings.Contains(options, want) {
			t.Errorf("redis is not told %s", want)
		}
	}
	if !slices.Equal(redis.Networks, []string{"store"}) || !c.Networks["store"].Internal || len(redis.Ports) > 0 {
		t.Error("redis can be reached from outside")
	}
	if !slices.Contains(redis.Volumes, "redis-data:/data") {
		t.Error("what redis writes is gone with its container")
	}
}

func values(m map[string]string) (vs []string) {
	for _, v := range m {
		vs = append(vs, v)
	}
	return vs
}

// TestSecretsStayOut holds that the secrets made here get into no commit and no image.
func TestSecretsStayOut(t *testing.T) {
	for path, line := range map[string]string{"../.gitignore": "/deploy/secrets/", "../.dockerignore": "deploy"} {
		if !slices.Contains(strings.Split(file(t, filepath.FromSlash(path)), "\n"), line) {
			t.Errorf("%s does not say %s", path, line)
		}
	}
}
