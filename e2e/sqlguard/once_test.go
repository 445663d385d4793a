package sqlguard_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"example.com/tokend/client/sqlguard"
	"example.com/tokend/e2e/internal/databases"
)

func TestOnce(t *testing.T) {
	each(t, func(p *place) {
		first := p.do(id("k1"), "d1")
		if first.Replayed || string(first.Result) != `{"what":"k1","run":1}` {
			p.Errorf("the first got %s, replayed %v", first.Result, first.Replayed)
		}
		for range 2 {
			if again := p.do(id("k1"), "d1"); !again.Replayed || !bytes.Equal(again.Result, first.Result) {
				p.Errorf("a repeat got %s, replayed %v", again.Result, again.Replayed)
			}
		}
		p.wantRuns(1)
		_, err := p.g.Do(p.Context(), p.db, id("k1"), "d2", p.work("k1"))
		if !errors.Is(err, sqlguard.ErrReused) {
			p.Errorf("another digest: %v, want ErrReused", err)
		}
		p.wantWorks(1)
		p.wantRuns(1)
	})
}

// Keys of other users and scopes are others, and no collation makes two keys one.
func TestKeysAreBytes(t *testing.T) {
	each(t, func(p *place) {
		spellings := []string{"ABC", "abc", "abc ", " abc", "abc\x00", "ábc", "a\u0301bc", "'abc'", `a\bc`, "\xff\xfe"}
		n := 0
		for _, s := range spellings {
			for _, id := range []sqlguard.ID{{Scope: s, User: "u", Key: "k"}, {Scope: "s", User: s, Key: "k"}, {Scope: "s", User: "u", Key: s}} {
				answer, err := p.g.Do(p.Context(), p.db, id, sqlguard.Digest(s), func(context.Context, sqlguard.Tx) ([]byte, error) {
					return []byte(s), nil
				})
				if err != nil || answer.Replayed {
					p.Errorf("%q is taken for another: %v, %v", id, answer.Replayed, err)
				}
				n++
			}
		}
		if got := p.count("SELECT COUNT(*) FROM sqlguard_once"); got != n {
			p.Errorf("there are %d records, want %d", got, n)
		}
	})
}

// A result comes back as it was, whatever it is.
func TestResultsAreBytes(t *testing.T) {
	each(t, func(p *place) {
		all := make([]byte, 256)
		for i := range all {
			all[i] = byte(i)
		}
		for i, result := range [][]byte{nil, {}, []byte("null"), all, bytes.Repeat([]byte("0123456789abcdef"), 1<<13), []byte(" text ")} {
			for run := range 2 {
				a, err := p.g.Do(p.Context(), p.db, id(fmt.Sprint(i)), "d", func(context.Context, sqlguard.Tx) ([]byte, error) { return result, nil })
				if err != nil || !bytes.Equal(a.Result, result) || a.Replayed != (run == 1) || run == 1 && a.Result == nil {
					p.Errorf("result %d, run %d: %d bytes, replayed %v, %v", i, run, len(a.Result), a.Replayed, err)
				}
			}
		}
	})
}

// Two come at the same moment: the second waits for the first's transaction, and gets its
// result.
func TestTwoAtOnce(t *testing.T) {
	each(t, func(p *place) {
		working, goOn := make(chan struct{}), make(chan struct{})
		first := start(func() (sqlguard.Answer, error) {
			return p.g.Do(p.Context(), p.db, id("k"), "d", func(ctx context.Context, tx sqlguard.Tx) ([]byte, error) {
				close(working)
				<-goOn
				return p.work("k")(ctx, tx)
			})
		})
		databases.Await(p, working)
		second := start(func() (sqlguard.Answer, error) { return p.g.Do(p.Context(), p.db, id("k"), "d", p.work("k")) })
		other := start(func() (sqlguard.Answer, error) { return p.g.Do(p.Context(), p.db, id("k"), "other", p.work("k")) })
		p.untilWaiting(2)
		select {
		case o := <-second:
			p.Errorf("the second did not wait: %+v", o)
		default:
		}
		close(goOn)
		a, b, c := databases.Await(p, first), databases.Await(p, second), databases.Await(p, other)
		if a.err != nil || b.err != nil || a.Replayed || !b.Replayed || !bytes.Equal(a.Result, b.Result) {
			p.Errorf("the first got %+v, the second %+v", a, b)
		}
		if !errors.Is(c.err, sqlguard.ErrReused) {
			p.Errorf("another request under the key got %+v", c)
		}
		p.wantWorks(1)
		p.wantRuns(1)
	})
}

