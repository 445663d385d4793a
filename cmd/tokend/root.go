package main

import (
	"errors"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"example.com/tokend/config"
)

func newRoot(p *program) *cobra.Command {
	root := &cobra.Command{
		Use:   "tokend",
		Short: "One-time tokens: issue one, consume it exactly once",
		Long: `tokend issues one-time tokens and sees to it that each is consumed at most once.

Exit statuses: 0 success, 1 refusal (the service's answer is no), 2 the command line or
the configuration is wrong, 3 fault (there is no answer).`,
		Example: `  tokend dev
  tokend serve --config tokend.yaml`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(flagError)
	group(root)
	root.AddCommand(
		newServe(p), newDev(p), newConfig(p), newKeygen(p), newJWT(p),
		newIssue(p), newConsume(p), newStatus(p), newResolve(p), newDoctor(p), newBench(p),
		newRef(p), newHealthcheck(p), newVersion(p),
	)
	return root
}

// group makes cmd a command that only holds others: to call it by itself, or with a
// name that it does not know, is an error.
func group(cmd *cobra.Command) {
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usagef("name a command: %s --help lists them", cmd.CommandPath())
		}
		cmd.SuggestionsMinimumDistance = 2
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			return usagef("there is no such command; did you mean %s %s?", cmd.CommandPath(), near[0])
		}
		return usagef("there is no such command: %s --help lists them", cmd.CommandPath())
	}
}

// noArgs refuses arguments. It does not quote them: what stands there may be the rest of
// a secret that was not put in quotes.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("%s takes flags only, and no arguments (texts with spaces need quotes)", cmd.CommandPath())
	}
	return nil
}

// flagError says what is wrong with a flag, and which was probably meant.
func flagError(cmd *cobra.Command, err error) error {
	text := err.Error()
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		var known []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, "--"+f.Name) })
		text += config.Suggest("--"+unknown.GetSpecifiedName(), known)
	}
	return usagef("%s (%s --help lists the flags)", text, cmd.CommandPath())
}
