package sqlguard

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Dialect is the kind of database.
type Dialect int

// The dialects.
const (
	PostgreSQL Dialect = iota + 1
	MySQL              // MariaDB too
	SQLite             // 3.35 or newer
)

// String returns the database's name.
func (d Dialect) String() string {
	switch d {
	case PostgreSQL:
		return "PostgreSQL"
	case MySQL:
		return "MySQL"
	case SQLite:
		return "SQLite"
	}
	return fmt.Sprintf("Dialect(%d)", int(d))
}

// nameLimit is PostgreSQL's: it cuts longer names, and two would be one.
const nameLimit = 63

var plainName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// quote returns name as an identifier. It is an error where name is not a plain one: what
// needs more than letters, digits and underscores is more likely an injection than a column.
func (d Dialect) quote(name string) (string, error) {
	if len(name) > nameLimit || !plainName.MatchString(name) {
		return "", fmt.Errorf("sqlguard: %q is no name of a table or column", name)
	}
	if d == MySQL {
		return "`" + name + "`", nil
	}
	return `"` + name + `"`, nil
}

// quoteTable is quote for a table, whose schema may stand before it.
func (d Dialect) quoteTable(name string) (string, error) {
	schema, table, ok := strings.Cut(name, ".")
	if !ok {
		return d.quote(name)
	}
	s, err := d.quote(schema)
	if err != nil {
		return "", err
	}
	t, err := d.quote(table)
	if err != nil {
		return "", err
	}
	return s + "." + t, nil
}

// bind returns query with its question marks in d's spelling. None of our statements has one
// that is no parameter.
func (d Dialect) bind(query string) string {
	if d != PostgreSQL {
		return query
	}
	var b strings.Builder
	n := 0
	for part := range strings.SplitSeq(query, "?") {
		if n > 0 {
			b.WriteString("$" + strconv.Itoa(n))
		}
		b.WriteString(part)
		n++
	}
	return b.String()
}

// now is the database's clock, in UTC: the only one that records go by.
func (d Dialect) now() string {
	switch d {
	case PostgreSQL:
		return "now()"
	case MySQL:
		return "UTC_TIMESTAMP(6)"
	default:
		return "strftime('%Y-%m-%d %H:%M:%f','now')"
	}
}

// ago is the time that is a parameter's seconds before now.
func (d Dialect) ago() string {
	switch d {
	case PostgreSQL:
		return "now() - make_interval(secs => CAST(? AS double precision))"
	case MySQL:
		return "UTC_TIMESTAMP(6) - INTERVAL ? SECOND"
	default:
		return "strftime('%Y-%m-%d %H:%M:%f','now','-' || CAST(? AS INTEGER) || ' seconds')"
	}
}

// current ends a SELECT that reads what is committed now, and not what was when a snapshot was
// taken: at MySQL's REPEATABLE READ a plain one sees no row that has come since.
//
// What is read may be updated next. Two that share a row would then be in each other's way, and
// PostgreSQL takes a second to notice; MySQL's refused insert shares it already, and it notices
// at once.
func (d Dialect) current() string {
	switch d {
	case PostgreSQL:
		return " FOR NO KEY UPDATE"
	case MySQL:
		return " LOCK IN SHARE MODE" // which MariaDB knows too
	default:
		return "" // who writes is alone
	}
}

// same compares a column with a parameter, NULL being the same as NULL.
func (d Dialect) same(column string) string {
	switch d {
	case PostgreSQL:
		return column + " IS NOT DISTINCT FROM ?"
	case MySQL:
		return column + " <=> ?"
	default:
		return column + " IS ?"
	}
}