// The winner rolls back with three waiting: one of them is the first then, and the others get
// its result.
func TestWinnerRollsBack(t *testing.T) {
	each(t, func(p *place) {
		failure := errors.New("the winner's own failure")
		working, goOn := make(chan struct{}), make(chan struct{})
		winner := start(func() (sqlguard.Answer, error) {
			return p.g.Do(p.Context(), p.db, id("k"), "d", func(ctx context.Context, tx sqlguard.Tx) ([]byte, error) {
				_, err := tx.ExecContext(ctx, "INSERT INTO works (what, by_run) VALUES ('winner', 0)")
				close(working)
				<-goOn
				return nil, errors.Join(failure, err)
			})
		})
		databases.Await(p, working)
		var waiting []<-chan outcome
		for range 3 {
			waiting = append(waiting, start(func() (sqlguard.Answer, error) { return p.g.Do(p.Context(), p.db, id("k"), "d", p.work("k")) }))
		}
		p.untilWaiting(3)
		close(goOn)
		if o := databases.Await(p, winner); !errors.Is(o.err, failure) {
			p.Errorf("the winner got %+v", o)
		}
		replayed := 0
		var result []byte
		for _, c := range waiting {
			o := databases.Await(p, c)
			if o.err != nil {
				p.Errorf("one that waited got %v", o.err)
			}
			if o.Replayed {
				replayed++
			}
			if result != nil && !bytes.Equal(result, o.Result) {
				p.Errorf("one got %s, another %s", result, o.Result)
			}
			result = o.Result
		}
		if replayed != 2 {
			p.Errorf("%d were given the result of another, want 2", replayed)
		}
		p.wantWorks(1)
	})
}

// The same without Run: each that waited hears what it is to do, and never runs beside another.
func TestWinnerRollsBackWithoutRun(t *testing.T) {
	each(t, func(p *place) {
		if p.Dialect == sqlguard.SQLite {
			p.begunByCaller()
			return
		}
		winner, err := p.db.BeginTx(p.Context(), nil)
		if err != nil {
			p.Fatal(err)
		}
		if _, err := p.g.Once(p.Context(), winner, id("k"), "d", func(context.Context) ([]byte, error) { return nil, nil }); err != nil {
			p.Fatal(err)
		}
		var waiting []<-chan outcome
		for range 3 {
			waiting = append(waiting, start(func() (a sqlguard.Answer, err error) {
				tx, err := p.db.BeginTx(p.Context(), nil)
				if err != nil {
					return a, err
				}
				defer tx.Rollback()
				a, err = p.g.Once(p.Context(), tx, id("k"), "d", func(ctx context.Context) ([]byte, error) { return p.work("k")(ctx, tx) })
				if err == nil {
					err = tx.Commit()
				}
				return a, err
			}))
		}
		p.untilWaiting(3)
		if err := winner.Rollback(); err != nil {
			p.Fatal(err)
		}
		first := 0
		for _, c := range waiting {
			switch o := databases.Await(p, c); {
			case o.err == nil && !o.Replayed:
				first++
			case o.err != nil && !errors.Is(o.err, sqlguard.ErrRetryTransaction) && !errors.Is(o.err, sqlguard.ErrInProgress):
				p.Errorf("one that waited got %v", o.err)
			}
		}
		if first != 1 {
			p.Errorf("%d were the first, want 1", first)
		}
		p.wantWorks(1)
	})
}

