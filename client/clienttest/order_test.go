package clienttest_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/tokend/client"
	"example.com/tokend/client/clienttest"
)

// shop is a service that somebody might test with this package: it shows an order form and
// creates one order for each form that is sent.
type shop struct {
	forms client.Purpose

	mu     sync.Mutex
	orders []string // the users
}

func newShop(c *client.Client) *shop { return &shop{forms: c.Purpose("order.create")} }

func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	user := r.Header.Get("X-User") // elsewhere the session says so
	if r.Method == http.MethodGet {
		t, err := s.forms.Issue(r.Context(), user)
		if err != nil {
			http.Error(w, "no form at the moment", http.StatusServiceUnavailable)
			return
		}
		w.Write([]byte(t.Value))
		return
	}
	_, err := s.forms.Consume(r.Context(), user, r.PostFormValue("tokend_token"))
	var no *client.Refusal
	var down *client.Fault
	switch {
	case err == nil:
		s.create(user)
		w.WriteHeader(http.StatusCreated)
	case errors.Is(err, client.ErrUsed):
		w.Header().Set("Location", "/orders")
		w.WriteHeader(http.StatusSeeOther)
	case errors.As(err, &no) && (no.Next == client.NextReissue || no.Next == client.NextStop):
		http.Error(w, "nothing was done: the form again", http.StatusUnprocessableEntity)
	case errors.As(err, &down) && !down.MaybeDone:
		http.Error(w, "nothing was done: send it again", http.StatusServiceUnavailable)
	default:
		http.Error(w, "look for the order first", http.StatusInternalServerError)
	}
}

func (s *shop) create(user string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.orders = append(s.orders, user)
}

// showForm returns the token of a new form.
func (s *shop) showForm(t *testing.T, user string) string {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "/orders/new", nil)
	r.Header.Set("X-User", user)
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	wantStatus(t, w.Code, http.StatusOK)
	return w.Body.String()
}

// submit sends a form in and returns the answer's status.
func (s *shop) submit(user, token string) int {
	r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(url.Values{"tokend_token": {token}}.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("X-User", user)
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Code
}

func (s *shop) wantOrders(t *testing.T, want int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.orders) != want {
		t.Errorf("%d orders, want %d", len(s.orders), want)
	}
}

func wantStatus(t *testing.T, got, want int) {
	t.Helper()
	if got != want {
		t.Errorf("status %d, want %d", got, want)
	}
}

func TestDoubleSubmission(t *testing.T) {
	t.Parallel()
	tokend := clienttest.New(t) // ends with the test
	shop := newShop(tokend.Client())

	token := shop.showForm(t, "alice")
	wantStatus(t, shop.submit("alice", token), http.StatusCreated)
	wantStatus(t, shop.submit("alice", token), http.StatusSeeOther) // to the first one's order
	shop.wantOrders(t, 1)
}

func TestSubmissionsAtOnce(t *testing.T) {
	t.Parallel()
	shop := newShop(clienttest.New(t).Client())

	token := shop.showForm(t, "alice")
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() { shop.submit("alice", token) })
	}
	wg.Wait()
	shop.wantOrders(t, 1)
}

func TestExpiredForm(t *testing.T) {
	t.Parallel()
	tokend := clienttest.New(t, clienttest.TTL(10*time.Minute))
	shop := newShop(tokend.Client())

	token := shop.showForm(t, "alice")
	tokend.Advance(10 * time.Minute)
	wantStatus(t, shop.submit("alice", token), http.StatusUnprocessableEntity) // the form again
	shop.wantOrders(t, 0)
}

func TestAnotherUsersForm(t *testing.T) {
	t.Parallel()
	shop := newShop(clienttest.New(t).Client())

	token := shop.showForm(t, "alice")
	wantStatus(t, shop.submit("bob", token), http.StatusUnprocessableEntity)
	shop.wantOrders(t, 0)
	wantStatus(t, shop.submit("alice", token), http.StatusCreated) // it was untouched
}

func TestLostReply(t *testing.T) {
	t.Parallel()
	tokend := clienttest.New(t)
	shop := newShop(tokend.Client())

	token := shop.showForm(t, "alice")
	tokend.LoseReplies(1)
	wantStatus(t, shop.submit("alice", token), http.StatusCreated) // granted once, told twice
	shop.wantOrders(t, 1)
}

func TestOutage(t *testing.T) {
	t.Parallel()
	tokend := clienttest.New(t)
	shop := newShop(tokend.Client())

	token := shop.showForm(t, "alice")
	tokend.Down(true)
	wantStatus(t, shop.submit("alice", token), http.StatusInternalServerError) // it fails closed
	shop.wantOrders(t, 0)
	tokend.Down(false)
	wantStatus(t, shop.submit("alice", token), http.StatusCreated) // and the form is still good
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	tokend := clienttest.New(t)
	shop := newShop(tokend.Client())

	token := shop.showForm(t, "alice")
	tokend.Close()
	wantStatus(t, shop.submit("alice", token), http.StatusServiceUnavailable)
	shop.wantOrders(t, 0)
}
