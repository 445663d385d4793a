package sqlguard

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// words are how a transaction begins and ends, by dialect.
func words(d Dialect) (begin, commit, rollback string) {
	if d == SQLite {
		return "BEGIN IMMEDIATE", "COMMIT", "ROLLBACK"
	}
	return "begin", "commit", "rollback"
}

func want(t *testing.T, f *fake, statements ...string) {
	t.Helper()
	if got := f.log(); !slices.Equal(got, statements) {
		t.Errorf("the database was told\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(statements, "\n"))
	}
}

func eachDialect(t *testing.T, test func(t *testing.T, d Dialect)) {
	for _, d := range []Dialect{PostgreSQL, MySQL, SQLite} {
		t.Run(d.String(), func(t *testing.T) { t.Parallel(); test(t, d) })
	}
}

// deadlock is how each dialect's driver says it.
var deadlock = map[Dialect]error{PostgreSQL: stateError("40P01"), MySQL: codeError(1213), SQLite: codeError(517)}

func TestRun(t *testing.T) {
	t.Parallel()
	failure := errors.New("failed")
	eachDialect(t, func(t *testing.T, d Dialect) {
		begin, commit, rollback := words(d)
		dead := deadlock[d]
		insert := func(ctx context.Context, tx Tx) error {
			_, err := tx.ExecContext(ctx, "insert")
			return err
		}
		for _, tt := range []struct {
			name  string
			says  map[string][]error
			work  func(context.Context, Tx) error
			want  error
			heard []string
		}{
			{"done", nil, insert, nil, []string{begin, "insert", commit}},
			{"failed", nil, func(context.Context, Tx) error { return failure }, failure, []string{begin, rollback}},
			{"given up, then done", map[string][]error{"insert": {dead}}, insert, nil, []string{begin, "insert", rollback, begin, "insert", commit}},
			{"given up at the begin", map[string][]error{begin: {dead}}, insert, nil, []string{begin, begin, "insert", commit}},
			{"given up at the commit", map[string][]error{commit: {dead}}, insert, nil, func() []string {
				all := []string{begin, "insert", commit}
				if d == SQLite { // where a commit that is refused leaves the transaction open
					all = append(all, rollback)
				}
				return append(all, begin, "insert", commit)
			}()},
			{"given up for ever", map[string][]error{"insert": {dead, dead, dead, dead}}, insert, ErrRetryTransaction,
				[]string{begin, "insert", rollback, begin, "insert", rollback, begin, "insert", rollback}},
			{"swallowed", map[string][]error{"insert": {dead}}, func(ctx context.Context, tx Tx) error {
				insert(ctx, tx)
				if _, err := tx.ExecContext(ctx, "another"); err != nil {
					return errors.New("something else")
				}
				return nil
			}, nil, []string{begin, "insert", rollback, begin, "insert", "another", commit}},
			{"swallowed by a query", map[string][]error{"select": {dead}}, func(ctx context.Context, tx Tx) error {
				if rows, err := tx.QueryContext(ctx, "select"); err == nil {
					rows.Close()
				}
				if err := tx.QueryRowContext(ctx, "select").Scan(new(int)); err != nil && !errors.Is(err, sql.ErrNoRows) {
					return nil
				}
				return nil
			}, nil, []string{begin, "select", rollback, begin, "select", "select", commit}},
		} {
			t.Run(tt.name, func(t *testing.T) {
				f, db, g := newFake(t, d, MaxTries(3))
				if tt.says != nil {
					f.says = tt.says
				}
				if err := g.Run(t.Context(), db, tt.work); !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) {
					t.Errorf("got %v, want %v", err, tt.want)
				}
				want(t, f, tt.heard...)
			})
		}
	})
}

// A commit without an answer is not taken for a failure, and Run does not try again. A database
// within the process always answers.
func TestCommitUnknown(t *testing.T) {
	t.Parallel()
	eachDialect(t, func(t *testing.T, d Dialect) {
		_, commit, _ := words(d)
		for name, tt := range map[string]struct {
			err     error
			unknown bool
		}{
			"the connection is gone":    {io.ErrUnexpectedEOF, d != SQLite},
			"the server is going down":  {stateError("57P01"), d != SQLite},
			"the transport has failed":  {stateError("08006"), d != SQLite},
			"a deferred constraint":     {stateError("23503"), false},
			"an answer with a code":     {codeError(1598), false},
			"a context of the driver's": {context.DeadlineExceeded, d != SQLite},
		} {
			t.Run(name, func(t *testing.T) {
				f, db, g := newFake(t, d)
				f.says[commit] = []error{tt.err}
				runs := 0
				err := g.Run(t.Context(), db, func(context.Context, Tx) error { runs++; return nil })
				if errors.Is(err, ErrCommitUnknown) != tt.unknown || !errors.Is(err, tt.err) || runs != 1 {
					t.Errorf("%v after %d runs, unknown should be %v", err, runs, tt.unknown)
				}
				if err := g.Run(t.Context(), db, func(context.Context, Tx) error { return nil }); err != nil {
					t.Errorf("the connection was not given back: %v", err)
				}
			})
		}
	})
}

