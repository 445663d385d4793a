package sqlguard

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// fake is a database that notes what it is told, and says what it is to say.
type fake struct {
	mu   sync.Mutex
	told []string
	says map[string][]error // by what a statement begins with, one after the other
}

// codeError is an error with a number, as MySQL's and SQLite's drivers have it.
type codeError int

func (e codeError) Error() string { return "a code" }

func codeOf(err error) int {
	if e, ok := errors.AsType[codeError](err); ok {
		return int(e)
	}
	return 0
}

// stateError is an error with an SQLState, as PostgreSQL's drivers have it.
type stateError string

func (e stateError) Error() string    { return "state " + string(e) }
func (e stateError) SQLState() string { return string(e) }

func (f *fake) tell(statement string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.told = append(f.told, statement)
	for begin, errs := range f.says {
		if strings.HasPrefix(statement, begin) && len(errs) > 0 {
			f.says[begin] = errs[1:]
			return errs[0]
		}
	}
	return nil
}

func (f *fake) log() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.told)
}

// open returns a database/sql handle of one connection, so that one that is not given back is
// missed.
func (f *fake) open(t *testing.T) *sql.DB {
	db := sql.OpenDB(f)
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { db.Close() })
	return db
}

func (f *fake) Connect(context.Context) (driver.Conn, error) { return &fakeConn{f}, nil }
func (f *fake) Driver() driver.Driver                        { return nil }

type fakeConn struct{ f *fake }

func (c *fakeConn) Prepare(string) (driver.Stmt, error) { return nil, errors.New("not prepared") }
func (c *fakeConn) Close() error                        { return nil }
func (c *fakeConn) Begin() (driver.Tx, error)           { return nil, errors.New("without a context") }
func (c *fakeConn) BeginTx(_ context.Context, o driver.TxOptions) (driver.Tx, error) {
	begin := "begin"
	if o.Isolation != 0 {
		begin += " " + sql.IsolationLevel(o.Isolation).String()
	}
	return c, c.f.tell(begin)
}
func (c *fakeConn) Commit() error   { return c.f.tell("commit") }
func (c *fakeConn) Rollback() error { return c.f.tell("rollback") }
func (c *fakeConn) ExecContext(_ context.Context, q string, _ []driver.NamedValue) (driver.Result, error) {
	return driver.RowsAffected(1), c.f.tell(q)
}
func (c *fakeConn) QueryContext(_ context.Context, q string, _ []driver.NamedValue) (driver.Rows, error) {
	return fakeRows{}, c.f.tell(q)
}

type fakeRows struct{}

func (fakeRows) Columns() []string         { return []string{"c"} }
func (fakeRows) Close() error              { return nil }
func (fakeRows) Next([]driver.Value) error { return io.EOF }

func newFake(t *testing.T, d Dialect, opts ...Option) (*fake, *sql.DB, *Guard) {
	t.Helper()
	f := &fake{says: map[string][]error{}}
	g, err := New(d, append([]Option{ErrorCode(codeOf), Backoff(func(int) time.Duration { return 0 })}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return f, f.open(t), g
}
