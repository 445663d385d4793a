package sqlguard

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"sync"
)

// Querier is what *sql.DB, *sql.Tx and *sql.Conn read with.
type Querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Tx is a transaction: that of [Guard.Run], or a *sql.Tx. Code that sqlc has made takes it too.
// It is used by one goroutine at a time. A *sql.Conn is taken for one too: whoever gives it has
// begun a transaction on it.
type Tx interface {
	Querier
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
}

// checkTx refuses what only looks like a transaction.
func checkTx(tx Tx) error {
	switch tx.(type) {
	case nil, *sql.DB:
		return fmt.Errorf("sqlguard: this needs a transaction, and a %T is none", tx)
	}
	return nil
}

// transaction is the Tx of Run. It sends no statement after one that has ended the
// transaction: MySQL and SQLite would carry it out on its own.
type transaction struct {
	g        *Guard
	tx       Tx
	own      context.Context // ends with the transaction
	commit   func(context.Context) error
	rollback func()

	mu         sync.Mutex
	sent       bool
	broken     error
	aborted    error // of PostgreSQL, while it takes no statement
	statements []*sql.Stmt
}

// first tells whether nothing was sent yet.
func (t *transaction) first() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.sent
}

// fail keeps the transaction from being committed.
func (t *transaction) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.broken == nil {
		t.broken = err
	}
}

// fail keeps tx from being committed where it is Run's, and returns err.
func fail(tx Tx, err error) error {
	if own, ok := tx.(*transaction); ok {
		own.fail(err)
	}
	return err
}

// failed returns what keeps the transaction from being committed.
func (t *transaction) failed() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.broken == nil && t.aborted != nil {
		return fmt.Errorf("sqlguard: the transaction is aborted, by an error that its work has swallowed: %w", t.aborted)
	}
	return t.broken
}

// enter is called before a statement.
func (t *transaction) enter() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.broken != nil {
		return fmt.Errorf("sqlguard: the transaction is over: %w", t.broken)
	}
	t.sent = true
	return nil
}

// leave is called after a statement that ctx was for, with its error.
func (t *transaction) leave(ctx context.Context, err error) error {
	t.note(err)
	if err == nil {
		return nil
	}
	told := t.g.told(err)
	switch t.g.classify(err) {
	case ClassRetry, ClassLocked, ClassOver:
		t.fail(told)
	default:
		if ctx.Err() != nil { // it was cut off, and SQLite rolls back then
			t.fail(told)
		}
	}
	return told
}

// note notes whether PostgreSQL has aborted the transaction: with each error, until a savepoint
// is gone back to, before which every statement fails. Its drivers do not tell the rollback
// that such a commit comes to from a commit without an answer.
func (t *transaction) note(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case err == nil:
		t.aborted = nil
	case t.g.dialect == PostgreSQL && t.aborted == nil && t.g.answered(err):
		t.aborted = err
	}
}

func (t *transaction) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if err := t.enter(); err != nil {
		return nil, err
	}
	res, err := t.tx.ExecContext(ctx, query, args...)
	return res, t.leave(ctx, err)
}

func (t *transaction) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if err := t.enter(); err != nil {
		return nil, err
	}
	rows, err := t.tx.QueryContext(t.within(ctx), query, args...)
	return rows, t.leave(ctx, err)
}

func (t *transaction) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	if err := t.enter(); err != nil {
		return rowOf(err)
	}
	row := t.tx.QueryRowContext(t.within(ctx), query, args...)
	t.leave(ctx, row.Err())
	return row
}

func (t *transaction) PrepareContext(ctx context.Context, query string) (*sql.Stmt, error) {
	if err := t.enter(); err != nil {
		return nil, err
	}
	s, err := t.tx.PrepareContext(ctx, query)
	if err == nil {
		t.keep(s)
	}
	return s, t.leave(ctx, err)
}

// keep keeps s, to be closed with the transaction.
func (t *transaction) keep(s *sql.Stmt) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.statements = append(t.statements, s)
}

// rowOf returns a Row that holds err: one of a database that cannot be reached, as there is
// no other way to it.
func rowOf(err error) *sql.Row {
	db := sql.OpenDB(unreachable{err})
	defer db.Close()
	return db.QueryRow("")
}

type unreachable struct{ err error }

func (u unreachable) Connect(context.Context) (driver.Conn, error) { return nil, u.err }
func (u unreachable) Driver() driver.Driver                        { return nil }

// within returns a context of ctx that ends with the transaction: rows that nobody has closed
// are closed then.
func (t *transaction) within(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	context.AfterFunc(t.own, func() { cancel(context.Cause(t.own)) })
	return ctx
}

func (t *transaction) closeStatements() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.statements {
		s.Close()
	}
	t.statements = nil
}
