package databases

import (
	"database/sql"
	"regexp"

	"example.com/tokend/client/sqlguard"
)

var lockWait = regexp.MustCompile(`(?s)\nLOCK WAIT .*? thread id (\d+)`)

// waiting returns how many transactions of d, which is open as db, wait for a lock.
func (d *Database) waiting(db *sql.DB) (n int) {
	d.t.Helper()
	read := func(query string, into ...any) {
		if err := db.QueryRow(query).Scan(into...); err != nil {
			d.t.Fatalf("%s: %v", query, err)
		}
	}
	switch d.Dialect {
	case sqlguard.PostgreSQL:
		read("SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'", &n)
	case sqlguard.MySQL:
		// information_schema.innodb_trx is refreshed only where nobody has read it for a while.
		var kind, name, status string
		read("SHOW ENGINE INNODB STATUS", &kind, &name, &status)
		for _, m := range lockWait.FindAllStringSubmatch(status, -1) {
			var ours int
			read("SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND id = "+m[1], &ours)
			n += ours
		}
	}
	return n
}
