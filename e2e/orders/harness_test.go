package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/tokend/client/clienttest"
	"example.com/tokend/client/sqlguard"
	"example.com/tokend/e2e/internal/databases"
)

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		beProgram()
		return
	}
	os.Exit(databases.Run(m))
}

const (
	secret = "of the provider"
	alice  = "alice"
	lease  = 30 * time.Second // of tokend's time, which moves when a test says so
)

// shop is the service on a database of its own, and on a tokend whose time stands still.
type shop struct {
	*testing.T
	*databases.Database
	*service
	tokend *clienttest.Server
	gate   *gate
	url    string
	sql    *sql.DB // the test's own
	log    *lines
}

// each runs test on each kind of database, at its own isolation and at SERIALIZABLE.
func each(t *testing.T, test func(*shop)) {
	t.Helper()
	t.Parallel()
	databases.Each(t, func(t *testing.T, d *databases.Database) { test(newShop(t, d)) })
	serializable := map[string]*databases.Database{}
	t.Run("serializable", func(t *testing.T) {
		t.Parallel()
		serializable["PostgreSQL"] = databases.PostgreSQL(t).With("default_transaction_isolation=serializable")
		serializable["MariaDB"] = databases.MariaDB(t).With("tx_isolation=%27SERIALIZABLE%27")
		for name, d := range serializable { // SQLite has no other
			t.Run(name, func(t *testing.T) { test(newShop(t, d)) })
		}
	})
}

func newShop(t *testing.T, d *databases.Database) *shop {
	t.Helper()
	s := &shop{T: t, Database: d, tokend: clienttest.New(t), sql: d.Open(), log: new(lines)}
	s.gate = newGate(t, s.tokend.URL)
	s.service = s.instance()
	s.url = serve(t, s.service)
	return s
}

// instance returns another instance of the service, on the same database and tokend.
func (s *shop) instance() *service {
	s.Helper()
	return newInstance(s.T, s.Database, s.gate.url, s.tokend.ServiceKey, s.log)
}

func newInstance(t *testing.T, d *databases.Database, url, key string, log io.Writer) *service {
	t.Helper()
	made, err := newService(t.Context(), set(d, url, key, log))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), databases.Patience)
		defer cancel()
		made.guard.Drain(ctx)
		made.close()
	})
	return made
}

// set is how the service is set up on d.
func set(d *databases.Database, url, key string, log io.Writer) settings {
	return settings{
		driver: d.Driver, dsn: d.DSN, tokendURL: url, tokendKey: key,
		providerSecret: secret, lease: lease, log: slog.New(slog.NewJSONHandler(log, nil)),
	}
}

// serve serves made, and returns its URL.
func serve(t *testing.T, made *service) string {
	srv := httptest.NewServer(made.handler())
	t.Cleanup(srv.Close)
	return srv.URL
}

// reply is what a request was answered.
type reply struct {
	status   int
	header   http.Header
	body     string
	replayed bool // by tokend
	said
}

type said struct {
	Code            string
	StatusURL       string `json:"status_url"`
	Orders          []order
	Existing, Check []at
	OrderNo         string `json:"order_no"`
	Status          string
	Balance         int64
	Version         int64
}

func (r reply) String() string { return fmt.Sprintf("%d %s", r.status, r.body) }

var web = &http.Client{Timeout: 2 * databases.Patience, Transport: &http.Transport{DisableKeepAlives: true}}

// send sends a request; headers are name and value by turns.
func send(method, url, body string, headers ...string) (reply, error) {
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := web.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	r := reply{status: resp.StatusCode, header: resp.Header, body: string(b), replayed: resp.Header.Get("Idempotent-Replayed") != ""}
	json.Unmarshal(b, &r.said)
	return r, err
}

// order orders b under key at the instance at url.
func orderAt(t testing.TB, url, key string, b batch) reply {
	t.Helper()
	return must(t)(send("POST", url+"/order-batches", object(b), "X-User", alice, "Idempotency-Key", key))
}

