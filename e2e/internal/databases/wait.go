package databases

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"example.com/tokend/client/sqlguard"
)

// Patience bounds every wait: far more than any machine needs.
const Patience = 60 * time.Second

// Until waits until ok.
func Until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(Patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

// Await returns what comes on c.
func Await[T any](t testing.TB, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(Patience):
		t.Fatal("waited in vain")
		panic("unreachable")
	}
}

// UntilWaiting waits until n transactions of d, which is open as db, wait for a lock. In SQLite
// nobody can see that, and it returns at once.
func (d *Database) UntilWaiting(t testing.TB, db *sql.DB, n int) {
	t.Helper()
	if d.Dialect != sqlguard.SQLite {
		Until(t, fmt.Sprintf("%d transactions wait", n), func() bool { return d.waiting(db) >= n })
	}
}
