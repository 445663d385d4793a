package program_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.yaml.in/yaml/v3"

	"example.com/tokend/e2e/internal/serve"
	"example.com/tokend/httpapi/wire"
	"example.com/tokend/internal/redistest"
)

// What stands in deploy/ is run here, but for the containers: the secrets that secrets.sh makes,
// Redis with compose.yaml's options and users, two instances with its settings, its exporter,
// and a Prometheus with prometheus.yml and the rules, of which each query is asked.

const deployDir = "../../deploy/"

func readDeployed(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(deployDir + path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// installed fails the test where a program that it needs is not there.
func installed(t *testing.T, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			t.Fatalf("%v: `make deps-e2e` installs it", err)
		}
	}
}

// composition is compose.yaml as far as it is run.
type composition struct {
	Services map[string]struct {
		Command     []string
		Environment map[string]string
	}
}

// deployed is what runs.
type deployed struct {
	t         *testing.T
	compose   composition
	secrets   string // the directory
	redis     *redistest.Server
	operator  *redis.Client
	service   string // the form service's key
	instances []*instance
	exporter  string // its address
}

func deploy(t *testing.T) *deployed {
	t.Helper()
	d := &deployed{t: t, secrets: filepath.Join(t.TempDir(), "secrets")}
	if err := yaml.Unmarshal([]byte(readDeployed(t, "compose.yaml")), &d.compose); err != nil {
		t.Fatal(err)
	}
	made := exec.Command("sh", deployDir+"secrets.sh", d.secrets)
	made.Env = append(serve.Variables(nil), "TOKEND="+binary)
	if out, err := made.CombinedOutput(); err != nil {
		t.Fatalf("secrets.sh: %v\n%s", err, out)
	}
	again := exec.Command("sh", deployDir+"secrets.sh", d.secrets)
	again.Env = made.Env
	if again.Run() == nil {
		t.Error("secrets.sh makes secrets anew that are in use")
	}
	d.service = d.secret("form-service.key")
	d.startRedis()
	for range 2 {
		d.instances = append(d.instances, d.start(t))
	}
	return d
}

