package main

import (
	"context"

	"github.com/spf13/cobra"

	"example.com/tokend/client"
	"example.com/tokend/httpapi/wire"
)

func newConsume(p *program) *cobra.Command {
	c := &caller{p: p}
	var user, attempt, digest string
	cmd := &cobra.Command{
		Use:   "consume TOKEN",
		Short: "Have a running service consume a token",
		Long: `Have a running service consume a token, for a service that may. The exit status is 0 where
this call, and no other, was granted it.`,
		Example: `  export TOKEND_URL=http://localhost:8080 TOKEND_TOKEN_FILE=service.key
  tokend issue --user alice --quiet | tokend consume --user alice -`,
		Args: oneToken,
		RunE: c.calling(func(ctx context.Context, purpose client.Purpose, args []string) error {
			text, err := c.oneTimeToken(args[0])
			if err != nil {
				return err
			}
			var opts []client.ConsumeOption
			if attempt != "" {
				opts = append(opts, client.Attempt(attempt))
			}
			if digest != "" {
				opts = append(opts, client.Digest(digest))
			}
			got, err := purpose.Consume(ctx, user, text, opts...)
			if err != nil {
				return err
			}
			return c.print(wire.ConsumeResponse{
				Outcome: wire.OutcomeConsumed, Ref: got.Ref, User: got.User, Purpose: got.Purpose,
				UsedAt: onWire(got.UsedAt), Takeover: got.Takeover, Replayed: got.Replayed,
			},
				[2]string{"outcome", wire.OutcomeConsumed}, [2]string{"ref", got.Ref}, [2]string{"user", got.User}, [2]string{"purpose", got.Purpose},
				[2]string{"used", at(got.UsedAt)}, [2]string{"takeover", yes(got.Takeover)}, [2]string{"replayed", yes(got.Replayed)})
		}),
	}
	c.register(cmd)
	cmd.Flags().StringVar(&user, "user", "", "whose token it is")
	cmd.Flags().StringVar(&attempt, "attempt", "", "names this execution, to go on with one whose reply was lost; made up where not given")
	cmd.Flags().StringVar(&digest, "digest", "", "fingerprint of the request that the token stands for")
	return cmd
}
