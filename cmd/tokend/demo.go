package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"example.com/tokend/client"
	"example.com/tokend/config"
	"example.com/tokend/internal/demo"
	"example.com/tokend/token"
)

// addDemo serves the demo page beside s's API. Its form service calls that API as any other
// does, over HTTP.
func addDemo(s *service, cfg *config.Config, serviceKey string) (*demo.Demo, error) {
	opts := demo.Options{
		URL: s.url(), Credential: devService(cfg, serviceKey), Transport: s.transport(),
		Purpose: "order.create", MaxTTL: cfg.Tokens.MaxTTL, Claims: cfg.Tokens.Mode == token.Record, Log: s.log,
	}
	if cfg.Purposes != nil { // then no other may be issued
		names := slices.Sorted(maps.Keys(cfg.Purposes))
		opts.Purpose, opts.MaxTTL = string(names[0]), cfg.Purposes[names[0]].MaxTTL
	}
	page, err := demo.New(opts)
	if err != nil {
		return nil, err
	}
	api, shown := s.public.server.Handler, s.public.atHome(page)
	s.public.server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, demo.Path) {
			shown.ServeHTTP(w, r)
			return
		}
		api.ServeHTTP(w, r)
	})
	if s.admin != nil {
		s.admin.server.Handler = s.admin.atHome(s.admin.server.Handler)
	}
	return page, nil
}

// atHome has h serve, where only this machine can reach l, only what was asked for by this
// machine's own name or an address. Any site can have its name lead here after its page was
// loaded: to the browser what answers is that site's own then, for its scripts to read.
func (l *listener) atHome(h http.Handler) http.Handler {
	if at, ok := l.Addr().(*net.TCPAddr); !ok || !at.IP.IsLoopback() {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isHome(r.Host) {
			http.Error(w, "this is served at localhost, 127.0.0.1 and [::1] only", http.StatusMisdirectedRequest)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// isHome tells whether host, which may have a port, is localhost or an address.
func isHome(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if ip, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return ip.Zone() == ""
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return host == "localhost" || strings.HasSuffix(host, ".localhost") // RFC 6761: of this machine
}

// devService is how a service calls tokend dev: by the key that was made up, or where others
// were given, whose secrets are not known, by JWTs.
func devService(cfg *config.Config, serviceKey string) client.Credential {
	if cfg.Origin("auth.service_keys") == config.Default {
		return client.ServiceKey(serviceKey)
	}
	return client.TokenSource(func(context.Context) (string, error) { return signJWT(cfg.Auth, devClaims, time.Now()) })
}

// transport goes to s itself. Its certificate is trusted as it is: it need not be one for
// this machine's name.
func (s *service) transport() http.RoundTripper {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.Proxy = nil
	if c := s.parts.certificate; c != nil {
		t.TLSClientConfig = &tls.Config{
			InsecureSkipVerify: true, // for VerifyConnection
			VerifyConnection: func(state tls.ConnectionState) error {
				own, err := c.get(nil)
				if err == nil && !bytes.Equal(state.PeerCertificates[0].Raw, own.Certificate[0]) {
					err = errors.New("this is not the service's own certificate")
				}
				return err
			},
		}
	}
	return t
}
