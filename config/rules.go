package config

import (
	"net"
	"net/netip"
	"strings"
)

// check adds what is wrong between settings. A rule is left out where one of its
// settings has a fault of its own.
func (c *Config) check(f *Faults) {
	c.checkListeners(f)
	c.checkDurations(f)
	c.checkGateway(f)
}

// checkGateway sees to it that no header is two things at once.
func (c *Config) checkGateway(f *Faults) {
	first := map[string]string{}
	for _, h := range []struct{ setting, name string }{
		{"gateway.method_header", c.Gateway.MethodHeader},
		{"gateway.user_header", c.Gateway.UserHeader},
		{"gateway.purpose_header", c.Gateway.PurposeHeader},
		{"gateway.attempt_header", c.Gateway.AttemptHeader},
	} {
		name := strings.ToLower(h.name)
		switch other, taken := first[name]; {
		case name == "":
		case taken:
			f.Add(h.setting, "must not be the header of "+other)
		case name == "x-forwarded-method" || name == "x-original-method":
			if h.setting != "gateway.method_header" {
				f.Add(h.setting, "must not be a header that holds a method")
			}
		}
		if _, taken := first[name]; !taken {
			first[name] = h.setting
		}
	}
}

func (c *Config) checkListeners(f *Faults) {
	if (c.TLS.CertFile == "") != (c.TLS.KeyFile == "") && !f.Has("tls.cert_file", "tls.key_file") {
		missing, given := "tls.key_file", "tls.cert_file"
		if c.TLS.CertFile == "" {
			missing, given = given, missing
		}
		f.Add(missing, "is required with "+given)
	}
	if f.Has("listen", "admin_listen", "admin_pprof") {
		return
	}
	if c.AdminPprof && !isLoopback(c.AdminListen) {
		f.Add("admin_pprof", "needs admin_listen on a loopback address, 127.0.0.1:9090 say: profiles show secrets")
	}
	if c.AdminListen != "" && collide(c.Listen, c.AdminListen) {
		f.Add("admin_listen", "must not be the address of listen")
	}
}

// isLoopback tells whether only this machine can reach addr.
func isLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

// collide tells whether a and b cannot both be listened on.
func collide(a, b string) bool {
	hostA, portA, _ := net.SplitHostPort(a)
	hostB, portB, _ := net.SplitHostPort(b)
	return portA == portB && strings.Trim(portA, "0") != "" && (hostA == hostB || isAny(hostA) || isAny(hostB))
}

func isAny(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "" || err == nil && ip.IsUnspecified()
}

func (c *Config) checkDurations(f *Faults) {
	if t := &c.Tokens; t.TTL > t.MaxTTL && !f.Has("tokens.ttl", "tokens.max_ttl") {
		if c.Origin("tokens.ttl") != Default {
			f.Add("tokens.ttl", "must not be above tokens.max_ttl, which is "+short(t.MaxTTL))
		}
		t.TTL = t.MaxTTL
		if c.Origin("tokens.ttl") == Default { // nobody asked for it: it gives way
			c.show("tokens.ttl", short(t.TTL))
		}
	}
	if r := c.Redis; r.WaitReplicas > 0 && r.WaitTimeout >= r.Timeout && !f.Has("redis.timeout", "redis.wait_replicas", "redis.wait_timeout") {
		f.Add("redis.wait_timeout", "must be below redis.timeout, which is "+short(r.Timeout))
	}
}

// show replaces the text of the setting called name in [Config.Values].
func (c *Config) show(name, text string) {
	for i := range c.values {
		if c.values[i].Name == name {
			c.values[i].Text = text
		}
	}
}

// Require adds what a server cannot do without; nothing where the YAML file, which may hold
// it, could not be read.
func (c *Config) Require(f *Faults) {
	if f.Has("config") {
		return
	}
	if c.Redis.URL == "" && !f.Has("redis.url") {
		f.Add("redis.url", "is required: the URL of a Redis, redis://HOST:6379/0 say, or "+fromFile("redis.url"))
	}
	if len(c.Signing.Keys) == 0 && !f.Has("signing.keys") {
		f.Add("signing.keys", "is required: what tokend keygen signing prints, or "+fromFile("signing.keys"))
	}
	if !c.Auth.Given() && !f.Has("auth.jwt_secret", "auth.public_key_file", "auth.jwks_url", "auth.service_keys") {
		f.Add("auth.jwt_secret", "is required, or "+fromFile("auth.jwt_secret")+", or another way to authenticate: "+
			"auth.public_key_file (--auth-public-key-file, TOKEND_AUTH_PUBLIC_KEY_FILE), "+
			"auth.jwks_url (--auth-jwks-url, TOKEND_AUTH_JWKS_URL) or auth.service_keys (--auth-service-keys, TOKEND_AUTH_SERVICE_KEYS)")
	}
}

// fromFile tells how else the secret called name may be given.
func fromFile(name string) string {
	return "a file that holds it by --" + flagOf(name+fileSuffix) + ", " + variableOf(name+fileSuffix) + " or " + name + fileSuffix
}
