package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"example.com/tokend/client"
	"example.com/tokend/client/guard"
	"example.com/tokend/client/sqlguard"
)

type settings struct {
	driver, dsn          string
	tokendURL, tokendKey string
	providerSecret       string
	lease                time.Duration
	log                  *slog.Logger
}

type service struct {
	set   settings
	log   *slog.Logger
	db    *database
	guard *guard.Guard

	once     *sqlguard.Guard  // whatever was asked for under a key
	items    *sqlguard.Unique // orders are one by the sender's own number
	accounts *sqlguard.Unique
	states   *sqlguard.States
	shipping *shipping
}

// The scopes of keys: what is asked for under them.
const (
	scopeBatch   = "order-batch"
	scopeAccount = "account"
	scopePay     = "PAY_CALLBACK"
)

// The states of an order.
const (
	waitPay = "WAIT_PAY"
	paying  = "PAYING"
	paid    = "PAID"
	done    = "DONE"
	closed  = "CLOSED"
)

func newService(ctx context.Context, set settings) (s *service, err error) {
	if set.providerSecret == "" {
		return nil, errors.New("ORDERS_PROVIDER_SECRET is required: anybody could pay without it")
	}
	c, err := client.New(set.tokendURL, client.ServiceKey(set.tokendKey))
	if err != nil {
		return nil, err
	}
	s = &service{set: set, log: set.log}
	db, err := openDatabase(ctx, set.driver, set.dsn)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			db.Close()
		}
	}()
	s.db = db
	s.guard = guard.New(c.Purpose("orders"), guard.User(userOf), guard.Lease(set.lease), guard.Wait(0),
		guard.ReusedConflict(), guard.Problem(s.refused), guard.Observe(s.observed), guard.Logger(set.log))

	if s.once, err = sqlguard.New(s.db.dialect, sqlguard.ErrorCode(errorCode), sqlguard.Table("order_request_record")); err != nil {
		return nil, err
	}
	if err := s.once.CreateTable(ctx, s.db.DB); err != nil {
		return nil, err
	}
	if s.items, err = s.once.Unique(sqlguard.Rows{
		Table: "order_item", Key: []string{"user_id", "external_order_no"}, Match: []string{"amount"}, Return: []string{"order_no"},
	}); err != nil {
		return nil, err
	}
	if s.accounts, err = s.once.Unique(sqlguard.Rows{Table: "account", Key: []string{"user_id", "id"}}); err != nil {
		return nil, err
	}
	if s.states, err = s.once.States(sqlguard.Graph{Table: "order_item", ID: "order_no", State: "status", Transitions: []sqlguard.Transition{
		{Name: "begin to pay", From: []string{waitPay}, To: paying},
		{Name: "pay", From: []string{waitPay, paying}, To: paid},
		{Name: "finish", From: []string{paid}, To: done},
		{Name: "close", From: []string{waitPay}, To: closed},
	}}); err != nil {
		return nil, err
	}
	if s.shipping, err = newShipping(ctx, s.db); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *service) close() { s.db.Close() }

// userOf returns who is logged in.
func userOf(r *http.Request) string { return r.Header.Get("X-User") }

func (s *service) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /order-batches", s.noted(scopeBatch,
		s.guard.Replay(http.HandlerFunc(s.createBatch), guard.IdempotencyKey(), guard.DigestFunc(noteDigest(readBatch)))))
	// The signature is checked around the guard, which answers repeats itself.
	mux.Handle("POST /orders/{no}/pay", s.noted(scopePay, s.signed(
		s.guard.Replay(http.HandlerFunc(s.pay), guard.KeyFunc(eventID), guard.UserFunc(eventOwner), guard.DigestFunc(noteDigest(readEvent))))))
	// An absolute update needs no key: its version tells.
	mux.Handle("PATCH /accounts/{id}", s.noted(scopeAccount,
		s.guard.Replay(http.HandlerFunc(s.patchAccount), guard.IdempotencyKey(), guard.Optional(), guard.DigestFunc(noteDigest(readChange)))))
	mux.HandleFunc("GET /results/{scope}", s.result)
	return mux
}

// result tells what became of a key: the answer that was committed under it.
func (s *service) result(w http.ResponseWriter, r *http.Request) {
	id := sqlguard.ID{Scope: r.PathValue("scope"), User: userOf(r), Key: r.Header.Get("Idempotency-Key")}
	if id.User == "" || id.Key == "" || id.Scope != scopeBatch && id.Scope != scopeAccount {
		s.answer(w, r, http.StatusBadRequest, problem{Code: "INVALID_REQUEST", Message: "a user, an Idempotency-Key and a scope are needed"})
		return
	}
	if err := checkHeaders(r); err != nil {
		s.failed(w, r, err)
		return
	}
	record, err := s.once.Find(r.Context(), s.db, id)
	switch {
	case errors.Is(err, sqlguard.ErrNoRow):
		s.answer(w, r, http.StatusNotFound, problem{Code: "NO_RESULT", Message: "nothing was done under this key so far"})
	case err != nil:
		s.failed(w, r, err)
	default:
		s.answer(w, r, http.StatusOK, record.Result)
	}
}

// purge forgets the keys that nobody repeats any more: those of payments later than others.
func (s *service) purge(ctx context.Context) error {
	const day = 24 * time.Hour
	_, err1 := s.once.Purge(ctx, s.db.DB, 7*day, scopeBatch, scopeAccount)
	_, err2 := s.once.Purge(ctx, s.db.DB, 90*day)
	_, err3 := s.shipping.once.Purge(ctx, s.db.DB, 30*day)
	return errors.Join(err1, err2, err3)
}
