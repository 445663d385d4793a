package sqlguard_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"example.com/tokend/client/sqlguard"
	"example.com/tokend/e2e/internal/databases"
)

// accounts makes two accounts to be locked in one order and in the other.
func (p *place) accounts() {
	p.Helper()
	p.exec("CREATE TABLE account (id INT PRIMARY KEY, balance INT)")
	p.exec("INSERT INTO account (id, balance) VALUES (1, 0), (2, 0)")
}

func add(ctx context.Context, tx sqlguard.Tx, account int) error {
	_, err := tx.ExecContext(ctx, fmt.Sprintf("UPDATE account SET balance = balance + 1 WHERE id = %d", account))
	return err
}

// Two transactions lock two rows in opposite orders. The database gives one of them up, which is
// run again: both are carried out, and each once.
func TestDeadlock(t *testing.T) {
	each(t, func(p *place) {
		if p.Dialect == sqlguard.SQLite {
			p.busy()
			return
		}
		p.accounts()
		var mu sync.Mutex
		tries := 0
		var both sync.WaitGroup // have their first row; on their first try alone
		both.Add(2)
		transfer := func(from, to int) (sqlguard.Answer, error) {
			first := true
			return p.g.Do(p.Context(), p.db, id(fmt.Sprint(from)), "d", func(ctx context.Context, tx sqlguard.Tx) ([]byte, error) {
				mu.Lock()
				tries++
				mu.Unlock()
				if err := add(ctx, tx, from); err != nil {
					return nil, err
				}
				if first {
					first = false
					both.Done()
					both.Wait()
				}
				return p.workAfter(ctx, tx, add(ctx, tx, to), fmt.Sprint(from))
			}, sqlguard.MaxTries(50))
		}
		a := start(func() (sqlguard.Answer, error) { return transfer(1, 2) })
		b := start(func() (sqlguard.Answer, error) { return transfer(2, 1) })
		for _, c := range []<-chan outcome{a, b} {
			if o := databases.Await(p, c); o.err != nil {
				p.Error(o.err)
			}
		}
		if tries < 3 {
			p.Errorf("there were %d tries: nobody was given up", tries)
		}
		if n := p.count("SELECT COUNT(*) FROM account WHERE balance = 2"); n != 2 {
			p.Errorf("%d accounts have what both have added", n)
		}
		p.wantWorks(2)
	})
}

// workAfter does the work called what, unless err.
func (p *place) workAfter(ctx context.Context, tx sqlguard.Tx, err error, what string) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	return p.work(what)(ctx, tx)
}

// busy is what SQLite has for a deadlock: whoever may not wait is busy, and tries again until
// the other is done.
func (p *place) busy() {
	p.Helper()
	db := p.Impatient().Open()
	tries := 0
	err := p.g.Run(p.Context(), p.db, func(ctx context.Context, tx sqlguard.Tx) error {
		_, err := p.g.Do(ctx, db, id("k"), "d", p.work("k"), sqlguard.MaxTries(3))
		if !errors.Is(err, sqlguard.ErrRetryTransaction) {
			p.Errorf("beside another writer: %v", err)
		}
		tries++
		return err
	}, sqlguard.MaxTries(2))
	if !errors.Is(err, sqlguard.ErrRetryTransaction) || tries != 2 {
		p.Errorf("%v after %d tries", err, tries)
	}
	p.wantWorks(0)
	if _, err := p.g.Do(p.Context(), db, id("k"), "d", p.work("k")); err != nil {
		p.Error(err)
	}
	p.wantWorks(1)
}

