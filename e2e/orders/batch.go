package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"example.com/tokend/client/sqlguard"
)

// batch is what is ordered in one request.
type batch struct {
	Lines []line `json:"lines"`
}

type line struct {
	ExternalOrderNo string `json:"external_order_no"` // the sender's own
	Amount          amount `json:"amount"`
}

const maxLines = 100

var orderNumber = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// amount is money: a JSON number or string, never a float.
type amount string

var money = regexp.MustCompile(`^(0|[1-9]\d{0,9})(\.\d{1,2})?$`)

// UnmarshalJSON takes 19.9, 19.90 and "19.90" for the same.
func (a *amount) UnmarshalJSON(text []byte) error {
	n := strings.Trim(string(text), `"`)
	if !money.MatchString(n) {
		return errors.New("an amount has up to ten digits before the point and two behind it")
	}
	whole, cents, _ := strings.Cut(n, ".")
	*a = amount(whole + "." + (cents + "00")[:2])
	return nil
}

// ordered is the answer to a batch.
type ordered struct {
	Orders []order `json:"orders"`
}

type order struct {
	Line            int    `json:"line"` // from 1
	ExternalOrderNo string `json:"external_order_no"`
	OrderNo         string `json:"order_no"`
	Existing        bool   `json:"existing"` // it was there: the number came before, with the same data
}

// readBatch reads a batch, and what makes it another one than the next: two spellings of one
// amount do not.
func readBatch(body []byte) (b batch, meaning string, err error) {
	if err := decode(body, &b); err != nil {
		return b, "", err
	}
	if len(b.Lines) < 1 || len(b.Lines) > maxLines {
		return b, "", fmt.Errorf("a batch has 1 to %d lines", maxLines)
	}
	seen := map[string]bool{}
	for i, l := range b.Lines {
		if !orderNumber.MatchString(l.ExternalOrderNo) || l.Amount == "" || seen[l.ExternalOrderNo] {
			return b, "", fmt.Errorf("line %d needs an amount and an external_order_no of its own", i+1)
		}
		seen[l.ExternalOrderNo] = true
	}
	text, err := json.Marshal(b)
	return b, string(text), err
}

// decode reads one JSON value that can be read in one way, and nothing else.
func decode(body []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("there is something after the JSON value")
	}
	if !utf8.Valid(body) {
		return errors.New("the JSON is not UTF-8")
	}
	return unambiguous(json.NewDecoder(bytes.NewReader(body)))
}

// member is how our members are spelt: encoding/json takes LINES for lines, too.
var member = regexp.MustCompile(`^[a-z_]+$`)

// unambiguous refuses what encoding/json lets through: members that come twice, of which the
// last one counts or both are merged, members in another spelling, and halves of a surrogate
// pair, which are all one character.
func unambiguous(d *json.Decoder) error {
	t, err := d.Token()
	if err != nil {
		return err
	}
	if text, ok := t.(string); ok && strings.ContainsRune(text, utf8.RuneError) {
		return errors.New("there is text that is not Unicode")
	}
	delim, ok := t.(json.Delim)
	if !ok {
		return nil
	}
	seen := map[json.Token]bool{}
	for d.More() {
		if delim == '{' {
			name, err := d.Token()
			if err != nil {
				return err
			}
			if text, ok := name.(string); !ok || seen[name] || !member.MatchString(text) {
				return fmt.Errorf("the member %q comes twice, or is unknown", name)
			}
			seen[name] = true
		}
		if err := unambiguous(d); err != nil {
			return err
		}
	}
	_, err = d.Token() // the end of it
	return err
}

// createBatch takes a batch: all of its lines, or none. It does not call guard.Commit, as all
// that it does is in one transaction with its record: if the claim is lost, what runs again
// finds the record.
func (s *service) createBatch(w http.ResponseWriter, r *http.Request) {
	b, err := read(r, readBatch)
	if err != nil {
		s.failed(w, r, err)
		return
	}
	n := noteOf(r)
	id := sqlguard.ID{Scope: scopeBatch, User: n.user, Key: n.key}
	s.do(w, r, http.StatusCreated, id, func(ctx context.Context, tx sqlguard.Tx) (any, error) {
		return s.insert(ctx, tx, n.user, b)
	})
}

// insert inserts the lines of b, or finds those that are there with the same data.
func (s *service) insert(ctx context.Context, tx sqlguard.Tx, user string, b batch) (any, error) {
	rows := make([]sqlguard.Row, len(b.Lines))
	for i, l := range b.Lines {
		rows[i] = sqlguard.Row{
			"order_no": "O" + rand.Text(), "user_id": user, "external_order_no": l.ExternalOrderNo,
			"amount": string(l.Amount), "status": waitPay, "created_at": time.Now().UTC(),
		}
	}
	verdicts, err := s.items.Ensure(ctx, tx, rows...)
	if conflict, ok := errors.AsType[*sqlguard.ConflictError](err); ok {
		return nil, alreadyExists(b, conflict)
	}
	if err != nil {
		return nil, err
	}
	out := ordered{Orders: make([]order, len(verdicts))}
	for i, v := range verdicts {
		no, err := sqlguard.Value[string](v, "order_no")
		if err != nil {
			return nil, err
		}
		out.Orders[i] = order{Line: i + 1, ExternalOrderNo: b.Lines[i].ExternalOrderNo, OrderNo: no, Existing: v.Kind == sqlguard.Same}
	}
	return out, nil
}

// alreadyExists puts a conflict down to its lines: those that are there already, and those
// that somebody has to look at.
func alreadyExists(b batch, conflict *sqlguard.ConflictError) *refusal {
	no := &refusal{http.StatusConflict, problem{Code: "ORDER_ALREADY_EXISTS", Message: "nothing was ordered: some numbers belong to other orders"}}
	for i, v := range conflict.Verdicts {
		line := at{Line: i + 1, ExternalOrderNo: b.Lines[i].ExternalOrderNo, Differs: v.Differs}
		switch v.Kind {
		case sqlguard.Conflict:
			no.Check = append(no.Check, line)
		case sqlguard.Same:
			no.Existing = append(no.Existing, line)
		}
	}
	return no
}

// read reads r's body with one of the functions that its digest is made with.
func read[T any](r *http.Request, with func([]byte) (T, string, error)) (v T, err error) {
	body, err := io.ReadAll(r.Body) // the guard has bounded it
	if err == nil {
		v, _, err = with(body)
	}
	if err != nil {
		return v, invalid(err.Error())
	}
	return v, nil
}

// do does the work once under id, and answers with its result.
func (s *service) do(w http.ResponseWriter, r *http.Request, status int, id sqlguard.ID, work func(context.Context, sqlguard.Tx) (any, error)) {
	n := noteOf(r)
	n.transaction = "rolled back" // until we know better
	got, err := s.once.Do(r.Context(), s.db.DB, id, n.digest, func(ctx context.Context, tx sqlguard.Tx) ([]byte, error) {
		result, err := work(ctx, tx)
		if err != nil {
			return nil, err
		}
		return json.Marshal(result)
	})
	if err != nil {
		s.failed(w, r, err)
		return
	}
	n.transaction = "committed"
	if got.Replayed {
		n.transaction = "replayed"
	}
	s.answer(w, r, status, got.Result)
}
