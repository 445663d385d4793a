package config

import (
	"log/slog"
	"math"
	"time"

	"example.com/tokend/token"
)

// longest is the longest duration that a token and a record can hold: four bytes of
// seconds.
const longest = math.MaxUint32 * time.Second

// settings is the one table of settings. Flags, variables, YAML names, help and the
// README's table come from it. purposes alone is not here: see purposes.go.
var settings = []Setting{
	{
		Name: "config", Type: "file", virtual: true,
		Help: "YAML file to read",
	},
	{
		Name: "listen", Type: "address", Default: ":8080",
		Help: "where the API listens",
		set:  field(func(c *Config) *string { return &c.Listen }, address),
	},
	{
		Name: "admin_listen", Type: "address", Default: "127.0.0.1:9090",
		Help: "where metrics are served; empty: nowhere",
		set:  field(func(c *Config) *string { return &c.AdminListen }, orEmpty(address)),
	},
	{
		Name: "admin_pprof", Type: "bool", Default: "false",
		Help: "serve Go profiles on the admin listener, which must then be on a loopback address",
		set:  field(func(c *Config) *bool { return &c.AdminPprof }, boolean),
	},
	{
		Name: "tls.cert_file", Type: "file",
		Help: "PEM certificate (and chain) of the API: HTTPS, read again when it changes",
		set:  field(func(c *Config) *string { return &c.TLS.CertFile }, anyText),
	},
	{
		Name: "tls.key_file", Type: "file",
		Help: "PEM key of the certificate, read again when it changes",
		set:  field(func(c *Config) *string { return &c.TLS.KeyFile }, anyText),
	},
	{
		Name: "redis.url", Type: "url", Secret: true,
		Help: "required; redis://, rediss:// (TLS) or unix://; for sentinel and cluster in go-redis's forms, redis://HOST:26379?master_name=NAME&addr=HOST2:26379 and redis://HOST:6379?addr=HOST2:6379",
		set:  field(func(c *Config) *Secret { return &c.Redis.URL }, anySecret),
	},
	{
		Name: "redis.mode", Type: "mode", Default: string(Standalone),
		Help: "standalone, sentinel or cluster",
		set:  field(func(c *Config) *RedisMode { return &c.Redis.Mode }, oneOf(Standalone, Sentinel, Cluster)),
	},
	{
		Name: "redis.password", Type: "password", Secret: true,
		Help: "replaces the URL's, and may hold any characters",
		set:  field(func(c *Config) *Secret { return &c.Redis.Password }, anySecret),
	},
	{
		Name: "redis.ca_file", Type: "file",
		Help: "PEM certificates that Redis's own is checked against, instead of the system's; rediss:// only",
		set:  field(func(c *Config) *string { return &c.Redis.CAFile }, anyText),
	},
	{
		Name: "redis.timeout", Type: "duration", Default: "1s",
		Help: "within which a command is answered or given up, its retries included",
		set:  field(func(c *Config) *time.Duration { return &c.Redis.Timeout }, duration(10*time.Millisecond, time.Minute, time.Millisecond)),
	},
	{
		Name: "redis.pool_size", Type: "number", Default: "0",
		Help: "most connections to a Redis node; 0: ten for each CPU",
		set:  field(func(c *Config) *int { return &c.Redis.PoolSize }, number(0, 10_000)),
	},
	{
		Name: "redis.key_prefix", Type: "text", Default: "tokend",
		Help: "begins every key in Redis",
		set:  field(func(c *Config) *string { return &c.Redis.KeyPrefix }, keyPrefix),
	},
	{
		Name: "redis.wait_replicas", Type: "number", Default: "0",
		Help: "acknowledge a change only when so many replicas have it",
		set:  field(func(c *Config) *int { return &c.Redis.WaitReplicas }, number(0, 100)),
	},
	{
		Name: "redis.wait_timeout", Type: "duration", Default: "100ms",
		Help: "how long to wait for them",
		set:  field(func(c *Config) *time.Duration { return &c.Redis.WaitTimeout }, duration(time.Millisecond, time.Minute, time.Millisecond)),
	},
	{
		Name: "tokens.ttl", Type: "duration", Default: "5m",
		Help: "how long a token is good for whose caller asks for nothing else",
		set:  field(func(c *Config) *time.Duration { return &c.Tokens.TTL }, wholeSeconds),
	},
	{
		Name: "tokens.max_ttl", Type: "duration", Default: "24h",
		Help: "the longest that a caller may ask for",
		set:  field(func(c *Config) *time.Duration { return &c.Tokens.MaxTTL }, wholeSeconds),
	},
	{
		Name: "tokens.retention", Type: "duration", Default: "24h",
		Help: "how long after a token's expiry it is remembered what became of it",
		set:  field(func(c *Config) *time.Duration { return &c.Tokens.Retention }, wholeSeconds),
	},
	{
		Name: "tokens.mode", Type: "mode", Default: token.Record.String(),
		Help: "record: every outcome can be told; delete: least memory, and used cannot be told from lost",
		set:  field(func(c *Config) *token.Mode { return &c.Tokens.Mode }, token.ParseMode),
	},
	{
		Name: "keys.retention", Type: "duration", Default: "24h",
		Help: "how long an idempotency key lives from its latest claim, commit or completion",
		set:  field(func(c *Config) *time.Duration { return &c.Keys.Retention }, wholeSeconds),
	},
	{
		Name: "results.max_bytes", Type: "number", Default: "262144",
		Help: "the largest body of a stored result",
		set:  field(func(c *Config) *int { return &c.Results.MaxBytes }, number(0, 64<<20)),
	},
	{
		Name: "signing.keys", Type: "keys", Secret: true, list: true,
		Help: "required; ID:BASE64[,ID:BASE64 …], made by tokend keygen signing: the first signs, all verify",
		set:  field(func(c *Config) *[]token.Key { return &c.Signing.Keys }, signingKeys),
	},
	{
		Name: "auth.jwt_secret", Type: "secrets", Secret: true, list: true,
		Help: "secrets of JWTs (HS256), comma-separated, at least 32 bytes each; all verify",
		set:  field(func(c *Config) *[]Secret { return &c.Auth.JWTSecrets }, jwtSecrets),
	},
	{
		Name: "auth.public_key_file", Type: "file",
		Help: "PEM public key of JWTs (RS, PS, ES, EdDSA)",
		set:  field(func(c *Config) *string { return &c.Auth.PublicKeyFile }, anyText),
	},
	{
		Name: "auth.jwks_url", Type: "url",
		Help: "where the issuer publishes its keys; auth.issuer and auth.audience are required with it",
		set:  field(func(c *Config) *string { return &c.Auth.JWKSURL }, anyText),
	},
	{
		Name: "auth.service_keys", Type: "keys", Secret: true, list: true,
		Help: "NAME:SHA256HEX:SCOPE+SCOPE[,…], made by tokend keygen service; scopes are tokend.issue and tokend.consume",
		set:  field(func(c *Config) *Secret { return &c.Auth.ServiceKeys }, anySecret),
	},
	{
		Name: "auth.issuer", Type: "text",
		Help: "iss that JWTs must have",
		set:  field(func(c *Config) *string { return &c.Auth.Issuer }, anyText),
	},
	{
		Name: "auth.audience", Type: "list", list: true,
		Help: "aud of which JWTs must have one, comma-separated",
		set:  listField(func(c *Config) *[]string { return &c.Auth.Audience }, someText),
	},
	{
		Name: "auth.leeway", Type: "duration", Default: "30s",
		Help: "by how much the issuer's clock may differ from the host's",
		set:  field(func(c *Config) *time.Duration { return &c.Auth.Leeway }, duration(0, 10*time.Minute, time.Second)),
	},
	{
		Name: "auth.user_claim", Type: "claim", Default: "sub",
		Help: "claim that is the user",
		set:  field(func(c *Config) *string { return &c.Auth.UserClaim }, someText),
	},
	{
		Name: "auth.scope_claim", Type: "claim", Default: "scope",
		Help: "claim that holds the scopes",
		set:  field(func(c *Config) *string { return &c.Auth.ScopeClaim }, someText),
	},
	{
		Name: "auth.service_claim", Type: "claim=value",
		Help: "NAME=VALUE that a service's JWT must have besides its scopes, gty=client-credentials say",
		set:  field(func(c *Config) *string { return &c.Auth.ServiceClaim }, anyText),
	},
	{
		Name: "auth.jwt_algorithm", Type: "alg",
		Help: "the one algorithm of JWTs; empty: by the key, HS256 for a secret",
		set:  field(func(c *Config) *string { return &c.Auth.JWTAlgorithm }, anyText),
	},
	{
		Name: "cors.origins", Type: "list", list: true,
		Help: "origins whose pages may call, https://shop.example say, comma-separated",
		set:  listField(func(c *Config) *[]string { return &c.CORS.Origins }, origin),
	},
	{
		Name: "gateway.method_header", Type: "header",
		Help: "header in which gateways tell the method of the request that they ask about, and which they always overwrite, as all of gateway's; empty: X-Forwarded-Method and X-Original-Method, which must agree",
		set:  field(func(c *Config) *string { return &c.Gateway.MethodHeader }, orEmpty(gatewayHeader)),
	},
	{
		Name: "gateway.user_header", Type: "header",
		Help: "header in which gateways tell the user; empty: a user's JWT in Authorization",
		set:  field(func(c *Config) *string { return &c.Gateway.UserHeader }, orEmpty(gatewayHeader)),
	},
	{
		Name: "gateway.purpose_header", Type: "header",
		Help: "header in which gateways tell the purpose; empty: it is default",
		set:  field(func(c *Config) *string { return &c.Gateway.PurposeHeader }, orEmpty(gatewayHeader)),
	},
	{
		Name: "gateway.attempt_header", Type: "header",
		Help: "header in which gateways tell what they make up for each request, for those that may ask twice; empty: the attempt is made up here",
		set:  field(func(c *Config) *string { return &c.Gateway.AttemptHeader }, orEmpty(gatewayHeader)),
	},
	{
		Name: "gateway.allowed_status", Type: "status", Default: "204",
		Help: "status that lets a request through: 204, or 200, which Envoy wants",
		set:  field(func(c *Config) *int { return &c.Gateway.AllowedStatus }, allowedStatus),
	},
	{
		Name: "rate.issue_per_minute", Type: "number", Default: "120",
		Help: "tokens that a user may be issued a minute, in all instances together; 0: no limit",
		set:  field(func(c *Config) *int { return &c.Rate.PerMinute }, number(0, 1_000_000)),
	},
	{
		Name: "rate.burst", Type: "number", Default: "120",
		Help: "how many of them at once",
		set:  field(func(c *Config) *int { return &c.Rate.Burst }, number(1, 1_000_000)),
	},
	{
		Name: "limits.body_bytes", Type: "number", Default: "65536",
		Help: "the largest request body; for complete, 4/3 of results.max_bytes comes on top",
		set:  field(func(c *Config) *int { return &c.Limits.BodyBytes }, number(1024, 64<<20)),
	},
	{
		Name: "log.level", Type: "level", Default: "info",
		Help: "debug, info, warn or error",
		set:  field(func(c *Config) *slog.Level { return &c.Log.Level }, level),
	},
	{
		Name: "log.format", Type: "format", Default: string(LogJSON),
		Help: "json or text",
		set:  field(func(c *Config) *LogFormat { return &c.Log.Format }, oneOf(LogJSON, LogText)),
	},
	{
		Name: "log.outcomes", Type: "which", Default: string(LogAll),
		Help: "which outcomes are logged: all, refusals or none",
		set:  field(func(c *Config) *LogOutcomes { return &c.Log.Outcomes }, oneOf(LogAll, LogRefusals, LogNone)),
	},
	{
		Name: "log.user", Type: "how", Default: string(UserHash),
		Help: "how users stand in the log: hash, plain or none",
		set:  field(func(c *Config) *LogUser { return &c.Log.User }, oneOf(UserHash, UserPlain, UserNone)),
	},
	{
		Name: "shutdown.delay", Type: "duration", Default: "0s",
		Help: "how long requests are still served after SIGTERM, while /readyz is 503",
		set:  field(func(c *Config) *time.Duration { return &c.Shutdown.Delay }, duration(0, 10*time.Minute, time.Millisecond)),
	},
	{
		Name: "shutdown.timeout", Type: "duration", Default: "15s",
		Help: "how long requests in flight may take after that",
		set:  field(func(c *Config) *time.Duration { return &c.Shutdown.Timeout }, duration(time.Millisecond, 10*time.Minute, time.Millisecond)),
	},
}