// PostgreSQL rolls back what an error has aborted, and its drivers do not say so plainly. Where a
// savepoint is gone back to, the transaction is as good as before.
func TestAborted(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		d       Dialect
		back    bool
		aborted bool
	}{
		"PostgreSQL":              {PostgreSQL, false, true},
		"PostgreSQL, a savepoint": {PostgreSQL, true, false},
		"MySQL":                   {MySQL, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			f, db, g := newFake(t, tt.d)
			f.says["insert"] = []error{stateError("23503")}
			err := g.Run(t.Context(), db, func(ctx context.Context, tx Tx) error {
				tx.ExecContext(ctx, "insert")
				if tt.back {
					tx.ExecContext(ctx, "ROLLBACK TO SAVEPOINT s")
				}
				return nil
			})
			if (err != nil) != tt.aborted || errors.Is(err, ErrCommitUnknown) || tt.aborted && !errors.Is(err, stateError("23503")) {
				t.Errorf("got %v", err)
			}
			end := map[bool]string{true: "rollback", false: "commit"}[tt.aborted]
			if log := f.log(); log[len(log)-1] != end {
				t.Errorf("the database was told %v", log)
			}
		})
	}
}

// A panic and the end of the goroutine roll back, and the connection is given back.
func TestPanic(t *testing.T) {
	t.Parallel()
	eachDialect(t, func(t *testing.T, d Dialect) {
		begin, commit, rollback := words(d)
		for name, end := range map[string]func(){"panic": func() { panic("work") }, "Goexit": runtime.Goexit} {
			t.Run(name, func(t *testing.T) {
				f, db, g := newFake(t, d)
				ended := make(chan any, 1)
				go func() {
					defer func() { ended <- recover() }()
					g.Run(t.Context(), db, func(context.Context, Tx) error { end(); return nil })
				}()
				if got := <-ended; name == "panic" && got != "work" {
					t.Errorf("the panic was %v", got)
				}
				want(t, f, begin, rollback)
				if err := g.Run(t.Context(), db, func(context.Context, Tx) error { return nil }); err != nil {
					t.Error(err)
				}
				want(t, f, begin, rollback, begin, commit)
			})
		}
	})
}

// A caller that hangs up ends the work, and not the commit.
func TestHangUp(t *testing.T) {
	t.Parallel()
	eachDialect(t, func(t *testing.T, d Dialect) {
		begin, _, rollback := words(d)
		f, db, g := newFake(t, d)
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("gone")
		err := g.Run(ctx, db, func(ctx context.Context, tx Tx) error {
			cancel(gone)
			<-ctx.Done()
			return nil // whatever the work makes of it
		})
		if !errors.Is(err, gone) {
			t.Errorf("got %v", err)
		}
		for deadline := time.Now().Add(30 * time.Second); len(f.log()) < 2 && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond) // database/sql rolls back by itself
		}
		want(t, f, begin, rollback)
		if err := g.Run(ctx, db, func(context.Context, Tx) error { return nil }); err == nil {
			t.Error("a transaction was begun for nobody")
		}
	})
}

// A wait between tries ends with the caller.
func TestHangUpBetweenTries(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	f, db, g := newFake(t, MySQL, Backoff(func(int) time.Duration { cancel(); return time.Hour }))
	f.says["begin"] = []error{codeError(1205)}
	err := g.Run(ctx, db, func(context.Context, Tx) error { return nil })
	if !errors.Is(err, context.Canceled) || !errors.Is(err, ErrRetryTransaction) {
		t.Errorf("got %v", err)
	}
}

func TestIsolation(t *testing.T) {
	t.Parallel()
	f, db, g := newFake(t, PostgreSQL, Isolation(sql.LevelSerializable))
	nothing := func(context.Context, Tx) error { return nil }
	if err := errors.Join(g.Run(t.Context(), db, nothing), g.Run(t.Context(), db, nothing, Isolation(sql.LevelRepeatableRead))); err != nil {
		t.Fatal(err)
	}
	want(t, f, "begin Serializable", "commit", "begin Repeatable Read", "commit")
	if err := g.Run(t.Context(), db, nothing, MaxTries(0)); err == nil {
		t.Error("an option that makes no sense is taken")
	}
}

