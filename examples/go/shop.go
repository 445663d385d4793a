// Shop is a form service on package guard, all in one file. It needs no more than the other
// examples:
//
//	TOKEND_URL=http://127.0.0.1:8080 TOKEND_TOKEN=$SERVICE go run ./examples/go
//
// and then http://127.0.0.1:3000/orders/new.
package main

import (
	"cmp"
	"errors"
	"fmt"
	"html/template"
	"log"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"example.com/tokend/client"
	"example.com/tokend/client/guard"
)

func main() {
	s, err := newShop(os.Getenv("TOKEND_URL"), os.Getenv("TOKEND_TOKEN"))
	if err != nil {
		log.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:"+cmp.Or(os.Getenv("PORT"), "3000"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("listening on http://%s/orders/new\n", l.Addr())
	log.Fatal(http.Serve(l, site(s)))
}

// site returns s, with a page for each order and one of all of the user's.
func site(s *shop) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /orders/new", s)
	mux.Handle("POST /orders", s)
	mux.HandleFunc("GET /orders", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8") // whatever the items look like
		for _, row := range s.orders.of(sessionUser(r)) {
			fmt.Fprintln(w, row)
		}
	})
	mux.HandleFunc("GET /orders/{ref}", func(w http.ResponseWriter, r *http.Request) {
		item, ok := s.orders.find(sessionUser(r), r.PathValue("ref"))
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		fmt.Fprintf(w, "Order %s: %s\n", r.PathValue("ref"), item)
	})
	return mux
}

// readme:begin

// shop is a form service. Its orders have a unique key on the token's ref: the last fence
// should Redis ever lose data, and how the first submission's order is found again.
type shop struct {
	http.Handler
	orders orders
}

func newShop(url, serviceKey string, opts ...client.Option) (*shop, error) {
	c, err := client.New(url, client.ServiceKey(serviceKey), opts...)
	if err != nil {
		return nil, err
	}
	s := new(shop)
	g := guard.New(c.Purpose("order.create"),
		guard.User(sessionUser), // from the session, never from the form
		guard.IssueWith(client.TTL(time.Hour)),
		guard.Page(s.refused))
	mux := http.NewServeMux() // around it goes what asks for a login
	mux.Handle("GET /orders/new", g.Issue(http.HandlerFunc(s.form)))
	mux.Handle("POST /orders", g.Once(http.HandlerFunc(s.create)))
	s.Handler = mux
	return s, nil
}

// form shows the form. The guard's hidden field holds the token, and nothing caches the page.
func (s *shop) form(w http.ResponseWriter, r *http.Request) {
	formPage.Execute(w, guard.Field(r.Context()))
}

// create takes the form. Looking at it uses nothing up: with a mistake it is shown again, and
// sent again with the token that it has.
func (s *shop) create(w http.ResponseWriter, r *http.Request) {
	item, user := r.PostFormValue("item"), sessionUser(r)
	if item == "" {
		w.WriteHeader(http.StatusUnprocessableEntity)
		s.form(w, r)
		return
	}
	if err := guard.Consume(r.Context()); err != nil {
		return // and the guard answers
	}
	ref := guard.Ref(r.Context()) // from here on this request, and no other, does the work
	s.orders.create(user, ref, item)
	http.Redirect(w, r, "/orders/"+ref, http.StatusSeeOther)
}

// refused is the page for whoever is not let through.
func (s *shop) refused(w http.ResponseWriter, r *http.Request, no *guard.Refused) {
	switch {
	case s.orders.has(sessionUser(r), no.Ref): // a double click: show what the first one made
		http.Redirect(w, r, "/orders/"+no.Ref, http.StatusSeeOther)
	case errors.Is(no, client.ErrUsed): // the first one is still at work, or has failed
		fmt.Fprintln(w, "You have sent this form already. Look at your orders in a minute; if it is not there, please order again.")
	case no.Next == client.NextReissue, no.Next == client.NextStop: // nothing was done: the form again, with a fresh token
		s.form(w, r)
	default: // tokend is away, say: no.Detail says what a person can do
		fmt.Fprintln(w, no.Detail)
	}
}

var formPage = template.Must(template.New("").Parse(`<!doctype html>
<title>Order</title>
<form method="post" action="/orders">
{{.}} <input name="item"> <button>Order</button>
</form>`))

// readme:end

// sessionUser returns who is logged in: a service takes it from its session.
func sessionUser(r *http.Request) string { return cmp.Or(r.Header.Get("X-User"), "alice") }

// orders stands for a table with a unique key on (user, ref).
type orders struct {
	mu   sync.Mutex
	rows map[[2]string]string
}

func (o *orders) create(user, ref, item string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.rows == nil {
		o.rows = make(map[[2]string]string)
	}
	if _, twice := o.rows[[2]string{user, ref}]; twice {
		panic("the unique key is violated")
	}
	o.rows[[2]string{user, ref}] = item
}

func (o *orders) find(user, ref string) (item string, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	item, ok = o.rows[[2]string{user, ref}]
	return item, ok
}

// of returns the user's orders: "ref item".
func (o *orders) of(user string) (rows []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for key, item := range o.rows {
		if key[0] == user {
			rows = append(rows, key[1]+" "+item)
		}
	}
	slices.Sort(rows)
	return rows
}

func (o *orders) has(user, ref string) bool {
	_, ok := o.find(user, ref)
	return ok
}
