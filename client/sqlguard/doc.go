// Package sqlguard is the last fence: it has the form's own database decide what is done once.
// Redis can lose its newest writes in a failover, and nothing in it shares a transaction with
// the order that it protects; a record that is committed with the order cannot be apart from
// it. It stands on database/sql alone, for PostgreSQL, MySQL (MariaDB too) and SQLite.
//
//	g, err := sqlguard.New(sqlguard.MySQL, sqlguard.ErrorCode(mysqlNumber), sqlguard.Table("order_request_record"))
//	err = g.CreateTable(ctx, db)
//	answer, err := g.Do(ctx, db, sqlguard.ID{Scope: "order-batch", User: user, Key: key}, sqlguard.Digest(body),
//		func(ctx context.Context, tx sqlguard.Tx) ([]byte, error) {
//			… // what is to be done once, all of it in tx
//			return json.Marshal(orders)
//		})
//
// # One record in the same transaction
//
// [Guard.Once] writes a record of (scope, user, key) with the request's digest before the work,
// and the work's result into it afterwards. A repeat is given that result, byte for byte, and
// the work is not run; one with another digest is [ErrReused]. The record is committed or rolled
// back with all that the work did, so a crash at any moment leaves both or neither, and no lease
// or fence is needed: a committed row is the answer. [Guard.Do] is Once as the first statement
// of a transaction of its own, and what most handlers want.
//
// Of two at the same moment the second waits for the first's transaction, as the database has
// it wait for a row that is being written, and then gets the result. Where that takes longer
// than the database's lock timeout, or than any statement may take, it is [ErrInProgress].
//
// Who won is told by a nonce in the row, which is read back under a lock. The number of
// affected rows is not asked: with clientFoundRows a duplicate counts as one. Scope, user and
// key are bytes to the database, so that no collation makes 'ABC', 'abc' and 'abc ' one.
//
// # Run again, or not
//
// A deadlock, a lock timeout, a serialization failure and a busy SQLite are
// [ErrRetryTransaction]: the whole transaction is rolled back and run again. [Guard.Run] and Do
// do that, a bounded number of times (see [MaxTries]). So a work must do nothing that a
// rollback does not undo: it writes what is to be sent into an outbox, and something else sends
// it.
//
// A work returns each error of its statements, wrapped or not. MySQL and SQLite roll back a whole
// transaction for some of them, and what came after would be on its own: the [Tx] of Run refuses
// further statements then. It does not see the errors of a statement that was prepared, nor those
// that Rows has come to (rows.Err): with these swallowed, what follows is on its own, and stays,
// though Once's record does not. The same holds for SQLite's INSERT OR ROLLBACK, which is not to
// be used in a work. PostgreSQL refuses by itself: Run gives a transaction back that an error of
// Tx has aborted, and what only a prepared statement has heard comes out as ErrCommitUnknown.
//
// A commit without an answer is [ErrCommitUnknown]. Run does not go on then, as it would do the
// work twice if the first commit was carried out. Do does: its record tells.
//
// # With guard and tokend
//
// The user and guard.Ref are the [ID]'s User and Key: they are the same in each sending of one
// form, also where guard.FailOpen lets it through.
//
// With Once inside, a handler of guard.Replay need not call guard.Commit where all that it does
// is in the one transaction: if its claim is lost, taken over or forgotten, the handler runs
// again and the record answers. It does need Commit before an effect that the database does not
// roll back: a charge at a provider, a message sent.
//
// The record tells repeats of one key apart, and not two keys for one order. For that the
// order's own table has a unique key, and [Unique.Ensure] inserts into it: where the row is
// there it is read back and compared. [States.Move] is for what has a life of its own: one
// conditional update, which tells whether this call was the one that moved it.
//
// # Names and values
//
// Names of tables and columns are checked and quoted, so they are spelt as the database has
// them: unquoted names are lower case in PostgreSQL. Values are always parameters.
//
// # Errors of drivers
//
// They are classed by their method SQLState() string, which pgx and lib/pq have, and else by
// what [ErrorCode] finds: the number of a MySQL error, the extended result code of a SQLite
// error. For the usual drivers that is
//
//	func mysqlNumber(err error) int { // github.com/go-sql-driver/mysql
//		if e, ok := errors.AsType[*mysql.MySQLError](err); ok {
//			return int(e.Number)
//		}
//		return 0
//	}
//
//	func sqliteCode(err error) int { // modernc.org/sqlite
//		if e, ok := errors.AsType[*sqlite.Error](err); ok {
//			return e.Code()
//		}
//		return 0
//	}
//
// # SQLite
//
// A transaction that reads before it writes cannot be made to wait for another writer, so Run
// begins with BEGIN IMMEDIATE: on a connection of its own, by statements, as database/sql has no
// word for it. Transactions that the caller begins need the driver's parameter
// (_txlock=immediate). Set a busy_timeout, in each connection: by the data source's name
// (_pragma=busy_timeout(5000)).
package sqlguard
