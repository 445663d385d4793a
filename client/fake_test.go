package client_test

import (
	"crypto/rand"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"example.com/tokend/client"
	"example.com/tokend/httpapi/wire"
)

// newTokend starts a tokend for an example and returns a client of it.
func newTokend() (c *client.Client, stop func()) {
	srv := httptest.NewServer(new(tokens))
	c, err := client.New(srv.URL, client.ServiceKey("example"))
	if err != nil {
		panic(err)
	}
	return c, srv.Close
}

// tokens is as much of a tokend as the examples need.
type tokens struct {
	mu   sync.Mutex
	used map[string]bool // by token; false is issued
}

func (ts *tokens) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	var req struct {
		Token, User, Purpose string
		TTL                  int64
	}
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		panic(err)
	}
	const ref = "t_00112233445566778899aabbccddeeff"
	now := time.Now()
	switch used, issued := ts.used[req.Token]; {
	case r.URL.Path == wire.PathTokens:
		token := "ott_" + rand.Text()
		ts.used = map[string]bool{token: false}
		reply(w, http.StatusCreated, wire.TypeJSON, wire.IssueResponse{
			Token: token, Ref: ref, User: req.User, Purpose: req.Purpose,
			IssuedAt: wire.TimeOf(now), ExpiresAt: wire.TimeOf(now.Add(time.Duration(req.TTL) * time.Second)), TTL: req.TTL,
		})
	case !issued:
		refuse(w, wire.CodeTokenInvalid, "")
	case r.URL.Path == wire.PathStatus:
		state := map[bool]string{false: "issued", true: "used"}[used]
		reply(w, http.StatusOK, wire.TypeJSON, wire.StatusResponse{State: state, Ref: ref, ExpiresAt: wire.TimeOf(now)})
	case used:
		refuse(w, wire.CodeTokenUsed, ref)
	default:
		ts.used[req.Token] = true
		reply(w, http.StatusOK, wire.TypeJSON, wire.ConsumeResponse{
			Outcome: wire.OutcomeConsumed, Ref: ref, User: req.User, Purpose: req.Purpose, UsedAt: wire.TimeOf(now),
		})
	}
}

func refuse(w http.ResponseWriter, code wire.Code, ref string) {
	k, _ := wire.KindOf(code)
	reply(w, k.Status, wire.TypeProblem, wire.Problem{Code: code, Status: k.Status, Next: k.Next, Ref: ref, UsedBy: "01234567"})
}

func reply(w http.ResponseWriter, status int, contentType string, body any) {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(body)
}
