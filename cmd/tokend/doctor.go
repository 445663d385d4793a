package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"example.com/tokend/config"
	"example.com/tokend/token/redisstore"
)

func newDoctor(p *program) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Tell whether a Redis is fit to hold tokens",
		Long: `Tell whether the Redis that the settings of serve name is fit to hold tokens: its version,
what it evicts, how much memory is left, what it keeps over a restart, its replicas, and
whether a token can be issued and consumed (what that writes has an expiry). Of a cluster,
each master is examined.

A line for each finding: ok, warn (it works, but see what is weak) or fail. That CONFIG or
INFO is not to be had, as with many providers, is a warning. The exit status is 0 where
nothing fails, 1 where this Redis is unfit, 3 where it cannot be asked. serve has the same
examination made when it starts, and logs what is not ok.`,
		Example: `  tokend doctor --redis-url redis://localhost:6379
  TOKEND_REDIS_URL_FILE=redis.url tokend doctor --redis-wait-replicas 1 --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, faults := load(p, cmd, nil)
			if cfg.Redis.URL == "" && !faults.Has("config", "redis.url") {
				faults.Add("redis.url", "is required: the Redis to examine")
			}
			redis.SetLogger(redisLog{slog.New(slog.DiscardHandler)})
			rdb := newRedis(cfg.Redis, faults)
			if rdb != nil {
				defer rdb.Close()
			}
			if err := faults.Err(); err != nil {
				return err
			}
			findings, err := examine(cmd.Context(), rdb, cfg)
			if err != nil {
				return unexamined(err)
			}
			return report(p.stdout, findings, asJSON)
		},
	}
	config.RegisterOnly(cmd.Flags(), append(redisSettings(), "tokens.mode")...)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// unexamined says why Redis could not be examined: it gave no answer, or the answer to
// everything is err.
func unexamined(err error) error {
	if said := redis.Error(nil); errors.As(err, &said) {
		return fmt.Errorf("refused by Redis: %s; mend: %s", plain(said), mendOf(said))
	}
	return fmt.Errorf("no answer from Redis: %w", err)
}

// redisSettings returns the names of the settings that say where Redis is and how it is
// asked.
func redisSettings() []string {
	var names []string
	for _, s := range config.Settings() {
		if !strings.HasPrefix(s.Name, "redis.") {
			continue
		}
		names = append(names, s.Name)
		if s.Secret {
			names = append(names, s.Name+"_file")
		}
	}
	return names
}

// report prints findings, and returns an error where one says that Redis is unfit.
func report(w io.Writer, findings []finding, asJSON bool) error {
	fit := !slices.ContainsFunc(findings, func(f finding) bool { return f.Level == unfit })
	if err := printFindings(w, findings, fit, asJSON); err != nil {
		return err
	}
	if !fit {
		return &unhealthyError{"this Redis is not fit to hold tokens"}
	}
	return nil
}

func printFindings(w io.Writer, findings []finding, fit, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(struct {
			Fit      bool      `json:"fit"`
			Findings []finding `json:"findings"`
		}{fit, findings})
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, f := range findings {
		check := f.Check
		if f.Node != "" {
			check = f.Node + "\t" + check
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n", f.Level, check, f)
	}
	return t.Flush()
}

// examineBetween is how long after a vain try to ask Redis the next one comes.
const examineBetween = time.Second

// examineOnce has Redis examined as soon as it is there, and logs what is not good. It
// asks by a client of its own, so that no call waits for a connection, and returns when
// that is done, or ctx ends.
func examineOnce(ctx context.Context, cfg *config.Config, log *slog.Logger) {
	one := cfg.Redis
	one.PoolSize = 1
	rdb := newRedis(one, new(config.Faults))
	if rdb == nil {
		return
	}
	defer rdb.Close()
	before := "" // what it said instead of answers
	for {
		findings, err := examine(ctx, rdb, cfg)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			for _, f := range findings {
				if f.Level != good {
					log.Warn("redis: "+f.Text, "check", f.Check, "grade", string(f.Level), "mend", f.Mend, "node", f.Node)
				}
			}
			return
		}
		if said := redis.Error(nil); errors.As(err, &said) && !redis.HasErrorPrefix(said, "LOADING") && said.Error() != before {
			before = said.Error()
			log.Warn("redis: it refuses every call: "+plain(said), "mend", mendOf(said))
		} else {
			log.Debug("redis cannot be examined yet", "cause", err.Error())
		}
		select {
		case <-time.After(examineBetween):
		case <-ctx.Done():
			return
		}
	}
}

// storeOptions returns the store's options but for Observe.
func storeOptions(cfg *config.Config) redisstore.Options {
	return redisstore.Options{
		Prefix:       cfg.Redis.KeyPrefix,
		Timeout:      cfg.Redis.Timeout,
		WaitReplicas: cfg.Redis.WaitReplicas,
		WaitTimeout:  cfg.Redis.WaitTimeout,
	}
}
