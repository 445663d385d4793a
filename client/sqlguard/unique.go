package sqlguard

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"
)

// Rows declares a table whose rows are one by a unique key, for [Guard.Unique].
type Rows struct {
	Table string

	// Key are the columns of a unique key of the table: all of it, and no more. PostgreSQL and
	// SQLite refuse other columns; MySQL does not look.
	Key []string

	// Match are the columns in which a row that is there must be the same, besides those of
	// Key: whose it is, what it comes to. What may have changed since, a state say, is not
	// among them.
	Match []string

	// Return are the columns that are read back: a number that the database has made up.
	Return []string
}

// Unique inserts rows that may be there already. See [Guard.Unique].
type Unique struct {
	g      *Guard
	rows   Rows
	quoted map[string]string // of the columns declared
	table  string
}

// Row is what is to be inserted: values by column, those of Key and Match among them.
//
// Those of Key and Match are given as the database stores them, as a repeat is compared with
// what it has stored: what it has rounded, cut, padded or spelt another way is not what was
// given, and the same row again is a [Conflict]. So a decimal is a string with no more digits
// than the column has; a time is a time.Time, in UTC and truncated to what the column holds (a
// second, where MySQL's DATETIME names no digits); a UUID is in lower case and with hyphens;
// CHAR, BINARY(n), BIT, JSONB and FLOAT are no columns to compare: VARCHAR, VARBINARY and
// DECIMAL are. SQLite keeps a decimal as a float: amounts of more than 15 digits are integers
// there, in cents.
type Row map[string]any

// Kind is what became of a row.
type Kind int

// The kinds.
const (
	Inserted Kind = iota + 1
	Same          // it was there: the first one's row, which says the same
	Conflict      // it was there, and says something else
)

// String returns the kind in a word.
func (k Kind) String() string {
	switch k {
	case Inserted:
		return "inserted"
	case Same:
		return "same"
	case Conflict:
		return "conflict"
	}
	return fmt.Sprintf("Kind(%d)", int(k))
}

// Verdict is what became of one row.
type Verdict struct {
	Row     int // its index in what was given
	Kind    Kind
	Differs []string       // of a Conflict: the columns, in the order declared
	Values  map[string]any // the columns of Return, as the driver gives them; see [Value]
}

// Value returns column of v's Values as a T: int64, string, time.Time, and what else Scan knows.
func Value[T any](v Verdict, column string) (T, error) {
	var n sql.Null[T]
	value, ok := v.Values[column]
	if !ok {
		return n.V, fmt.Errorf("sqlguard: %s is not among the columns of Return", column)
	}
	if err := n.Scan(value); err != nil {
		return n.V, fmt.Errorf("sqlguard: %s: %w", column, err)
	}
	return n.V, nil
}

// ConflictError says which rows are there with other data. It names columns and no values. It
// is an [ErrConflict].
type ConflictError struct {
	Table    string
	Verdicts []Verdict // of all rows, in the order given; nothing of them was kept
}

// Conflicts returns the verdicts on the rows in conflict.
func (e *ConflictError) Conflicts() []Verdict {
	var all []Verdict
	for _, v := range e.Verdicts {
		if v.Kind == Conflict {
			all = append(all, v)
		}
	}
	return all
}

// Error names the rows and their columns.
func (e *ConflictError) Error() string {
	var parts []string
	for _, v := range e.Conflicts() {
		parts = append(parts, fmt.Sprintf("row %d differs in %s", v.Row, strings.Join(v.Differs, ", ")))
	}
	return fmt.Sprintf("%v: %s: %s", ErrConflict, e.Table, strings.Join(parts, "; "))
}

// Unwrap returns ErrConflict.
func (e *ConflictError) Unwrap() error { return ErrConflict }

