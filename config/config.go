package config

import (
	"log/slog"
	"time"

	"example.com/tokend/token"
)

// Config is what is in force. Each field is the setting of the same name.
type Config struct {
	Listen      string
	AdminListen string // empty: no admin listener
	AdminPprof  bool
	TLS         TLS
	Redis       Redis
	Tokens      Tokens
	Keys        Keys
	Results     Results
	Signing     Signing
	Auth        Auth
	CORS        CORS
	Gateway     Gateway
	Rate        token.Rate // PerMinute 0: off
	Limits      Limits
	Purposes    map[token.Purpose]Purpose // nil: any purpose may be issued
	Log         Log
	Shutdown    Shutdown

	values []Value
}

// TLS is the public listener's certificate. Both fields are empty or neither is.
type TLS struct{ CertFile, KeyFile string }

// Redis says where the store is and how long it may take.
type Redis struct {
	URL          Secret
	Mode         RedisMode
	Password     Secret // replaces the URL's, where not empty
	CAFile       string
	Timeout      time.Duration // of one command, with its retries
	PoolSize     int           // 0: ten for each CPU
	KeyPrefix    string
	WaitReplicas int
	WaitTimeout  time.Duration
}

// RedisMode says how Redis is deployed.
type RedisMode string

// The values of redis.mode.
const (
	Standalone RedisMode = "standalone"
	Sentinel   RedisMode = "sentinel"
	Cluster    RedisMode = "cluster"
)

// Tokens are the settings of every purpose that Config.Purposes does not name. What they say
// of keys is in Keys, and not here.
type Tokens struct {
	token.Settings
	Mode token.Mode
}

// Keys are the settings of idempotency keys.
type Keys struct{ Retention time.Duration }

// Results are the settings of stored results.
type Results struct{ MaxBytes int }

// Signing holds the keys that sign tokens: the first signs, all verify.
type Signing struct{ Keys []token.Key }

// Auth says who may call. Its rules are package auth's: nothing here is checked.
type Auth struct {
	JWTSecrets    []Secret // all verify
	PublicKeyFile string
	JWKSURL       string
	ServiceKeys   Secret // NAME:SHA256HEX:SCOPE+SCOPE[,…]
	Issuer        string
	Audience      []string
	Leeway        time.Duration
	UserClaim     string
	ScopeClaim    string
	ServiceClaim  string // NAME=VALUE
	JWTAlgorithm  string
}

// Given tells whether there is any way to authenticate.
func (a *Auth) Given() bool {
	return len(a.JWTSecrets) > 0 || a.PublicKeyFile != "" || a.JWKSURL != "" || a.ServiceKeys != ""
}

// CORS lists the origins whose pages may call.
type CORS struct{ Origins []string }

// Gateway names the headers that gateways overwrite in every request, whatever their client
// sent. Each is empty where there is none.
type Gateway struct {
	MethodHeader  string // empty: the two usual ones, which must agree
	UserHeader    string // empty: the user's JWT
	PurposeHeader string
	AttemptHeader string
	AllowedStatus int // 200 or 204
}

// Limits bound what a caller may send.
type Limits struct{ BodyBytes int }

// Purpose holds the settings of one purpose.
type Purpose struct{ token.Settings }

// Log says what is logged and how.
type Log struct {
	Level    slog.Level
	Format   LogFormat
	Outcomes LogOutcomes
	User     LogUser
}

// LogFormat is a form of log lines.
type LogFormat string

// The values of log.format.
const (
	LogJSON LogFormat = "json"
	LogText LogFormat = "text"
)

// LogOutcomes says which outcomes are logged.
type LogOutcomes string

// The values of log.outcomes.
const (
	LogAll      LogOutcomes = "all"
	LogRefusals LogOutcomes = "refusals"
	LogNone     LogOutcomes = "none"
)

// LogUser says how users stand in log lines.
type LogUser string

// The values of log.user.
const (
	UserHash  LogUser = "hash"
	UserPlain LogUser = "plain"
	UserNone  LogUser = "none"
)

// Shutdown bounds the end of the program.
type Shutdown struct {
	Delay   time.Duration // how long requests are still served
	Timeout time.Duration // how long those in flight may then take
}

// Value is one setting as it is in force.
type Value struct {
	Name   string
	Text   string // as it was given; a secret is masked
	Origin Origin
}

// Values lists what is in force, in the table's order.
func (c *Config) Values() []Value { return c.values }

// Origin tells where the setting called name comes from.
func (c *Config) Origin(name string) Origin {
	for _, v := range c.values {
		if v.Name == name {
			return v.Origin
		}
	}
	return Default
}
