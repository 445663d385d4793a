package sqlguard_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"example.com/tokend/client/sqlguard"
	"example.com/tokend/e2e/internal/databases"
)

// items makes a table of orders that are one by user and number, with text as the database
// compares it where nobody says how, and a second unique key beside.
func (p *place) items() *sqlguard.Unique {
	p.Helper()
	id := map[sqlguard.Dialect]string{
		sqlguard.PostgreSQL: "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
		sqlguard.MySQL:      "BIGINT AUTO_INCREMENT PRIMARY KEY",
		sqlguard.SQLite:     "INTEGER PRIMARY KEY",
	}[p.Dialect]
	p.exec("CREATE TABLE order_item (id " + id + ", user_id BIGINT NOT NULL, external_order_no VARCHAR(64) NOT NULL," +
		" amount DECIMAL(20,2) NOT NULL, note VARCHAR(64) NULL, at TIMESTAMP NULL, serial INT NULL UNIQUE," +
		" CONSTRAINT uk_user_order UNIQUE (user_id, external_order_no), CHECK (amount > 0))")
	u, err := p.g.Unique(sqlguard.Rows{
		Table: "order_item", Key: []string{"user_id", "external_order_no"}, Match: []string{"amount", "note", "at"}, Return: []string{"id"},
	})
	if err != nil {
		p.Fatal(err)
	}
	return u
}

var noon = time.Date(2026, 8, 27, 12, 0, 0, 0, time.UTC)

func item(number string, amount any) sqlguard.Row {
	return sqlguard.Row{"user_id": 42, "external_order_no": number, "amount": amount, "note": nil, "at": noon}
}

// ensure inserts rows in a transaction of their own.
func (p *place) ensure(u *sqlguard.Unique, rows ...sqlguard.Row) (verdicts []sqlguard.Verdict, err error) {
	err = p.g.Run(p.Context(), p.db, func(ctx context.Context, tx sqlguard.Tx) (err error) {
		verdicts, err = u.Ensure(ctx, tx, rows...)
		return err
	}, sqlguard.MaxTries(100))
	return verdicts, err
}

func ids(t testing.TB, verdicts []sqlguard.Verdict) (all []int64) {
	t.Helper()
	for _, v := range verdicts {
		id, err := sqlguard.Value[int64](v, "id")
		if err != nil {
			t.Error(err)
		}
		all = append(all, id)
	}
	return all
}

func TestEnsure(t *testing.T) {
	each(t, func(p *place) {
		u := p.items()
		first, err := p.ensure(u, item("B2", "19.90"), item("B1", "5"), item("B3", "7.00"))
		if err != nil {
			p.Fatal(err)
		}
		for i, v := range first {
			if v.Kind != sqlguard.Inserted || v.Row != i || len(v.Differs) > 0 {
				p.Errorf("row %d: %+v", i, v)
			}
		}
		// Rows are inserted in the order of their keys, and told of in their own.
		if n := ids(p, first); !(n[1] < n[0] && n[0] < n[2]) {
			p.Errorf("the ids are %v", n)
		}
		again, err := p.ensure(u, item("B3", 7), item("B2", "19.9"), item("B1", "5.00"))
		if err != nil {
			p.Fatal(err)
		}
		for i, v := range again {
			if v.Kind != sqlguard.Same || v.Row != i {
				p.Errorf("repeated, row %d: %+v", i, v)
			}
		}
		was, now := ids(p, first), ids(p, again)
		if !slices.Equal(now, []int64{was[2], was[0], was[1]}) {
			p.Errorf("the ids were %v, and are %v", was, now)
		}

		changed := item("B2", "19.91")
		changed["note"], changed["at"] = "note", noon.Add(time.Second)
		_, err = p.ensure(u, item("B4", "1"), changed, item("B1", "5"))
		var conflict *sqlguard.ConflictError
		if !errors.As(err, &conflict) || !errors.Is(err, sqlguard.ErrConflict) {
			p.Fatalf("other data: %v", err)
		}
		if c := conflict.Conflicts(); len(c) != 1 || c[0].Row != 1 || !slices.Equal(c[0].Differs, []string{"amount", "note", "at"}) || ids(p, c)[0] != was[0] {
			p.Errorf("the conflict is %+v", c)
		}
		if v := conflict.Verdicts; len(v) != 3 || v[0].Kind != sqlguard.Inserted || v[2].Kind != sqlguard.Same {
			p.Errorf("the verdicts are %+v", v)
		}
		if n := p.count("SELECT COUNT(*) FROM order_item"); n != 3 {
			p.Errorf("there are %d rows: of all or nothing, some", n)
		}
	})
}

