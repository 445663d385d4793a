package main

import (
	"context"

	"github.com/spf13/cobra"

	"example.com/tokend/client"
	"example.com/tokend/httpapi/wire"
)

func newStatus(p *program) *cobra.Command {
	c := &caller{p: p}
	var user string
	cmd := &cobra.Command{
		Use:   "status TOKEN",
		Short: "Ask a running service what became of a token",
		Long: `Ask a running service what became of a token. It changes nothing. A user's JWT asks for the
user's own.`,
		Example: `  export TOKEND_URL=http://localhost:8080 TOKEND_TOKEN_FILE=service.key
  echo "$TOKEN" | tokend status --user alice --json -`,
		Args: oneToken,
		RunE: c.calling(func(ctx context.Context, purpose client.Purpose, args []string) error {
			text, err := c.oneTimeToken(args[0])
			if err != nil {
				return err
			}
			s, err := purpose.Status(ctx, user, text)
			if err != nil {
				return err
			}
			return c.print(wire.StatusResponse{
				State: string(s.State), Ref: s.Ref, ExpiresAt: onWire(s.ExpiresAt), IssuedAt: onWire(s.IssuedAt),
				UsedAt: onWire(s.UsedAt), UsedBy: s.UsedBy, RevokedAt: onWire(s.RevokedAt),
			},
				[2]string{"state", string(s.State)}, [2]string{"ref", s.Ref}, [2]string{"issued", at(s.IssuedAt)}, [2]string{"expires", at(s.ExpiresAt)},
				[2]string{"used", at(s.UsedAt)}, [2]string{"used_by", s.UsedBy}, [2]string{"revoked", at(s.RevokedAt)})
		}),
	}
	c.register(cmd)
	cmd.Flags().StringVar(&user, "user", "", "whose token it is")
	return cmd
}
