package sqlguard_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"

	"example.com/tokend/client/sqlguard"
)

// shopDB is a database in memory, of one connection as each would have a database of its own.
func shopDB(statements ...string) (*sql.DB, *sqlguard.Guard) {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		log.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	g, err := sqlguard.New(sqlguard.SQLite, sqlguard.ErrorCode(errorCode))
	if err != nil {
		log.Fatal(err)
	}
	if err := g.CreateTable(context.Background(), db); err != nil {
		log.Fatal(err)
	}
	for _, s := range statements {
		if _, err := db.Exec(s); err != nil {
			log.Fatal(err)
		}
	}
	return db, g
}

// An increment is not idempotent: sent twice, it is added twice. Under a key it is added once,
// and the second gets the first one's answer.
func ExampleGuard_Do() {
	ctx := context.Background()
	db, g := shopDB("CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER)", "INSERT INTO account VALUES (1, 0)")
	addBalance := func(key string, amount int) (string, error) {
		id := sqlguard.ID{Scope: "add_balance", User: "alice", Key: key}
		got, err := g.Do(ctx, db, id, sqlguard.Digest("account 1", fmt.Sprint(amount)), func(ctx context.Context, tx sqlguard.Tx) ([]byte, error) {
			if _, err := tx.ExecContext(ctx, "UPDATE account SET balance = balance + ? WHERE id = 1", amount); err != nil {
				return nil, err
			}
			var balance int
			err := tx.QueryRowContext(ctx, "SELECT balance FROM account WHERE id = 1").Scan(&balance)
			return fmt.Appendf(nil, `{"balance":%d}`, balance), err
		})
		return string(got.Result), err
	}
	fmt.Println(addBalance("k1", 100))
	fmt.Println(addBalance("k1", 100))
	fmt.Println(addBalance("k2", 100))
	_, err := addBalance("k1", 500)
	fmt.Println(errors.Is(err, sqlguard.ErrReused))
	// Output:
	// {"balance":100} <nil>
	// {"balance":100} <nil>
	// {"balance":200} <nil>
	// true
}

// An absolute update names the version that it replaces, and needs no key: of two, the second
// finds another version.
func ExampleGuard_Run_version() {
	ctx := context.Background()
	db, g := shopDB("CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER, version INTEGER)", "INSERT INTO account VALUES (1, 0, 7)")
	setBalance := func(balance, version int) (done bool, err error) {
		err = g.Run(ctx, db, func(ctx context.Context, tx sqlguard.Tx) error {
			// A row that is found is changed, as its version is: so rows are counted the same either way.
			res, err := tx.ExecContext(ctx, "UPDATE account SET balance = ?, version = version + 1 WHERE id = 1 AND version = ?", balance, version)
			if err != nil {
				return err
			}
			n, err := res.RowsAffected()
			done = n == 1
			return err
		})
		return done, err
	}
	fmt.Println(setBalance(200, 7))
	fmt.Println(setBalance(200, 7))
	// Output:
	// true <nil>
	// false <nil>
}

// What follows from a move stands on the branch where this call has moved. What is outside of
// the database is written into an outbox in the same transaction, and sent when that is
// committed.
func ExampleStates_Take() {
	ctx := context.Background()
	db, g := shopDB("CREATE TABLE orders (order_no TEXT PRIMARY KEY, status TEXT)", "CREATE TABLE outbox (message TEXT)",
		"INSERT INTO orders VALUES ('O1', 'WAIT_PAY')")
	orders, err := g.States(sqlguard.Graph{Table: "orders", ID: "order_no", State: "status", Transitions: []sqlguard.Transition{
		{Name: "pay", From: []string{"WAIT_PAY", "PAYING"}, To: "PAID"},
		{Name: "refund", From: []string{"PAID"}, To: "REFUNDED"},
	}})
	if err != nil {
		log.Fatal(err)
	}
	for range 3 { // a callback that comes three times
		err := g.Run(ctx, db, func(ctx context.Context, tx sqlguard.Tx) error {
			got, err := orders.Take(ctx, tx, "O1", "pay")
			if err != nil {
				return err
			}
			fmt.Println(got.Moved, got.State)
			if !got.Moved {
				return nil
			}
			_, err = tx.ExecContext(ctx, "INSERT INTO outbox VALUES ('O1 is paid')")
			return err
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	var messages int
	err = db.QueryRow("SELECT COUNT(*) FROM outbox").Scan(&messages)
	fmt.Println(messages, err)
	// Output:
	// true PAID
	// false PAID
	// false PAID
	// 1 <nil>
}

// A batch whose lines are there already gets their numbers; one that says something else is
// told which lines, and nothing of it is kept.
func ExampleUnique_Ensure() {
	ctx := context.Background()
	db, g := shopDB("CREATE TABLE order_item (id INTEGER PRIMARY KEY, user_id TEXT, external_order_no TEXT, amount NUMERIC, UNIQUE (user_id, external_order_no))")
	items, err := g.Unique(sqlguard.Rows{
		Table: "order_item", Key: []string{"user_id", "external_order_no"}, Match: []string{"amount"}, Return: []string{"id"},
	})
	if err != nil {
		log.Fatal(err)
	}
	order := func(lines ...sqlguard.Row) {
		err := g.Run(ctx, db, func(ctx context.Context, tx sqlguard.Tx) error {
			verdicts, err := items.Ensure(ctx, tx, lines...)
			for _, v := range verdicts {
				id, _ := sqlguard.Value[int64](v, "id")
				fmt.Println(v.Row, v.Kind, id, v.Differs)
			}
			return err
		})
		fmt.Println(err)
	}
	line := func(number, amount string) sqlguard.Row {
		return sqlguard.Row{"user_id": "alice", "external_order_no": number, "amount": amount}
	}
	order(line("B1", "19.90"), line("B2", "5.00"))
	order(line("B1", "19.9"))
	order(line("B3", "1.00"), line("B2", "6.00"))
	// Output:
	// 0 inserted 1 []
	// 1 inserted 2 []
	// <nil>
	// 0 same 1 []
	// <nil>
	// 0 inserted 3 []
	// 1 conflict 2 [amount]
	// sqlguard: a row with the same key holds other data: order_item: row 1 differs in amount
}