// By choice rows stand for themselves. And a conflict may be the work's result, as what the
// batch has begun is taken back.
func TestEnsureEach(t *testing.T) {
	each(t, func(p *place) {
		u := p.items()
		if _, err := p.ensure(u, item("B1", "5")); err != nil {
			p.Fatal(err)
		}
		var verdicts []sqlguard.Verdict
		err := p.g.Run(p.Context(), p.db, func(ctx context.Context, tx sqlguard.Tx) (err error) {
			if _, err := u.Ensure(ctx, tx, item("B9", "9"), item("B1", "6")); !errors.Is(err, sqlguard.ErrConflict) {
				p.Errorf("all or nothing: %v", err)
			}
			verdicts, err = u.EnsureEach(ctx, tx, item("B3", "7"), item("B1", "6"), item("B2", "8"))
			return err
		})
		if err != nil || verdicts[0].Kind != sqlguard.Inserted || verdicts[1].Kind != sqlguard.Conflict || verdicts[2].Kind != sqlguard.Inserted {
			p.Errorf("%v, %v", verdicts, err)
		}
		if n := p.count("SELECT COUNT(*) FROM order_item"); n != 3 {
			p.Errorf("there are %d rows", n)
		}
	})
}

// Conflicts of other constraints are errors, and so is all else that is wrong with a row.
func TestEnsureSwallowsNothing(t *testing.T) {
	each(t, func(p *place) {
		u := p.items()
		serial := func(number string, n any) sqlguard.Row {
			row := item(number, "5")
			row["serial"] = n
			return row
		}
		if _, err := p.ensure(u, serial("B1", 1)); err != nil {
			p.Fatal(err)
		}
		null := item("B6", nil)
		for name, row := range map[string]sqlguard.Row{
			"another unique key": serial("B2", 1),
			"a check":            item("B3", "-5"),
			"NULL":               null,
			"a column":           {"user_id": 1, "external_order_no": "B4", "amount": "5", "note": nil, "at": nil, "nowhere": 1},
		} {
			_, err := p.ensure(u, item("B5", "5"), row)
			if err == nil || errors.Is(err, sqlguard.ErrConflict) || errors.Is(err, sqlguard.ErrRetryTransaction) {
				p.Errorf("%s: %v", name, err)
			}
		}
		if n := p.count("SELECT COUNT(*) FROM order_item"); n != 1 {
			p.Errorf("there are %d rows", n)
		}
		// With its own key there, too, it is that which counts.
		if v, err := p.ensure(u, serial("B1", 1)); err != nil || v[0].Kind != sqlguard.Same {
			p.Errorf("%+v, %v", v, err)
		}
	})
}

// What only the database takes for the same is not the same: a conflict names the column.
func TestEnsureCollations(t *testing.T) {
	each(t, func(p *place) {
		u := p.items()
		noted := func(number, note string) sqlguard.Row {
			row := item(number, "5")
			row["note"] = note
			return row
		}
		if _, err := p.ensure(u, noted("ABC", "Red")); err != nil {
			p.Fatal(err)
		}
		for _, note := range []string{"red", "RED", "Red ", "Réd"} {
			_, err := p.ensure(u, noted("ABC", note))
			var conflict *sqlguard.ConflictError
			if !errors.As(err, &conflict) || !slices.Equal(conflict.Conflicts()[0].Differs, []string{"note"}) {
				p.Errorf("%q: %v", note, err)
			}
		}
		for _, number := range []string{"abc", "ABC "} {
			v, err := p.ensure(u, noted(number, "Red"))
			var conflict *sqlguard.ConflictError
			switch {
			case p.Dialect == sqlguard.MySQL && errors.As(err, &conflict) && slices.Equal(conflict.Conflicts()[0].Differs, []string{"external_order_no"}):
			case p.Dialect != sqlguard.MySQL && err == nil && v[0].Kind == sqlguard.Inserted:
			default:
				p.Errorf("%q: %+v, %v", number, v, err)
			}
		}
		if v, err := p.ensure(u, noted("ABC", "Red")); err != nil || v[0].Kind != sqlguard.Same {
			p.Errorf("the same: %+v, %v", v, err)
		}
		// Numbers that a float would make one are two.
		if p.Dialect != sqlguard.SQLite { // which keeps them as floats
			if _, err := p.ensure(u, item("big", "900719925474099301.01")); err != nil {
				p.Fatal(err)
			}
			if _, err := p.ensure(u, item("big", "900719925474099301.02")); !errors.Is(err, sqlguard.ErrConflict) {
				p.Errorf("a cent of a large amount: %v", err)
			}
		}
	})
}

