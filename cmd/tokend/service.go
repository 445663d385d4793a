package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/tokend/config"
	"example.com/tokend/httpapi"
	"example.com/tokend/httpapi/auth"
	"example.com/tokend/token"
	"example.com/tokend/token/redisstore"
)

// parts are what a service is put together from. Making them finds all that can be wrong
// with a configuration beyond what package config sees.
type parts struct {
	rdb         redis.UniversalClient
	callers     *auth.Authenticator
	certificate *certificate // nil: no TLS
	tracing     *tracing     // nil: none
}

// newParts makes the parts that cfg asks for. It asks nobody over the network. A part
// that cannot be made is nil, and a fault.
func newParts(cfg *config.Config, faults *config.Faults, log *slog.Logger) *parts {
	p := &parts{rdb: newRedis(cfg.Redis, faults), callers: newCallers(cfg.Auth, faults, log)}
	if t := cfg.TLS; t.CertFile != "" && t.KeyFile != "" {
		var err error
		if p.certificate, err = newCertificate(t.CertFile, t.KeyFile, log); err != nil {
			faults.Add("tls.cert_file", fmt.Sprintf("and tls.key_file must name a certificate and its key in PEM: %v", config.FileError(err)))
		}
	}
	return p
}

func (p *parts) close() {
	if p.callers != nil {
		p.callers.Close()
	}
	if p.rdb != nil {
		p.rdb.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	p.tracing.close(ctx) // where run has not; what is left to deliver is lost then
}

// service is the running program.
type service struct {
	log      *slog.Logger
	parts    *parts
	shutdown config.Shutdown
	redis    string // where it is, for the log
	api      *httpapi.Server
	public   *listener
	admin    *listener // nil: none
}

// newService puts the service together and listens; [service.run] then serves. The
// service has parts to close from here on, with an error too.
func newService(cfg *config.Config, p *parts, log *slog.Logger) (*service, error) {
	s := &service{log: log, parts: p, shutdown: cfg.Shutdown, redis: redisPlace(cfg.Redis)}
	if err := s.assemble(cfg); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *service) assemble(cfg *config.Config) error {
	ring, err := token.NewRing(cfg.Signing.Keys...)
	if err != nil {
		return err
	}
	outcomes, err1 := httpapi.ParseOutcomes(string(cfg.Log.Outcomes))
	user, err2 := httpapi.ParseLogUser(string(cfg.Log.User))
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	metrics := httpapi.NewMetrics(buildVersion(), runtime.Version(), ring.KeyIDs(), s.pool)
	opts := storeOptions(cfg)
	opts.Observe = metrics.ObserveRedis
	opts.Tracer = s.parts.tracing.tracer()
	store := redisstore.New(s.parts.rdb, opts)
	s.api = httpapi.New(httpapi.Options{
		Tokens:      token.NewService(ring, store, tokenOptions(cfg)),
		Callers:     s.parts.callers,
		Ping:        store.Ping,
		Metrics:     metrics,
		Log:         s.log,
		Outcomes:    outcomes,
		LogUser:     user,
		BodyBytes:   int64(cfg.Limits.BodyBytes),
		ResultBytes: int64(cfg.Results.MaxBytes),
		CORSOrigins: cfg.CORS.Origins,
		Gateway: httpapi.Gateway{
			MethodHeader: cfg.Gateway.MethodHeader, UserHeader: cfg.Gateway.UserHeader, PurposeHeader: cfg.Gateway.PurposeHeader,
			AttemptHeader: cfg.Gateway.AttemptHeader, Allowed: cfg.Gateway.AllowedStatus,
		},
		Tracing: s.parts.tracing.ofCalls(),
	})
	if s.public, err = listen("listen", cfg.Listen, s.api, s.log); err != nil {
		return err
	}
	if c := s.parts.certificate; c != nil {
		s.public.server.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.get}
	}
	if cfg.AdminListen == "" {
		return nil
	}
	s.admin, err = listen("admin_listen", cfg.AdminListen, adminHandler(metrics, cfg.AdminPprof), s.log)
	if err == nil {
		s.admin.server.WriteTimeout = 0 // a profile takes as long as it was asked to
	}
	return err
}

func tokenOptions(cfg *config.Config) token.Options {
	o := token.Options{Mode: cfg.Tokens.Mode, Settings: cfg.Tokens.Settings, Rate: cfg.Rate}
	o.KeysRetention = cfg.Keys.Retention
	if cfg.Purposes != nil {
		o.Purposes = make(map[token.Purpose]token.Settings, len(cfg.Purposes))
		for name, p := range cfg.Purposes {
			o.Purposes[name] = p.Settings
		}
	}
	return o
}

func (s *service) pool() httpapi.Pool {
	p := s.parts.rdb.PoolStats()
	return httpapi.Pool{Total: p.TotalConns, Idle: p.IdleConns, Waiting: p.WaitCount}
}

// url returns where the API is served, for a caller on this machine.
func (s *service) url() string { return localURL(s.public.Addr().String(), s.parts.certificate != nil) }

// run serves until ctx ends, and then ends in good order: /readyz is 503 at once, requests
// are served for the delay, those in flight may take the timeout, and what the handlers
// use is closed when they have ended.
func (s *service) run(ctx context.Context) error {
	defer s.close()
	failed := make(chan error, 2)
	s.public.serve(failed)
	adminAt := ""
	if s.admin != nil {
		s.admin.serve(failed)
		adminAt = s.admin.Addr().String()
	}
	s.log.Info("listening", "addr", s.public.Addr().String(), "tls", s.parts.certificate != nil, "admin_addr", adminAt, "redis", s.redis, "version", buildVersion())
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	s.api.Drain()
	s.log.Info("shutting down", "delay", s.shutdown.Delay.String(), "timeout", s.shutdown.Timeout.String())
	select {
	case err := <-failed:
		return err
	case <-time.After(s.shutdown.Delay):
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.shutdown.Timeout)
	defer cancel()
	if err := s.public.server.Shutdown(ctx); err != nil && s.public.cutOff() {
		s.log.Error("requests were cut off", "after", s.shutdown.Timeout.String())
		return fmt.Errorf("requests were still in flight after shutdown.timeout: %w", err)
	}
	if err := s.parts.tracing.close(ctx); err != nil {
		s.log.Warn("traces", "error", err.Error())
	}
	s.log.Info("shut down")
	return nil
}

// close closes what is left open: the listeners, and then what serves them.
func (s *service) close() {
	for _, l := range []*listener{s.public, s.admin} {
		if l != nil {
			l.close()
		}
	}
	s.parts.close()
}
