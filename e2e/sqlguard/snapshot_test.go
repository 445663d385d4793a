package sqlguard_test

import (
	"context"
	"errors"
	"testing"

	"example.com/tokend/client/sqlguard"
	"example.com/tokend/e2e/internal/databases"
)

// aside carries out a statement while a transaction of p is open. SQLite lets nobody.
func (p *place) aside(statement string) {
	p.Helper()
	if p.Dialect != sqlguard.SQLite {
		p.exec(statement)
	}
}

// A transaction that has read before has an old picture of the table, in which what came since
// is not there. What is read back is read under a lock, and is.
func TestReadBackAfterSnapshot(t *testing.T) {
	each(t, func(p *place) {
		u, s := p.items(), p.orders()
		first := true
		var verdicts []sqlguard.Verdict
		var moved sqlguard.Moved
		err := p.g.Run(p.Context(), p.db, func(ctx context.Context, tx sqlguard.Tx) (err error) {
			for _, table := range []string{"order_item", "orders"} {
				var n int
				if err := tx.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+table).Scan(&n); err != nil {
					return err
				}
			}
			if first && p.beside() {
				p.aside("INSERT INTO order_item (user_id, external_order_no, amount, at) VALUES (42, 'B1', 5, '2026-08-27 12:00:00')")
				p.aside("UPDATE orders SET status = 'PAID'")
			}
			first = false
			if verdicts, err = u.Ensure(ctx, tx, item("B1", "5")); err != nil {
				return err
			}
			moved, err = s.Take(ctx, tx, "O1", "pay")
			return err
		})
		if err != nil {
			p.Fatal(err)
		}
		want := sqlguard.Same
		if !p.beside() {
			want = sqlguard.Inserted
		}
		if verdicts[0].Kind != want || moved.Moved != (want == sqlguard.Inserted) || moved.State != "PAID" {
			p.Errorf("what came since was not seen: %+v, %+v", verdicts, moved)
		}
		if n := p.count("SELECT COUNT(*) FROM order_item"); n != 1 {
			p.Errorf("there are %d rows", n)
		}
	})
}

// beside tells whether somebody can write beside a transaction that has read: not in SQLite, and
// not where MariaDB locks what was read.
func (p *place) beside() bool {
	return p.Dialect == sqlguard.PostgreSQL || p.Dialect == sqlguard.MySQL && !p.locksReads
}

// Once finds the record that was committed after its transaction's picture was taken.
func TestOnceAfterSnapshot(t *testing.T) {
	t.Parallel()
	p := open(t, databases.MariaDB(t))
	conn, err := p.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(t.Context(), "START TRANSACTION WITH CONSISTENT SNAPSHOT"); err != nil {
		t.Fatal(err)
	}
	first := p.do(id("k"), "d")
	again, err := p.g.Once(t.Context(), conn, id("k"), "d", func(ctx context.Context) ([]byte, error) { return p.work("k")(ctx, conn) })
	if err != nil || !again.Replayed || string(again.Result) != string(first.Result) {
		t.Errorf("got %+v, %v", again, err)
	}
	if _, err := conn.ExecContext(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	p.wantWorks(1)
}

// Run takes SQLite's lock when it begins, so that a transaction that reads first need not be
// given up when it writes.
func TestSQLiteBeginsImmediate(t *testing.T) {
	t.Parallel()
	p := open(t, databases.SQLite(t))
	other := p.Impatient().Open()
	runs := 0
	err := p.g.Run(t.Context(), p.db, func(ctx context.Context, tx sqlguard.Tx) error {
		runs++
		var n int
		if err := tx.QueryRowContext(ctx, "SELECT COUNT(*) FROM works").Scan(&n); err != nil {
			return err
		}
		err := p.g.Run(ctx, other, func(ctx context.Context, tx sqlguard.Tx) error {
			_, err := p.work("other")(ctx, tx)
			return err
		}, sqlguard.MaxTries(1))
		if !errors.Is(err, sqlguard.ErrRetryTransaction) {
			t.Errorf("somebody writes beside: %v", err)
		}
		_, err = p.work("own")(ctx, tx)
		return err
	})
	if err != nil || runs != 1 {
		t.Errorf("%v after %d runs", err, runs)
	}
	p.wantWorks(1)
}
