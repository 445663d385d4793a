package sqlguard

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// The longest that a record holds. Where MySQL is not strict it cuts what is longer, and two
// keys would be one: so they are checked before.
const (
	ScopeMax  = 64
	UserMax   = 256
	KeyMax    = 255
	DigestMax = 128
)

// What stands in a record's status.
const (
	statusProcessing = 1 // seen by its own transaction alone
	statusSucceeded  = 2
)

// Schema returns the statements that make the table, for those who apply them by their own
// means. Each may be applied again.
func (g *Guard) Schema() []string {
	types := map[Dialect][]string{
		PostgreSQL: {"bytea", "bytea", "bytea", "bytea", "bytea", "bytea", "timestamp with time zone"},
		MySQL:      {"VARBINARY(64)", "VARBINARY(256)", "VARBINARY(255)", "VARBINARY(128)", "VARBINARY(16)", "LONGBLOB", "DATETIME(6)"},
		SQLite:     {"BLOB", "BLOB", "BLOB", "BLOB", "BLOB", "BLOB", "TEXT"},
	}[g.dialect]
	columns := []string{
		"scope " + types[0] + " NOT NULL", // what is done
		"user_id " + types[1] + " NOT NULL",
		"idempotency_key " + types[2] + " NOT NULL",
		"request_digest " + types[3] + " NOT NULL",
		"status smallint NOT NULL", // 1 processing, 2 succeeded
		"nonce " + types[4] + " NOT NULL",
		"response_body " + types[5],
		"created_at " + types[6] + " NOT NULL", // UTC
		"updated_at " + types[6] + " NOT NULL",
		"PRIMARY KEY (scope, user_id, idempotency_key)",
	}
	_, name, ok := strings.Cut(g.set.table, ".")
	if !ok {
		name = g.set.table
	}
	create := "CREATE TABLE IF NOT EXISTS " + g.table + " (\n\t"
	if g.dialect == MySQL {
		columns = append(columns, "KEY created_at (created_at)")
		return []string{create + strings.Join(columns, ",\n\t") + "\n) ENGINE=InnoDB ROW_FORMAT=DYNAMIC"}
	}
	index, _ := g.dialect.quote(indexName(name))
	on := g.table
	if g.dialect == SQLite && ok {
		// There the schema stands before the index, which is in the same one.
		schema, _ := g.dialect.quote(g.set.table[:len(g.set.table)-len(name)-1])
		index = schema + "." + index
		on, _ = g.dialect.quote(name)
	}
	return []string{
		create + strings.Join(columns, ",\n\t") + "\n)",
		"CREATE INDEX IF NOT EXISTS " + index + " ON " + on + " (created_at)",
	}
}

// indexName is the name of the index on created_at of a table. Where that would be too long it
// is cut, and a digest tells it from those of other tables.
func indexName(table string) string {
	const suffix = "_created_at"
	if len(table) > nameLimit-len(suffix) {
		sum := sha256.Sum256([]byte(table))
		digest := "_" + hex.EncodeToString(sum[:4])
		table = table[:nameLimit-len(suffix)-len(digest)] + digest
	}
	return table + suffix
}

// CreateTable applies [Guard.Schema]: where the table is there, it is left as it is, and not
// looked at; one without the primary key of Schema makes nothing unique. Several instances may
// do so at once, and while others are at work.
func (g *Guard) CreateTable(ctx context.Context, db *sql.DB) error {
	for i, statement := range g.Schema() {
		for n := 1; ; n++ {
			there, err := g.inPlace(ctx, db, i)
			if err == nil && !there {
				_, err = db.ExecContext(ctx, statement)
			}
			if err == nil {
				break
			}
			if n == g.set.tries || !g.meantime(err) {
				return fmt.Errorf("sqlguard: create %s: %w", g.set.table, g.told(err))
			}
			if err := g.pause(ctx, n); err != nil {
				return err
			}
		}
	}
	return nil
}

// inPlace tells whether what the i-th statement of Schema makes is there: the table, or an index
// that begins with created_at. PostgreSQL's IF NOT EXISTS takes its lock before it looks: it
// would wait for all who are at work, and keep all that come waiting.
func (g *Guard) inPlace(ctx context.Context, db *sql.DB, i int) (there bool, err error) {
	if g.dialect != PostgreSQL {
		return false, nil
	}
	query := []string{
		"SELECT to_regclass($1) IS NOT NULL",
		"SELECT EXISTS (SELECT FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]" +
			" WHERE i.indrelid = to_regclass($1) AND a.attname = 'created_at')",
	}[i]
	err = db.QueryRowContext(ctx, query, g.table).Scan(&there)
	return there, err
}

// meantime tells whether err is of a table that another has made, or is making. PostgreSQL's
// IF NOT EXISTS looks first and then writes.
func (g *Guard) meantime(err error) bool {
	var state interface{ SQLState() string }
	if errors.As(err, &state) {
		switch state.SQLState() {
		case "42P07", "42710", "XX000": // there already; "tuple concurrently updated"
			return true
		}
	}
	switch g.classify(err) {
	case ClassRetry, ClassLocked, ClassUnique:
		return true
	}
	return false
}
