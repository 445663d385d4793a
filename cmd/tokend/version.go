package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

func newVersion(p *program) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print what was built, from what, with what",
		Example: "  tokend version",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintf(p.stdout, "tokend %s %s %s/%s\n", buildVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}

// version names the build where the linker is told to (-X main.version=…).
var version string

// buildVersion names the build: as the linker was told, or else by the module's version
// or the commit that it was built from, as the Go tool has stamped it.
func buildVersion() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return versionOf(info)
}

func versionOf(info *debug.BuildInfo) string {
	name := info.Main.Version
	if name == "" {
		name = "(devel)"
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	revision := settings["vcs.revision"]
	if revision == "" || strings.Contains(name, revision[:min(12, len(revision))]) {
		return name
	}
	name += "+" + revision[:min(12, len(revision))]
	if settings["vcs.modified"] == "true" {
		name += ".dirty"
	}
	return name
}
