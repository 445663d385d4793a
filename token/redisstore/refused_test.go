package redisstore_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/tokend/internal/redistest"
	"example.com/tokend/token"
	"example.com/tokend/token/redisstore"
)

// TestConnectionRefused holds that a connection which Redis refuses while it is set up, before
// any command is sent, is a fault that says why: not a refusal, nor an answer of nothing.
func TestConnectionRefused(t *testing.T) {
	server := redistest.Start(t)
	server.AddUser("tokend")
	healthy := redisstore.New(server.ClientAs("tokend"), redisstore.Options{Timeout: 30 * time.Second})
	tokens := map[token.Mode]*token.Token{token.Record: opened(t, healthy, token.Record), token.Delete: opened(t, healthy, token.Delete)}
	for want, opts := range map[string]redis.Options{
		"NOPERM":    {Username: "tokend", Password: redistest.Password, DB: 3},
		"WRONGPASS": {Username: "tokend", Password: "another"},
		"ERR DB":    {DB: 99},
	} {
		for _, protocol := range []int{2, 3} {
			for _, opts.MaxRetries = range []int{-1, 1} {
				opts := opts
				opts.Addr, opts.Protocol, opts.ContextTimeoutEnabled = server.Addr, protocol, true
				rdb := redis.NewClient(&opts)
				t.Cleanup(func() { rdb.Close() })
				for _, replicas := range []int{0, 1} {
					s := redisstore.New(rdb, redisstore.Options{Timeout: 30 * time.Second, WaitReplicas: replicas})
					refused := func(what string, err error) {
						t.Helper()
						mustFault(t, want+": "+what, err)
						var f *token.Fault
						if errors.As(err, &f) && (f.Unknown || !strings.Contains(f.Error(), want)) {
							t.Errorf("%s: %s: unknown is %v: %v", want, what, f.Unknown, err)
						}
					}
					refused("ping", s.Ping(t.Context()))
					for mode, tok := range tokens {
						c := token.Consumption{User: alice, Token: tok, Attempt: "a"}
						_, err := s.Consume(t.Context(), c)
						refused("consume in mode "+mode.String(), err)
						_, errs := s.ConsumeBatch(t.Context(), []token.Consumption{c, c})
						for _, err := range errs {
							refused("consume a batch in mode "+mode.String(), err)
						}
						_, err = s.Status(t.Context(), token.TokenSubject(alice, tok))
						refused("status in mode "+mode.String(), err)
						_, err = newService(t, s).Issue(t.Context(), token.IssueRequest{User: alice, Purpose: "p"})
						refused("issue", err)
					}
				}
			}
		}
	}
	for mode, tok := range tokens {
		if _, err := healthy.Consume(t.Context(), token.Consumption{User: alice, Token: tok, Attempt: "a"}); err != nil {
			t.Errorf("%v: afterwards: %v", mode, err)
		}
	}
}