func (d *deployed) secret(name string) string {
	d.t.Helper()
	b, err := os.ReadFile(filepath.Join(d.secrets, name))
	if err != nil {
		d.t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// startRedis starts a redis-server with the options of compose.yaml, and then its users: what
// starts it asks without a password whether it has come up.
func (d *deployed) startRedis() {
	d.t.Helper()
	acl := filepath.Join(d.t.TempDir(), "redis.acl")
	if err := os.WriteFile(acl, nil, 0o600); err != nil {
		d.t.Fatal(err)
	}
	args := []string{"--aclfile", acl}
	command := d.compose.Services["redis"].Command
	if len(command) < 3 || command[0] != "redis-server" {
		d.t.Fatalf("redis is started by %q", command)
	}
	for i := 1; i+1 < len(command); i += 2 {
		if command[i] != "--dir" && command[i] != "--aclfile" {
			args = append(args, command[i], command[i+1])
		}
	}
	d.redis = redistest.Start(d.t, args...)
	if err := os.WriteFile(acl, []byte(d.secret("redis.acl")+"\n"), 0o600); err != nil {
		d.t.Fatal(err)
	}
	if err := d.redis.Client().Do(context.Background(), "ACL", "LOAD").Err(); err != nil {
		d.t.Fatalf("redis.acl: %v", err)
	}
	d.operator = redis.NewClient(&redis.Options{Addr: d.redis.Addr, Username: "operator", Password: d.secret("redis-operator.password")})
	d.t.Cleanup(func() { d.operator.Close() })
	if err := d.redis.Client().Ping(context.Background()).Err(); err == nil || !redis.HasErrorPrefix(err, "NOAUTH") {
		d.t.Errorf("whoever has no password may ask Redis: %v", err)
	}
}

// start starts an instance with the settings of compose.yaml; more override them.
func (d *deployed) start(t *testing.T, more ...string) *instance {
	t.Helper()
	set := []string{"SIGNING_KEYS", "AUTH_SERVICE_KEYS", "REDIS_URL"}
	for name, value := range d.compose.Services["tokend"].Environment {
		value = strings.NewReplacer("/run/secrets/", d.secrets+"/", "@redis:6379", "@"+d.redis.Addr).Replace(value)
		// What has no prefix is the Go runtime's.
		if setting, ok := strings.CutPrefix(name, "TOKEND_"); ok && setting != "ADMIN_LISTEN" {
			set = append(set, setting+"="+value)
		}
	}
	set = append(set, "SHUTDOWN_DELAY=0s", "RATE_ISSUE_PER_MINUTE=1", "RATE_BURST=1")
	i := startReady(t, "", append(set, more...)...)
	for _, name := range []string{"redis.password", "form-service.key"} {
		i.secrets = append(i.secrets, d.secret(name))
	}
	return i
}

// denied returns what Redis's users were denied, but for what tokend asks for at its start and
// can do without.
func (d *deployed) denied() (denied []string) {
	d.t.Helper()
	entries, err := d.operator.ACLLog(context.Background(), 100).Result()
	if err != nil {
		d.t.Fatal(err)
	}
	for _, e := range entries {
		if e.Username != "default" && e.Object != "info" && e.Object != "config|get" {
			denied = append(denied, e.Username+": "+e.Reason+" "+e.Object)
		}
	}
	return denied
}

// call makes a call that must be answered with status.
func (d *deployed) call(i *instance, status int, method, path string, m members) answer {
	d.t.Helper()
	a, err := i.request(method, path, d.service, object(m))
	if err != nil || a.status != status {
		d.t.Errorf("%s %s %v: %v, %v, want %d", method, path, m, a, err, status)
	}
	return a
}

// used makes calls of every kind, so that there are all series.
func (d *deployed) used(i *instance) {
	d.t.Helper()
	const user = "alice"
	post := func(status int, path string, m members) answer {
		d.t.Helper()
		m["user"] = user
		return d.call(i, status, "POST", path, m)
	}
	token := func(m members) string { return post(201, wire.PathTokens, m).Token }
	first := token(members{})
	post(200, wire.PathConsume, members{"token": first})
	post(409, wire.PathConsume, members{"token": first})
	post(200, wire.PathStatus, members{"token": first})
	post(200, wire.PathRevoke, members{"token": token(members{})})
	post(403, wire.PathConsume, members{"token": token(members{}), "purpose": "other"})
	post(400, wire.PathConsume, members{"token": "ott_"})
	batch := post(201, wire.PathBatch, members{"count": 2})
	d.call(i, 200, "POST", wire.PathConsumeBatch, members{"items": []members{{"token": batch.Tokens[0].Token, "user": user}}})
	for _, completes := range []bool{true, false} {
		key := fmt.Sprintf("%d-%v", time.Now().UnixNano(), completes)
		claim := claimOf(post(201, wire.PathClaims, members{"key": key}))
		post(409, wire.PathClaims, members{"key": key})
		d.call(i, 200, "POST", wire.PathRenew(claim), members{})
		if completes {
			d.call(i, 200, "POST", wire.PathCommit(claim), members{})
			d.call(i, 200, "PUT", wire.PathResult(claim), members{})
		} else {
			d.call(i, 204, "DELETE", wire.PathClaim(claim), members{})
		}
		post(200, wire.PathClaimStatus, members{"key": key})
	}
}

// claimOf returns the handle that a claims.
func claimOf(a answer) string {
	var got struct{ Claim string }
	json.Unmarshal([]byte(a.body), &got)
	return got.Claim
}

// leaveClaims leaves a claim to be taken over, and one that was committed, and has both found.
func (d *deployed) leaveClaims(i *instance) {
	d.t.Helper()
	claim := func(key string, commit bool) answer {
		a, err := i.request("POST", wire.PathClaims, d.service, object(members{"user": "alice", "key": key, "lease": 1, "commit": commit}))
		if err != nil {
			d.t.Fatal(err)
		}
		return a
	}
	claim("left", false)
	claim("left-committed", true)
	until(d.t, "a claim is taken over", func() bool { return strings.Contains(claim("left", false).body, `"takeover":true`) })
	until(d.t, "a claim is found unfinished", func() bool { return claim("left-committed", false).Code == string(wire.CodeClaimUnfinished) })
}

// freeAddress returns an address of loopback that nobody listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	port, err := redistest.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint("127.0.0.1:", port)
}

// startProgram starts a program that listens on an address which command is told, until it
// answers at path, and ends it with the test.
func startProgram(t *testing.T, path string, command func(address string) *exec.Cmd) (address string) {
	t.Helper()
	var said []byte
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		address = freeAddress(t) // another program may take it meanwhile: then with another
		cmd := command(address)
		log := filepath.Join(t.TempDir(), "log")
		f, err := os.Create(log)
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stdout, cmd.Stderr = f, f
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			cmd.Wait()
			f.Close()
			close(ended)
		}()
		t.Cleanup(func() {
			cmd.Process.Kill()
			<-ended
		})
		for time.Now().Before(deadline) {
			if a, err := exchange("GET", "http://"+address+path, "", http.NoBody); err == nil && a.status == http.StatusOK {
				return address
			}
			select {
			case <-ended:
			case <-time.After(20 * time.Millisecond):
				continue
			}
			break
		}
		said, _ = os.ReadFile(log)
	}
	t.Fatalf("it does not come up:\n%s", tail(string(said)))
	return ""
}

