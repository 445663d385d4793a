package main

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"example.com/tokend/config"
	"example.com/tokend/token"
	"example.com/tokend/token/redisstore"
)

func newRef(p *program) *cobra.Command {
	var user, ref string
	cmd := &cobra.Command{
		Use:   "ref",
		Short: "Print how a user stands in the log and in Redis",
		Long: `Print the user_ref of a user, by which log lines name the user, and with --ref, which
errors and tickets hold, the key of that token's or key's record in Redis, quoted as
redis-cli --quoted-input takes it.`,
		Example: `  tokend ref --user alice
  redis-cli --quoted-input PTTL "$(tokend ref --user alice --ref t_0123456789abcdef0123456789abcdef | sed -n 's/^redis_key //p')"`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			u, err := token.ParseUser(user)
			if err != nil {
				return usagef("--%v", err)
			}
			if ref == "" {
				_, err = fmt.Fprintf(p.stdout, "user_ref %s\n", u.Hash())
				return err
			}
			kind, id, err := token.ParseRef(ref)
			if err != nil {
				return usagef("--%v", err)
			}
			cfg, faults := load(p, cmd, nil)
			if err := faults.Err(); err != nil {
				return err
			}
			key := redisstore.RecordKey(cfg.Redis.KeyPrefix, kind, u.Hash(), id)
			_, err = fmt.Fprintf(p.stdout, "user_ref %s\nredis_key %s\n", u.Hash(), redisQuote(key))
			return err
		},
	}
	cmd.Flags().StringVar(&user, "user", "", "the user")
	cmd.Flags().StringVar(&ref, "ref", "", "a token's or key's ref, t_ or k_ and 32 hex digits")
	config.RegisterOnly(cmd.Flags(), "redis.key_prefix")
	return cmd
}

// redisQuote quotes a key, which is not all text, as redis-cli reads and MONITOR writes
// it.
func redisQuote(key string) string {
	b := []byte{'"'}
	for i := range len(key) {
		switch c := key[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < ' ' || c > '~':
			b = append(b, '\\', 'x')
			b = append(b, strconv.FormatUint(uint64(c)|0x100, 16)[1:]...)
		default:
			b = append(b, c)
		}
	}
	return string(append(b, '"'))
}
