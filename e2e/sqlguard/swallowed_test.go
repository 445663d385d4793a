package sqlguard_test

import (
	"context"
	"errors"
	"testing"

	"example.com/tokend/client/sqlguard"
	"example.com/tokend/e2e/internal/databases"
)

// A panic that the work's own middleware recovers commits nothing.
func TestPanicRecovered(t *testing.T) {
	t.Parallel()
	databases.Each(t, func(t *testing.T, d *databases.Database) {
		p := open(t, d)
		err := p.g.Run(t.Context(), p.db, func(ctx context.Context, tx sqlguard.Tx) error {
			defer func() { recover() }()
			p.g.Once(ctx, tx, id("k"), "d", func(ctx context.Context) ([]byte, error) {
				if _, err := p.work("k")(ctx, tx); err != nil {
					return nil, err
				}
				panic("in the midst of it")
			})
			return nil
		})
		if err == nil {
			t.Error("half a work is taken for one")
		}
		p.wantWorks(0)
		if a := p.do(id("k"), "d"); a.Replayed {
			t.Error("the repeat was given a result that there is not")
		}
		p.wantWorks(1)
	})
}

// Rows that were inserted before another failed are not kept, whatever the work makes of it.
func TestEnsureErrorSwallowed(t *testing.T) {
	t.Parallel()
	databases.Each(t, func(t *testing.T, d *databases.Database) {
		p := open(t, d)
		u := p.items()
		serial := func(number string, n int) sqlguard.Row {
			row := item(number, "1")
			row["serial"] = n
			return row
		}
		if _, err := p.ensure(u, serial("Z", 7)); err != nil {
			t.Fatal(err)
		}
		for name, ensure := range map[string]func(context.Context, sqlguard.Tx, ...sqlguard.Row) ([]sqlguard.Verdict, error){
			"all or nothing": u.Ensure, "each": u.EnsureEach,
		} {
			var failed error
			err := p.g.Run(t.Context(), p.db, func(ctx context.Context, tx sqlguard.Tx) error {
				_, failed = ensure(ctx, tx, serial("A", 1), serial("B", 7), serial("C", 3))
				return nil
			})
			if failed == nil || !errors.Is(err, failed) {
				t.Errorf("%s: %v, and Run made of it %v", name, failed, err)
			}
		}
		if n := p.count("SELECT COUNT(*) FROM order_item"); n != 1 {
			t.Errorf("there are %d rows", n)
		}
	})
}

// A work that commits by itself leaves a record that nobody is at work under: a repeat hears
// that, and not that it is to come again.
func TestCommittedInTheMidst(t *testing.T) {
	t.Parallel()
	p := open(t, databases.MariaDB(t))
	failure := errors.New("failed")
	_, err := p.g.Do(t.Context(), p.db, id("k"), "d", func(ctx context.Context, tx sqlguard.Tx) ([]byte, error) {
		_, err := tx.ExecContext(ctx, "CREATE TABLE scratch (a INT)")
		return nil, errors.Join(failure, err)
	})
	if !errors.Is(err, failure) {
		t.Errorf("the first: %v", err)
	}
	_, err = p.g.Do(t.Context(), p.db, id("k"), "d", p.work("k"))
	if !errors.Is(err, sqlguard.ErrNoResult) || errors.Is(err, sqlguard.ErrInProgress) {
		t.Errorf("a repeat: %v", err)
	}
	p.wantRuns(0)
}
