package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"example.com/tokend/client"
)

func newResolve(p *program) *cobra.Command {
	c := &caller{p: p}
	var user, key string
	var done, undone bool
	var status int
	cmd := &cobra.Command{
		Use:   "resolve TOKEN | --key KEY",
		Short: "End a claim that was committed and never completed",
		Long: `End a claim that was committed and never completed (claim_unfinished), for whoever has looked
for the business record since: --complete where it is there, --release where it is not, which
makes the token or key good again. Nothing else is touched: what is not unfinished is refused.`,
		Example: `  export TOKEND_URL=http://localhost:8080 TOKEND_TOKEN_FILE=service.key
  echo "$TOKEN" | tokend resolve --user alice --purpose order.create --complete --status 201 -
  tokend resolve --user stripe:acct_1 --key evt_7 --purpose payment.callback --release`,
		Args: func(cmd *cobra.Command, args []string) error {
			if (key != "") == (len(args) > 0) {
				return usagef("give the one-time token (or - to read it from standard input), or --key, and not both")
			}
			if done == undone {
				return usagef("give --complete, where the business record is there, or --release, where it is not")
			}
			if key == "" {
				return oneToken(cmd, args)
			}
			return nil
		},
		RunE: c.calling(func(ctx context.Context, purpose client.Purpose, args []string) error {
			subject := purpose.Key(user, key)
			if key == "" {
				text, err := c.oneTimeToken(args[0])
				if err != nil {
					return err
				}
				subject = purpose.Token(user, text)
			}
			cl, before, err := purpose.Client().Resolve(ctx, subject)
			if err != nil {
				return err
			}
			if before != nil {
				return errors.New("nothing is unfinished: it was completed")
			}
			defer cl.Close()
			if !cl.Committed() {
				return errors.Join(errors.New("nothing is unfinished: it was not claimed, or not committed, and is good still"), cl.Release(ctx))
			}
			state := "released"
			if done {
				state, err = "completed", cl.Complete(ctx, client.Result{Status: status})
			} else {
				err = cl.Release(ctx)
			}
			if err != nil {
				return err
			}
			return c.print(map[string]string{"state": state, "ref": cl.Ref}, [2]string{"state", state}, [2]string{"ref", cl.Ref})
		}),
	}
	c.register(cmd)
	cmd.Flags().StringVar(&user, "user", "", "whose token or key it is")
	cmd.Flags().StringVar(&key, "key", "", "the idempotency key, instead of a token")
	cmd.Flags().BoolVar(&done, "complete", false, "the work was done: repeats get a result with the status and nothing else")
	cmd.Flags().IntVar(&status, "status", 200, "the result's HTTP status")
	cmd.Flags().BoolVar(&undone, "release", false, "the work was not done")
	return cmd
}