// startExporter starts Redis's exporter with the settings of compose.yaml.
func (d *deployed) startExporter() {
	d.t.Helper()
	passwords := filepath.Join(d.t.TempDir(), "passwords.json")
	writeFile(d.t, passwords, strings.ReplaceAll(d.secret("redis-exporter.json"), "@redis:6379", "@"+d.redis.Addr))
	environ := os.Environ()
	for name, value := range d.compose.Services["redis-exporter"].Environment {
		value = strings.NewReplacer("/run/secrets/redis-exporter.json", passwords, "@redis:6379", "@"+d.redis.Addr).Replace(value)
		environ = append(environ, name+"="+value)
	}
	d.exporter = startProgram(d.t, "/metrics", func(address string) *exec.Cmd {
		cmd := exec.Command("prometheus-redis-exporter", "-web.listen-address", address)
		cmd.Env = environ
		return cmd
	})
}

// prometheus is one that runs.
type prometheus struct {
	t       *testing.T
	address string
	failed  *bool // what was waited for in vain; then the rest is not waited for so long
}

// startPrometheus starts one with prometheus.yml and the rules, which finds the targets here and
// looks every second.
func (d *deployed) startPrometheus() *prometheus {
	d.t.Helper()
	var cfg map[string]any
	if err := yaml.Unmarshal([]byte(readDeployed(d.t, "prometheus/prometheus.yml")), &cfg); err != nil {
		d.t.Fatal(err)
	}
	cfg["global"] = map[string]any{"scrape_interval": "1s", "evaluation_interval": "1s"}
	targets := map[string][]string{"redis": {d.exporter}}
	for _, i := range d.instances {
		targets["tokend"] = append(targets["tokend"], i.adminAddr)
	}
	for _, job := range cfg["scrape_configs"].([]any) {
		job := job.(map[string]any)
		name := job["job_name"].(string)
		if targets[name] == nil {
			d.t.Fatalf("prometheus.yml has the job %s, which nobody is", name)
		}
		delete(job, "dns_sd_configs")
		job["static_configs"] = []any{map[string]any{"targets": targets[name]}}
	}
	dir := d.t.TempDir()
	text, err := yaml.Marshal(cfg)
	if err != nil {
		d.t.Fatal(err)
	}
	writeFile(d.t, filepath.Join(dir, "prometheus.yml"), string(text))
	writeFile(d.t, filepath.Join(dir, "rules.yml"), readDeployed(d.t, "prometheus/rules.yml"))
	return &prometheus{d.t, startProgram(d.t, "/-/ready", func(address string) *exec.Cmd {
		return exec.Command("prometheus", "--config.file="+filepath.Join(dir, "prometheus.yml"), "--web.listen-address="+address,
			"--storage.tsdb.path="+filepath.Join(d.t.TempDir(), "data"), "--log.level=warn")
	}), new(bool)}
}

// ask asks the API, and returns what data holds.
func (p *prometheus) ask(path string, query url.Values, data any) error {
	a, err := exchange("GET", "http://"+p.address+"/api/v1/"+path+"?"+query.Encode(), "", http.NoBody)
	if err != nil {
		return err
	}
	got := struct {
		Status, Error string
		Data          any
	}{Data: data}
	if err := json.Unmarshal([]byte(a.body), &got); err != nil {
		return err
	}
	if got.Status != "success" {
		return fmt.Errorf("%s", got.Error)
	}
	return nil
}

// series is one of a query's result.
type series struct{ Metric map[string]string }

func (p *prometheus) query(expr string) ([]series, error) {
	var got struct{ Result []series }
	err := p.ask("query", url.Values{"query": {expr}}, &got)
	return got.Result, err
}

