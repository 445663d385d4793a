package tokend_test

import (
	"context"
	"errors"
	"fmt"
	"html/template"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/tokend/client"
	"example.com/tokend/client/clienttest"
	"example.com/tokend/client/guard"
)

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

var formPage = template.Must(template.New("").Parse(`<form method="post" action="/orders">
{{.}} <input name="item"> <button>Order</button>
</form>`))

// readme:end

// sessionUser returns who is logged in.
func sessionUser(r *http.Request) string { return r.Header.Get("X-Test-User") }

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

func (o *orders) has(user, ref string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, ok := o.rows[[2]string{user, ref}]
	return ok
}

// send asks h for the form as alice; a form makes it a POST.
func send(ctx context.Context, h http.Handler, form url.Values) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, "/orders/new", nil)
	if form != nil {
		r = httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(form.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	r.Header.Set("Accept", "text/html")
	r.Header.Set("X-Test-User", "alice")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r.WithContext(ctx))
	return w
}

var formToken = regexp.MustCompile(`name="tokend_token" autocomplete="off" value="(ott_[A-Za-z0-9_-]+)"`)

// tokenOf returns the token in the form that w shows.
func tokenOf(w *httptest.ResponseRecorder) string {
	m := formToken.FindStringSubmatch(w.Body.String())
	if m == nil {
		return ""
	}
	return m[1]
}

// TestForm runs the README's form service against a tokend.
func TestForm(t *testing.T) {
	t.Parallel()
	tokend := clienttest.New(t)
	atOnce := client.Backoff(func(int, time.Duration) time.Duration { return 0 })
	s, err := newShop(tokend.URL, tokend.ServiceKey, atOnce)
	if err != nil {
		t.Fatal(err)
	}
	open := func() url.Values {
		t.Helper()
		w := send(t.Context(), s, nil)
		if tokenOf(w) == "" || w.Header().Get("Cache-Control") != "no-store" {
			t.Fatalf("no form: %d %v %s", w.Code, w.Header(), w.Body)
		}
		return url.Values{"tokend_token": {tokenOf(w)}, "item": {"tea"}}
	}
	want := func(what string, form url.Values, status, made int) *httptest.ResponseRecorder {
		t.Helper()
		w := send(t.Context(), s, form)
		if w.Code != status || len(s.orders.rows) != made {
			t.Errorf("%s: %d with %d orders, want %d with %d\n%s", what, w.Code, len(s.orders.rows), status, made, w.Body)
		}
		return w
	}

	form := open()
	form.Set("item", "")
	if w := want("with a mistake", form, http.StatusUnprocessableEntity, 0); tokenOf(w) != form.Get("tokend_token") {
		t.Errorf("a form with a mistake comes back with the token %q, want its own", tokenOf(w))
	}
	form.Set("item", "tea")
	first := want("mended", form, http.StatusSeeOther, 1).Header().Get("Location")
	if second := want("sent twice", form, http.StatusSeeOther, 1).Header().Get("Location"); second != first {
		t.Errorf("the second submission leads to %q, the first to %q", second, first)
	}
	clear(s.orders.rows)
	want("sent twice, the first one not done", form, http.StatusConflict, 0)

	late := open()
	tokend.Advance(time.Hour)
	w := want("expired", late, http.StatusGone, 0)
	if fresh := tokenOf(w); fresh == "" || fresh == late.Get("tokend_token") {
		t.Errorf("an expired form comes back with the token %q, want a fresh one", fresh)
	}
	late.Set("tokend_token", tokenOf(w))
	want("sent again with the fresh token", late, http.StatusSeeOther, 1)
	want("forged", url.Values{"tokend_token": {"ott_x"}, "item": {"tea"}}, http.StatusBadRequest, 1)
	lost := open()
	tokend.LoseData()
	want("lost", lost, http.StatusGone, 1)

	form = open()
	tokend.LoseReplies(2)
	want("lost replies", form, http.StatusSeeOther, 2)
	form = open()
	tokend.LoseReplies(100)
	want("all replies lost", form, http.StatusServiceUnavailable, 2)
	tokend.LoseReplies(0)
	form = open()
	tokend.Close()
	want("no tokend", form, http.StatusServiceUnavailable, 2)
	if w := send(t.Context(), s, nil); w.Code != http.StatusServiceUnavailable {
		t.Errorf("a form without tokend: %d", w.Code)
	}
}

// TestFormSecondClick has the browser give the first request up before it is looked at, as it
// may when a second click takes its place: then the second one makes the order.
func TestFormSecondClick(t *testing.T) {
	t.Parallel()
	tokend := clienttest.New(t)
	s, err := newShop(tokend.URL, tokend.ServiceKey)
	if err != nil {
		t.Fatal(err)
	}
	form := url.Values{"tokend_token": {tokenOf(send(t.Context(), s, nil))}, "item": {"tea"}}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	send(gone, s, form)
	if w := send(t.Context(), s, form); w.Code != http.StatusSeeOther || len(s.orders.rows) != 1 {
		t.Errorf("the second click: %d with %d orders, want one", w.Code, len(s.orders.rows))
	}
}

// TestFormOwnFault: a service that tokend does not let in must not tell its users that their
// page is at fault.
func TestFormOwnFault(t *testing.T) {
	t.Parallel()
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil)))
	s, err := newShop(clienttest.New(t).URL, "tsk_not-a-key")
	if err != nil {
		t.Fatal(err)
	}
	if w := send(t.Context(), s, url.Values{"tokend_token": {"ott_x"}, "item": {"tea"}}); w.Code != http.StatusInternalServerError {
		t.Errorf("with a wrong service key: %d %s", w.Code, w.Body)
	}
}
