package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"modernc.org/sqlite"

	"example.com/tokend/client/sqlguard"
)

// database is one of the three that the service runs on.
type database struct {
	*sql.DB
	dialect sqlguard.Dialect
}

var dialects = map[string]sqlguard.Dialect{"pgx": sqlguard.PostgreSQL, "mysql": sqlguard.MySQL, "sqlite": sqlguard.SQLite}

// errorCode classes the errors of the drivers that have no SQLState. A service of one database
// needs one half of it, and on PostgreSQL none.
func errorCode(err error) int {
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return int(e.Number)
	}
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return e.Code()
	}
	return 0
}

// openDatabase opens the database and makes the tables that are missing.
func openDatabase(ctx context.Context, driver, dsn string) (*database, error) {
	dialect, ok := dialects[driver]
	if !ok {
		return nil, fmt.Errorf("ORDERS_DRIVER is %q, and must be pgx, mysql or sqlite", driver)
	}
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return nil, err
	}
	d := &database{db, dialect}
	for _, table := range d.tables() {
		_, err := db.ExecContext(ctx, table)
		for n := 1; n < 10 && meantime(err); n++ {
			_, err = db.ExecContext(ctx, table)
		}
		if err != nil {
			db.Close()
			return nil, err
		}
	}
	return d, nil
}

// meantime tells whether err is of a table that another instance makes at the same time:
// PostgreSQL's IF NOT EXISTS looks first and then writes.
func meantime(err error) bool {
	var state interface{ SQLState() string }
	return errors.As(err, &state) && slices.Contains([]string{"23505", "42P07", "42710", "XX000"}, state.SQLState())
}

// q returns query, which has no question mark that is no parameter, as the database spells it.
func (d *database) q(query string) string {
	if d.dialect != sqlguard.PostgreSQL {
		return query
	}
	parts := strings.Split(query, "?")
	for i := range parts[:len(parts)-1] {
		parts[i] += "$" + strconv.Itoa(i+1)
	}
	return strings.Join(parts, "")
}

// tables returns the tables of the service. Its records are sqlguard's to make.
//
// What is a key to people is compared byte for byte: MySQL's text is not, so it is VARBINARY.
// The ledger and the parcels have no unique key on purpose: they are what the tests count.
func (d *database) tables() []string {
	id, key, at := "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY", "VARCHAR", "TIMESTAMPTZ"
	switch d.dialect {
	case sqlguard.MySQL:
		id, key, at = "BIGINT AUTO_INCREMENT PRIMARY KEY", "VARBINARY", "DATETIME(6)"
	case sqlguard.SQLite:
		id, at = "INTEGER PRIMARY KEY", "TEXT"
	}
	tables := []string{
		`CREATE TABLE IF NOT EXISTS order_item (
			id ID, order_no KEY(32) NOT NULL UNIQUE, user_id KEY(256) NOT NULL, external_order_no KEY(64) NOT NULL,
			amount DECIMAL(12,2) NOT NULL, status VARCHAR(16) NOT NULL, created_at AT NOT NULL, paid_at AT NULL,
			CONSTRAINT uk_user_order UNIQUE (user_id, external_order_no))`,
		`CREATE TABLE IF NOT EXISTS account (
			user_id KEY(256) NOT NULL, id KEY(64) NOT NULL, balance BIGINT NOT NULL, version BIGINT NOT NULL,
			PRIMARY KEY (user_id, id))`,
		`CREATE TABLE IF NOT EXISTS ledger (id ID, user_id KEY(256) NOT NULL, subject KEY(64) NOT NULL, kind VARCHAR(16) NOT NULL, amount DECIMAL(12,2) NOT NULL, created_at AT NOT NULL)`,
		`CREATE TABLE IF NOT EXISTS outbox (id ID, kind VARCHAR(32) NOT NULL, order_no KEY(32) NOT NULL, created_at AT NOT NULL, sent_at AT NULL, parked_at AT NULL)`,
		`CREATE TABLE IF NOT EXISTS parcel (id ID, order_no KEY(32) NOT NULL, created_at AT NOT NULL)`,
	}
	types := strings.NewReplacer(" ID,", " "+id+",", "id ID", "id "+id, " KEY(", " "+key+"(", " AT ", " "+at+" ")
	for i := range tables {
		tables[i] = types.Replace(tables[i])
	}
	return tables
}