// Unique returns what inserts into the table that r declares.
func (g *Guard) Unique(r Rows) (*Unique, error) {
	u := &Unique{g: g, rows: r, quoted: map[string]string{}}
	var errs []error
	var err error
	u.table, err = g.dialect.quoteTable(r.Table)
	errs = append(errs, err)
	if len(r.Key) == 0 {
		errs = append(errs, errors.New("sqlguard: Rows.Key must name the columns of a unique key"))
	}
	for _, c := range slices.Concat(r.Key, r.Match, r.Return) {
		u.quoted[c], err = g.dialect.quote(c)
		errs = append(errs, err)
	}
	for i, c := range u.compared() {
		if slices.Contains(u.compared()[:i], c) {
			errs = append(errs, fmt.Errorf("sqlguard: the column %s stands twice in Key and Match", c))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return u, nil
}

// compared are the columns in which a row is to be the same. A key is among them: by a
// collation the database may take two spellings for one.
func (u *Unique) compared() []string { return slices.Concat(u.rows.Key, u.rows.Match) }

// Ensure sees to it that each of rows stands in the table, and returns a verdict on each, in
// the order given. A row whose key is there is read back and compared. Where any is in conflict
// none is kept, and the error is a [ConflictError]; tx is as good as before then, so a work may
// have it as its result. Every other error is the transaction's, also that of another unique
// key than the one declared: it is rolled back, by Run even where the error is swallowed.
//
// It sets a savepoint, so two of them in one transaction are not called at the same time.
//
// Rows are inserted in the order of their keys, so that two batches that share some wait for
// each other instead of being in each other's way.
func (u *Unique) Ensure(ctx context.Context, tx Tx, rows ...Row) (_ []Verdict, err error) {
	if err := checkTx(tx); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil && !errors.Is(err, ErrConflict) {
			fail(tx, err)
		}
	}()
	const savepoint = "sqlguard_ensure"
	if _, err := tx.ExecContext(ctx, "SAVEPOINT "+savepoint); err != nil {
		return nil, u.g.told(err)
	}
	verdicts, err := u.EnsureEach(ctx, tx, rows...)
	if err != nil {
		return nil, err
	}
	end := "RELEASE SAVEPOINT " + savepoint
	conflict := slices.ContainsFunc(verdicts, func(v Verdict) bool { return v.Kind == Conflict })
	if conflict {
		if _, err := tx.ExecContext(ctx, "ROLLBACK TO SAVEPOINT "+savepoint); err != nil {
			return nil, u.g.told(err)
		}
	}
	if _, err := tx.ExecContext(ctx, end); err != nil {
		return nil, u.g.told(err)
	}
	if conflict {
		return verdicts, &ConflictError{Table: u.rows.Table, Verdicts: verdicts}
	}
	return verdicts, nil
}

// EnsureEach is Ensure for rows that have nothing to do with each other: those that are not in
// conflict are kept, and a conflict is no error.
func (u *Unique) EnsureEach(ctx context.Context, tx Tx, rows ...Row) (_ []Verdict, err error) {
	if err := checkTx(tx); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			fail(tx, err)
		}
	}()
	order := make([]int, len(rows))
	keys := make([][]string, len(rows))
	for i, row := range rows {
		order[i] = i
		for _, c := range u.compared() {
			if _, ok := row[c]; !ok {
				return nil, fmt.Errorf("sqlguard: %s: row %d has no %s", u.rows.Table, i, c)
			}
		}
		for _, c := range u.rows.Key {
			text, err := textOf(row[c])
			if err != nil {
				return nil, fmt.Errorf("sqlguard: %s: row %d: %s: %w", u.rows.Table, i, c, err)
			}
			if text == nil { // NULL is never the same as NULL to a unique key
				return nil, fmt.Errorf("sqlguard: %s: row %d: %s must not be NULL", u.rows.Table, i, c)
			}
			keys[i] = append(keys[i], string(text))
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return slices.Compare(keys[a], keys[b]) })
	verdicts := make([]Verdict, len(rows))
	for _, i := range order {
		v, err := u.ensure(ctx, tx, rows[i])
		if err != nil {
			return nil, fmt.Errorf("sqlguard: %s: row %d: %w", u.rows.Table, i, u.g.told(err))
		}
		v.Row = i
		verdicts[i] = v
	}
	return verdicts, nil
}

func (u *Unique) ensure(ctx context.Context, tx Tx, row Row) (Verdict, error) {
	inserted, conflict, err := u.insert(ctx, tx, row)
	if err != nil {
		return Verdict{}, err
	}
	if inserted && len(u.rows.Return) == 0 {
		return Verdict{Kind: Inserted}, nil
	}
	v, err := u.readBack(ctx, tx, row)
	switch {
	case errors.Is(err, sql.ErrNoRows) && conflict != nil:
		return Verdict{}, conflict // it was another key's
	case errors.Is(err, sql.ErrNoRows) && inserted:
		return Verdict{}, fmt.Errorf("the row that was inserted is not found by its own key, %s: the database stores it in another spelling",
			strings.Join(u.rows.Key, ", "))
	case errors.Is(err, sql.ErrNoRows):
		return Verdict{}, fmt.Errorf("%w: the row has just been deleted", ErrRetryTransaction)
	case err != nil:
		return Verdict{}, err
	case inserted:
		v.Kind, v.Differs = Inserted, nil
	}
	return v, nil
}

