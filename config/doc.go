// Package config reads tokend's configuration: flags over environment variables over a
// YAML file over defaults.
//
// One table, in table.go, lists the settings. A setting's flag, variable and YAML name
// are derived from its name (tokens.max_ttl is --tokens-max-ttl and
// TOKEND_TOKENS_MAX_TTL), and so are the help texts and the README's table ([Markdown]).
// Each secret can be read from a file instead, whose path is the setting of the same
// name with _file behind it.
//
// Nothing is skipped silently: an unknown name is a fault, and so is a value that breaks
// a rule. [Load] finds all faults before it returns them as one message, and its caller
// can add what only it can check. No fault ever quotes a value, so no secret can stand
// in one; a file that cannot be read is named where its path looks like one.
package config
