package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/redis/go-redis/v9"

	"example.com/tokend/config"
	"example.com/tokend/token"
	"example.com/tokend/token/redisstore"
)

// finding is what an examination of Redis says of one thing.
type finding struct {
	Node  string `json:"node,omitempty"` // which of a cluster's masters
	Check string `json:"check"`
	Level grade  `json:"level"`
	Text  string `json:"text"`
	Mend  string `json:"mend,omitempty"`
}

// grade says how good a finding is.
type grade string

const (
	good  grade = "ok"
	doubt grade = "warn" // works, but what tokend promises leans on something weak or unseen
	unfit grade = "fail" // tokens would be lost or refused
)

// String is the finding in one line, without its grade.
func (f finding) String() string {
	if f.Mend == "" {
		return f.Text
	}
	return f.Text + "; mend: " + f.Mend
}

// examine examines the Redis that cfg names and rdb asks, each master of a cluster. The
// error says that it could not be asked.
func examine(ctx context.Context, rdb redis.UniversalClient, cfg *config.Config) ([]finding, error) {
	masters, err := mastersOf(ctx, rdb, cfg.Redis.Timeout)
	if err != nil {
		if strings.Contains(err.Error(), "cluster support disabled") {
			return []finding{{Check: "mode", Level: unfit, Text: "redis.mode is cluster, and this Redis is none", Mend: "set redis.mode to standalone"}}, nil
		}
		return nil, err
	}
	var all []finding
	for _, m := range masters {
		e := &examination{cfg: cfg, rdb: rdb, node: m}
		if err := e.run(ctx); err != nil {
			return nil, err
		}
		for _, f := range e.findings {
			if cfg.Redis.Mode == config.Cluster {
				f.Node = m.Options().Addr
			}
			all = append(all, f)
		}
	}
	return all, nil
}

// mastersOf returns the servers to examine, in the order of their addresses.
func mastersOf(ctx context.Context, rdb redis.UniversalClient, timeout time.Duration) ([]*redis.Client, error) {
	cluster, ok := rdb.(*redis.ClusterClient)
	if !ok {
		return []*redis.Client{rdb.(*redis.Client)}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var mu sync.Mutex
	var all []*redis.Client
	err := cluster.ForEachMaster(ctx, func(_ context.Context, m *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, m)
		return nil
	})
	slices.SortFunc(all, func(a, b *redis.Client) int { return cmp.Compare(a.Options().Addr, b.Options().Addr) })
	return all, err
}

// examination is one server's.
type examination struct {
	cfg  *config.Config
	rdb  redis.UniversalClient // of all servers
	node *redis.Client         // the one

	info     map[string]string // empty where INFO is not to be had
	config   map[string]string // of the settings asked for
	noConfig error             // why CONFIG is not to be had; nil where it is

	findings []finding
}

// run makes the findings. Its error says that the server could not be asked.
func (e *examination) run(ctx context.Context) error {
	if err := e.latency(ctx); err != nil {
		return err
	}
	if err := e.readInfo(ctx); err != nil {
		return err
	}
	if err := e.readConfig(ctx); err != nil {
		return err
	}
	e.version()
	e.mode()
	e.eviction()
	e.memory()
	e.persistence()
	e.replicas()
	e.write(ctx)
	return e.clock(ctx)
}

func (e *examination) add(check string, level grade, text, mend string) {
	e.findings = append(e.findings, finding{Check: check, Level: level, Text: text, Mend: mend})
}

// ask calls do within the time that a command may take. said is what Redis answered
// instead of what was asked for; err, that it did not answer.
func (e *examination) ask(ctx context.Context, do func(context.Context) error) (said, err error) {
	ctx, cancel := context.WithTimeout(ctx, e.cfg.Redis.Timeout)
	defer cancel()
	err = do(ctx)
	if r := redis.Error(nil); errors.As(err, &r) {
		return err, nil
	}
	return nil, err
}

