package sqlguard

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"
)

// settlement is how long a commit or rollback may take: it is not cut off with its caller,
// as nobody could tell then what became of it.
const settlement = 30 * time.Second

// Run runs work in a transaction, and commits it if work returns nil. If work fails or panics,
// or ctx ends, it is rolled back. Where the database gave it up ([ErrRetryTransaction]) it is
// run again from the start, up to [MaxTries] times; so work must do nothing that a rollback
// does not undo. opts hold for this call.
//
// A commit is not cut off when ctx ends: it has half a minute.
func (g *Guard) Run(ctx context.Context, db *sql.DB, work func(ctx context.Context, tx Tx) error, opts ...Option) error {
	return g.run(ctx, db, work, opts, func(err error) bool { return errors.Is(err, ErrRetryTransaction) })
}

// Do is [Guard.Once] in a transaction of its own, as Run would run it. A commit without an
// answer is run again too: whether it was carried out, the record tells. Where the record cannot
// be asked any more it is [ErrCommitUnknown], whatever the last try came to.
func (g *Guard) Do(ctx context.Context, db *sql.DB, id ID, digest string, work func(ctx context.Context, tx Tx) ([]byte, error), opts ...Option) (Answer, error) {
	var answer Answer
	var unknown error // of a commit that no record has told of since
	err := g.run(ctx, db, func(ctx context.Context, tx Tx) (err error) {
		answer, err = g.Once(ctx, tx, id, digest, func(ctx context.Context) ([]byte, error) {
			unknown = nil // there was no record
			return work(ctx, tx)
		})
		if err == nil || errors.Is(err, ErrReused) || errors.Is(err, ErrNoResult) {
			unknown = nil
		}
		return err
	}, opts, func(err error) bool {
		if errors.Is(err, ErrCommitUnknown) {
			unknown = err
		}
		return errors.Is(err, ErrRetryTransaction) || errors.Is(err, ErrCommitUnknown)
	})
	if err != nil && unknown != nil && !errors.Is(err, ErrCommitUnknown) {
		err = fmt.Errorf("%w; then %w", unknown, err)
	}
	if err != nil {
		return Answer{}, err
	}
	return answer, nil
}

func (g *Guard) run(ctx context.Context, db *sql.DB, work func(context.Context, Tx) error, opts []Option, again func(error) bool) error {
	g, err := g.with(opts)
	if err != nil {
		return err
	}
	for n := 1; ; n++ {
		err := g.try(ctx, db, work)
		if err == nil || !again(err) {
			return err
		}
		if n == g.set.tries {
			return fmt.Errorf("after %d tries: %w", n, err)
		}
		if ended := g.pause(ctx, n); ended != nil {
			return fmt.Errorf("%w, after %w", ended, err)
		}
	}
}

// with returns g with opts.
func (g *Guard) with(opts []Option) (*Guard, error) {
	if len(opts) == 0 {
		return g, nil
	}
	was := g.set
	return New(g.dialect, append([]Option{func(s *settings) error { *s = was; return nil }}, opts...)...)
}

// try runs the transaction once.
func (g *Guard) try(ctx context.Context, db *sql.DB, work func(context.Context, Tx) error) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return g.told(err)
	}
	defer conn.Close()

	// The transaction's own context ends with the caller's up to the commit, and not then.
	own, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	letGo := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	defer letGo()

	tx, err := g.begin(own, conn)
	if err != nil {
		return g.told(err)
	}
	ended := false
	defer func() {
		if !ended { // an error, a panic, or the end of the goroutine
			tx.rollback()
		}
	}()
	err = g.told(work(ctx, tx))
	if broken := tx.failed(); err == nil || errors.Is(broken, ErrRetryTransaction) && !errors.Is(err, ErrRetryTransaction) {
		err = broken // which work has not passed on
	}
	if err != nil {
		return err
	}
	if !letGo() {
		return context.Cause(ctx)
	}
	defer time.AfterFunc(settlement, func() { cancel(context.DeadlineExceeded) }).Stop()
	if err := tx.commit(own); err != nil {
		switch {
		case g.classify(err) != ClassOther, g.answered(err):
			return g.told(err)
		case g.dialect == SQLite: // which is within this process, so the lack of an answer is one
			return err
		}
		ended = true
		return fmt.Errorf("%w: %w", ErrCommitUnknown, err)
	}
	ended = true
	return nil
}

func (g *Guard) begin(own context.Context, conn *sql.Conn) (*transaction, error) {
	t := &transaction{g: g, own: own}
	if g.dialect != SQLite {
		tx, err := conn.BeginTx(own, &sql.TxOptions{Isolation: g.set.isolation})
		if err != nil {
			return nil, err
		}
		t.tx = tx
		t.commit = func(context.Context) error { return tx.Commit() }
		t.rollback = func() { tx.Rollback() }
		return t, nil
	}
	if _, err := conn.ExecContext(own, "BEGIN IMMEDIATE"); err != nil {
		return nil, err
	}
	t.tx = conn
	// What the work has left open would keep the connection.
	over, end := context.WithCancel(own)
	t.own = over
	t.commit = func(ctx context.Context) error {
		t.closeStatements()
		_, err := conn.ExecContext(ctx, "COMMIT")
		if err == nil {
			end()
		}
		return err
	}
	t.rollback = func() {
		end()
		t.closeStatements()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(own), settlement)
		defer cancel()
		_, err := conn.ExecContext(ctx, "ROLLBACK")
		const noTransaction = 1 // SQLITE_ERROR: SQLite has rolled it back by itself
		if err != nil && (g.set.code == nil || g.set.code(err) != noTransaction) {
			conn.Raw(func(any) error { return driver.ErrBadConn }) // it is used no more
		}
	}
	return t, nil
}
