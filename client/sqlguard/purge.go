package sqlguard

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Purge deletes the records that are older than age, by the database's clock: of scopes, or of
// all where none is named. It returns how many. What is purged is forgotten, and a repeat runs
// the work: age is longer than any sender goes on repeating (7 days, say; longer where money is
// moved), and the unique key of the business row stays.
//
// In MySQL a purge of scopes walks over the old records of the other scopes, which keeps those
// waiting that repeat them: where they are many, an index on (scope, created_at) helps.
//
// Each statement deletes up to [PurgeBatch] records in a transaction of its own, so that it
// keeps nobody waiting for long. It may be called by several instances at once, and again after
// an error.
func (g *Guard) Purge(ctx context.Context, db *sql.DB, age time.Duration, scopes ...string) (deleted int64, err error) {
	if age < time.Second {
		return 0, errors.New("sqlguard: Purge: the age must be at least a second")
	}
	seconds := int64(age / time.Second)
	if age%time.Second > 0 {
		seconds++
	}
	args := []any{seconds}
	old := "created_at < " + g.dialect.ago()
	if len(scopes) > 0 {
		old += " AND scope IN (?" + strings.Repeat(", ?", len(scopes)-1) + ")"
		for _, s := range scopes {
			args = append(args, []byte(s))
		}
	}
	outer := args
	args = append(args, g.set.batch)
	var statement string
	switch oldest := " WHERE " + old + " ORDER BY created_at LIMIT ?"; g.dialect {
	case PostgreSQL:
		// In a table that is partitioned, a ctid is that of a row in each partition.
		statement = "DELETE FROM " + g.table + " WHERE ctid = ANY (ARRAY(SELECT ctid FROM " + g.table + oldest + " FOR UPDATE SKIP LOCKED)) AND " + old
		args = append(args, outer...)
	case MySQL:
		statement = "DELETE FROM " + g.table + oldest
	default:
		statement = "DELETE FROM " + g.table + " WHERE rowid IN (SELECT rowid FROM " + g.table + oldest + ")"
	}
	for failures := 0; ; {
		n, err := g.purgeBatch(ctx, db, statement, args)
		deleted += n
		switch {
		case err == nil && n < int64(g.set.batch):
			return deleted, nil
		case err == nil:
			failures = 0
			continue
		}
		if failures++; !errors.Is(err, ErrRetryTransaction) || failures == g.set.tries {
			return deleted, fmt.Errorf("sqlguard: purge: %w", err)
		}
		if err := g.pause(ctx, failures); err != nil {
			return deleted, err
		}
	}
}

func (g *Guard) purgeBatch(ctx context.Context, db *sql.DB, statement string, args []any) (int64, error) {
	done, err := db.ExecContext(ctx, g.dialect.bind(statement), args...)
	if err != nil {
		return 0, g.told(err)
	}
	return done.RowsAffected()
}
