package main

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// filling sets ARGV[1] keys as used tokens have them, or touches them if they are there, which
// has Redis go on with what it has begun to move.
const filling = `
for i = 1, ARGV[1] do
  local key = 'fill:{' .. ARGV[2] .. '}' .. i
  if redis.call('EXISTS', key) == 0 then
    redis.call('SET', key, ARGV[3], 'EX', 7200)
  end
end`

// fill has Redis hold keys before anything is measured. A Redis that is at work holds many, and
// its tables grow by doubling: while one does, each call moves some of what it holds, and takes
// several times as long. Whether that falls into somebody's turn is chance.
func (b *bench) fill() error {
	rdb := redis.NewClient(&redis.Options{Addr: b.redis.addr, ReadTimeout: -1})
	defer rdb.Close()
	const part = 10_000
	for range 3 {
		for i := range b.keys / part {
			if err := rdb.Eval(context.Background(), filling, nil, part, i, fmt.Sprintf("%044d", i)).Err(); err != nil && err != redis.Nil {
				return fmt.Errorf("fill Redis: %w", err)
			}
		}
	}
	return nil
}
