package main

import (
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"example.com/tokend/config"
	"example.com/tokend/token"
)

func newConfig(p *program) *cobra.Command {
	var markdown bool
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print what is in force and where it comes from, secrets masked",
		Long: `Print each setting, its value and where that comes from: flags over environment variables
over the YAML file over defaults. Secrets are masked. What is wrong with the settings that
are given is said too, and the exit status is 2 then. Where they lack what serve requires,
that is said on standard error, and is nothing wrong.`,
		Example: `  tokend config
  TOKEND_TOKENS_TTL=10m tokend config --config tokend.yaml`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if markdown {
				_, err := io.WriteString(p.stdout, config.Markdown())
				return err
			}
			cfg, faults := load(p, cmd, nil)
			newParts(cfg, faults, slog.New(slog.DiscardHandler)).close()
			if err := printConfig(p.stdout, cfg); err != nil {
				return err
			}
			if err := faults.Err(); err != nil {
				return err
			}
			lacks := new(config.Faults)
			cfg.Require(lacks)
			if err := lacks.Err(); err != nil {
				fmt.Fprintf(p.stderr, "tokend: serve would not start with these settings: %v\n", err)
			}
			return nil
		},
	}
	config.Register(cmd.Flags())
	cmd.Flags().BoolVar(&markdown, "markdown", false, "print the table of settings for the README")
	cmd.Flags().MarkHidden("markdown")
	return cmd
}

func printConfig(w io.Writer, cfg *config.Config) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, v := range cfg.Values() {
		text := v.Text
		switch v.Name { // what tells two settings apart is no secret
		case "redis.url":
			text = redisPlace(cfg.Redis)
		case "signing.keys":
			text = keyNames(cfg.Signing.Keys)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n", v.Name, shown(text), v.Origin)
	}
	return t.Flush()
}

// shown keeps a value within its line and cell.
func shown(s string) string {
	if q := strconv.Quote(s); s == "" || q != `"`+s+`"` {
		return q
	}
	return s
}

// redisPlace returns where c.URL leads, and as whom: no password, no parameters. A user
// without a password is left out: it may be the password in the wrong place.
func redisPlace(c config.Redis) string {
	u, err := url.Parse(c.URL.Reveal())
	if err != nil || c.URL == "" {
		return c.URL.String()
	}
	place := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
	if _, given := u.User.Password(); (given || c.Password != "") && u.User.Username() != "" {
		place.User = url.User(u.User.Username())
	}
	return place.String()
}

// keyNames returns the IDs of keys, each with a mask for its secret.
func keyNames(keys []token.Key) string {
	names := make([]string, len(keys))
	for i, k := range keys {
		names[i] = k.ID + ":********"
	}
	return strings.Join(names, ",")
}
