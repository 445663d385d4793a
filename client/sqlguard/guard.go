package sqlguard

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// Guard knows one database's dialect, and the table of the records in it. It is safe for
// concurrent use.
type Guard struct {
	dialect Dialect
	set     settings
	table   string // quoted
}

type settings struct {
	table     string
	code      func(error) int
	class     func(error) Class
	tries     int
	backoff   func(n int) time.Duration
	isolation sql.IsolationLevel
	batch     int
}

// Option changes what a Guard does.
type Option func(*settings) error

// DefaultTable is the table of the records where [Table] names no other.
const DefaultTable = "sqlguard_once"

const (
	defaultTries = 12
	defaultBatch = 1000
)

// New returns a Guard for databases of dialect d. Its error names all that is wrong.
func New(d Dialect, opts ...Option) (*Guard, error) {
	g := &Guard{dialect: d, set: settings{
		table: DefaultTable, tries: defaultTries, backoff: backOff, batch: defaultBatch,
	}}
	var errs []error
	if d != PostgreSQL && d != MySQL && d != SQLite {
		errs = append(errs, fmt.Errorf("sqlguard: %v is no dialect", d))
	}
	for _, o := range opts {
		errs = append(errs, o(&g.set))
	}
	var err error
	g.table, err = d.quoteTable(g.set.table)
	errs = append(errs, err)
	if (d == MySQL || d == SQLite) && g.set.code == nil && g.set.class == nil {
		errs = append(errs, fmt.Errorf("sqlguard: %v needs ErrorCode or Classify, as its drivers' errors have no SQLState", d))
	}
	if d == SQLite && g.set.isolation != sql.LevelDefault && g.set.isolation != sql.LevelSerializable {
		errs = append(errs, errors.New("sqlguard: Isolation: SQLite has no other than serializable"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return g, nil
}

// Table names the table of the records, with its schema before it or not. Services that share
// a database, and consumers beside a service, have a table of their own each.
func Table(name string) Option {
	return func(s *settings) error { s.table = name; return nil }
}

// ErrorCode finds the number of a MySQL error, or the extended result code of a SQLite error:
// 0 where err is none. The package comment has it for the usual drivers.
func ErrorCode(code func(err error) int) Option {
	return func(s *settings) error {
		s.code = code
		if code == nil {
			return errors.New("sqlguard: ErrorCode: must not be nil")
		}
		return nil
	}
}

// Classify classes errors that have neither an SQLState that is known here nor an [ErrorCode].
func Classify(class func(err error) Class) Option {
	return func(s *settings) error {
		s.class = class
		if class == nil {
			return errors.New("sqlguard: Classify: must not be nil")
		}
		return nil
	}
}

// MaxTries is how often a transaction is run at the most: 12 times where not set.
func MaxTries(n int) Option {
	return func(s *settings) error {
		s.tries = n
		if n < 1 {
			return errors.New("sqlguard: MaxTries: must be at least 1")
		}
		return nil
	}
}

// Backoff is how long is waited after the n-th try, the first being 1. Where not set it is any
// duration up to 10ms, doubled with each try, up to half a second.
func Backoff(wait func(n int) time.Duration) Option {
	return func(s *settings) error {
		s.backoff = wait
		if wait == nil {
			return errors.New("sqlguard: Backoff: must not be nil")
		}
		return nil
	}
}

// Isolation is the level of the transactions that Run and Do begin: the database's default
// where not set. SQLite has serializable alone.
func Isolation(level sql.IsolationLevel) Option {
	return func(s *settings) error { s.isolation = level; return nil }
}

// PurgeBatch is how many records a statement of [Guard.Purge] deletes at the most: 1000 where
// not set.
func PurgeBatch(n int) Option {
	return func(s *settings) error {
		s.batch = n
		if n < 1 {
			return errors.New("sqlguard: PurgeBatch: must be at least 1")
		}
		return nil
	}
}

// backOff returns any duration up to a bound, so that transactions that were in each other's
// way do not meet again.
func backOff(n int) time.Duration {
	return rand.N(min(10*time.Millisecond<<min(n-1, 6), 500*time.Millisecond) + 1)
}

// pause waits after the n-th try. It is an error where ctx ends first.
func (g *Guard) pause(ctx context.Context, n int) error {
	t := time.NewTimer(g.set.backoff(n))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
