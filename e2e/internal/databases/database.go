package databases

import (
	"database/sql"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"example.com/tokend/client/sqlguard"

	_ "modernc.org/sqlite" // the driver sqlite
)

// Database is a test's own.
type Database struct {
	Dialect sqlguard.Dialect
	Driver  string // of database/sql
	DSN     string
	Addr    string // host:port of its server, "" for SQLite

	t testing.TB
}

var made atomic.Int64

// Each runs test as a subtest on a database of each kind, all at the same time.
func Each(t *testing.T, test func(t *testing.T, d *Database)) {
	t.Helper()
	for _, kind := range []struct {
		name string
		make func(testing.TB) *Database
	}{{"PostgreSQL", PostgreSQL}, {"MariaDB", MariaDB}, {"SQLite", SQLite}} {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			test(t, kind.make(t))
		})
	}
}

// create makes a database in s.
func (s *server) create(t testing.TB) (name string) {
	t.Helper()
	s.use(t)
	name = fmt.Sprintf("test%d", made.Add(1))
	if _, err := s.admin.Exec("CREATE DATABASE " + name); err != nil {
		t.Fatal(err)
	}
	return name
}

// PostgreSQL returns a new database of PostgreSQL.
func PostgreSQL(t testing.TB) *Database {
	t.Helper()
	name := postgres.create(t)
	return &Database{Dialect: sqlguard.PostgreSQL, Driver: "pgx", DSN: postgres.postgresURL(name, ""), Addr: postgres.addr, t: t}
}

// MariaDB returns a new database of MariaDB.
func MariaDB(t testing.TB) *Database {
	t.Helper()
	name := mariadb.create(t)
	return &Database{Dialect: sqlguard.MySQL, Driver: "mysql", DSN: mariadb.mysqlDSN(name, ""), Addr: mariadb.addr, t: t}
}

// sqliteWait is for how long a writer is waited for: tests run beside others.
const sqliteWait = "busy_timeout(60000)"

// SQLite returns a new database of SQLite, in a file.
func SQLite(t testing.TB) *Database {
	t.Helper()
	dsn := "file:" + filepath.Join(t.TempDir(), "db") + "?_pragma=" + sqliteWait + "&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)"
	return &Database{Dialect: sqlguard.SQLite, Driver: "sqlite", DSN: dsn, t: t}
}

// With returns the same database, reached with more parameters in the driver's spelling:
// clientFoundRows=true, say.
func (d *Database) With(parameters string) *Database {
	other := *d
	other.DSN += "&" + parameters
	return &other
}

// Impatient returns the same database, reached by who waits for a lock for a second at the
// most.
func (d *Database) Impatient() *Database {
	switch d.Dialect {
	case sqlguard.PostgreSQL:
		return d.With("lock_timeout=50ms")
	case sqlguard.MySQL:
		return d.With("innodb_lock_wait_timeout=1")
	}
	other := *d
	other.DSN = strings.Replace(d.DSN, sqliteWait, "busy_timeout(0)", 1)
	return &other
}

// Through returns the same database, reached at addr: a proxy.
func (d *Database) Through(addr string) *Database {
	other := *d
	other.DSN, other.Addr = strings.Replace(d.DSN, d.Addr, addr, 1), addr
	if _, _, err := net.SplitHostPort(addr); err != nil || other.DSN == d.DSN {
		d.t.Fatalf("%s is not reached at %q", d.Dialect, addr)
	}
	return &other
}

// Open opens the database; it is closed with the test.
func (d *Database) Open() *sql.DB {
	d.t.Helper()
	db, err := sql.Open(d.Driver, d.DSN)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { db.Close() })
	return db
}

// Exec carries statements out, one by one.
func (d *Database) Exec(statements ...string) {
	d.t.Helper()
	db := d.Open()
	for _, s := range statements {
		if _, err := db.Exec(s); err != nil {
			d.t.Fatalf("%s: %v", s, err)
		}
	}
}
