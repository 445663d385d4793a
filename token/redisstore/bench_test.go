package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"example.com/tokend/internal/redistest"
	"example.com/tokend/token"
	"example.com/tokend/token/redisstore"
)

// BenchmarkConsume consumes one token again and again, by another attempt: each call is a
// round trip and a refusal. Callers share round trips, or do not.
func BenchmarkConsume(b *testing.B) {
	rdb := redistest.Start(b).Client()
	for _, alone := range []bool{true, false} {
		s := redisstore.New(rdb, redisstore.Options{NoBatching: alone, Timeout: time.Minute})
		_, tok := issue(b, newService(b, s))
		if _, err := s.Consume(b.Context(), token.Consumption{User: alice, Token: tok, Attempt: "winner"}); err != nil {
			b.Fatal(err)
		}
		for _, callers := range []int{1, 64} {
			b.Run(fmt.Sprintf("alone=%v/callers=%d", alone, callers), func(b *testing.B) {
				b.ReportAllocs()
				b.SetParallelism(callers / 2) // of GOMAXPROCS, on two cores
				if callers == 1 {
					for b.Loop() {
						s.Consume(b.Context(), token.Consumption{User: alice, Token: tok, Attempt: "loser"})
					}
					return
				}
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						s.Consume(b.Context(), token.Consumption{User: alice, Token: tok, Attempt: "loser"})
					}
				})
			})
		}
	}
}
