package main

import (
	"github.com/spf13/cobra"

	"example.com/tokend/config"
)

// load reads the configuration of a command whose flags are config.Register's.
func load(p *program, cmd *cobra.Command, defaults map[string]string) (*config.Config, *config.Faults) {
	return config.Load(config.Sources{Flags: cmd.Flags(), Environ: p.environ, Defaults: defaults})
}
