package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"example.com/tokend/client/sqlguard"
)

// change is an increment, which is not idempotent and needs a key, or an absolute update,
// whose version says which balance it replaces.
type change struct {
	Action  string `json:"action,omitempty"` // "add_balance", or none
	Amount  *int64 `json:"amount,omitempty"`
	Balance *int64 `json:"balance,omitempty"`
	Version *int64 `json:"version,omitempty"`
}

func readChange(body []byte) (c change, meaning string, err error) {
	if err := decode(body, &c); err != nil {
		return c, "", err
	}
	add := c.Action == "add_balance" && c.Amount != nil && c.Balance == nil && c.Version == nil
	set := c.Action == "" && c.Amount == nil && c.Balance != nil && c.Version != nil
	if !add && !set {
		return c, "", errors.New(`a change is {"action":"add_balance","amount":n} or {"balance":n,"version":n}`)
	}
	for name, n := range map[string]*int64{"amount": c.Amount, "balance": c.Balance} {
		if n != nil && (*n > maxChange || *n < -maxChange) {
			return c, "", fmt.Errorf("%s has at most ten digits", name)
		}
	}
	text, err := json.Marshal(c)
	return c, string(text), err
}

// maxChange is what the ledger's column holds.
const maxChange = 9_999_999_999

type account struct {
	ID      string `json:"id"`
	Balance int64  `json:"balance"`
	Version int64  `json:"version"`
}

func (s *service) patchAccount(w http.ResponseWriter, r *http.Request) {
	c, err := read(r, readChange)
	id := r.PathValue("id")
	n := noteOf(r)
	switch {
	case err != nil:
		s.failed(w, r, err)
		return
	case n.user == "":
		s.answer(w, r, http.StatusUnauthorized, problem{Code: "UNAUTHENTICATED", Message: "nobody is logged in"})
		return
	case !orderNumber.MatchString(id):
		s.failed(w, r, invalid("there can be no such account"))
		return
	case c.Balance != nil:
		s.setBalance(w, r, id, *c.Balance, *c.Version)
		return
	case n.key == "":
		s.answer(w, r, http.StatusBadRequest, problem{Code: "IDEMPOTENCY_KEY_MISSING", Message: "an increment needs an Idempotency-Key: sent twice, it would be added twice"})
		return
	}
	s.do(w, r, http.StatusOK, sqlguard.ID{Scope: scopeAccount, User: n.user, Key: n.key}, func(ctx context.Context, tx sqlguard.Tx) (any, error) {
		return s.addBalance(ctx, tx, n.user, id, *c.Amount)
	})
}

// open sees to it that the account is there.
func (s *service) open(ctx context.Context, tx sqlguard.Tx, user, id string) error {
	_, err := s.accounts.EnsureEach(ctx, tx, sqlguard.Row{"user_id": user, "id": id, "balance": 0, "version": 0})
	return err
}

// addBalance adds to an account.
func (s *service) addBalance(ctx context.Context, tx sqlguard.Tx, user, id string, amount int64) (any, error) {
	if err := s.open(ctx, tx, user, id); err != nil {
		return nil, err
	}
	if _, err := tx.ExecContext(ctx, s.db.q("UPDATE account SET balance = balance + ?, version = version + 1 WHERE user_id = ? AND id = ?"), amount, user, id); err != nil {
		return nil, err
	}
	if _, err := tx.ExecContext(ctx, s.db.q("INSERT INTO ledger (user_id, subject, kind, amount, created_at) VALUES (?, ?, 'add_balance', ?, ?)"), user, id, amount, time.Now().UTC()); err != nil {
		return nil, err
	}
	return s.balance(ctx, tx, user, id)
}

func (s *service) balance(ctx context.Context, q sqlguard.Querier, user, id string) (a account, err error) {
	a.ID = id
	err = q.QueryRowContext(ctx, s.db.q("SELECT balance, version FROM account WHERE user_id = ? AND id = ?"), user, id).Scan(&a.Balance, &a.Version)
	return a, err
}

// setBalance replaces the balance of one version. It needs no key: the second of two finds
// another version, and where that is what it wanted it gets the first one's answer. An account
// is opened by its first change, with version 0.
func (s *service) setBalance(w http.ResponseWriter, r *http.Request, id string, balance, version int64) {
	n := noteOf(r)
	n.transaction = "rolled back" // until we know better
	var now account
	err := s.once.Run(r.Context(), s.db.DB, func(ctx context.Context, tx sqlguard.Tx) error {
		if _, err := s.accounts.EnsureEach(ctx, tx, sqlguard.Row{"user_id": n.user, "id": id, "balance": 0, "version": 0}); err != nil {
			return err
		}
		// The version changes in each row that is found, so it is counted in either way.
		_, err := tx.ExecContext(ctx, s.db.q("UPDATE account SET balance = ?, version = version + 1 WHERE user_id = ? AND id = ? AND version = ?"),
			balance, n.user, id, version)
		if err != nil {
			return err
		}
		now, err = s.balance(ctx, tx, n.user, id)
		if err == nil && (now.Version != version+1 || now.Balance != balance) {
			return &refusal{http.StatusConflict, problem{
				Code: "VERSION_CONFLICT", Message: "the account has changed since", Balance: &now.Balance, Version: &now.Version,
			}}
		}
		return err
	})
	if err != nil {
		s.failed(w, r, err)
		return
	}
	n.transaction = "committed"
	s.answer(w, r, http.StatusOK, now)
}
