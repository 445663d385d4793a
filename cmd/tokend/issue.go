package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"example.com/tokend/client"
	"example.com/tokend/httpapi/wire"
)

func newIssue(p *program) *cobra.Command {
	c := &caller{p: p}
	var user string
	var ttl time.Duration
	var quiet bool
	cmd := &cobra.Command{
		Use:   "issue",
		Short: "Have a running service issue a token",
		Long: `Have a running service issue a token. A service names the user; with a user's JWT it is the
JWT's.`,
		Example: `  export TOKEND_URL=http://localhost:8080 TOKEND_TOKEN_FILE=service.key
  tokend issue --user alice --purpose order.create --ttl 10m
  TOKEN=$(tokend issue --user alice --quiet)`,
		Args: noArgs,
		RunE: c.calling(func(ctx context.Context, purpose client.Purpose, _ []string) error {
			var opts []client.IssueOption
			if ttl != 0 {
				opts = append(opts, client.TTL(ttl))
			}
			t, err := purpose.Issue(ctx, user, opts...)
			if err != nil {
				return err
			}
			if quiet {
				_, err := fmt.Fprintln(p.stdout, t.Value)
				return err
			}
			return c.print(wire.IssueResponse{
				Token: t.Value, Ref: t.Ref, User: t.User, Purpose: t.Purpose,
				IssuedAt: onWire(t.IssuedAt), ExpiresAt: onWire(t.ExpiresAt), TTL: int64(t.TTL / time.Second),
			},
				[2]string{"token", t.Value}, [2]string{"ref", t.Ref}, [2]string{"user", t.User}, [2]string{"purpose", t.Purpose},
				[2]string{"issued", at(t.IssuedAt)}, [2]string{"expires", at(t.ExpiresAt)})
		}),
	}
	c.register(cmd)
	cmd.Flags().StringVar(&user, "user", "", "whom to issue it to")
	cmd.Flags().DurationVar(&ttl, "ttl", 0, "how long it is good for, in whole seconds; the purpose's own where not given")
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print the token alone, whatever --json says")
	return cmd
}
