package main

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"example.com/tokend/config"
)

func newServe(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the API, in production",
		Long: `Serve the API. A Redis URL, signing keys and a way to authenticate are required; all that
is missing or wrong is said at once. Flags override environment variables
(--tokens-max-ttl is TOKEND_TOKENS_MAX_TTL), these the YAML file (tokens.max_ttl).
tokend config shows what is in force.

Redis may be absent at start: /readyz is 503 until it is there. On SIGTERM and SIGINT
/readyz is 503 at once, requests are served for shutdown.delay, and those in flight may
take shutdown.timeout; a second signal ends the program at once.

As soon as Redis is there it is examined as tokend doctor does it, beside the service, and
what is not ok is logged.`,
		Example: `  tokend serve --config tokend.yaml
  TOKEND_REDIS_URL=redis://localhost:6379 TOKEND_SIGNING_KEYS_FILE=signing.keys TOKEND_AUTH_JWT_SECRET_FILE=jwt.secret tokend serve`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, faults := load(p, cmd, nil)
			cfg.Require(faults)
			s, err := start(p, cfg, faults)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithCancel(cmd.Context())
			var examined sync.WaitGroup
			examined.Go(func() { examineOnce(ctx, cfg, s.log) })
			defer examined.Wait()
			defer cancel()
			return s.run(ctx)
		},
	}
	config.Register(cmd.Flags())
	return cmd
}

// start puts the service that cfg describes together, or returns all that is wrong with
// it.
func start(p *program, cfg *config.Config, faults *config.Faults) (*service, error) {
	log := newLogger(p.stderr, cfg.Log)
	redis.SetLogger(redisLog{log})
	parts := newParts(cfg, faults, log)
	if err := faults.Err(); err != nil {
		parts.close()
		return nil, err
	}
	var err error
	if parts.tracing, err = newTracing(context.Background(), p.getenv, log); err != nil {
		parts.close()
		return nil, err
	}
	return newService(cfg, parts, log)
}