// finds waits until expr finds something, and returns it.
func (p *prometheus) finds(what, expr string) []series {
	p.t.Helper()
	wait := patience
	if *p.failed {
		wait = time.Second
	}
	for deadline := time.Now().Add(wait); ; time.Sleep(100 * time.Millisecond) {
		got, err := p.query(expr)
		switch {
		case err == nil && len(got) > 0:
			return got
		case err != nil && strings.Contains(err.Error(), "parse error"):
			p.t.Errorf("%s: %v in:\n%s", what, err, expr)
			return nil
		case time.Now().After(deadline):
			*p.failed = true
			p.t.Errorf("%s finds nothing (%v):\n%s", what, err, expr)
			return nil
		}
	}
}

var (
	selector   = regexp.MustCompile(`\b(tokend_\w+|redis_\w+|process_\w+|go_\w+|ALERTS|up|job\w*:\w+:\w+)(?:\{([^}]*)\})?`)
	matcher    = regexp.MustCompile(`(\w+)(=~|!~|!=|=)"([^"]*)"`)
	labelLists = regexp.MustCompile(`\b(?:by|on|without|group_left)\s*\(([^)]*)\)`)
)

// holds fails the test unless each metric that expr names exists, each label of it, each value
// that a label is asked for, and each label that it is summed or joined by.
func (p *prometheus) holds(what, expr string) {
	p.t.Helper()
	labels := map[string]bool{}
	for _, m := range selector.FindAllStringSubmatch(labelLists.ReplaceAllString(expr, " "), -1) {
		for _, s := range p.finds(what, m[1]) {
			for name := range s.Metric {
				labels[name] = true
			}
		}
		for _, l := range matcher.FindAllStringSubmatch(m[2], -1) {
			for value := range strings.SplitSeq(l[3], "|") {
				comparison := map[string]string{"=": "=", "!=": "=", "=~": "=~", "!~": "=~"}[l[2]]
				p.finds(what, fmt.Sprintf("%s{%s%s%q}", m[1], l[1], comparison, value))
			}
		}
	}
	for _, list := range labelLists.FindAllStringSubmatch(expr, -1) {
		for name := range strings.SplitSeq(list[1], ",") {
			// What only some alerts have, the panel of all shows.
			if name = strings.TrimSpace(name); name != "" && !labels[name] && !strings.Contains(expr, "ALERTS") {
				p.t.Errorf("%s: nothing that it looks at has the label %s:\n%s", what, name, expr)
			}
		}
	}
}

// TestDeployed runs what stands in deploy/, and has each query of the dashboard and of the rules
// find what it asks for.
func TestDeployed(t *testing.T) {
	t.Parallel()
	installed(t, "prometheus", "prometheus-redis-exporter")
	d := deploy(t)
	d.startExporter()
	d.leaveClaims(d.instances[0])
	stranger := d.start(t, "SIGNING_KEYS_FILE", "SIGNING_KEYS=stranger:"+otherKey)
	foreign := d.call(stranger, 201, "POST", wire.PathTokens, members{"user": "alice"}).Token
	p := d.startPrometheus()
	done, worked := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(worked)
		for !t.Failed() {
			for _, i := range d.instances {
				d.used(i)
			}
			select {
			case <-done:
				return
			case <-time.After(200 * time.Millisecond):
			}
		}
	}()
	defer func() {
		close(done)
		<-worked
	}()
	for n, instances := 0, p.finds("both instances", "tokend_build_info"); len(instances) < 2; n++ {
		if n > 200 {
			t.Fatalf("Prometheus finds %v", instances)
		}
		time.Sleep(200 * time.Millisecond)
		instances = p.finds("both instances", "tokend_build_info")
	}
	// This one fires at once; nothing else does.
	a := d.call(d.instances[0], 400, "POST", wire.PathConsume, members{"user": "alice", "token": foreign})
	if a.Code != string(wire.CodeTokenInvalid) {
		t.Errorf("a token of a key that is not known: %v", a)
	}
	p.finds("the alert", `ALERTS{alertname="TokendUnknownSigningKey",alertstate="firing"}`)
	t.Run("dashboard", p.dashboard)
	t.Run("rules", p.rules)
	for _, a := range p.finds("alerts", `ALERTS{alertstate="firing"}`) {
		if name := a.Metric["alertname"]; name != "TokendUnknownSigningKey" {
			t.Errorf("%s fires: %v", name, a.Metric)
		}
	}
	t.Run("doctor", d.doctor)
	if denied := d.denied(); len(denied) > 0 {
		t.Errorf("Redis denies what is asked of it: %q", denied)
	}
}

