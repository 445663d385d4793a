package config

import (
	"fmt"
	"strings"
)

// Markdown renders the table of settings for the README.
func Markdown() string {
	var b strings.Builder
	b.WriteString("| setting in YAML | flag | variable | default | |\n| --- | --- | --- | --- | --- |\n")
	row := func(name, flag, variable, def, help string) {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", code(name), code(flag), code(variable), code(def), escape(help))
	}
	for i := range settings {
		s := &settings[i]
		help, name := s.Help, s.Name
		if s.Secret {
			help += "; secret: also " + s.Name + fileSuffix + ", the file that holds it"
		}
		if s.virtual {
			name = ""
		}
		row(name, "--"+s.Flag(), s.Variable(), s.Default, help)
	}
	row(purposesName, "", "", "", "purpose: {ttl, max_ttl, retention, keys_retention}; where given, only these may be issued or claimed by key, and what one leaves out is as for all")
	return b.String()
}

func code(s string) string {
	if s == "" {
		return ""
	}
	return "`" + s + "`"
}

// escape keeps s within its cell.
func escape(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