// begunByCaller has the caller begin SQLite's transactions, as the driver's parameter has it.
func (p *place) begunByCaller() {
	db := p.With("_txlock=immediate").Open()
	for run := range 3 {
		tx, err := db.BeginTx(p.Context(), nil)
		if err != nil {
			p.Fatal(err)
		}
		a, err := p.g.Once(p.Context(), tx, id("k"), "d", func(ctx context.Context) ([]byte, error) { return p.work("k")(ctx, tx) })
		if err != nil || a.Replayed != (run == 2) {
			p.Errorf("run %d: %+v, %v", run, a, err)
		}
		end := tx.Commit
		if run == 0 {
			end = tx.Rollback
		}
		if err := end(); err != nil {
			p.Fatal(err)
		}
	}
	p.wantWorks(1)
}

// Many come at once, with the same key and with others.
func TestManyAtOnce(t *testing.T) {
	each(t, func(p *place) {
		const keys, each = 3, 5
		var ready sync.WaitGroup
		ready.Add(keys * each)
		var calls []<-chan outcome
		for i := range keys * each {
			calls = append(calls, start(func() (sqlguard.Answer, error) {
				ready.Done()
				ready.Wait()
				key := fmt.Sprint("k", i%keys)
				return p.g.Do(p.Context(), p.db, id(key), "d", p.work(key), sqlguard.MaxTries(100))
			}))
		}
		results := map[int][]byte{}
		for i, c := range calls {
			o := databases.Await(p, c)
			if o.err != nil {
				p.Fatalf("%d: %v", i, o.err)
			}
			if was := results[i%keys]; was != nil && !bytes.Equal(was, o.Result) {
				p.Errorf("one key has the results %s and %s", was, o.Result)
			}
			results[i%keys] = o.Result
		}
		p.wantWorks(keys)
	})
}

// Where the second may not wait for long, it hears that the first is at work.
func TestInProgress(t *testing.T) {
	t.Parallel()
	databases.Each(t, func(t *testing.T, d *databases.Database) {
		p := open(t, d)
		impatient := d.Impatient().Open()
		_, err := p.g.Do(t.Context(), p.db, id("k"), "d", func(ctx context.Context, tx sqlguard.Tx) ([]byte, error) {
			for _, digest := range []string{"d", "other"} { // nobody can tell the second's yet
				_, err := p.g.Do(ctx, impatient, id("k"), digest, p.work("k"), sqlguard.MaxTries(2))
				if !errors.Is(err, sqlguard.ErrRetryTransaction) || errors.Is(err, sqlguard.ErrInProgress) != (d.Dialect != sqlguard.SQLite) {
					t.Errorf("the second got %v", err)
				}
			}
			return p.work("k")(ctx, tx)
		})
		if err != nil {
			t.Fatal(err)
		}
		p.wantWorks(1)
		p.wantRuns(1)
	})
}

// Once within Once of the same key is told from a repeat, and a Run that has done something
// before may not use it.
func TestNotFirst(t *testing.T) {
	t.Parallel()
	databases.Each(t, func(t *testing.T, d *databases.Database) {
		p := open(t, d)
		err := p.g.Run(t.Context(), p.db, func(ctx context.Context, tx sqlguard.Tx) error {
			if _, err := p.work("before")(ctx, tx); err != nil {
				return err
			}
			_, err := p.g.Once(ctx, tx, id("k"), "d", func(ctx context.Context) ([]byte, error) { return p.work("k")(ctx, tx) })
			return err
		})
		if !errors.Is(err, sqlguard.ErrNotFirst) {
			t.Errorf("Once as the second statement: %v", err)
		}
		p.wantWorks(0)
		tx, err := p.db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		_, err = p.g.Once(t.Context(), tx, id("k"), "d", func(ctx context.Context) ([]byte, error) {
			_, err := p.g.Once(ctx, tx, id("k"), "d", func(context.Context) ([]byte, error) {
				t.Error("it is run within itself")
				return nil, nil
			})
			return nil, err
		})
		if !errors.Is(err, sqlguard.ErrNoResult) {
			t.Errorf("Once within itself: %v", err)
		}
	})
}

