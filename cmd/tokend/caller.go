package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"example.com/tokend/client"
	"example.com/tokend/config"
	"example.com/tokend/httpapi/wire"
)

// caller holds what the commands that call a running service have in common.
type caller struct {
	p                     *program
	url, token, tokenFile string
	purpose               string
	json                  bool
}

func (c *caller) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&c.url, "url", "", "where the service is (TOKEND_URL)")
	f.StringVar(&c.token, "token", "", "the caller's JWT or service key (TOKEND_TOKEN); it shows in the list of processes, --token-file does not")
	f.StringVar(&c.tokenFile, "token-file", "", "file that holds it (TOKEND_TOKEN_FILE)")
	f.StringVar(&c.purpose, "purpose", "default", "the purpose")
	f.BoolVar(&c.json, "json", false, "print JSON, a refusal too")
}

// calls returns the calls for the purpose. Flags override variables.
func (c *caller) calls() (client.Purpose, error) {
	base, err := pick("--url or TOKEND_URL", c.url, c.p.getenv("TOKEND_URL"))
	if err != nil {
		return client.Purpose{}, err
	}
	bearer, err := c.bearer()
	if err != nil {
		return client.Purpose{}, err
	}
	cl, err := client.New(base, client.ServiceKey(bearer), client.UserAgent("tokend/"+buildVersion()))
	if err != nil {
		return client.Purpose{}, usagef("%s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return cl.Purpose(c.purpose), nil
}

// bearer returns who is calling.
func (c *caller) bearer() (string, error) {
	text, file := c.token, c.tokenFile
	if text == "" && file == "" {
		text, file = c.p.getenv("TOKEND_TOKEN"), c.p.getenv("TOKEND_TOKEN_FILE")
	}
	if text != "" && file != "" {
		return "", usagef("the caller's token is given twice: by itself and in a file")
	}
	if file != "" {
		secret, err := config.ReadSecret(file)
		if err != nil {
			return "", usagef("the file with the caller's token cannot be read: %v", err)
		}
		text = secret.Reveal()
	}
	return pick("--token, --token-file, TOKEND_TOKEN or TOKEND_TOKEN_FILE", text)
}

// pick returns the first text that is not empty. Without any, where says how to give it.
func pick(where string, texts ...string) (string, error) {
	for _, s := range texts {
		if s != "" {
			return s, nil
		}
	}
	return "", usagef("give %s", where)
}

// oneToken takes a one-time token as the only argument; - reads it from standard input,
// which keeps it out of the list of processes.
func oneToken(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usagef("%s takes one argument: the one-time token, or - to read it from standard input", cmd.CommandPath())
	}
	return nil
}

func (c *caller) oneTimeToken(arg string) (string, error) {
	if arg != "-" {
		return arg, nil
	}
	b, err := io.ReadAll(io.LimitReader(c.p.stdin, 4096))
	if err != nil {
		return "", fmt.Errorf("standard input: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// print prints an answer: as JSON, or the pairs that have a value, a line each.
func (c *caller) print(answer any, pairs ...[2]string) error {
	if c.json {
		return json.NewEncoder(c.p.stdout).Encode(answer)
	}
	t := tabwriter.NewWriter(c.p.stdout, 0, 0, 2, ' ', 0)
	for _, pair := range pairs {
		if pair[1] != "" {
			fmt.Fprintf(t, "%s\t%s\n", pair[0], shown(pair[1]))
		}
	}
	return t.Flush()
}

// refused prints a refusal as JSON where that is asked for, and returns err.
func (c *caller) refused(err error) error {
	no, ok := errors.AsType[*client.Refusal](err)
	if !ok || !c.json {
		return err
	}
	kind, _ := wire.KindOf(no.Code)
	printed := json.NewEncoder(c.p.stdout).Encode(wire.Problem{
		Type:       wire.ProblemTypePrefix + string(no.Code),
		Title:      kind.Title,
		Status:     no.Status,
		Detail:     no.Detail,
		Code:       no.Code,
		Next:       no.Next,
		RequestID:  no.RequestID,
		Ref:        no.Ref,
		Field:      no.Field,
		ExpiresAt:  onWire(no.ExpiresAt),
		UsedAt:     onWire(no.UsedAt),
		UsedBy:     no.UsedBy,
		RevokedAt:  onWire(no.RevokedAt),
		RetryAfter: int64(no.RetryAfter / time.Second),
	})
	return errors.Join(err, printed)
}

// onWire returns t for JSON; a time that is not known is left out.
func onWire(t time.Time) wire.Time {
	if t.IsZero() {
		return wire.Time{}
	}
	return wire.TimeOf(t)
}

// at writes t for people; a time that is not known is empty.
func at(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return wire.TimeOf(t).String()
}

// yes writes true for people; false is empty.
func yes(b bool) string {
	if b {
		return "yes"
	}
	return ""
}

// calling makes the RunE of a command that makes one call.
func (c *caller) calling(call func(ctx context.Context, purpose client.Purpose, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		purpose, err := c.calls()
		if err != nil {
			return err
		}
		return c.refused(call(cmd.Context(), purpose, args))
	}
}
