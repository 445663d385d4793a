package sqlguard_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"example.com/tokend/client/sqlguard"
	"example.com/tokend/e2e/internal/databases"
)

// Two that find the same row and then update it do so one after the other, and not in a deadlock.
func TestEnsureThenUpdate(t *testing.T) {
	t.Parallel()
	p := open(t, databases.PostgreSQL(t))
	p.exec("CREATE TABLE acc (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL)")
	p.exec("INSERT INTO acc VALUES (1, 0)")
	u, err := p.g.Unique(sqlguard.Rows{Table: "acc", Key: []string{"id"}})
	if err != nil {
		t.Fatal(err)
	}
	add := func(then func()) error {
		return p.g.Run(t.Context(), p.db, func(ctx context.Context, tx sqlguard.Tx) error {
			if _, err := u.EnsureEach(ctx, tx, sqlguard.Row{"id": 1, "balance": 0}); err != nil {
				return err
			}
			p.ran()
			then()
			_, err := tx.ExecContext(ctx, "UPDATE acc SET balance = balance + 1 WHERE id = 1")
			return err
		})
	}
	second := make(chan error, 1)
	first := add(func() {
		go func() { second <- add(func() {}) }()
		p.untilWaiting(1)
	})
	if err := errors.Join(first, databases.Await(t, second)); err != nil {
		t.Error(err)
	}
	p.wantRuns(2)
	if n := p.count("SELECT balance FROM acc"); n != 2 {
		t.Errorf("the balance is %d", n)
	}
}

// An instance that starts does not wait for those that are at work, nor they for it.
func TestCreateTableBesideWork(t *testing.T) {
	t.Parallel()
	databases.Each(t, func(t *testing.T, d *databases.Database) {
		if d.Dialect == sqlguard.SQLite {
			return // who writes is alone
		}
		p := open(t, d)
		_, err := p.g.Do(t.Context(), p.db, id("k"), "d", func(ctx context.Context, tx sqlguard.Tx) ([]byte, error) {
			if _, err := p.work("k")(ctx, tx); err != nil {
				return nil, err
			}
			ctx, cancel := context.WithTimeout(ctx, databases.Patience)
			defer cancel()
			return nil, p.g.CreateTable(ctx, p.db)
		})
		if err != nil {
			t.Error(err)
		}
		p.wantWorks(1)
	})
}

// An age that is longer than anything deletes nothing.
func TestPurgeOfNothing(t *testing.T) {
	t.Parallel()
	databases.Each(t, func(t *testing.T, d *databases.Database) {
		p := open(t, d)
		p.do(id("k"), "d")
		for _, age := range []time.Duration{math.MaxInt64, math.MaxInt64 - time.Second, 100 * 365 * day} {
			if n, err := p.g.Purge(t.Context(), p.db, age); err != nil || n != 0 {
				t.Errorf("older than %v: %d were purged, %v", age, n, err)
			}
		}
	})
}

// In a table that somebody has partitioned, the old records alone are purged.
func TestPurgePartitioned(t *testing.T) {
	t.Parallel()
	d := databases.PostgreSQL(t)
	d.Exec(newGuard(t, d).Schema()[0]+" PARTITION BY LIST (scope)",
		`CREATE TABLE paid PARTITION OF sqlguard_once FOR VALUES IN ('\x504159')`,
		"CREATE TABLE others PARTITION OF sqlguard_once DEFAULT")
	p := open(t, d)
	for i := range 10 {
		for scope, age := range map[string]int{"PAY": 30, "form": 0} {
			p.exec(fmt.Sprintf("INSERT INTO sqlguard_once VALUES ('%s', 'u', '%d', 'd', 2, 'n', 'r', now() - interval '%d days', now())", scope, i, age))
		}
	}
	if n, err := p.g.Purge(t.Context(), p.db, 7*day); err != nil || n != 10 {
		t.Errorf("%d were purged, %v", n, err)
	}
	if old, young := p.count("SELECT COUNT(*) FROM paid"), p.count("SELECT COUNT(*) FROM others"); old != 0 || young != 10 {
		t.Errorf("%d old records and %d young ones are left", old, young)
	}
}