// insert tells whether it has inserted row. conflict is MySQL's error where it has not: which
// key it was of, the row that is there will tell.
//
// MySQL has no way to name the key whose conflicts are expected: ON DUPLICATE KEY UPDATE and
// IGNORE swallow those of all. So there a plain insert is refused, which ends the statement
// and not the transaction. Elsewhere a refusal would end it, and the key is named.
func (u *Unique) insert(ctx context.Context, tx Tx, row Row) (inserted bool, conflict, err error) {
	columns := slices.Sorted(maps.Keys(row))
	var names []string
	var args []any
	for _, c := range columns {
		name, err := u.g.dialect.quote(c)
		if err != nil {
			return false, nil, err
		}
		names, args = append(names, name), append(args, row[c])
	}
	insert := "INSERT INTO " + u.table + " (" + strings.Join(names, ", ") + ") VALUES (?" + strings.Repeat(", ?", len(args)-1) + ")"
	if u.g.dialect == MySQL {
		_, err := tx.ExecContext(ctx, insert, args...)
		if u.g.classify(err) == ClassUnique {
			return false, err, nil
		}
		return err == nil, nil, err
	}
	key := u.names(u.rows.Key)
	insert += " ON CONFLICT (" + strings.Join(key, ", ") + ") DO NOTHING RETURNING " + key[0]
	var own any // a row comes back of what was inserted, and of nothing else
	switch err := tx.QueryRowContext(ctx, u.g.dialect.bind(insert), args...).Scan(&own); {
	case errors.Is(err, sql.ErrNoRows):
		return false, nil, nil
	case err != nil:
		return false, nil, err
	}
	return true, nil, nil
}

func (u *Unique) names(columns []string) []string {
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = u.quoted[c]
	}
	return names
}

// readBack reads the row that has row's key, under a lock, and compares.
func (u *Unique) readBack(ctx context.Context, tx Tx, row Row) (Verdict, error) {
	compared := u.compared()
	var parts []string
	var args []any
	for _, c := range compared {
		parts, args = append(parts, u.quoted[c], u.g.dialect.same(u.quoted[c])), append(args, row[c])
	}
	parts = append(parts, u.names(u.rows.Return)...)
	var where []string
	for _, c := range u.rows.Key {
		where, args = append(where, u.quoted[c]+" = ?"), append(args, row[c])
	}
	query := "SELECT " + strings.Join(parts, ", ") + " FROM " + u.table + " WHERE " + strings.Join(where, " AND ") + u.g.dialect.current()
	values := make([]any, len(parts))
	same := make([]bool, len(compared))
	dest := make([]any, len(parts))
	for i := range parts {
		dest[i] = &values[i]
		if i < 2*len(compared) && i%2 == 1 {
			dest[i] = &same[i/2]
		}
	}
	if err := tx.QueryRowContext(ctx, u.g.dialect.bind(query), args...).Scan(dest...); err != nil {
		return Verdict{}, err
	}
	v := Verdict{Kind: Same, Values: map[string]any{}}
	for i, c := range compared {
		alike, err := spelt(values[2*i], row[c])
		if err != nil {
			return Verdict{}, err
		}
		if !same[i] || !alike {
			v.Kind, v.Differs = Conflict, append(v.Differs, c)
		}
	}
	for i, c := range u.rows.Return {
		v.Values[c] = values[2*len(compared)+i]
	}
	return v, nil
}

// spelt tells whether what the database says is the same as given is so byte for byte, or the
// same number: its collations take 'ABC', 'abc' and 'abc ' for one, and MySQL compares a
// decimal with a text as floats do, and takes '12abc' for 12. Where what is read is neither text
// nor an integer there is nothing to add.
func spelt(read, given any) (bool, error) {
	var there []byte
	integer := false
	switch r := read.(type) {
	case []byte:
		there = r
	case string:
		there = []byte(r)
	case int64:
		there, integer = strconv.AppendInt(nil, r, 10), true
	case uint64:
		there, integer = strconv.AppendUint(nil, r, 10), true
	default:
		return true, nil
	}
	if valuer, ok := given.(driver.Valuer); ok {
		var err error
		if given, err = valuer.Value(); err != nil {
			return false, err
		}
	}
	text, err := textOf(given)
	if err != nil || text == nil {
		return true, nil // a time, say: the database knows better
	}
	if bytes.Equal(there, text) {
		return true, nil
	}
	if integer {
		text = bytes.TrimSpace(text)
	}
	a, ok := number(there)
	b, also := number(text)
	return ok && also && a.Cmp(b) == 0, nil
}

// number returns text as a number, if it is one in digits.
func number(text []byte) (*big.Rat, bool) {
	if len(text) > 100 || len(bytes.Trim(text, "+-.0123456789")) > 0 {
		return nil, false // no exponents: they could be of any size
	}
	return new(big.Rat).SetString(string(text))
}

// textOf returns v as a database would spell it, nil for NULL. It is an error for what has no
// one spelling.
func textOf(v any) ([]byte, error) {
	value, err := driver.DefaultParameterConverter.ConvertValue(v)
	if err != nil {
		return nil, err
	}
	switch v := value.(type) {
	case nil:
		return nil, nil
	case []byte:
		return append([]byte{}, v...), nil
	case string:
		return append([]byte{}, v...), nil
	case int64:
		return strconv.AppendInt(nil, v, 10), nil
	case float64:
		return strconv.AppendFloat(nil, v, 'f', -1, 64), nil
	case bool:
		if v {
			return []byte("1"), nil
		}
		return []byte("0"), nil
	}
	return nil, fmt.Errorf("a %T is no key", value)
}