// dashboard asks what every panel asks.
func (p *prometheus) dashboard(t *testing.T) {
	p = &prometheus{t, p.address, p.failed}
	type query struct{ Expr, Definition string }
	var board struct {
		Panels []struct {
			Title   string
			Targets []query
		}
		Templating, Annotations struct{ List []query }
	}
	if err := json.Unmarshal([]byte(readDeployed(t, "grafana/tokend.json")), &board); err != nil {
		t.Fatal(err)
	}
	variables := strings.NewReplacer("$__rate_interval", "5m", "$job", "tokend", "$instance", ".*", "$redis_job", "redis")
	asked := 0
	ask := func(what, expr string) {
		expr = variables.Replace(expr)
		p.holds(what, expr)
		p.finds(what, expr)
		asked++
	}
	for _, panel := range board.Panels {
		for _, q := range panel.Targets {
			ask(panel.Title, q.Expr)
		}
	}
	for _, a := range board.Annotations.List {
		if a.Expr != "" {
			ask("annotations", a.Expr)
		}
	}
	values := regexp.MustCompile(`^label_values\((.+), (\w+)\)$`)
	for _, v := range board.Templating.List {
		if m := values.FindStringSubmatch(v.Definition); m != nil {
			ask("variables", "count by ("+m[2]+") ("+m[1]+")")
		}
	}
	if asked < 30 {
		t.Errorf("%d queries were asked", asked)
	}
}

// rules holds that each rule can be evaluated, and looks at what is there.
func (p *prometheus) rules(t *testing.T) {
	p = &prometheus{t, p.address, p.failed}
	var got struct {
		Groups []struct {
			Rules []struct{ Name, Query, Type, Health, LastError string }
		}
	}
	until(t, "every rule was evaluated", func() bool {
		if err := p.ask("rules", nil, &got); err != nil {
			return false
		}
		for _, g := range got.Groups {
			for _, r := range g.Rules {
				if r.Health == "unknown" {
					return false
				}
			}
		}
		return len(got.Groups) > 0
	})
	for _, g := range got.Groups {
		for _, r := range g.Rules {
			if r.Health != "ok" {
				t.Errorf("%s: %s", r.Name, r.LastError)
			}
			p.holds(r.Name, r.Query)
			if r.Type == "recording" {
				p.finds(r.Name, r.Name)
			}
		}
	}
}

// doctor finds the Redis of compose.yaml fit, as tokend's user and with no more.
func (d *deployed) doctor(t *testing.T) {
	cmd := exec.Command(binary, "doctor", "--json")
	cmd.Env = serve.Variables(map[string]string{"REDIS_URL": "redis://tokend@" + d.redis.Addr + "/0", "REDIS_PASSWORD_FILE": filepath.Join(d.secrets, "redis.password")})
	out, err := cmd.Output()
	if err != nil || !strings.Contains(string(out), `"fit":true`) || !strings.Contains(string(out), "a token was issued and consumed") {
		t.Errorf("doctor: %v\n%s", err, out)
	}
}

// TestRedisUser runs the program as the user of deploy/redis.acl, in whatever way it may use
// Redis. Beside what it asks for at its start and can do without, it is denied nothing.
func TestRedisUser(t *testing.T) {
	t.Parallel()
	standalone := func(t *testing.T) *redistest.Server {
		r := redistest.Start(t, "--repl-diskless-sync-delay", "0")
		r.AddUser("tokend")
		return r
	}
	for name, start := range map[string]func(t *testing.T) (*redistest.Server, []string){
		"record": func(t *testing.T) (*redistest.Server, []string) { return standalone(t), nil },
		"delete": func(t *testing.T) (*redistest.Server, []string) { return standalone(t), []string{"TOKENS_MODE=delete"} },
		"replicas": func(t *testing.T) (*redistest.Server, []string) {
			r := standalone(t)
			host, port, _ := net.SplitHostPort(r.Addr)
			replica := redistest.Start(t).Client()
			replica.ReplicaOf(context.Background(), host, port)
			until(t, "the replica is there", func() bool {
				return strings.Contains(replica.Info(context.Background(), "replication").Val(), "master_link_status:up")
			})
			return r, []string{"REDIS_WAIT_REPLICAS=1", "REDIS_WAIT_TIMEOUT=20s", "REDIS_TIMEOUT=30s"}
		},
		"cluster": func(t *testing.T) (*redistest.Server, []string) {
			r := redistest.StartCluster(t)
			r.AddUser("tokend", redistest.ForCluster...)
			return r, []string{"REDIS_MODE=cluster"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, set := start(t)
			i := startReady(t, "redis://tokend:"+redistest.Password+"@"+r.Addr+"/0", set...)
			i.usable()
			batch := i.post(wire.PathBatch, serviceKey, members{"user": "alice", "count": 3})
			var items []members
			for _, token := range batch.Tokens {
				items = append(items, members{"user": "alice", "token": token.Token})
			}
			if a := i.post(wire.PathConsumeBatch, serviceKey, members{"items": items}); a.status != http.StatusOK || len(a.Results) != 3 || a.Results[2].Outcome != wire.OutcomeConsumed {
				t.Errorf("batch: %v", a)
			}
			environ := serve.Variables(i.environ)
			for _, command := range []string{"doctor", "healthcheck"} {
				cmd := exec.Command(binary, command)
				cmd.Env = environ
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("%s: %v\n%s", command, err, out)
				}
			}
			denied := slices.DeleteFunc(r.Denied(), func(d string) bool { return d == "command info" || d == "command config|get" })
			if len(denied) > 0 {
				t.Errorf("denied: %q", denied)
			}
		})
	}
}

