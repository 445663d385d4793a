package sqlguard

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
)

// ID is what is done once: for a user, by the key that its sender made, in a scope of ours.
type ID struct {
	Scope string // what is done, "order-batch" say: 1 to ScopeMax bytes
	User  string // whose key it is: 1 to UserMax bytes. Keys of two users are two
	Key   string // 1 to KeyMax bytes, compared byte for byte
}

func (id ID) check() error {
	for _, part := range []struct {
		name, value string
		limit       int
	}{{"Scope", id.Scope, ScopeMax}, {"User", id.User, UserMax}, {"Key", id.Key, KeyMax}} {
		if len(part.value) < 1 || len(part.value) > part.limit {
			return fmt.Errorf("sqlguard: ID.%s must have 1 to %d bytes", part.name, part.limit)
		}
	}
	return nil
}

// args are the ID's columns as the database is to take them: not as text.
func (id ID) args() []any { return []any{[]byte(id.Scope), []byte(id.User), []byte(id.Key)} }

const whereID = " WHERE scope = ? AND user_id = ? AND idempotency_key = ?"

// Answer is what became of the work.
type Answer struct {
	Result   []byte
	Replayed bool // it is the first run's, and the work was not run now
}

// Digest returns a digest of parts, for [Guard.Once]: of what makes a request another one.
// No two lists of parts have the same.
func Digest(parts ...string) string {
	h := sha256.New()
	var length [8]byte
	for _, p := range parts {
		binary.BigEndian.PutUint64(length[:], uint64(len(p)))
		h.Write(length[:])
		io.WriteString(h, p)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Once runs work, unless it was run under id in a transaction that is committed. The first's
// result is every repeat's: work is not run then. A repeat with another digest (1 to DigestMax
// bytes, from [Digest] say) is [ErrReused].
//
// It is the first statement of tx; where tx is of Run and it is not, it is [ErrNotFirst]. All
// that work does is done in tx. If work fails or panics, or Once does, tx must be rolled back:
// with Run it is, even where the error is swallowed and the panic recovered. ErrReused and
// [ErrNoResult] leave tx as it was.
//
// work must not commit, nor do what commits: a CREATE TABLE in MySQL, say.
func (g *Guard) Once(ctx context.Context, tx Tx, id ID, digest string, work func(context.Context) ([]byte, error)) (Answer, error) {
	if err := checkTx(tx); err != nil {
		return Answer{}, err
	}
	if err := id.check(); err != nil {
		return Answer{}, err
	}
	if len(digest) < 1 || len(digest) > DigestMax {
		return Answer{}, fmt.Errorf("sqlguard: a digest must have 1 to %d bytes", DigestMax)
	}
	if own, ours := tx.(*transaction); ours && !own.first() {
		return Answer{}, ErrNotFirst
	}
	// A record without a result must not be committed, whoever swallows an error or a panic.
	err, settled := errUnfinished, false
	defer func() {
		if !settled {
			fail(tx, err)
		}
	}()
	answer, won, registered := g.register(ctx, tx, id, digest)
	if registered != nil || !won.is {
		settled = registered == nil || errors.Is(registered, ErrReused) || errors.Is(registered, ErrNoResult)
		err = registered
		return answer, err
	}
	result, failed := work(ctx)
	if failed == nil {
		failed = g.keep(ctx, tx, id, won.nonce, result)
	}
	if failed != nil {
		err = g.told(failed)
		return Answer{}, err
	}
	settled = true
	return Answer{Result: result}, nil
}

var errUnfinished = errors.New("sqlguard: the work of Once has not come to its end")

// winner is whether this transaction's record is the one, and by which nonce it is told.
type winner struct {
	is    bool
	nonce []byte
}

// register inserts the record and reads back the one that is there.
//
// No insert here fails for a record that is there, which would end PostgreSQL's transaction,
// and have MySQL take a shared lock that two waiters deadlock on. Neither is anything else
// swallowed: the conflict is named, or there is no other unique key.
func (g *Guard) register(ctx context.Context, tx Tx, id ID, digest string) (Answer, winner, error) {
	nonce := make([]byte, 16)
	rand.Read(nonce)
	insert := "INSERT INTO " + g.table +
		" (scope, user_id, idempotency_key, request_digest, status, nonce, created_at, updated_at)" +
		" VALUES (?, ?, ?, ?, ?, ?, " + g.dialect.now() + ", " + g.dialect.now() + ")"
	if g.dialect == MySQL {
		insert += " ON DUPLICATE KEY UPDATE nonce = nonce"
	} else {
		insert += " ON CONFLICT (scope, user_id, idempotency_key) DO NOTHING"
	}
	args := append(id.args(), []byte(digest), statusProcessing, nonce)
	if _, err := tx.ExecContext(ctx, g.dialect.bind(insert), args...); err != nil {
		return Answer{}, winner{}, g.waited(ctx, err)
	}
	r, err := g.read(ctx, tx, id, g.dialect.current())
	switch {
	case errors.Is(err, ErrNoRow): // it has been purged since
		return Answer{}, winner{}, fmt.Errorf("%w: the record has just been deleted", ErrRetryTransaction)
	case err != nil:
		return Answer{}, winner{}, g.waited(ctx, err)
	case bytes.Equal(r.nonce, nonce):
		return Answer{}, winner{true, nonce}, nil
	case r.Digest != digest:
		return Answer{}, winner{}, ErrReused
	case !r.Done: // whoever is at work has it locked
		return Answer{}, winner{}, ErrNoResult
	}
	return Answer{Result: r.Result, Replayed: true}, winner{}, nil
}

// waited is told for a statement that has waited for another's record: where that took too
// long, the other is at work.
func (g *Guard) waited(ctx context.Context, err error) error {
	switch {
	case g.dialect == SQLite: // whose lock is the whole database's
		return g.told(err)
	case g.classify(err) == ClassLocked:
		return fmt.Errorf("%w: %w", ErrInProgress, g.told(err))
	case ctx.Err() == nil && g.timedOut(err):
		return fmt.Errorf("%w: %w: %w", ErrInProgress, ErrRetryTransaction, err)
	}
	return g.told(err)
}

// timedOut tells whether a statement has taken longer than the database lets any take.
func (g *Guard) timedOut(err error) bool {
	var state interface{ SQLState() string }
	if errors.As(err, &state) && state.SQLState() == "57014" {
		return true
	}
	if g.dialect != MySQL || g.set.code == nil {
		return false
	}
	number := g.set.code(err)
	return number == 1969 || number == 3024 // MariaDB's, MySQL's
}

// keep writes result into this transaction's record.
func (g *Guard) keep(ctx context.Context, tx Tx, id ID, nonce, result []byte) error {
	if result == nil {
		result = []byte{}
	}
	update := "UPDATE " + g.table + " SET status = ?, response_body = ?, updated_at = " + g.dialect.now() + whereID + " AND nonce = ?"
	args := append(append([]any{statusSucceeded, result}, id.args()...), nonce)
	done, err := tx.ExecContext(ctx, g.dialect.bind(update), args...)
	if err != nil {
		return err
	}
	// None is none however rows are counted.
	if n, err := done.RowsAffected(); err != nil || n == 0 {
		return errors.Join(errors.New("sqlguard: the record is gone: the transaction was rolled back while the work went on"), err)
	}
	return nil
}

// Record is what is known of an ID.
type Record struct {
	Digest string
	Done   bool   // false only within its own transaction
	Result []byte // where Done

	nonce []byte
}

// Find returns the record of id, for a request that asks what became of another. It waits for
// nobody: [ErrNoRow] is also what it says of one that is not committed yet. q is a *sql.DB, *sql.Tx
// or *sql.Conn.
func (g *Guard) Find(ctx context.Context, q Querier, id ID) (Record, error) {
	if err := id.check(); err != nil {
		return Record{}, err
	}
	r, err := g.read(ctx, q, id, "")
	return r, g.told(err)
}

func (g *Guard) read(ctx context.Context, q Querier, id ID, lock string) (r Record, err error) {
	query := "SELECT request_digest, status, nonce, response_body FROM " + g.table + whereID + lock
	var digest, result []byte
	var status int
	err = q.QueryRowContext(ctx, g.dialect.bind(query), id.args()...).Scan(&digest, &status, &r.nonce, &result)
	if errors.Is(err, sql.ErrNoRows) {
		return Record{}, ErrNoRow
	}
	if err != nil {
		return Record{}, err
	}
	r.Digest, r.Done = string(digest), status == statusSucceeded
	if r.Done {
		r.Result = append([]byte{}, result...) // empty is not nil, whatever the driver makes of it
	}
	return r, nil
}