const pings = 10

// latency pings. A server that only answers what it is not asked (LOADING, NOAUTH) cannot
// be asked.
func (e *examination) latency(ctx context.Context) error {
	var took []time.Duration
	for range pings {
		began := time.Now()
		said, err := e.ask(ctx, func(ctx context.Context) error { return e.node.Ping(ctx).Err() })
		if err != nil {
			return err
		}
		if said != nil && (!redis.HasErrorPrefix(said, "NOPERM") || denied(said) == "select") { // a connection begins with SELECT
			return said
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	median := took[pings/2]
	text := fmt.Sprintf("a round trip takes %v (%v to %v)", short(median), short(took[0]), short(took[pings-1]))
	if median > e.cfg.Redis.Timeout/4 {
		e.add("latency", doubt, text+", which is much of redis.timeout, "+e.cfg.Redis.Timeout.String(), "bring tokend and Redis closer together, or raise redis.timeout")
		return nil
	}
	e.add("latency", good, text, "")
	return nil
}

// short returns d with about three digits.
func short(d time.Duration) time.Duration {
	for _, unit := range []time.Duration{time.Second, time.Millisecond, time.Microsecond} {
		if d >= unit {
			return d.Round(unit / 100)
		}
	}
	return d
}

func (e *examination) readInfo(ctx context.Context) error {
	e.info = map[string]string{}
	var refused error
	// One by one: 6.2 takes one section, and what is within the process knows not all.
	for _, section := range []string{"server", "memory", "persistence", "replication"} {
		var text string
		said, err := e.ask(ctx, func(ctx context.Context) (err error) {
			text, err = e.node.Info(ctx, section).Result()
			return err
		})
		if err != nil {
			return err
		}
		refused = cmp.Or(refused, said)
		for line := range strings.Lines(text) {
			if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
				e.info[name] = value
			}
		}
	}
	if refused != nil {
		e.add("info", doubt, fmt.Sprintf("INFO is not to be had (%s): what only it tells was not looked at", plain(refused)),
			"allow it (+info in the ACL), or look at the version, memory and replicas by other means")
	}
	return nil
}

func (e *examination) readConfig(ctx context.Context) error {
	e.config = map[string]string{}
	for _, name := range []string{"maxmemory-policy", "appendonly", "appendfsync", "save", "min-replicas-to-write"} {
		said, err := e.ask(ctx, func(ctx context.Context) error {
			got, err := e.node.ConfigGet(ctx, name).Result()
			if v, ok := got[name]; ok {
				e.config[name] = v
			}
			return err
		})
		if err != nil {
			return err
		}
		if said != nil {
			e.noConfig = said
			e.add("config", doubt, fmt.Sprintf("CONFIG is not to be had (%s), as with many providers: what only it tells was not looked at", plain(said)),
				"allow it (+config|get in the ACL), or look at appendfsync, save and min-replicas-to-write by other means")
			return nil
		}
	}
	return nil
}

// either returns what INFO, else CONFIG says; "" where neither does.
func (e *examination) either(info, config string) string {
	return cmp.Or(e.info[info], e.config[config])
}

func (e *examination) version() {
	if v := e.info["valkey_version"]; v != "" {
		e.add("version", good, "Valkey "+v, "")
		return
	}
	v := e.info["redis_version"]
	if v == "" {
		return
	}
	if !fresh(v) {
		e.add("version", unfit, "Redis "+v+" is too old: it lacks commands that tokend's scripts use", "run Redis 6.2 or newer, or Valkey")
		return
	}
	e.add("version", good, "Redis "+v, "")
}

// fresh tells whether v is 6.2 or newer.
func fresh(v string) bool {
	major, rest, _ := strings.Cut(v, ".")
	minor, _, _ := strings.Cut(rest, ".")
	m, err1 := strconv.Atoi(major)
	n, err2 := strconv.Atoi(minor)
	return err1 == nil && err2 == nil && (m > 6 || m == 6 && n >= 2)
}

func (e *examination) mode() {
	switch mode := e.info["redis_mode"]; {
	case mode == "sentinel":
		e.add("mode", unfit, "this is a Sentinel, and holds no data", "set redis.mode to sentinel, with master_name in redis.url")
	case mode == "cluster" && e.cfg.Redis.Mode != config.Cluster:
		e.add("mode", unfit, "this is a node of a cluster", "set redis.mode to cluster")
	}
	if e.info["role"] == "slave" {
		e.add("role", unfit, "this is a replica: it takes no writes", "point redis.url at the master, or use redis.mode sentinel or cluster, which find it")
	}
}

func (e *examination) eviction() {
	const mend = "set maxmemory-policy to noeviction: a full Redis then refuses new tokens (503), and keeps what it knows of the old ones"
	switch policy := e.either("maxmemory_policy", "maxmemory-policy"); {
	case policy == "":
		e.add("eviction", doubt, "maxmemory-policy cannot be read", "see to it that it is noeviction")
	case policy == "noeviction":
		e.add("eviction", good, "maxmemory-policy is noeviction", "")
	case strings.HasPrefix(policy, "volatile-"):
		e.add("eviction", unfit, "maxmemory-policy is "+policy+": it evicts keys that have an expiry, and every key of tokend's has one. "+evicted, mend)
	default:
		e.add("eviction", unfit, "maxmemory-policy is "+policy+": it evicts any key, tokens too. "+evicted, mend)
	}
}

const evicted = "A live token whose record is evicted is lost, and a used one reads as never used once it has expired"

func (e *examination) memory() {
	used, err1 := strconv.ParseUint(e.info["used_memory"], 10, 64)
	most, err2 := strconv.ParseUint(e.info["maxmemory"], 10, 64)
	if err1 != nil || err2 != nil {
		return
	}
	if most == 0 {
		e.add("memory", good, fmt.Sprintf("%s used, without a maxmemory: the host's memory is the limit", mebibytes(used)), "")
		return
	}
	text := fmt.Sprintf("%s of maxmemory %s used", mebibytes(used), mebibytes(most))
	if used > most/5*4 {
		e.add("memory", doubt, text+": no tokens are issued when it is full", "raise maxmemory, or shorten tokens.retention")
		return
	}
	e.add("memory", good, text, "")
}

func mebibytes(n uint64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

func (e *examination) persistence() {
	appends := e.info["aof_enabled"] == "1" || e.config["appendonly"] == "yes"
	known := e.info["aof_enabled"] != "" || e.config["appendonly"] != ""
	saves, savesKnown := e.config["save"]
	const mend = "set appendonly yes, with appendfsync everysec or always"
	switch sync := e.config["appendfsync"]; {
	case !known:
		e.add("persistence", doubt, "whether anything is kept over a restart cannot be read", "see to it that appendonly is on")
	case appends && sync == "no":
		e.add("persistence", doubt, "appendonly is on, with appendfsync no: a crash of the host may forget half a minute, and what was consumed in it can be consumed again", "set appendfsync everysec or always")
	case appends && sync == "always":
		e.add("persistence", good, "appendonly is on, with appendfsync always: what was answered is kept", "")
	case appends:
		e.add("persistence", good, "appendonly is on: a crash of the host may forget a second or so, unless appendfsync is always", "")
	case savesKnown && saves == "":
		e.add("persistence", doubt, "nothing is kept: after a restart every token is lost, and one consumed before it reads as never used once it has expired", mend)
	default:
		e.add("persistence", doubt, "appendonly is off: a restart after a crash goes back to the latest snapshot, if there is one, and what was consumed since can be consumed again", mend)
	}
	for _, name := range []string{"aof_last_write_status", "rdb_last_bgsave_status"} {
		if e.info[name] == "err" {
			e.add("persistence", doubt, name+" is err: Redis could not write to its disk, and may refuse changes for it", "look into Redis's log: is the disk full?")
		}
	}
}

func (e *examination) replicas() {
	if e.info["role"] != "master" {
		return
	}
	online := 0
	for name, value := range e.info {
		if strings.HasPrefix(name, "slave") && strings.Contains(value, "state=online") {
			online++
		}
	}
	want := e.cfg.Redis.WaitReplicas
	text := fmt.Sprintf("%d online, redis.wait_replicas is %d", online, want)
	switch {
	case want > online:
		e.add("replicas", unfit, text+": every change would be answered with 503", "add replicas, or lower redis.wait_replicas")
		return
	case want == 0 && online > 0:
		e.add("replicas", doubt, text+": a failover may bring back tokens that were consumed just before it", "set redis.wait_replicas to 1")
	case online == 0 && e.cfg.Redis.Mode != config.Standalone:
		e.add("replicas", doubt, text+": there is nothing to fail over to", "add a replica, and set redis.wait_replicas to 1")
	default:
		e.add("replicas", good, text, "")
	}
	if least, ok := e.config["min-replicas-to-write"]; ok && least == "0" && online > 0 {
		e.add("replicas", doubt, "min-replicas-to-write is 0: a master that is cut off goes on consuming tokens that its successor consumes again", "set min-replicas-to-write 1 and min-replicas-max-lag 10")
	}
}

// write issues and consumes a token of nobody's by the scripts that tokend itself uses.
// What it writes has an expiry as all that tokend writes.
func (e *examination) write(ctx context.Context) {
	user, err := e.userHere(ctx)
	if err != nil {
		e.add("write", doubt, "nothing was written: "+plain(err), "look at CLUSTER SLOTS")
		return
	}
	if err := tryOut(ctx, e.rdb, e.cfg, user); err != nil {
		if f, ok := errors.AsType[*token.Fault](err); ok {
			err = fmt.Errorf("%s: %w", f.Op, f.Err)
		}
		e.add("write", unfit, "a token could not be issued and consumed: "+plain(err), mendOf(err))
		return
	}
	if err := e.rdb.MGet(ctx, redisstore.TokenKey(e.cfg.Redis.KeyPrefix, user.Hash(), token.ID{})).Err(); err != nil {
		e.add("write", doubt, "calls at the same time cannot share a script's run, and cost Redis twice as much: "+plain(err), mendOf(err))
		return
	}
	e.add("write", good, "a token was issued and consumed; nothing of it stays", "")
}

// userHere makes up a user whose tokens are kept on the node.
func (e *examination) userHere(ctx context.Context) (token.User, error) {
	cluster, ok := e.rdb.(*redis.ClusterClient)
	for range 100_000 {
		user := token.User("tokend doctor " + string(token.NewAttempt()))
		if !ok {
			return user, nil
		}
		m, err := cluster.MasterForKey(ctx, redisstore.TokenKey(e.cfg.Redis.KeyPrefix, user.Hash(), token.ID{}))
		if err != nil {
			return "", err
		}
		if m.Options().Addr == e.node.Options().Addr {
			return user, nil
		}
	}
	return "", errors.New("the master holds hardly any slots")
}

// tryOut issues and consumes a token of user.
func tryOut(ctx context.Context, rdb redis.UniversalClient, cfg *config.Config, user token.User) error {
	made, err := newSigningKey("doctor")
	if err != nil {
		return err
	}
	keys, err := token.ParseKeys(made)
	if err != nil {
		return err
	}
	ring, err := token.NewRing(keys...)
	if err != nil {
		return err
	}
	const purpose = token.Purpose("doctor")
	tokens := token.NewService(ring, redisstore.New(rdb, storeOptions(cfg)), token.Options{
		Mode:     cfg.Tokens.Mode,
		Settings: token.Settings{TTL: 30 * time.Second, MaxTTL: 30 * time.Second, Retention: 10 * time.Second},
	})
	issued, err := tokens.Issue(ctx, token.IssueRequest{User: user, Purpose: purpose})
	if err != nil {
		return err
	}
	opened, err := tokens.Open(token.Use{Text: issued.Text, User: user, Purpose: purpose})
	if err != nil {
		return err
	}
	_, err = tokens.Consume(ctx, token.Consumption{User: user, Token: opened, Attempt: token.NewAttempt()})
	// Nothing of it is to stay. Whoever may not delete, in record mode, leaves it to its expiry.
	rdb.Del(ctx, redisstore.TokenKey(cfg.Redis.KeyPrefix, user.Hash(), opened.ID))
	return err
}

// mends says what to do about what is said instead of carrying out a script.
var mends = []struct{ said, mend string }{
	{"READONLY", "point redis.url at the master: this is a replica"},
	{"NOPERM", mendACL},
	{"WRONGPASS", mendPassword},
	{"AUTH", mendPassword},
	{"LOADING", "wait: it is reading its file"},
	{"DB index is out of range", "name a database in redis.url that this Redis has (databases, 16 where not set)"},
	{"can't run this command", mendACL},
	{"ACL failure", mendACL},
	{"unknown command", "tokend needs EVALSHA, EVAL, TIME, GET, GETEX and SET: run a server that has them"},
	{"OOM", "Redis is full: raise maxmemory"},
	{"MISCONF", "Redis cannot save to its disk, and refuses writes: look into its log"},
	{"NOREPLICAS", "bring as many replicas online as min-replicas-to-write asks for"},
	{"replicas have the change", "add replicas, or lower redis.wait_replicas"},
	{"MOVED", "set redis.mode to cluster: this is a node of one"},
	{"CLUSTERDOWN", "look at CLUSTER INFO: the cluster does not serve all slots"},
	{"", "look into Redis's log, and whether it is overloaded"},
}

const mendACL = "the ACL user needs ~PREFIX:* &PREFIX:* (redis.key_prefix) and +eval +evalsha +time +get +getex +mget +set +del +wait +publish +subscribe +unsubscribe +ping"

const mendPassword = "look at the user in redis.url, the password in it or in redis.password, and ACL LIST"

// deniedCommand finds the command in what Redis says of one that a user may not call.
var deniedCommand = regexp.MustCompile(`run the '([a-z|]+)' command`)

// denied returns the command that err says the user may not call, or "".
func denied(err error) string {
	if m := deniedCommand.FindStringSubmatch(err.Error()); m != nil && strings.Contains(err.Error(), "NOPERM") {
		return m[1]
	}
	return ""
}

func mendOf(err error) string {
	switch command := denied(err); {
	case command == "select":
		return "the ACL user needs +select for a database other than 0: allow it, or name database 0 in redis.url"
	case command != "" && !slices.Contains(strings.Fields(mendACL), "+"+command):
		return "the ACL user needs +" + command + " too"
	}
	i := slices.IndexFunc(mends, func(m struct{ said, mend string }) bool { return strings.Contains(err.Error(), m.said) })
	return mends[i].mend
}

// plain returns what err says, fit for a line of text: where Redis knows no command it
// quotes the arguments, bytes of keys too.
func plain(err error) string {
	text, _, _ := strings.Cut(err.Error(), ", with args")
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
}

func (e *examination) clock(ctx context.Context) error {
	var theirs time.Time
	began := time.Now()
	said, err := e.ask(ctx, func(ctx context.Context) (err error) {
		theirs, err = e.node.Time(ctx).Result()
		return err
	})
	if said != nil || err != nil {
		return err // what Redis says instead, the scripts have said too
	}
	ahead := theirs.Sub(began.Add(time.Since(began) / 2))
	e.add("clock", good, fmt.Sprintf("Redis's differs by %v from this host's; tokens go by Redis's, JWTs by the host's", ahead.Round(time.Millisecond).Abs()), "")
	return nil
}
