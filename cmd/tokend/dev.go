package main

import (
	"crypto/rand"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.com/tokend/config"
	"example.com/tokend/httpapi/wire"
	"example.com/tokend/internal/devredis"
)

func newDev(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Serve the API for development: nothing to install, nothing kept",
		Long: `Serve the API on this machine with nothing installed: Redis is within the process, and keys
are made up at start. It prints where its demo page is, and curl lines that can be pasted
as they stand. All is gone when it ends: NOT FOR PRODUCTION.

Settings are serve's, but for Redis's own, all of redis, and for keys of JWTs that others
publish. A secret for JWTs or service keys that are given are taken instead of made up.`,
		Example: `  tokend dev
  tokend dev --listen 127.0.0.1:9000 --tokens-ttl 30s --admin-listen=`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			store, err := devredis.Start("127.0.0.1:0")
			if err != nil {
				return err
			}
			defer store.Close()
			made, err := makeUp(store.URL())
			if err != nil {
				return err
			}
			cfg, faults := load(p, cmd, made.defaults)
			keepDevOwn(cfg, faults, store.URL())
			s, err := start(p, cfg, faults)
			if err != nil {
				return err
			}
			page, err := addDemo(s, cfg, made.serviceKey)
			if err != nil {
				s.close()
				return err
			}
			defer page.Close()
			if err := made.welcome(p.stdout, s.url(), cfg); err != nil {
				s.close()
				return err
			}
			return s.run(cmd.Context())
		},
	}
	config.Register(cmd.Flags())
	// What its help says must be its own defaults, not serve's.
	cmd.Flags().Lookup("listen").DefValue = devListen
	cmd.Flags().Lookup("log-format").DefValue = string(config.LogText)
	for _, s := range devOwn() {
		cmd.Flags().MarkHidden(s.Flag())
		if s.Secret {
			cmd.Flags().MarkHidden(s.Flag() + "-file")
		}
	}
	return cmd
}

const devListen = "127.0.0.1:8080" // this machine only

// devOwn are the settings that tokend dev does not let anybody give: with them in its
// environment by chance it would work on data that is not for play.
func devOwn() []config.Setting {
	return slices.DeleteFunc(config.Settings(), func(s config.Setting) bool {
		return !strings.HasPrefix(s.Name, "redis.") && s.Name != "auth.public_key_file" && s.Name != "auth.jwks_url"
	})
}

// keepDevOwn adds a fault for each of devOwn that was given, and makes cfg as if it had not
// been: what else would be wrong with it is no matter.
func keepDevOwn(cfg *config.Config, faults *config.Faults, redisURL string) {
	for _, s := range devOwn() {
		if cfg.Origin(s.Name) != config.Default {
			faults.Add(s.Name, "is tokend dev's own: leave it out, or use tokend serve")
		}
	}
	cfg.Redis.URL, cfg.Redis.Mode, cfg.Redis.Password, cfg.Redis.CAFile = config.Secret(redisURL), config.Standalone, "", ""
	cfg.Auth.PublicKeyFile, cfg.Auth.JWKSURL = "", ""
}

// madeUp is what tokend dev makes up.
type madeUp struct {
	serviceKey string            // the secret itself
	defaults   map[string]string // of settings
}

func makeUp(redisURL string) (madeUp, error) {
	signing, err := newSigningKey("dev")
	if err != nil {
		return madeUp{}, err
	}
	key, entry, err := newServiceKey("dev", []string{wire.ScopeIssue, wire.ScopeConsume})
	if err != nil {
		return madeUp{}, err
	}
	return madeUp{serviceKey: key, defaults: map[string]string{
		"listen":            devListen,
		"log.format":        string(config.LogText),
		"redis.url":         redisURL,
		"signing.keys":      signing,
		"auth.jwt_secret":   rand.Text() + rand.Text(),
		"auth.service_keys": entry,
	}}, nil
}

const devWelcome = `
  ********************************************************************
  *  tokend dev: NOT FOR PRODUCTION. Keys are made up, Redis is      *
  *  within the process, and everything is gone when it ends.        *
  ********************************************************************

A page to play with: %URL%/demo/

The API is at %URL%. Paste into another terminal:

USER_JWT='%JWT%'
SERVICE='%BEARER%'

# 1. the user's page fetches a token
TOKEN=$(curl -sS -X POST %URL%/v1/tokens -H "Authorization: Bearer $USER_JWT" | sed -n 's/.*"token": *"\([^"]*\)".*/\1/p'); echo "$TOKEN"

# 2. the form's service consumes it; a second time it is refused
curl -sS %URL%/v1/tokens/consume -H "Authorization: Bearer $SERVICE" -H 'Content-Type: application/json' -d '{"token":"'"$TOKEN"'","user":"alice"}'; echo

# what became of it
curl -sS %URL%/v1/tokens/status -H "Authorization: Bearer $SERVICE" -H 'Content-Type: application/json' -d '{"token":"'"$TOKEN"'","user":"alice"}'; echo

`

// devClaims are those of a service that calls tokend dev by JWT.
var devClaims = jwtClaims{subject: "dev", scope: wire.ScopeIssue + " " + wire.ScopeConsume, ttl: 24 * time.Hour}

// welcome prints where the service is and lines that call it.
func (m madeUp) welcome(w io.Writer, url string, cfg *config.Config) error {
	now := time.Now()
	userJWT, err := signJWT(cfg.Auth, jwtClaims{subject: "alice", ttl: 24 * time.Hour}, now)
	if err != nil {
		return err
	}
	bearer := m.serviceKey
	if cfg.Origin("auth.service_keys") != config.Default { // the secrets of those are not known
		if bearer, err = signJWT(cfg.Auth, devClaims, now); err != nil {
			return err
		}
	}
	_, err = io.WriteString(w, strings.NewReplacer("%URL%", url, "%JWT%", userJWT, "%BEARER%", bearer).Replace(devWelcome))
	return err
}
