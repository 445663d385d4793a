package main

import (
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"example.com/tokend/client"
	"example.com/tokend/httpapi/wire"
)

func newStatus(p *program) *cobra.Command {
	c := &caller{p: p}
	var user, ref string
	cmd := &cobra.Command{
		Use:   "status TOKEN | --ref REF",
		Short: "Ask a running service what became of a token",
		Long: `Ask a running service what became of a token. It changes nothing. A user's JWT asks for the
user's own. A service may ask by the ref of a ticket or log line, too: then the record alone
tells, and where it is gone nothing can be told.`,
		Example: `  export TOKEND_URL=http://localhost:8080 TOKEND_TOKEN_FILE=service.key
  echo "$TOKEN" | tokend status --user alice --json -
  tokend status --user alice --ref t_ef6c70138bea0ff92b656917f2116933`,
		Args: func(cmd *cobra.Command, args []string) error {
			if (ref != "") == (len(args) > 0) {
				return usagef("give the one-time token (or - to read it from standard input), or --ref, and not both")
			}
			if ref == "" {
				return oneToken(cmd, args)
			}
			return nil
		},
		RunE: c.calling(func(ctx context.Context, purpose client.Purpose, args []string) error {
			var s client.Status
			var err error
			if ref != "" {
				s, err = purpose.Client().StatusByRef(ctx, user, ref)
			} else {
				var text string
				if text, err = c.oneTimeToken(args[0]); err == nil {
					s, err = purpose.Status(ctx, user, text)
				}
			}
			if err != nil {
				return err
			}
			return c.print(onWireStatus(s),
				[2]string{"state", string(s.State)}, [2]string{"ref", s.Ref}, [2]string{"issued", at(s.IssuedAt)}, [2]string{"expires", at(s.ExpiresAt)},
				[2]string{"used", at(s.UsedAt)}, [2]string{"completed", at(s.CompletedAt)}, [2]string{"used_by", s.UsedBy}, [2]string{"revoked", at(s.RevokedAt)},
				[2]string{"lease", lease(s, time.Now())}, [2]string{"committed", yes(s.Committed)}, [2]string{"fence", fence(s)})
		}),
	}
	c.register(cmd)
	cmd.Flags().StringVar(&user, "user", "", "whose token it is")
	cmd.Flags().StringVar(&ref, "ref", "", "the token's or key's ref, instead of a token")
	return cmd
}

// lease writes when a claim's lease ends and, where by the host's clock it has ended, what that
// means.
func lease(s client.Status, now time.Time) string {
	text := at(s.LeaseExpiresAt)
	switch {
	case text == "" || now.Before(s.LeaseExpiresAt):
		return text
	case s.Committed:
		return text + " (over, and unfinished: look for the record, then tokend resolve)"
	}
	return text + " (over: the next request takes the claim over)"
}

func fence(s client.Status) string {
	if s.State != client.StateClaimed {
		return ""
	}
	return strconv.FormatInt(s.Fence, 10)
}

// onWireStatus returns s as the API has it.
func onWireStatus(s client.Status) wire.StatusResponse {
	answer := wire.StatusResponse{
		State: string(s.State), Ref: s.Ref, ExpiresAt: onWire(s.ExpiresAt), IssuedAt: onWire(s.IssuedAt),
		UsedAt: onWire(s.UsedAt), CompletedAt: onWire(s.CompletedAt), UsedBy: s.UsedBy, RevokedAt: onWire(s.RevokedAt),
		LeaseExpiresAt: onWire(s.LeaseExpiresAt),
	}
	if s.State == client.StateClaimed {
		answer.Fence, answer.Committed = s.Fence, &s.Committed
	}
	return answer
}
