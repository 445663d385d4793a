package tokend_test

import (
	"context"
	"errors"
	"html/template"
	"io"
	"log"
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
)

// readme:begin

// shop is a form service. Its orders have a unique key on the token's ref: the last fence
// should Redis ever lose data, and how the first submission's order is found again.
type shop struct {
	forms  client.Purpose
	orders orders
}

func newShop(url, serviceKey string) (*shop, error) {
	c, err := client.New(url, client.ServiceKey(serviceKey))
	if err != nil {
		return nil, err
	}
	return &shop{forms: c.Purpose("order.create")}, nil // spelt once, for issue and consume
}

// newOrder shows the form. The page is good once, so nothing may cache it.
func (s *shop) newOrder(w http.ResponseWriter, r *http.Request) {
	t, err := s.forms.Issue(r.Context(), sessionUser(r), client.TTL(time.Hour))
	if err != nil {
		http.Error(w, "We cannot take orders at the moment.", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	formPage.Execute(w, t.Value)
}

// createOrder takes the form. The user comes from the session, never from the form, and
// Consume makes the attempt up, once for this request. A second click ends the first one's
// request in the browser: what was begun must go on all the same, so the request's context
// must not end it.
func (s *shop) createOrder(w http.ResponseWriter, r *http.Request) {
	ctx, user := context.WithoutCancel(r.Context()), sessionUser(r)
	got, err := s.forms.Consume(ctx, user, r.PostFormValue("tokend_token"))
	var no *client.Refusal
	var down *client.Fault
	switch {
	case err == nil: // this request, and no other, does the work
		s.orders.create(user, got.Ref, r.PostFormValue("item"))
		http.Redirect(w, r, "/orders/"+got.Ref, http.StatusSeeOther)
	case errors.As(err, &no) && s.orders.has(user, no.Ref): // a double click: show what the first one made
		http.Redirect(w, r, "/orders/"+no.Ref, http.StatusSeeOther)
	case errors.Is(err, client.ErrUsed): // the first one is still at work, or has failed
		http.Error(w, "You have sent this form already. Look at your orders in a minute; if it is not there, please order again.", http.StatusConflict)
	case errors.As(err, &no) && no.Next == client.NextFix: // the shop's own fault: a wrong key, say
		log.Print(err)
		http.Error(w, "We cannot take orders at the moment.", http.StatusInternalServerError)
	case errors.As(err, &no): // there is no order: the form again, with a fresh token
		http.Error(w, "This page is no longer valid. Please send the form again.", http.StatusUnprocessableEntity)
	case errors.As(err, &down) && !down.MaybeDone: // nothing was done
		log.Print(err)
		http.Error(w, "We cannot take this at the moment. Please send it again.", http.StatusServiceUnavailable)
	default: // nobody can tell
		log.Print(err)
		http.Error(w, "Please look at your orders before you send this again.", http.StatusServiceUnavailable)
	}
}

var formPage = template.Must(template.New("").Parse(`<form method="post" action="/orders">
<input type="hidden" name="tokend_token" value="{{.}}">
<input name="item"> <button>Order</button>
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

// send calls h as alice; a form makes it a POST.
func send(h http.HandlerFunc, form url.Values) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	if form != nil {
		r = httptest.NewRequest(http.MethodPost, "/", strings.NewReader(form.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	r.Header.Set("X-Test-User", "alice")
	w := httptest.NewRecorder()
	h(w, r)
	return w
}

// TestForm runs the README's form service against a tokend.
func TestForm(t *testing.T) {
	t.Parallel()
	tokend := clienttest.New(t)
	s, err := newShop(tokend.URL, tokend.ServiceKey)
	if err != nil {
		t.Fatal(err)
	}
	open := func() url.Values {
		t.Helper()
		w := send(s.newOrder, nil)
		m := regexp.MustCompile(`value="(ott_[A-Za-z0-9_-]+)"`).FindStringSubmatch(w.Body.String())
		if m == nil || w.Header().Get("Cache-Control") != "no-store" {
			t.Fatalf("no form: %d %v %s", w.Code, w.Header(), w.Body)
		}
		return url.Values{"tokend_token": {m[1]}, "item": {"tea"}}
	}
	want := func(what string, form url.Values, status, made int) (location string) {
		t.Helper()
		w := send(s.createOrder, form)
		if w.Code != status || len(s.orders.rows) != made {
			t.Errorf("%s: %d with %d orders, want %d with %d", what, w.Code, len(s.orders.rows), status, made)
		}
		return w.Header().Get("Location")
	}

	form := open()
	first := want("sent", form, http.StatusSeeOther, 1)
	if second := want("sent twice", form, http.StatusSeeOther, 1); second != first {
		t.Errorf("the second submission leads to %q, the first to %q", second, first)
	}
	clear(s.orders.rows)
	want("sent twice, the first one not done", form, http.StatusConflict, 0)

	late := open()
	tokend.Advance(time.Hour)
	want("expired", late, http.StatusUnprocessableEntity, 0)
	want("forged", url.Values{"tokend_token": {"ott_x"}}, http.StatusUnprocessableEntity, 0)
	lost := open()
	tokend.LoseData()
	want("lost", lost, http.StatusUnprocessableEntity, 0)

	s.forms = tokend.Client(client.MaxTries(2)).Purpose("order.create") // waits for nothing
	form = open()
	tokend.LoseReplies(1)
	want("a lost reply", form, http.StatusSeeOther, 1)
	form = open()
	tokend.LoseReplies(2)
	want("all replies lost", form, http.StatusServiceUnavailable, 1)
	form = open()
	tokend.Close()
	want("no tokend", form, http.StatusServiceUnavailable, 1)
	if w := send(s.newOrder, nil); w.Code != http.StatusServiceUnavailable {
		t.Errorf("a form without tokend: %d", w.Code)
	}
}

// TestFormSecondClick has the browser give the first request up, as it does when a second
// click takes its place: the order is made all the same, and the second click shows it.
func TestFormSecondClick(t *testing.T) {
	t.Parallel()
	tokend := clienttest.New(t)
	s, err := newShop(tokend.URL, tokend.ServiceKey)
	if err != nil {
		t.Fatal(err)
	}
	token := regexp.MustCompile(`ott_[A-Za-z0-9_-]+`).FindString(send(s.newOrder, nil).Body.String())
	form := url.Values{"tokend_token": {token}, "item": {"tea"}}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	send(func(w http.ResponseWriter, r *http.Request) { s.createOrder(w, r.WithContext(gone)) }, form)
	if len(s.orders.rows) != 1 {
		t.Errorf("the first click, whose browser had gone, made %d orders, want 1", len(s.orders.rows))
	}
	if w := send(s.createOrder, form); w.Code != http.StatusSeeOther || len(s.orders.rows) != 1 {
		t.Errorf("the second click: %d with %d orders, want to be shown the first one's", w.Code, len(s.orders.rows))
	}
}

// TestFormOwnFault: a service that tokend does not let in must not tell its users that their
// page is at fault.
func TestFormOwnFault(t *testing.T) {
	t.Parallel()
	log.SetOutput(io.Discard)
	s, err := newShop(clienttest.New(t).URL, "tsk_not-a-key")
	if err != nil {
		t.Fatal(err)
	}
	if w := send(s.createOrder, url.Values{"tokend_token": {"ott_x"}}); w.Code != http.StatusInternalServerError {
		t.Errorf("with a wrong service key: %d %s", w.Code, w.Body)
	}
}