// TestMoveByReplication moves to another Redis as docs/operations.md says: what was used stays
// used, what was issued is good, and nothing is granted in between.
func TestMoveByReplication(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	from, to := redistest.Start(t, "--repl-diskless-sync-delay", "0"), redistest.Start(t)
	before := startReady(t, redisURL(from.Addr), timeoutSetting)
	used, unused := before.issue("alice"), before.issue("alice")
	if a := before.consume("alice", used, "first"); a.Outcome != wire.OutcomeConsumed {
		t.Fatalf("consume: %v", a)
	}
	host, port, _ := net.SplitHostPort(from.Addr)
	replica, master := to.Client(), from.Client()
	if err := replica.ReplicaOf(ctx, host, port).Err(); err != nil {
		t.Fatal(err)
	}
	info := func(c *redis.Client, name string) string {
		m := regexp.MustCompile(`(?m)^` + name + `:(.*)\r$`).FindStringSubmatch(c.Info(ctx, "replication").Val())
		if m == nil {
			return ""
		}
		return m[1]
	}
	until(t, "the replica is there", func() bool { return info(replica, "master_link_status") == "up" })
	if err := master.Do(ctx, "CLIENT", "PAUSE", 600_000, "WRITE").Err(); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{wire.PathConsume, wire.PathStatus} {
		a := before.post(path, serviceKey, members{"user": "alice", "token": unused})
		if a.Code != string(wire.CodeStoreUnavailable) {
			t.Errorf("%s while the old Redis takes no writes: %v", path, a)
		}
	}
	until(t, "the replica has it all", func() bool {
		at := info(master, "master_repl_offset")
		return at != "" && info(replica, "slave_repl_offset") == at
	})
	if err := replica.ReplicaOf(ctx, "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
	from.Kill()
	after := startReady(t, redisURL(to.Addr), timeoutSetting)
	if a := after.consume("alice", used, "second"); a.Code != string(wire.CodeTokenUsed) {
		t.Errorf("what was used before the move: %v", a)
	}
	if a := after.consume("alice", used, "first"); a.Outcome != wire.OutcomeConsumed || !a.Replayed {
		t.Errorf("the attempt that used it, again: %v", a)
	}
	if a := after.consume("alice", unused, "third"); a.Outcome != wire.OutcomeConsumed {
		t.Errorf("what was issued before the move: %v", a)
	}
}

// TestRules runs Prometheus's own checks.
func TestRules(t *testing.T) {
	t.Parallel()
	installed(t, "promtool")
	for _, args := range [][]string{
		{"check", "rules", "rules.yml"},
		{"check", "config", "prometheus.yml"},
		{"test", "rules", "rules_test.yml"},
	} {
		cmd := exec.Command("promtool", args...)
		cmd.Dir = deployDir + "prometheus"
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// TestUnit has systemd look at its unit, with the program where it is.
func TestUnit(t *testing.T) {
	t.Parallel()
	installed(t, "systemd-analyze")
	unit := filepath.Join(t.TempDir(), "tokend.service")
	writeFile(t, unit, strings.ReplaceAll(readDeployed(t, "systemd/tokend.service"), "/usr/local/bin/tokend", binary))
	for _, args := range [][]string{
		{"verify", unit},
		{"security", "--offline=true", "--threshold=15", unit}, // of 100, the most exposed
	} {
		if out, err := exec.Command("systemd-analyze", args...).CombinedOutput(); err != nil || args[0] == "verify" && len(out) > 0 {
			t.Errorf("systemd-analyze %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}
