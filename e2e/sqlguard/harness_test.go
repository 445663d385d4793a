package sqlguard_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/go-sql-driver/mysql"
	"modernc.org/sqlite"

	"example.com/tokend/client/sqlguard"
	"example.com/tokend/e2e/internal/databases"
	"example.com/tokend/internal/redistest"
)

func TestMain(m *testing.M) {
	if os.Getenv(crashPoint) != "" {
		crash()
		return
	}
	os.Exit(databases.Run(m))
}

// errorCode finds the codes of the errors that have no SQLState: see the package comment of
// sqlguard.
func errorCode(err error) int {
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return int(e.Number)
	}
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return e.Code()
	}
	return 0
}

// place is a database as a service has opened it, with a Guard whose table is there, and a
// table of work.
type place struct {
	*testing.T
	*databases.Database
	db *sql.DB
	g  *sqlguard.Guard

	locksReads bool // plain reads take locks, too

	mu   sync.Mutex
	runs int
}

// places are the ways to open databases that every test is run on.
var places = []struct {
	name       string
	make       func(testing.TB) *databases.Database
	parameters string
	isolation  sql.IsolationLevel
}{
	{"PostgreSQL", databases.PostgreSQL, "", sql.LevelDefault},
	{"PostgreSQL repeatable read", databases.PostgreSQL, "", sql.LevelRepeatableRead},
	{"PostgreSQL serializable", databases.PostgreSQL, "", sql.LevelSerializable},
	{"MariaDB", databases.MariaDB, "", sql.LevelDefault},
	{"MariaDB serializable", databases.MariaDB, "", sql.LevelSerializable},
	{"MariaDB read committed", databases.MariaDB, "", sql.LevelReadCommitted},
	{"MariaDB clientFoundRows", databases.MariaDB, "clientFoundRows=true&interpolateParams=true", sql.LevelDefault},
	{"MariaDB serializable clientFoundRows", databases.MariaDB, "clientFoundRows=true", sql.LevelSerializable},
	{"MariaDB snapshot isolation", databases.MariaDB, "innodb_snapshot_isolation=ON", sql.LevelDefault},
	{"SQLite", databases.SQLite, "", sql.LevelDefault},
	{"SQLite serializable", databases.SQLite, "", sql.LevelSerializable},
}

// each runs test in every place, all at the same time.
func each(t *testing.T, test func(*place), opts ...sqlguard.Option) {
	t.Helper()
	t.Parallel()
	for _, p := range places {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			d := p.make(t)
			if p.parameters != "" {
				d = d.With(p.parameters)
			}
			opened := open(t, d, append([]sqlguard.Option{sqlguard.Isolation(p.isolation)}, opts...)...)
			opened.locksReads = d.Dialect == sqlguard.MySQL && p.isolation == sql.LevelSerializable
			test(opened)
		})
	}
}

// servers runs test on the databases that are servers, all at the same time.
func servers(t *testing.T, test func(*place)) {
	t.Helper()
	t.Parallel()
	for name, make := range map[string]func(testing.TB) *databases.Database{"PostgreSQL": databases.PostgreSQL, "MariaDB": databases.MariaDB} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(open(t, make(t)))
		})
	}
}

// through opens p's database by way of a proxy.
func (p *place) through() (*redistest.Proxy, *sql.DB) {
	p.Helper()
	proxy := redistest.NewProxy(p, p.Addr)
	return proxy, p.Through(proxy.Addr).Open()
}

// open opens d for a test.
func open(t *testing.T, d *databases.Database, opts ...sqlguard.Option) *place {
	t.Helper()
	p := &place{T: t, Database: d, db: d.Open(), g: newGuard(t, d, opts...)}
	if err := p.g.CreateTable(t.Context(), p.db); err != nil {
		t.Fatal(err)
	}
	p.exec("CREATE TABLE IF NOT EXISTS works (what VARCHAR(40), by_run INT)")
	return p
}

func newGuard(t testing.TB, d *databases.Database, opts ...sqlguard.Option) *sqlguard.Guard {
	t.Helper()
	g, err := sqlguard.New(d.Dialect, append([]sqlguard.Option{sqlguard.ErrorCode(errorCode)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// exec carries out a statement outside any transaction.
func (p *place) exec(statement string, args ...any) {
	p.Helper()
	if _, err := p.db.ExecContext(p.Context(), statement, args...); err != nil {
		p.Fatalf("%s: %v", statement, err)
	}
}

// count returns the number that query finds.
func (p *place) count(query string, args ...any) (n int) {
	p.Helper()
	if err := p.db.QueryRowContext(p.Context(), query, args...).Scan(&n); err != nil {
		p.Fatalf("%s: %v", query, err)
	}
	return n
}

// wantWorks fails the test unless so many works were committed, and each once: the check of
// the articles' acceptance lists. What is committed is what counts; a run may be rolled back.
func (p *place) wantWorks(want int) {
	p.Helper()
	if n := p.count("SELECT COUNT(*) FROM works"); n != want {
		p.Errorf("%d works were committed, want %d", n, want)
	}
	if n := p.count("SELECT COUNT(*) FROM (SELECT what, COUNT(*) FROM works GROUP BY what HAVING COUNT(*) > 1) twice"); n != 0 {
		p.Errorf("%d works were done more than once", n)
	}
	if n := p.count("SELECT COUNT(*) FROM (SELECT user_id, idempotency_key, COUNT(*) FROM sqlguard_once" +
		" GROUP BY scope, user_id, idempotency_key HAVING COUNT(*) > 1) twice"); n != 0 {
		p.Errorf("%d keys were recorded more than once", n)
	}
	if n := p.count("SELECT COUNT(*) FROM sqlguard_once WHERE status <> 2"); n != 0 {
		p.Errorf("%d records were committed without a result", n)
	}
}

// ran counts a run of a work.
func (p *place) ran() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.runs++
	return p.runs
}

func (p *place) wantRuns(want int) {
	p.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.runs != want {
		p.Errorf("the work was run %d times, want %d", p.runs, want)
	}
}

// work is a work whose result tells the run.
func (p *place) work(what string) func(context.Context, sqlguard.Tx) ([]byte, error) {
	return func(ctx context.Context, tx sqlguard.Tx) ([]byte, error) {
		n := p.ran()
		statement := fmt.Sprintf("INSERT INTO works (what, by_run) VALUES ('%s', %d)", what, n)
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return nil, err
		}
		return fmt.Appendf(nil, `{"what":%q,"run":%d}`, what, n), nil
	}
}

// do is Do, whose error fails the test.
func (p *place) do(id sqlguard.ID, digest string) sqlguard.Answer {
	p.Helper()
	a, err := p.g.Do(p.Context(), p.db, id, digest, p.work(id.Key))
	if err != nil {
		p.Fatal(err)
	}
	return a
}

// id is alice's.
func id(key string) sqlguard.ID {
	return sqlguard.ID{Scope: "order-batch", User: "alice", Key: key}
}

// untilWaiting waits until n transactions wait for a lock, where that can be seen.
func (p *place) untilWaiting(n int) {
	p.Helper()
	p.UntilWaiting(p.T, p.db, n)
}

// outcome is what a call came to.
type outcome struct {
	sqlguard.Answer
	err error
}

// start calls f on a goroutine.
func start(f func() (sqlguard.Answer, error)) <-chan outcome {
	c := make(chan outcome, 1)
	go func() {
		a, err := f()
		c <- outcome{a, err}
	}()
	return c
}