// The first of two rolls back with three waiting for its row: one of them inserts it, and the
// others find it.
func TestEnsureWinnerRollsBack(t *testing.T) {
	each(t, func(p *place) {
		u := p.items()
		failure := errors.New("the winner's own failure")
		working, goOn := make(chan struct{}), make(chan struct{})
		type result struct {
			verdicts []sqlguard.Verdict
			err      error
		}
		winner := make(chan error, 1)
		go func() {
			winner <- p.g.Run(p.Context(), p.db, func(ctx context.Context, tx sqlguard.Tx) error {
				_, err := u.Ensure(ctx, tx, item("B1", "5"))
				close(working)
				<-goOn
				return errors.Join(failure, err)
			})
		}()
		databases.Await(p, working)
		waiting := make(chan result, 3)
		for range 3 {
			go func() {
				v, err := p.ensure(u, item("B1", "5"))
				waiting <- result{v, err}
			}()
		}
		p.untilWaiting(3)
		close(goOn)
		if err := databases.Await(p, winner); !errors.Is(err, failure) {
			p.Errorf("the winner got %v", err)
		}
		kinds := map[sqlguard.Kind]int{}
		for range 3 {
			r := databases.Await(p, waiting)
			if r.err != nil {
				p.Fatal(r.err)
			}
			kinds[r.verdicts[0].Kind]++
		}
		if kinds[sqlguard.Inserted] != 1 || kinds[sqlguard.Same] != 2 {
			p.Errorf("those that waited: %v", kinds)
		}
	})
}

// Batches that share rows come at once, in any order: each row is inserted once.
func TestEnsureAtOnce(t *testing.T) {
	each(t, func(p *place) {
		u := p.items()
		var ready sync.WaitGroup
		ready.Add(6)
		inserted := make(chan int, 6)
		for i := range 6 {
			go func() {
				var rows []sqlguard.Row
				for n := range 8 {
					rows = append(rows, item(fmt.Sprint("B", (n*(2*i+1)+i)%8), "5"))
				}
				ready.Done()
				ready.Wait()
				verdicts, err := p.ensure(u, rows...)
				if err != nil {
					p.Error(err)
				}
				n := 0
				for _, v := range verdicts {
					if v.Kind == sqlguard.Inserted {
						n++
					}
				}
				inserted <- n
			}()
		}
		sum := 0
		for range 6 {
			sum += databases.Await(p, inserted)
		}
		if n := p.count("SELECT COUNT(*) FROM order_item"); n != 8 || sum != 8 {
			p.Errorf("%d rows are there, and %d were said to be inserted", n, sum)
		}
	})
}

// Verdicts are what a model of the table says, whatever comes in whatever order.
func TestEnsureModel(t *testing.T) {
	t.Parallel()
	databases.Each(t, func(t *testing.T, d *databases.Database) {
		p := open(t, d)
		u := p.items()
		rapid.Check(t, func(rt *rapid.T) {
			p.exec("DELETE FROM order_item")
			model := map[string]int{}
			for range rapid.IntRange(1, 3).Draw(rt, "batches") {
				type line struct{ Number, Amount int }
				batch := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) line {
					return line{rapid.IntRange(1, 5).Draw(rt, "number"), rapid.IntRange(1, 2).Draw(rt, "amount")}
				}), 0, 6).Draw(rt, "batch")
				each := rapid.Bool().Draw(rt, "each")
				next := map[string]int{}
				for k, v := range model {
					next[k] = v
				}
				want := make([]sqlguard.Kind, len(batch))
				var rows []sqlguard.Row
				conflict := false
				for i, l := range batch {
					rows = append(rows, item(fmt.Sprint("B", l.Number), l.Amount))
					switch was, ok := next[fmt.Sprint("B", l.Number)]; {
					case !ok:
						next[fmt.Sprint("B", l.Number)] = l.Amount
						want[i] = sqlguard.Inserted
					case was == l.Amount:
						want[i] = sqlguard.Same
					default:
						want[i], conflict = sqlguard.Conflict, true
					}
				}
				var verdicts []sqlguard.Verdict
				err := p.g.Run(t.Context(), p.db, func(ctx context.Context, tx sqlguard.Tx) (err error) {
					if each {
						verdicts, err = u.EnsureEach(ctx, tx, rows...)
					} else {
						verdicts, err = u.Ensure(ctx, tx, rows...)
					}
					return err
				})
				if refused := conflict && !each; errors.Is(err, sqlguard.ErrConflict) != refused || err != nil && !refused {
					rt.Fatalf("%v: %v", batch, err)
				} else if !refused {
					model = next
				}
				if len(verdicts) != len(want) {
					var c *sqlguard.ConflictError
					if errors.As(err, &c) {
						verdicts = c.Verdicts
					}
				}
				for i, v := range verdicts {
					if v.Kind != want[i] {
						rt.Errorf("%v: row %d is %v, want %v", batch, i, v.Kind, want[i])
					}
				}
				if n := p.count("SELECT COUNT(*) FROM order_item"); n != len(model) {
					rt.Errorf("%v: %d rows, want %d", batch, n, len(model))
				}
			}
		})
	})
}
