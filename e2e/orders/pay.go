package main

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"example.com/tokend/client/sqlguard"
)

// event is a callback of the payment provider, which sends it until it is answered, each time
// with another SentAt.
type event struct {
	ID      string `json:"event_id"`
	Account string `json:"account"` // ours at the provider, whose keys are its own
	Amount  amount `json:"amount"`
	SentAt  string `json:"sent_at"`
}

func readEvent(body []byte) (e event, meaning string, err error) {
	if err := decode(body, &e); err != nil {
		return e, "", err
	}
	if e.ID == "" || len(e.ID) > sqlguard.KeyMax || e.Account == "" || len(e.Account) > 64 || e.Amount == "" {
		return e, "", errors.New("an event has an event_id, an account and an amount")
	}
	same := e
	same.SentAt = ""
	text, err := json.Marshal(same)
	return e, string(text), err
}

// eventID and eventOwner tell the guard by what an event is known.
func eventID(r *http.Request, body []byte) (string, error) {
	e, _, err := readEvent(body)
	noteOf(r).key = e.ID
	return e.ID, err
}

func eventOwner(r *http.Request, body []byte) (string, error) {
	e, _, err := readEvent(body)
	owner := "provider:" + e.Account
	noteOf(r).user = owner
	return owner, err
}

// signed lets through what the provider has signed.
func (s *service) signed(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 64<<10))
		if err != nil {
			s.answer(w, r, http.StatusBadRequest, problem{Code: "INVALID_REQUEST", Message: "the body cannot be read"})
			return
		}
		given, err := hex.DecodeString(r.Header.Get("Provider-Signature"))
		if err != nil || !hmac.Equal(given, signature(s.set.providerSecret, body)) {
			s.answer(w, r, http.StatusUnauthorized, problem{Code: "UNAUTHENTICATED", Message: "the signature is not the provider's"})
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		h.ServeHTTP(w, r)
	})
}

func signature(secret string, body []byte) []byte {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	return mac.Sum(nil)
}

// pay takes a callback. Two layers keep it from paying twice: the event's record, and the
// order's state, which also holds against a second event for one order.
func (s *service) pay(w http.ResponseWriter, r *http.Request) {
	e, err := read(r, readEvent)
	if err != nil {
		s.failed(w, r, err)
		return
	}
	if !orderNumber.MatchString(r.PathValue("no")) {
		s.failed(w, r, invalid("there can be no such order number"))
		return
	}
	n := noteOf(r)
	id := sqlguard.ID{Scope: scopePay, User: n.user, Key: n.key}
	s.do(w, r, http.StatusOK, id, func(ctx context.Context, tx sqlguard.Tx) (any, error) {
		return s.markPaid(ctx, tx, r.PathValue("no"), e)
	})
}

type payment struct {
	OrderNo string `json:"order_no"`
	Status  string `json:"status"`
}

func (s *service) markPaid(ctx context.Context, tx sqlguard.Tx, orderNo string, e event) (any, error) {
	var right int
	var user string
	err := tx.QueryRowContext(ctx, s.db.q("SELECT CASE WHEN amount = ? THEN 1 ELSE 0 END, user_id FROM order_item WHERE order_no = ?"), string(e.Amount), orderNo).Scan(&right, &user)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil, &refusal{http.StatusNotFound, problem{Code: "ORDER_NOT_FOUND", Message: "there is no such order"}}
	case err != nil:
		return nil, err
	case right == 0:
		return nil, &refusal{http.StatusUnprocessableEntity, problem{Code: "AMOUNT_MISMATCH", Message: "the order is for another amount"}}
	}
	now := time.Now().UTC()
	got, err := s.states.Take(ctx, tx, orderNo, "pay", sqlguard.Set{Column: "paid_at", Value: now})
	if err != nil {
		return nil, err
	}
	if got.Moved {
		// What follows from the payment stands on this branch and on no other. What is outside
		// of the database is asked for in the outbox, which is committed with the rest or not at all.
		if _, err := tx.ExecContext(ctx, s.db.q("INSERT INTO ledger (user_id, subject, kind, amount, created_at) VALUES (?, ?, 'payment', ?, ?)"),
			user, orderNo, string(e.Amount), now); err != nil {
			return nil, err
		}
		if _, err := tx.ExecContext(ctx, s.db.q("INSERT INTO outbox (kind, order_no, created_at) VALUES ('order.paid', ?, ?)"), orderNo, now); err != nil {
			return nil, err
		}
	}
	return payment{orderNo, got.State}, nil
}
