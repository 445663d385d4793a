package sqlguard

import (
	"errors"
	"fmt"
)

// What the calls of this package come to, besides errors of the database and of the caller's
// own work. They are found with errors.Is.
var (
	// ErrReused: the key was used before for a request with another digest. Nothing was done.
	ErrReused = errors.New("sqlguard: the key was used before for another request")

	// ErrInProgress: another transaction is at work under the same key. Nothing was done; the
	// same request later gets its result.
	ErrInProgress = errors.New("sqlguard: the same request is being worked on")

	// ErrNoResult: a record is there whose work has no result, and nobody is at work: a
	// transaction was committed though its work had failed, or in the midst of it (by a CREATE
	// TABLE in MySQL, say). Or this Once stands within the work of the same ID. What the work
	// has done may be there or not: somebody has to look, and to delete the record.
	ErrNoResult = errors.New("sqlguard: the record of the request has no result, and nobody is at work")

	// ErrRetryTransaction: the database has given this transaction up, or would not let it in.
	// Nothing was done; roll it back and run all of it again.
	ErrRetryTransaction = errors.New("sqlguard: the whole transaction must be run again")

	// ErrCommitUnknown: the commit had no answer, so it may have been carried out or not. With
	// Once in the transaction, running it again finds out.
	ErrCommitUnknown = errors.New("sqlguard: it is not known whether the transaction was committed")

	// ErrNoRow: there is no such row.
	ErrNoRow = errors.New("sqlguard: there is no such row")

	// ErrConflict: a row with the same key and other data is there. See [ConflictError].
	ErrConflict = errors.New("sqlguard: a row with the same key holds other data")

	// ErrNoTransition: the graph has no such edge. Nothing was sent to the database.
	ErrNoTransition = errors.New("sqlguard: there is no such transition")

	// ErrNotFirst: Once is the first statement of its transaction, or what came before would be
	// done for repeats as well.
	ErrNotFirst = errors.New("sqlguard: Once must be the first statement of its transaction")
)

// Class is what an error of a database means for its transaction.
type Class int

// The classes.
const (
	ClassOther  Class = iota // all else
	ClassRetry               // run the whole transaction again: deadlock, serialization failure
	ClassLocked              // run it again: a lock was waited for too long, the database is busy
	ClassUnique              // a row with the same unique key is there
	ClassOver                // the database has rolled the transaction back, and running it again may not help
)

// classify returns the class of err, nil's too.
func (g *Guard) classify(err error) Class {
	if err == nil {
		return ClassOther
	}
	var state interface{ SQLState() string }
	if errors.As(err, &state) {
		switch state.SQLState() {
		case "40001", "40P01":
			return ClassRetry
		case "55P03":
			return ClassLocked
		case "23505":
			return ClassUnique
		}
	}
	if g.set.class != nil {
		if c := g.set.class(err); c != ClassOther {
			return c
		}
	}
	if g.set.code == nil {
		return ClassOther
	}
	code := g.set.code(err)
	switch g.dialect {
	case MySQL:
		return mysqlClass(code)
	case SQLite:
		return sqliteClass(code)
	}
	return ClassOther
}

// mysqlClass goes by the numbers that MySQL and MariaDB share.
func mysqlClass(number int) Class {
	switch number {
	case 1213, 1020: // a deadlock; a record that has changed since the snapshot
		return ClassRetry
	case 1205, 3572: // a lock timeout; NOWAIT
		return ClassLocked
	case 1062, 1586:
		return ClassUnique
	case 1206: // no room for more locks
		return ClassOver
	}
	return ClassOther
}

// sqliteClass goes by the extended result codes, whose low byte is the plain one.
func sqliteClass(code int) Class {
	switch code {
	case 1555, 2067, 2579: // SQLITE_CONSTRAINT_PRIMARYKEY, _UNIQUE, _ROWID
		return ClassUnique
	}
	switch code & 0xff {
	case 5, 6: // SQLITE_BUSY, SQLITE_LOCKED
		return ClassLocked
	case 7, 9, 10, 13: // SQLITE_NOMEM, _INTERRUPT, _IOERR, _FULL
		return ClassOver
	}
	return ClassOther
}

// told returns err as the caller is told of it.
func (g *Guard) told(err error) error {
	switch g.classify(err) {
	case ClassRetry, ClassLocked:
		if !errors.Is(err, ErrRetryTransaction) {
			return fmt.Errorf("%w: %w", ErrRetryTransaction, err)
		}
	}
	return err
}

// answered tells whether err is the database's own answer, and not the lack of one.
func (g *Guard) answered(err error) bool {
	var state interface{ SQLState() string }
	if errors.As(err, &state) {
		switch s := state.SQLState(); {
		case len(s) == 5 && (s[:2] == "08" || s[:3] == "57P" || s == "40003"):
			return false // the connection is gone, or the server
		default:
			return s != ""
		}
	}
	return g.set.code != nil && g.set.code(err) != 0 || g.set.class != nil && g.set.class(err) != ClassOther
}