func must(t testing.TB) func(reply, error) reply {
	return func(r reply, err error) reply {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
}

func (s *shop) order(key string, b batch) reply {
	s.Helper()
	return orderAt(s.T, s.url, key, b)
}

// later orders b on a goroutine.
func (s *shop) later(key string, b batch) <-chan reply {
	c := make(chan reply, 1)
	go func() {
		r, err := send("POST", s.url+"/order-batches", object(b), "X-User", alice, "Idempotency-Key", key)
		if err != nil {
			s.Errorf("order: %v", err)
		}
		c <- r
	}()
	return c
}

// callback sends an event of the provider.
func (s *shop) callback(orderNo string, e event) (reply, error) {
	body := object(e)
	return send("POST", s.url+"/orders/"+orderNo+"/pay", body, "Provider-Signature", hex.EncodeToString(signature(secret, []byte(body))))
}

func (s *shop) patch(id, key, body string) reply {
	s.Helper()
	headers := []string{"X-User", alice}
	if key != "" {
		headers = append(headers, "Idempotency-Key", key)
	}
	return must(s.T)(send("PATCH", s.url+"/accounts/"+id, body, headers...))
}

func object(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// lines returns a batch of n lines, whose numbers begin with prefix.
func someLines(prefix string, n int) batch {
	var b batch
	for i := range n {
		b.Lines = append(b.Lines, line{fmt.Sprintf("%s-%03d", prefix, i+1), amount(fmt.Sprintf("%d.90", 10+i))})
	}
	return b
}

// numbers returns the order numbers of a reply.
func (r reply) numbers() (all []string) {
	for _, o := range r.Orders {
		all = append(all, o.OrderNo)
	}
	return all
}

// want fails the test unless r has status and code.
func (r reply) want(t testing.TB, status int, code string) reply {
	t.Helper()
	if r.status != status || r.Code != code {
		t.Errorf("got %v, want %d %s", r, status, code)
	}
	return r
}

// count returns the number that query finds.
func (s *shop) count(query string) (n int) {
	s.Helper()
	if err := s.sql.QueryRowContext(s.Context(), query).Scan(&n); err != nil {
		s.Fatalf("%s: %v", query, err)
	}
	return n
}

// wantOrders counts in the tables: so many orders, and nothing twice.
func (s *shop) wantOrders(want int) {
	s.Helper()
	if n := s.count("SELECT COUNT(*) FROM order_item"); n != want {
		s.Errorf("there are %d orders, want %d", n, want)
	}
	for what, grouped := range map[string]string{
		"requests": "SELECT user_id, idempotency_key, COUNT(*) FROM order_request_record GROUP BY user_id, idempotency_key HAVING COUNT(*) > 1",
		"orders":   "SELECT user_id, external_order_no, COUNT(*) FROM order_item GROUP BY user_id, external_order_no HAVING COUNT(*) > 1",
		"payments": "SELECT subject, COUNT(*) FROM ledger WHERE kind = 'payment' GROUP BY subject HAVING COUNT(*) > 1",
		"messages": "SELECT order_no, COUNT(*) FROM outbox GROUP BY order_no HAVING COUNT(*) > 1",
		"parcels":  "SELECT order_no, COUNT(*) FROM parcel GROUP BY order_no HAVING COUNT(*) > 1",
	} {
		if n := s.count("SELECT COUNT(*) FROM (" + grouped + ") twice"); n != 0 {
			s.Errorf("%d %s are there more than once", n, what)
		}
	}
	if n := s.count("SELECT COUNT(*) FROM order_request_record WHERE status <> 2"); n != 0 {
		s.Errorf("%d requests were committed without their answer", n)
	}
}

// hold keeps orders with the sender's number from being inserted until release is called: whoever
// tries waits for a lock.
func (s *shop) hold(number string) (release func()) {
	s.Helper()
	conn, err := s.sql.Conn(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	begin := "BEGIN"
	if s.Dialect == sqlguard.SQLite {
		begin = "BEGIN IMMEDIATE" // which holds them all
	}
	for _, statement := range []string{begin, "INSERT INTO order_item (order_no, user_id, external_order_no, amount, status, created_at)" +
		" VALUES ('held', 'alice', '" + number + "', 1, 'HELD', '2026-01-01 00:00:00')"} {
		if _, err := conn.ExecContext(s.Context(), statement); err != nil {
			s.Fatalf("%s: %v", statement, err)
		}
	}
	release = sync.OnceFunc(func() {
		if _, err := conn.ExecContext(context.Background(), "ROLLBACK"); err != nil {
			s.Error(err)
		}
		conn.Close()
	})
	s.Cleanup(release)
	return release
}

// untilWaiting waits until n transactions wait for a lock, where that can be seen.
func (s *shop) untilWaiting(n int) {
	s.Helper()
	s.UntilWaiting(s.T, s.sql, n)
}

// lines is a log.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