// Where a statement may not take as long as the first is at work, the second hears of that.
func TestStatementTimeout(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		make       func(testing.TB) *databases.Database
		parameters string
	}{
		"PostgreSQL": {databases.PostgreSQL, "statement_timeout=300"},
		"MariaDB":    {databases.MariaDB, "max_statement_time=0.3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := tt.make(t)
			p := open(t, d)
			hurried := d.With(tt.parameters).Open()
			_, err := p.g.Do(t.Context(), p.db, id("k"), "d", func(ctx context.Context, tx sqlguard.Tx) ([]byte, error) {
				_, err := p.g.Do(ctx, hurried, id("k"), "d", p.work("k"), sqlguard.MaxTries(1))
				if !errors.Is(err, sqlguard.ErrInProgress) {
					t.Errorf("the second got %v", err)
				}
				return p.work("k")(ctx, tx)
			})
			if err != nil {
				t.Error(err)
			}
			p.wantWorks(1)
		})
	}
}

// A commit whose answer was lost stays unknown where the record cannot be asked.
func TestCommitStaysUnknown(t *testing.T) {
	servers(t, func(p *place) {
		proxy, db := p.through()
		g := newGuard(p, p.Database, sqlguard.Backoff(func(int) time.Duration {
			proxy.DropReply("sqlguard_once")
			return 0
		}))
		proxy.DropReply("commit")
		_, err := g.Do(p.Context(), db, id("k"), "d", p.work("k"))
		if !errors.Is(err, sqlguard.ErrCommitUnknown) {
			p.Errorf("got %v", err)
		}
		p.wantWorks(1)
	})
}

// A row that the database stores under another key than it was given says so, instead of being
// tried again for ever.
func TestKeyStoredOtherwise(t *testing.T) {
	servers(t, func(p *place) {
		p.exec("CREATE TABLE rounded (k DECIMAL(12,2) PRIMARY KEY, v INT)")
		u, err := p.g.Unique(sqlguard.Rows{Table: "rounded", Key: []string{"k"}, Return: []string{"v"}})
		if err != nil {
			p.Fatal(err)
		}
		if _, err := p.ensure(u, sqlguard.Row{"k": "1.505", "v": 1}); err == nil || errors.Is(err, sqlguard.ErrRetryTransaction) {
			p.Errorf("got %v", err)
		}
		if n := p.count("SELECT COUNT(*) FROM rounded"); n != 0 {
			p.Errorf("there are %d rows", n)
		}
	})
}

// MySQL compares sloppily: what it alone takes for a row's id moves nothing.
func TestMoveSloppyID(t *testing.T) {
	t.Parallel()
	p := open(t, databases.MariaDB(t))
	p.exec("CREATE TABLE numbered (id BIGINT PRIMARY KEY, state VARCHAR(16) NULL)")
	p.exec("INSERT INTO numbered VALUES (12, 'A'), (13, NULL)")
	s, err := p.g.States(sqlguard.Graph{Table: "numbered", ID: "id", State: "state", Transitions: []sqlguard.Transition{{Name: "go", From: []string{"A"}, To: "B"}}})
	if err != nil {
		t.Fatal(err)
	}
	take := func(id any) (moved sqlguard.Moved, err error) {
		err = p.g.Run(t.Context(), p.db, func(ctx context.Context, tx sqlguard.Tx) error {
			moved, _ = s.Take(ctx, tx, id, "go") // swallowed
			return nil
		})
		return moved, err
	}
	for _, id := range []any{"12abc", "12; --", 13} { // the state of 13 is NULL
		if moved, err := take(id); err == nil || moved.Moved {
			t.Errorf("%v: %+v, %v", id, moved, err)
		}
	}
	if n := p.count("SELECT COUNT(*) FROM numbered WHERE state = 'A'"); n != 1 {
		t.Error("the row was moved")
	}
	for i, id := range []any{"12", 12} {
		if moved, err := take(id); err != nil || moved.Moved != (i == 0) || moved.State != "B" {
			t.Errorf("%v: %+v, %v", id, moved, err)
		}
	}
}

// A state in a padded column is the state.
func TestStatePadded(t *testing.T) {
	t.Parallel()
	p := open(t, databases.PostgreSQL(t))
	p.exec("CREATE TABLE padded (id BIGINT PRIMARY KEY, state CHAR(16) NOT NULL)")
	p.exec("INSERT INTO padded VALUES (1, 'B')")
	s, err := p.g.States(sqlguard.Graph{Table: "padded", ID: "id", State: "state", Transitions: []sqlguard.Transition{{Name: "go", From: []string{"A"}, To: "B"}}})
	if err != nil {
		t.Fatal(err)
	}
	var moved sqlguard.Moved
	err = p.g.Run(t.Context(), p.db, func(ctx context.Context, tx sqlguard.Tx) error {
		moved, err = s.Take(ctx, tx, 1, "go")
		return err
	})
	if err != nil || moved.Moved || moved.State != "B" {
		t.Errorf("%+v, %v", moved, err)
	}
}
