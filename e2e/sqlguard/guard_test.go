package sqlguard_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"

	"example.com/tokend/client/clienttest"
	"example.com/tokend/client/guard"
	"example.com/tokend/client/sqlguard"
)

// One endpoint behind both layers. The token's ref is the record's key: it is the same in each
// sending of one form, and another in each form, so a double click makes one order while tokend
// is there and while it is away.
func ExampleGuard_Do_guarded() {
	tokend, err := clienttest.Start()
	if err != nil {
		log.Fatal(err)
	}
	defer tokend.Close()
	db, records := shopDB("CREATE TABLE orders (id INTEGER PRIMARY KEY, user_id TEXT, item TEXT)")
	defer db.Close()

	sessionUser := func(r *http.Request) string { return r.Header.Get("X-Test-User") }
	forms := tokend.Client().Purpose("order.create")
	g := guard.New(forms, guard.User(sessionUser), guard.FailOpen(), guard.Logger(slog.New(slog.DiscardHandler)))
	orders := g.Replay(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, item := sessionUser(r), r.PostFormValue("item")
		if item == "" {
			http.Error(w, "what do you want?", http.StatusUnprocessableEntity) // and the token is good again
			return
		}
		id := sqlguard.ID{Scope: "order.create", User: user, Key: guard.Ref(r.Context())}
		order, err := records.Do(r.Context(), db, id, sqlguard.Digest(item), func(ctx context.Context, tx sqlguard.Tx) ([]byte, error) {
			made, err := tx.ExecContext(ctx, "INSERT INTO orders (user_id, item) VALUES (?, ?)", user, item)
			if err != nil {
				return nil, err
			}
			n, err := made.LastInsertId()
			return fmt.Appendf(nil, "/orders/%d", n), err
		})
		if err != nil {
			http.Error(w, "not at the moment", http.StatusServiceUnavailable) // and the next request runs it again
			return
		}
		http.Redirect(w, r, string(order.Result), http.StatusSeeOther)
	}))

	click := func(token, item string) {
		r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(url.Values{"tokend_token": {token}, "item": {item}}.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("X-Test-User", "alice")
		w := httptest.NewRecorder()
		orders.ServeHTTP(w, r)
		fmt.Println(item, w.Code, w.Header().Get("Location"))
	}
	pages, err := forms.IssueBatch(context.Background(), "alice", 3)
	if err != nil {
		log.Fatal(err)
	}
	click(pages[0].Value, "tea")
	click(pages[0].Value, "tea")
	tokend.Close() // from here on the database is alone
	click(pages[0].Value, "tea")
	click(pages[1].Value, "milk")
	click(pages[1].Value, "milk")
	click(pages[2].Value, "milk") // another form, and meant
	var n int
	if err := db.QueryRow("SELECT COUNT(*) FROM orders").Scan(&n); err != nil {
		log.Fatal(err)
	}
	fmt.Println(n, "orders")
	// Output:
	// tea 303 /orders/1
	// tea 303 /orders/1
	// tea 303 /orders/1
	// milk 303 /orders/2
	// milk 303 /orders/2
	// milk 303 /orders/3
	// 3 orders
}
