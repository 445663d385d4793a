package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"example.com/tokend/client"
	"example.com/tokend/client/guard"
	"example.com/tokend/client/sqlguard"
	"example.com/tokend/httpapi/wire"
)

// problem is what a request that failed is answered.
type problem struct {
	Code    string `json:"code"`
	Message string `json:"message"`

	StatusURL  string `json:"status_url,omitempty"`  // where to ask, with the same Idempotency-Key
	RetryAfter int    `json:"retry_after,omitempty"` // seconds
	Existing   []at   `json:"existing,omitempty"`    // lines that are there, as they were sent
	Check      []at   `json:"check,omitempty"`       // lines whose number is taken by another order
	Balance    *int64 `json:"balance,omitempty"`
	Version    *int64 `json:"version,omitempty"`
}

// at names a line of a batch.
type at struct {
	Line            int      `json:"line"` // from 1
	ExternalOrderNo string   `json:"external_order_no"`
	Differs         []string `json:"differs,omitempty"`
}

// refusal is a problem as an error: what was begun is rolled back.
type refusal struct {
	status int
	problem
}

func (r *refusal) Error() string { return r.Code }

// invalid refuses a request that can never be carried out, and says why.
func invalid(why string) *refusal {
	return &refusal{http.StatusBadRequest, problem{Code: "INVALID_REQUEST", Message: why}}
}

// checkHeaders refuses a user and a key that no record can hold.
func checkHeaders(r *http.Request) error {
	if user := userOf(r); len(user) > sqlguard.UserMax || !utf8.ValidString(user) {
		return invalid(fmt.Sprintf("X-User must be UTF-8 of at most %d bytes", sqlguard.UserMax))
	}
	if len(r.Header.Get("Idempotency-Key")) > sqlguard.KeyMax {
		return invalid(fmt.Sprintf("Idempotency-Key must have at most %d bytes", sqlguard.KeyMax))
	}
	return nil
}

// answer answers with v, or with bytes as they are.
func (s *service) answer(w http.ResponseWriter, r *http.Request, status int, v any) {
	body, ok := v.([]byte)
	if !ok {
		body, _ = json.Marshal(v) // of strings and numbers
	}
	n := noteOf(r)
	n.status = status
	if p, ok := v.(problem); ok {
		n.code = p.Code
		if p.RetryAfter > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(p.RetryAfter))
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(body)
}

// failed answers with err, which has ended a transaction. With a status of 4xx and 5xx the
// guard gives the key back, and a repeat comes here again: the record tells it what is done.
func (s *service) failed(w http.ResponseWriter, r *http.Request, err error) {
	n := noteOf(r)
	var no *refusal
	switch {
	case errors.As(err, &no):
		for _, line := range no.Check {
			n.conflicts = append(n.conflicts, line.Line)
		}
		s.answer(w, r, no.status, no.problem)
	case errors.Is(err, sqlguard.ErrCommitUnknown):
		n.transaction, n.err = "unknown", err
		s.answer(w, r, http.StatusInternalServerError, problem{Code: "INTERNAL", Message: "send the same again, under the same key"})
	case errors.Is(err, sqlguard.ErrNoResult):
		n.err = err
		s.answer(w, r, http.StatusInternalServerError, problem{Code: "INTERNAL", Message: "somebody has to look at what became of the first request"})
	case errors.Is(err, sqlguard.ErrReused):
		s.answer(w, r, http.StatusConflict, reused)
	case errors.Is(err, sqlguard.ErrInProgress), errors.Is(context.Cause(r.Context()), client.ErrSuperseded):
		s.answer(w, r, http.StatusConflict, inProgress(n.scope, 1))
	case errors.Is(err, sqlguard.ErrRetryTransaction):
		n.err = err
		s.answer(w, r, http.StatusServiceUnavailable, problem{Code: "TRY_AGAIN", Message: "nothing was done; send the same again", RetryAfter: 1})
	default:
		n.err = err
		s.answer(w, r, http.StatusInternalServerError, problem{Code: "INTERNAL", Message: "send the same again, under the same key"})
	}
}

var reused = problem{Code: "IDEMPOTENCY_KEY_REUSED", Message: "the key was used before for another request: nothing was done"}

// inProgress says where to ask. A provider has nobody logged in, and sends again.
func inProgress(scope string, seconds int) problem {
	p := problem{Code: "REQUEST_IN_PROGRESS", Message: "the same request is being worked on", RetryAfter: max(1, seconds)}
	if scope != scopePay {
		p.StatusURL = "/results/" + scope
	}
	return p
}

// refused answers where the guard lets nothing through.
func (s *service) refused(w http.ResponseWriter, r *http.Request, no *guard.Refused) {
	seconds := int(no.RetryAfter.Seconds())
	n := noteOf(r)
	n.ref = no.Ref
	switch {
	case no.Code == wire.CodeIdempotencyKeyReused:
		s.answer(w, r, no.Status, reused)
	case no.Code == wire.CodeRequestInProgress:
		s.answer(w, r, no.Status, inProgress(n.scope, seconds))
	default:
		if no.Status >= 500 {
			n.err = no
		}
		s.answer(w, r, no.Status, problem{Code: strings.ToUpper(string(no.Code)), Message: no.Detail, RetryAfter: seconds})
	}
}