// A work swallows the deadlock that has rolled its transaction back, and goes on: MySQL would
// carry out the rest on its own. It is refused, and the whole is run again.
func TestDeadlockSwallowed(t *testing.T) {
	t.Parallel()
	for name, make := range map[string]func(testing.TB) *databases.Database{"PostgreSQL": databases.PostgreSQL, "MariaDB": databases.MariaDB} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := open(t, make(t))
			p.accounts()
			// The other holds the second account, and comes for the first with more to lose.
			other, err := p.db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer other.Rollback()
			for i := range 50 {
				if _, err := other.ExecContext(t.Context(), fmt.Sprintf("INSERT INTO account (id, balance) VALUES (%d, 0)", 100+i)); err != nil {
					t.Fatal(err)
				}
			}
			if err := add(t.Context(), other, 2); err != nil {
				t.Fatal(err)
			}
			waiting := comesFor(other, p)
			runs, refused := 0, 0
			err = p.g.Run(t.Context(), p.db, func(ctx context.Context, tx sqlguard.Tx) error {
				runs++
				if err := add(ctx, tx, 1); err != nil {
					return err
				}
				waiting(runs)
				add(ctx, tx, 2) // may be given up, which is not looked at
				if _, err := p.work("on its own")(ctx, tx); err != nil {
					refused++
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
			if runs > 1 && refused == 0 {
				t.Error("what came after the end of the transaction was carried out")
			}
			t.Logf("%d runs, %d refused", runs, refused)
			if n := p.count("SELECT COUNT(*) FROM works"); n != 1 {
				t.Errorf("the work was done %d times", n)
			}
			if n := p.count("SELECT balance FROM account WHERE id = 1"); n != 1 {
				t.Errorf("account 1 has %d", n)
			}
		})
	}
}

// comesFor returns what has the other come for the first account on the first run: it then waits
// for it, and is rolled back when it has waited or has been given up.
func comesFor(other *sql.Tx, p *place) func(run int) {
	return func(run int) {
		if run > 1 {
			return
		}
		go func() {
			add(context.Background(), other, 1)
			other.Rollback()
		}()
		p.untilWaiting(1)
	}
}

// Two transactions read what the other writes. Serializable gives one of them up.
func TestSerializationFailure(t *testing.T) {
	t.Parallel()
	p := open(t, databases.PostgreSQL(t), sqlguard.Isolation(sql.LevelSerializable))
	p.accounts()
	var both sync.WaitGroup
	both.Add(2)
	var mu sync.Mutex
	tries := 0
	var calls []<-chan outcome
	for i := range 2 {
		calls = append(calls, start(func() (sqlguard.Answer, error) {
			first := true
			return p.g.Do(t.Context(), p.db, id(fmt.Sprint(i)), "d", func(ctx context.Context, tx sqlguard.Tx) ([]byte, error) {
				mu.Lock()
				tries++
				mu.Unlock()
				var sum int
				if err := tx.QueryRowContext(ctx, "SELECT SUM(balance) FROM account").Scan(&sum); err != nil {
					return nil, err
				}
				if first {
					first = false
					both.Done()
					both.Wait()
				}
				if sum > 0 {
					return []byte("the other was first"), nil
				}
				return []byte("first"), add(ctx, tx, i+1)
			})
		}))
	}
	results := map[string]int{}
	for _, c := range calls {
		o := databases.Await(t, c)
		if o.err != nil {
			t.Error(o.err)
		}
		results[string(o.Result)]++
	}
	if results["first"] != 1 || results["the other was first"] != 1 || tries < 3 {
		t.Errorf("%v after %d tries", results, tries)
	}
}

// A row that has changed since the snapshot is 1020 to MariaDB with snapshot isolation, and
// 40001 to PostgreSQL at REPEATABLE READ.
func TestChangedSinceSnapshot(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]func() *place{
		"MariaDB": func() *place { return open(t, databases.MariaDB(t).With("innodb_snapshot_isolation=ON")) },
		"PostgreSQL": func() *place {
			return open(t, databases.PostgreSQL(t), sqlguard.Isolation(sql.LevelRepeatableRead))
		},
	} {
		p := p()
		p.accounts()
		tries := 0
		err := p.g.Run(t.Context(), p.db, func(ctx context.Context, tx sqlguard.Tx) error {
			tries++
			var balance int
			if err := tx.QueryRowContext(ctx, "SELECT balance FROM account WHERE id = 1").Scan(&balance); err != nil {
				return err
			}
			if tries == 1 {
				p.exec("UPDATE account SET balance = 10 WHERE id = 1")
			}
			return add(ctx, tx, 1)
		})
		if err != nil || tries != 2 {
			t.Errorf("%s: %v after %d tries", name, err, tries)
		}
		if n := p.count("SELECT balance FROM account WHERE id = 1"); n != 11 {
			t.Errorf("%s: the balance is %d", name, n)
		}
	}
}