// What a work has swallowed does not get a record without a result committed.
func TestFailureSwallowed(t *testing.T) {
	each(t, func(p *place) {
		failure := errors.New("failed")
		err := p.g.Run(p.Context(), p.db, func(ctx context.Context, tx sqlguard.Tx) error {
			p.g.Once(ctx, tx, id("k"), "d", func(ctx context.Context) ([]byte, error) {
				p.work("k")(ctx, tx)
				return nil, failure
			})
			return nil
		})
		if !errors.Is(err, failure) {
			p.Errorf("Run: %v", err)
		}
		p.wantWorks(0)
		p.do(id("k"), "d")
		p.wantWorks(1)
	})
}

func TestFind(t *testing.T) {
	t.Parallel()
	databases.Each(t, func(t *testing.T, d *databases.Database) {
		p := open(t, d)
		if _, err := p.g.Find(t.Context(), p.db, id("k")); !errors.Is(err, sqlguard.ErrNoRow) {
			t.Errorf("before: %v", err)
		}
		_, err := p.g.Do(t.Context(), p.db, id("k"), "d", func(ctx context.Context, tx sqlguard.Tx) ([]byte, error) {
			if _, err := p.g.Find(ctx, p.db, id("k")); !errors.Is(err, sqlguard.ErrNoRow) {
				t.Errorf("meanwhile, from outside: %v", err)
			}
			if r, err := p.g.Find(ctx, tx, id("k")); err != nil || r.Done {
				t.Errorf("meanwhile, from within: %+v, %v", r, err)
			}
			return []byte("result"), nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if r, err := p.g.Find(t.Context(), p.db, id("k")); err != nil || !r.Done || r.Digest != "d" || string(r.Result) != "result" {
			t.Errorf("after: %+v, %v", r, err)
		}
	})
}

func TestNoTransaction(t *testing.T) {
	t.Parallel()
	p := open(t, databases.SQLite(t))
	if _, err := p.g.Once(t.Context(), p.db, id("k"), "d", func(context.Context) ([]byte, error) { return nil, nil }); err == nil {
		t.Error("Once takes a database for a transaction")
	}
	p.wantWorks(0)
}

// Instances that start at once make the table once.
func TestCreateTableAtOnce(t *testing.T) {
	t.Parallel()
	databases.Each(t, func(t *testing.T, d *databases.Database) {
		db, g := d.Open(), newGuard(t, d, sqlguard.Table("records"))
		var ready sync.WaitGroup
		ready.Add(8)
		errs := make(chan error, 8)
		for range 8 {
			go func() {
				ready.Done()
				ready.Wait()
				errs <- g.CreateTable(t.Context(), db)
			}()
		}
		for range 8 {
			if err := databases.Await(t, errs); err != nil {
				t.Error(err)
			}
		}
		if _, err := g.Find(t.Context(), db, id("k")); !errors.Is(err, sqlguard.ErrNoRow) {
			t.Error(err)
		}
	})
}

// A table may stand in a schema, and be called as a keyword.
func TestTableNames(t *testing.T) {
	t.Parallel()
	databases.Each(t, func(t *testing.T, d *databases.Database) {
		db := d.Open()
		var schema string
		switch d.Dialect {
		case sqlguard.PostgreSQL:
			schema = "public"
		case sqlguard.MySQL:
			if err := db.QueryRow("SELECT DATABASE()").Scan(&schema); err != nil {
				t.Fatal(err)
			}
		default:
			schema = "main"
		}
		for _, name := range []string{"order", schema + ".select", "Mixed_Case", schema + ".a_name_that_is_as_long_as_a_name_may_be_in_every_database_so_be"} {
			g := newGuard(t, d, sqlguard.Table(name))
			for range 2 {
				if err := g.CreateTable(t.Context(), db); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
			}
			for run := range 2 {
				a, err := g.Do(t.Context(), db, id("k"), "d", func(context.Context, sqlguard.Tx) ([]byte, error) { return nil, nil })
				if err != nil || a.Replayed != (run == 1) {
					t.Errorf("%s: %+v, %v", name, a, err)
				}
			}
		}
	})
}

func TestPurge(t *testing.T) {
	t.Parallel()
	databases.Each(t, func(t *testing.T, d *databases.Database) {
		p := open(t, d, sqlguard.PurgeBatch(4))
		scoped := func(scope string, key int) sqlguard.ID {
			return sqlguard.ID{Scope: scope, User: "u", Key: fmt.Sprint(key)}
		}
		for _, scope := range []string{"form", "pay"} {
			for i := range 12 {
				p.do(scoped(scope, i), "d")
			}
		}
		ago := map[sqlguard.Dialect]string{
			sqlguard.PostgreSQL: "created_at - interval '8 days'",
			sqlguard.MySQL:      "created_at - INTERVAL 8 DAY",
			sqlguard.SQLite:     "strftime('%Y-%m-%d %H:%M:%f', created_at, '-8 days')",
		}[d.Dialect]
		// Of each scope ten are eight days old: more than two batches.
		for _, scope := range []string{"form", "pay"} {
			for i := range 10 {
				where := " WHERE scope = ? AND idempotency_key = ?"
				if d.Dialect == sqlguard.PostgreSQL {
					where = " WHERE scope = $1 AND idempotency_key = $2"
				}
				p.exec("UPDATE sqlguard_once SET created_at = "+ago+where, []byte(scope), fmt.Append(nil, i))
			}
		}

		for _, step := range []struct {
			days   int
			scopes []string
			want   int64
			left   int
		}{{30, nil, 0, 24}, {9, nil, 0, 24}, {7, []string{"form", "mail"}, 10, 14}, {7, []string{"form"}, 0, 14}, {7, nil, 10, 4}} {
			n, err := p.g.Purge(t.Context(), p.db, time.Duration(step.days)*day, step.scopes...)
			if err != nil || n != step.want {
				t.Errorf("%+v: %d were purged, %v", step, n, err)
			}
			if left := p.count("SELECT COUNT(*) FROM sqlguard_once"); left != step.left {
				t.Errorf("%+v: %d are left", step, left)
			}
		}
		if a := p.do(scoped("form", 11), "d"); !a.Replayed {
			t.Error("a young record was purged")
		}
		if a := p.do(scoped("form", 1), "d2"); a.Replayed {
			t.Error("an old record was not")
		}
		if _, err := p.g.Purge(t.Context(), p.db, 0); err == nil {
			t.Error("all may be purged at once")
		}
	})
}

// A purge and what it purges come at once: nothing is run beside another.
func TestPurgeUnderLoad(t *testing.T) {
	t.Parallel()
	databases.Each(t, func(t *testing.T, d *databases.Database) {
		p := open(t, d, sqlguard.PurgeBatch(2), sqlguard.MaxTries(100))
		ctx, stop := context.WithCancel(t.Context())
		purged := make(chan error, 1)
		go func() {
			for ctx.Err() == nil {
				if _, err := p.g.Purge(ctx, p.db, day); err != nil && ctx.Err() == nil {
					purged <- err
					return
				}
			}
			purged <- nil
		}()
		var calls []<-chan outcome
		for i := range 12 {
			calls = append(calls, start(func() (sqlguard.Answer, error) {
				return p.g.Do(t.Context(), p.db, id(fmt.Sprint("k", i%4)), "d", p.work(fmt.Sprint("k", i%4)))
			}))
		}
		for _, c := range calls {
			if o := databases.Await(t, c); o.err != nil {
				t.Error(o.err)
			}
		}
		stop()
		if err := databases.Await(t, purged); err != nil {
			t.Error(err)
		}
		p.wantWorks(4)
	})
}

var _ sqlguard.Tx = (*sql.Tx)(nil)

const day = 24 * time.Hour