func TestNew(t *testing.T) {
	t.Parallel()
	code := ErrorCode(codeOf)
	for name, tt := range map[string]struct {
		d    Dialect
		opts []Option
		says string // "" where it is right
	}{
		"PostgreSQL":             {PostgreSQL, nil, ""},
		"MySQL":                  {MySQL, []Option{code, Table("shop.requests")}, ""},
		"SQLite":                 {SQLite, []Option{Classify(func(error) Class { return ClassOther }), Isolation(sql.LevelSerializable)}, ""},
		"no dialect":             {0, nil, "Dialect(0) is no dialect"},
		"errors without a class": {MySQL, nil, "ErrorCode or Classify"},
		"no tries":               {PostgreSQL, []Option{MaxTries(0)}, "MaxTries"},
		"no code":                {PostgreSQL, []Option{ErrorCode(nil)}, "ErrorCode"},
		"no class":               {PostgreSQL, []Option{Classify(nil)}, "Classify"},
		"no backoff":             {PostgreSQL, []Option{Backoff(nil)}, "Backoff"},
		"no batch":               {PostgreSQL, []Option{PurgeBatch(0)}, "PurgeBatch"},
		"a level":                {SQLite, []Option{code, Isolation(sql.LevelReadCommitted)}, "serializable"},
		"an injection":           {PostgreSQL, []Option{Table(`once"; DROP TABLE users; --`)}, "no name"},
		"two schemas":            {PostgreSQL, []Option{Table("a.b.c")}, "no name"},
		"no name":                {PostgreSQL, []Option{Table("")}, "no name"},
		"a long name":            {PostgreSQL, []Option{Table(strings.Repeat("a", 64))}, "no name"},
	} {
		_, err := New(tt.d, tt.opts...)
		if (err == nil) != (tt.says == "") || err != nil && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := New(MySQL, MaxTries(0), Table(""))
	for _, part := range []string{"MaxTries", "no name", "ErrorCode"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("not all that is wrong is named: %v", err)
		}
	}
}

func TestClassify(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		d    Dialect
		err  error
		want Class
	}{
		{PostgreSQL, stateError("40001"), ClassRetry},
		{PostgreSQL, stateError("40P01"), ClassRetry},
		{PostgreSQL, stateError("55P03"), ClassLocked},
		{PostgreSQL, stateError("23505"), ClassUnique},
		{PostgreSQL, stateError("23503"), ClassOther},
		{PostgreSQL, errors.New("40001"), ClassOther},
		{MySQL, codeError(1213), ClassRetry},
		{MySQL, codeError(1020), ClassRetry},
		{MySQL, codeError(1205), ClassLocked},
		{MySQL, codeError(1062), ClassUnique},
		{MySQL, codeError(1452), ClassOther},
		{MySQL, codeError(1206), ClassOver},
		{MySQL, stateError("40001"), ClassRetry}, // a driver that has it
		{MySQL, codeError(5), ClassOther},
		{SQLite, codeError(5), ClassLocked},
		{SQLite, codeError(5 | 1<<8), ClassLocked}, // SQLITE_BUSY_RECOVERY
		{SQLite, codeError(5 | 2<<8), ClassLocked}, // SQLITE_BUSY_SNAPSHOT
		{SQLite, codeError(6 | 1<<8), ClassLocked}, // SQLITE_LOCKED_SHAREDCACHE
		{SQLite, codeError(2067), ClassUnique},
		{SQLite, codeError(1555), ClassUnique},
		{SQLite, codeError(787), ClassOther}, // a foreign key
		{SQLite, codeError(13), ClassOver},
		{SQLite, codeError(1213), ClassOther},
	} {
		_, _, g := newFake(t, tt.d)
		for _, err := range []error{tt.err, fmt.Errorf("wrapped: %w", tt.err)} {
			if got := g.classify(err); got != tt.want {
				t.Errorf("%v, %v: class %d, want %d", tt.d, err, got, tt.want)
			}
		}
		retry := tt.want == ClassRetry || tt.want == ClassLocked
		if err := g.told(tt.err); errors.Is(err, ErrRetryTransaction) != retry || !errors.Is(err, tt.err) {
			t.Errorf("%v, %v: told as %v", tt.d, tt.err, err)
		}
	}
	own := errors.New("our own")
	g, err := New(SQLite, Classify(func(err error) Class {
		if errors.Is(err, own) {
			return ClassRetry
		}
		return ClassOther
	}))
	if err != nil || g.classify(own) != ClassRetry || g.classify(errors.New("another")) != ClassOther {
		t.Errorf("the caller's function is not asked: %v", err)
	}
}
