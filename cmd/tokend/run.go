package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"example.com/tokend/client"
	"example.com/tokend/config"
)

// program is what a command has from the outside.
type program struct {
	args, environ  []string
	stdin          io.Reader
	stdout, stderr io.Writer
}

// getenv returns the value of the variable called name, or "".
func (p *program) getenv(name string) string {
	for _, e := range p.environ {
		if v, ok := strings.CutPrefix(e, name+"="); ok {
			return v
		}
	}
	return ""
}

// The exit statuses. The long help of tokend lists them.
const (
	exitOK      = 0
	exitRefused = 1 // the answer is no; for healthcheck, doctor and bench: what was looked at is not well
	exitUsage   = 2 // the command line or the configuration is wrong
	exitFault   = 3 // there is no answer
)

// run runs the command that p's arguments name and returns the exit status. When ctx
// ends, so does the command; serve does it in good order.
func run(ctx context.Context, p *program) int {
	root := newRoot(p)
	root.SetArgs(p.args)
	root.SetIn(p.stdin)
	root.SetOut(p.stdout)
	root.SetErr(p.stderr)
	err := root.ExecuteContext(ctx)
	if err != nil {
		fmt.Fprintln(p.stderr, "tokend:", strings.TrimPrefix(err.Error(), "tokend: ")) // the client's begin so too
	}
	return exitStatus(err)
}

// usageError says that the command line is wrong.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

func usagef(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

// unhealthyError says that what was probed, examined or measured is not well, or not in the
// state that a command is for.
type unhealthyError struct{ text string }

func (e *unhealthyError) Error() string { return e.text }

func exitStatus(err error) int {
	if err == nil {
		return exitOK
	}
	if _, ok := errors.AsType[*usageError](err); ok {
		return exitUsage
	}
	if _, ok := errors.AsType[*config.Faults](err); ok {
		return exitUsage
	}
	if _, ok := errors.AsType[*unhealthyError](err); ok {
		return exitRefused
	}
	if _, ok := errors.AsType[*client.Refusal](err); ok {
		return exitRefused
	}
	return exitFault
}
