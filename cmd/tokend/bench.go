package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"example.com/tokend/client"
	"example.com/tokend/config"
	"example.com/tokend/httpapi/wire"
	"example.com/tokend/internal/devredis"
	"example.com/tokend/token"
)

// benchOptions say what load a bench makes.
type benchOptions struct {
	callers  int
	rate     float64 // calls a second of an open loop; 0: a closed one
	rounds   int
	duration time.Duration // of a round
	warmup   time.Duration
	double   float64 // the share of consumes that two attempts make at once
	timeout  time.Duration

	maxFaults float64 // the share of calls that may end in a fault
}

func newBench(p *program) *cobra.Command {
	c := &caller{p: p}
	var o benchOptions
	var progress bool
	own := pflag.NewFlagSet("own", pflag.ContinueOnError) // what a service of its own reads
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure a service: issue and consume tokens under load, and check every answer",
		Long: `Issue and consume tokens under load, and tell how many calls a second were answered and what
they took: the median of the rounds, and a histogram of all of them. The credential must be
a service's that may issue and consume; a user's JWT is not enough.

By default it is a closed loop: each of --callers sends its next call when it has its
answer, which finds what the service can do at most. With --rate it is an open one: so many
calls a second arrive on their own, as users do (Poisson), half of them issue, and what a
call takes counts from when it was to arrive, so that a stall is charged for all who came
meanwhile, as far as they are answered. Arrivals that find --callers under way are dropped
and told; late ones, which the bench itself began too late, too. Where these are many, the
bench was the limit, and it says so.

Every answer is checked. A share of the consumes (--double) is made by two attempts at
once, of which exactly one must be granted the token. A token consumed twice, or refused
for no reason, fails the run: exit status 1. Wrong answers are told by kind, each with a
ref and the request's id to look for in the service's log.

Faults (no answer, 5xx) of the rounds are in none of the table's figures: their share and
what they took stand below it. Where it is above --max-faults, the exit status is 1; where
no call was answered, 3. Interrupted, the bench tells of the rounds that it has made.

Only the URL that is given is called, without proxies and redirects. Records of used tokens
stay in the service's Redis for its tokens.retention, some 200 bytes each: --purpose can
name one with a short retention. docs/scaling.md says how to read the figures.

Without --url the bench starts a service of its own in this process, on the Redis of the
settings (made-up keys, records gone within three minutes), or where none is given on one
within the process: that measures the bench and a toy, and is good for trying out only.`,
		Example: `  tokend bench --url http://localhost:8080 --token-file service.key
  tokend bench --url http://localhost:8080 --token-file service.key --rate 5000 --duration 30s
  tokend bench --redis-url redis://localhost:6379 --callers 256 --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("callers") && o.rate > 0 {
				o.callers = openCallers
			}
			if err := o.check(); err != nil {
				return err
			}
			log := io.Discard
			if progress || isTerminal(p.stderr) {
				log = p.stderr
			}
			return bench(cmd, c, o, own, log)
		},
	}
	c.register(cmd)
	f := cmd.Flags()
	f.IntVar(&o.callers, "callers", 64, fmt.Sprintf("how many call at once, 1 to %d; with --rate, how many at most (%d where not given)", maxCallers, openCallers))
	f.Float64Var(&o.rate, "rate", 0, fmt.Sprintf("calls that arrive in a second, 1 to %d; 0: as many as are answered", maxRate))
	f.IntVar(&o.rounds, "rounds", 3, "how many rounds, whose median is told, 1 to 100")
	f.DurationVar(&o.duration, "duration", 5*time.Second, "how long a round lasts, 10ms to 10m")
	f.DurationVar(&o.warmup, "warmup", time.Second, "how long to call before the first round, 0s to 1m")
	f.Float64Var(&o.double, "double", .01, "share of the consumes that two attempts make at once, 0 to 1")
	f.DurationVar(&o.timeout, "timeout", 10*time.Second, "how long to wait for an answer, 10ms to 1m")
	f.Float64Var(&o.maxFaults, "max-faults", 1, "share of the calls that may end in a fault, 0 to 1; above it the exit status is 1")
	f.BoolVar(&progress, "progress", false, "tell of each round as it ends, where standard error is no terminal too")
	config.RegisterOnly(own, append(redisSettings(), "tokens.mode", "log.outcomes")...)
	f.AddFlagSet(own)
	return cmd
}

const (
	maxCallers  = 4096 // more than an instance answers at a time
	openCallers = 1024
	maxRate     = 200_000
)

// check bounds a bench: by mistake it should neither run for days nor make a million
// goroutines.
func (o benchOptions) check() error {
	for _, rule := range []struct {
		ok   bool
		text string
	}{
		{o.callers >= 1 && o.callers <= maxCallers, fmt.Sprintf("--callers must be 1 to %d", maxCallers)},
		{o.rate == 0 || o.rate >= 1 && o.rate <= maxRate, fmt.Sprintf("--rate must be 1 to %d, or 0", maxRate)},
		{o.rounds >= 1 && o.rounds <= 100, "--rounds must be 1 to 100"},
		{o.duration >= 10*time.Millisecond && o.duration <= 10*time.Minute, "--duration must be 10ms to 10m"},
		{o.warmup >= 0 && o.warmup <= time.Minute, "--warmup must be 0s to 1m"},
		{o.double >= 0 && o.double <= 1, "--double must be 0 to 1"},
		{o.timeout >= 10*time.Millisecond && o.timeout <= time.Minute, "--timeout must be 10ms to 1m"},
		{o.maxFaults >= 0 && o.maxFaults <= 1, "--max-faults must be 0 to 1"},
	} {
		if !rule.ok {
			return usagef("%s", rule.text)
		}
	}
	return nil
}

// bench measures the service that c names, or one of its own, which reads the flags of its
// own, and prints the report.
func bench(cmd *cobra.Command, c *caller, o benchOptions, ownFlags *pflag.FlagSet, log io.Writer) error {
	ctx := cmd.Context()
	if c.url = cmp.Or(c.url, c.p.getenv("TOKEND_URL")); c.url != "" {
		if err := givesNone(ownFlags); err != nil {
			return err
		}
	} else {
		if c.token != "" || c.tokenFile != "" {
			return usagef("give --url or TOKEND_URL too: a service of its own has keys of its own")
		}
		own, err := startOwn(c.p, cmd)
		if err != nil {
			return err
		}
		defer own.stop()
		c.url, c.token = own.url, own.bearer
		fmt.Fprintf(c.p.stderr, "tokend: bench: %s\n", own.remark)
	}
	bearer, err := c.bearer()
	if err != nil {
		return err
	}
	if err := tryCalls(ctx, c); err != nil {
		return c.refused(needsService(err))
	}
	target, err := newTarget(c.url, bearer, o.timeout)
	if err != nil {
		return err
	}
	defer target.close()
	b := newBenchRun(target, c.purpose, o)
	b.run(ctx, log)
	r := b.report(c.url)
	switch {
	case r.Rounds == 0: // interrupted, with nothing to tell
	case c.json:
		err = r.printJSON(c.p.stdout)
	default:
		err = r.print(c.p.stdout)
	}
	return errors.Join(err, r.verdict())
}

// givesNone refuses flags of ownFlags that are given: the service at a URL has settings of
// its own, and a bench that read past them would measure something else than was asked.
func givesNone(ownFlags *pflag.FlagSet) error {
	var given []string
	ownFlags.VisitAll(func(f *pflag.Flag) {
		if f.Changed {
			given = append(given, "--"+f.Name)
		}
	})
	if given == nil {
		return nil
	}
	return usagef("%s and --url or TOKEND_URL rule each other out: only a service of the bench's own reads the former", strings.Join(given, ", "))
}

// needsService says what a bench needs where err forbids what it does.
func needsService(err error) error {
	if no, ok := errors.AsType[*client.Refusal](err); ok && no.Code == wire.CodeForbidden {
		return fmt.Errorf("%w (bench needs a service's credential, not a user's, with the scopes %s and %s)", err, wire.ScopeIssue, wire.ScopeConsume)
	}
	return err
}

// tryCalls makes both calls once by the client that people use, whose errors say what is
// wrong with a URL or a credential.
func tryCalls(ctx context.Context, c *caller) error {
	calls, err := c.calls()
	if err != nil {
		return err
	}
	const user = "tokend bench"
	t, err := calls.Issue(ctx, user)
	if err != nil {
		return err
	}
	_, err = calls.Consume(ctx, user, t.Value)
	return err
}

// isTerminal tells whether somebody reads w as it is written.
func isTerminal(w io.Writer) bool {
	if l, ok := w.(*lineWriter); ok {
		w = l.w
	}
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// ownService is a service that a bench has started for itself.
type ownService struct {
	url, bearer string
	remark      string // what it is that is measured
	stop        func()
}

// startOwn starts a service in this process, with keys made up, on the Redis that the
// settings name; where they name none, on one within the process.
func startOwn(p *program, cmd *cobra.Command) (*ownService, error) {
	cfg, faults := load(p, cmd, nil)
	own := &ownService{remark: "measuring a service within this process: it and the calls share the machine", stop: func() {}}
	if cfg.Redis.URL == "" && !faults.Has("redis.url") {
		store, err := devredis.Start("127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		own.stop = store.Close
		own.remark = "THIS MEASURES MINIREDIS, a toy within this process, and says nothing of a Redis: give --redis-url, or --url"
		cfg.Redis.URL, cfg.Redis.Mode, cfg.Redis.Password = config.Secret(store.URL()), config.Standalone, ""
	}
	var s *service
	err := own.configure(cfg)
	if err == nil {
		quiet := *p
		quiet.stderr = io.Discard // lines are made all the same: that is part of what is measured
		s, err = start(&quiet, cfg, faults)
	}
	if err != nil {
		own.stop()
		return nil, err
	}
	own.url = s.url()
	ctx, cancel := context.WithCancel(context.WithoutCancel(cmd.Context())) // it outlives the calls
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.run(ctx) // what goes wrong here, the calls meet as faults
	}()
	closeStore := own.stop
	own.stop = func() {
		cancel()
		<-ended
		closeStore()
	}
	return own, nil
}

// configure replaces in cfg what is not Redis's: a bench must not sign with the keys of a
// service that shares its settings, nor leave records for a day.
func (own *ownService) configure(cfg *config.Config) error {
	signing, err := newSigningKey("bench")
	if err != nil {
		return err
	}
	if cfg.Signing.Keys, err = token.ParseKeys(signing); err != nil {
		return err
	}
	bearer, entry, err := newServiceKey("bench", []string{wire.ScopeIssue, wire.ScopeConsume})
	if err != nil {
		return err
	}
	own.bearer = bearer
	cfg.Auth = config.Auth{ServiceKeys: config.Secret(entry)}
	cfg.Listen, cfg.AdminListen, cfg.TLS = "127.0.0.1:0", "", config.TLS{}
	cfg.Tokens.Settings = token.Settings{TTL: time.Minute, MaxTTL: time.Minute, Retention: time.Minute}
	cfg.Purposes = nil
	cfg.Shutdown = config.Shutdown{Timeout: time.Second}
	return nil
}