// A panic rolls back, and nothing is left: no row, no lock, no connection.
func TestPanic(t *testing.T) {
	each(t, func(p *place) {
		p.db.SetMaxOpenConns(1)
		for _, end := range []func(){func() { panic("work") }, runtime.Goexit} {
			ended := make(chan any, 1)
			go func() {
				defer func() { ended <- recover() }()
				p.g.Do(p.Context(), p.db, id("k"), "d", func(ctx context.Context, tx sqlguard.Tx) ([]byte, error) {
					if _, err := p.work("k")(ctx, tx); err != nil {
						p.Error(err)
					}
					end()
					return nil, nil
				})
			}()
			databases.Await(p, ended)
		}
		p.wantWorks(0)
		p.do(id("k"), "d")
		p.wantWorks(1)
	})
}

// A caller that hangs up ends the work, also where it waits for a lock or has swallowed that.
func TestHangUp(t *testing.T) {
	each(t, func(p *place) {
		ctx, cancel := context.WithCancel(p.Context())
		_, err := p.g.Do(ctx, p.db, id("k"), "d", func(ctx context.Context, tx sqlguard.Tx) ([]byte, error) {
			result, err := p.work("k")(ctx, tx)
			cancel()
			tx.ExecContext(context.WithoutCancel(ctx), "INSERT INTO works (what, by_run) VALUES ('on its own', 0)")
			return result, err
		})
		if !errors.Is(err, context.Canceled) {
			p.Errorf("got %v", err)
		}
		p.wantWorks(0)
		if p.Dialect == sqlguard.SQLite {
			p.do(id("k"), "d") // whose driver waits in one piece
			return
		}
		ctx, cancel = context.WithCancel(p.Context())
		working, goOn := make(chan struct{}), make(chan struct{})
		first := start(func() (sqlguard.Answer, error) {
			return p.g.Do(p.Context(), p.db, id("k"), "d", func(ctx context.Context, tx sqlguard.Tx) ([]byte, error) {
				close(working)
				<-goOn
				return p.work("k")(ctx, tx)
			})
		})
		databases.Await(p, working)
		second := start(func() (sqlguard.Answer, error) { return p.g.Do(ctx, p.db, id("k"), "d", p.work("k")) })
		p.untilWaiting(1)
		cancel()
		if o := databases.Await(p, second); !errors.Is(o.err, context.Canceled) {
			p.Errorf("one that hung up while it waited: %+v", o)
		}
		close(goOn)
		if o := databases.Await(p, first); o.err != nil {
			p.Error(o.err)
		}
		p.wantWorks(1)
	})
}

// What a work leaves open does not keep the transaction, nor the connection.
func TestLeftOpen(t *testing.T) {
	each(t, func(p *place) {
		p.db.SetMaxOpenConns(1)
		p.exec("INSERT INTO works (what, by_run) VALUES ('a', 0), ('b', 0), ('c', 0)")
		failure := errors.New("failed")
		for _, fail := range []error{nil, failure} {
			err := p.g.Run(p.Context(), p.db, func(ctx context.Context, tx sqlguard.Tx) error {
				if _, err := tx.PrepareContext(ctx, "SELECT what FROM works"); err != nil {
					return err
				}
				rows, err := tx.QueryContext(ctx, "SELECT what FROM works")
				if err != nil {
					return err
				}
				rows.Next() // and no more
				return fail
			})
			if !errors.Is(err, fail) {
				// Only one statement may be at work in a connection of some drivers.
				p.Logf("%v", err)
			}
		}
		p.do(id("k"), "d")
		p.wantWorks(4)
	})
}
