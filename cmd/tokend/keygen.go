package main

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"example.com/tokend/httpapi/auth"
	"example.com/tokend/httpapi/wire"
	"example.com/tokend/token"
)

func newKeygen(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "keygen",
		Short: "Make keys up",
		Example: `  tokend keygen signing
  tokend keygen service --name form-service --scope tokend.consume`,
	}
	group(cmd)
	cmd.AddCommand(newKeygenSigning(p), newKeygenService(p))
	return cmd
}

func newKeygenSigning(p *program) *cobra.Command {
	var id string
	cmd := &cobra.Command{
		Use:   "signing",
		Short: "Make a key that signs tokens, for signing.keys",
		Long: `Make a key that signs tokens, and print it as signing.keys takes it: ID:BASE64.

To rotate, add a new key behind the old one in all instances, then put it in front in
all, then, when the longest tokens.max_ttl and retention have passed, remove the old one.`,
		Example: `  tokend keygen signing > signing.keys
  TOKEND_SIGNING_KEYS="$TOKEND_SIGNING_KEYS,$(tokend keygen signing --id 2027a)"`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			text, err := newSigningKey(id)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(p.stdout, text)
			return err
		},
	}
	cmd.Flags().StringVar(&id, "id", "", "the key's ID, 1 to 16 of [A-Za-z0-9_-]; made up where not given")
	return cmd
}

// newSigningKey makes a signing key up, in the form of signing.keys.
func newSigningKey(id string) (string, error) {
	if id == "" {
		id = strings.ToLower(rand.Text()[:8])
	}
	var secret [token.SecretSize]byte
	rand.Read(secret[:]) // never fails: crypto/rand ends the program rather than do so
	text := id + ":" + base64.StdEncoding.EncodeToString(secret[:])
	if _, err := token.ParseKeys(text); err != nil {
		return "", usagef("--id must be 1 to 16 of [A-Za-z0-9_-]")
	}
	return text, nil
}

func newKeygenService(p *program) *cobra.Command {
	var name string
	var scopes []string
	cmd := &cobra.Command{
		Use:   "service",
		Short: "Make a service's key, for auth.service_keys",
		Long: `Make a service's key: a secret for the service, and what auth.service_keys takes, which
holds the secret's SHA-256 only. A name may stand there twice, to rotate.`,
		Example: "  tokend keygen service --name form-service --scope tokend.issue --scope tokend.consume",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			secret, entry, err := newServiceKey(name, scopes)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(p.stdout, "for the service:       %s\nfor auth.service_keys: %s\n", secret, entry)
			return err
		},
	}
	cmd.Flags().StringVar(&name, "name", "service", "the service's name: 1 to 64 of [A-Za-z0-9._-]")
	cmd.Flags().StringSliceVar(&scopes, "scope", []string{wire.ScopeIssue, wire.ScopeConsume}, "what it may do: "+wire.ScopeIssue+", "+wire.ScopeConsume)
	return cmd
}

// newServiceKey makes a service key up: the secret, and its entry in auth.service_keys.
func newServiceKey(name string, scopes []string) (secret, entry string, err error) {
	secret, sum := auth.NewServiceKey()
	if _, err := auth.ParseServiceKeys(name + ":" + sum + ":" + wire.ScopeIssue); err != nil || strings.Contains(name, ",") {
		return "", "", usagef("--name must be 1 to 64 of [A-Za-z0-9._-], and must not begin with " + auth.ServiceKeyPrefix)
	}
	entry = name + ":" + sum + ":" + strings.Join(scopes, "+")
	if _, err := auth.ParseServiceKeys(entry); err != nil {
		return "", "", usagef("--scope must be %s or %s, and may be given twice", wire.ScopeIssue, wire.ScopeConsume)
	}
	return secret, entry, nil
}
