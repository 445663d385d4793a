package main

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/spf13/cobra"

	"example.com/tokend/client"
)

func newResolve(p *program) *cobra.Command {
	c := &caller{p: p}
	var user, key, ref string
	var done, undone bool
	var status int
	cmd := &cobra.Command{
		Use:   "resolve TOKEN | --key KEY",
		Short: "End a claim that was committed and never completed",
		Long: `End a claim that was committed and never completed (claim_unfinished), for whoever has looked
for the business record since: --complete where it is there, --release where it is not, which
makes the token or key good again. It looks first: what is not unfinished is refused, and stays
as it is. Only what changes between that look and the claim may be claimed, and is released at
once, which makes its next fence larger.

It takes the one-time token itself, which the user's open page or the form service has; the ref
of a log line is no secret, and not enough.`,
		Example: `  export TOKEND_URL=http://localhost:8080 TOKEND_TOKEN_FILE=service.key
  echo "$TOKEN" | tokend resolve --user alice --purpose order.create --complete --status 201 -
  tokend resolve --user stripe:acct_1 --key evt_7 --purpose payment.callback --release`,
		Args: func(cmd *cobra.Command, args []string) error {
			if ref != "" {
				return usagef("a claim cannot be ended by its ref, which is no secret: give the one-time token, which the user's open page or the form service has, or --key; where nobody has it, leave the claim and start over with a new form")
			}
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
			is, err := purpose.Client().ClaimStatus(ctx, subject)
			if err != nil {
				return err
			}
			if is.State != client.StateClaimed || !is.Committed {
				return c.notUnfinished(is)
			}
			cl, before, err := purpose.Client().Resolve(ctx, subject)
			if err != nil {
				return err
			}
			if before != nil {
				return c.notUnfinished(client.ClaimStatus{Status: client.Status{State: client.StateCompleted, Ref: is.Ref}})
			}
			defer cl.Close()
			if !cl.Committed() { // released since the look
				return errors.Join(&unhealthyError{"nothing is unfinished: it has just been released, and is good still"}, cl.Release(ctx))
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
	cmd.Flags().StringVar(&ref, "ref", "", "not enough: see above")
	cmd.Flags().MarkHidden("ref")
	cmd.Flags().BoolVar(&done, "complete", false, "the work was done: repeats get a result with the status and nothing else")
	cmd.Flags().IntVar(&status, "status", 200, "the result's HTTP status")
	cmd.Flags().BoolVar(&undone, "release", false, "the work was not done")
	return cmd
}

// notUnfinished refuses what is in another state, which it prints where JSON is asked for.
func (c *caller) notUnfinished(is client.ClaimStatus) error {
	text := "nothing is unfinished: the state is " + string(is.State)
	if is.State == client.StateClaimed {
		text += ", and not committed"
	}
	no := &unhealthyError{text}
	if !c.json {
		return no
	}
	return errors.Join(no, json.NewEncoder(c.p.stdout).Encode(onWireStatus(is.Status)))
}
