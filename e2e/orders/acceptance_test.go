package main

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"example.com/tokend/client/clienttest"
	"example.com/tokend/client/sqlguard"
	"example.com/tokend/e2e/internal/databases"
)

// Each test is a line of an acceptance list. What was done is counted in the tables.

// The same key and the same request: one batch, and the same order numbers. So it is where
// tokend answers, and where it has forgotten and the record does.
func TestSameKeySameRequest(t *testing.T) {
	each(t, func(s *shop) {
		b := someLines("B20260827", 20)
		first := s.order("idem_20260827_7f3a", b).want(s, 201, "")
		if len(first.Orders) != 20 || first.replayed {
			s.Fatalf("the first got %v", first)
		}
		for i, o := range first.Orders {
			if o.Line != i+1 || o.ExternalOrderNo != b.Lines[i].ExternalOrderNo || o.Existing || o.OrderNo == "" {
				s.Errorf("line %d: %+v", i+1, o)
			}
		}
		if again := s.order("idem_20260827_7f3a", b).want(s, 201, ""); again.body != first.body || !again.replayed {
			s.Errorf("the repeat got %v, replayed %v", again, again.replayed)
		}
		s.tokend.LoseData()
		if again := s.order("idem_20260827_7f3a", b).want(s, 201, ""); again.body != first.body || again.replayed {
			s.Errorf("where tokend has forgotten, the repeat got %v", again)
		}
		s.wantOrders(20)
	})
}

// An amount may be spelt in more ways than one, and is the same to both layers.
func TestSameRequestSpeltOtherwise(t *testing.T) {
	each(t, func(s *shop) {
		spelt := func(amount string) reply {
			s.Helper()
			return must(s.T)(send("POST", s.url+"/order-batches", `{ "lines": [{"amount": `+amount+`, "external_order_no": "B1"}]}`,
				"X-User", alice, "Idempotency-Key", "k1"))
		}
		first := spelt("19.90").want(s, 201, "")
		for _, amount := range []string{"19.9", `"19.90"`} {
			for range 2 {
				if r := spelt(amount).want(s, 201, ""); r.body != first.body {
					s.Errorf("%s: %v", amount, r)
				}
				s.tokend.LoseData()
			}
		}
		s.wantOrders(1)
	})
}

// The same key and another request: refused, and nothing new.
func TestSameKeyOtherRequest(t *testing.T) {
	each(t, func(s *shop) {
		b := someLines("B1", 20)
		s.order("k1", b).want(s, 201, "")
		b.Lines[4].Amount = "0.01"
		s.order("k1", b).want(s, 409, "IDEMPOTENCY_KEY_REUSED")
		s.order("k1", someLines("B2", 20)).want(s, 409, "IDEMPOTENCY_KEY_REUSED")
		s.tokend.LoseData()
		s.order("k1", b).want(s, 409, "IDEMPOTENCY_KEY_REUSED")
		s.order("k1", someLines("B2", 20)).want(s, 409, "IDEMPOTENCY_KEY_REUSED")
		s.wantOrders(20)
	})
}

// Another key and the same external order numbers: the conflict is put down to its lines, and
// nothing of the batch is kept. Where the lines say the same, it is a repeat that has lost its
// key, and gets the first one's orders.
func TestOtherKeySameNumber(t *testing.T) {
	each(t, func(s *shop) {
		first := s.order("k1", someLines("B1", 20)).want(s, 201, "")

		b := someLines("B1", 20)
		b.Lines[2].Amount, b.Lines[6].Amount = "1.00", "2.00"
		b.Lines[10], b.Lines[11] = line{"new-1", "5.00"}, line{"B1-012", "21.9"}
		no := s.order("k2", b).want(s, 409, "ORDER_ALREADY_EXISTS")
		if got, want := fmt.Sprint(no.Check), "[{3 B1-003 [amount]} {7 B1-007 [amount]}]"; got != want {
			s.Errorf("to check: %s, want %s", got, want)
		}
		if len(no.Existing) != 17 || slices.ContainsFunc(no.Existing, func(a at) bool { return a.Line == 3 || a.Line == 7 || a.Line == 11 }) {
			s.Errorf("existing: %v", no.Existing)
		}
		s.wantOrders(20)

		same := s.order("k3", someLines("B1", 20)).want(s, 201, "")
		if !slices.Equal(same.numbers(), first.numbers()) {
			s.Errorf("another key with the same lines got the orders %v", same.numbers())
		}
		mixed := s.order("k4", someLines("B1", 21)).want(s, 201, "")
		if !slices.Equal(mixed.numbers()[:20], first.numbers()) || mixed.Orders[20].Existing || !mixed.Orders[19].Existing {
			s.Errorf("a batch with one line more got %v", mixed)
		}
		s.wantOrders(21)

		// Another user's numbers are other numbers.
		must(s.T)(send("POST", s.url+"/order-batches", object(someLines("B1", 20)), "X-User", "bob", "Idempotency-Key", "k1")).want(s, 201, "")
		s.wantOrders(41)
	})
}

// Two at once with one key: one creates, and the other hears that it is being worked on, and
// where to ask. Afterwards both have the same orders.
func TestTwoAtOnce(t *testing.T) {
	each(t, func(s *shop) {
		b := someLines("B1", 20)
		release := s.hold("B1-007")
		first := s.later("k1", b)
		databases.Until(s.T, "the first has its claim", func() bool { return s.gate.answered() == 1 })
		s.untilWaiting(1)

		second := s.order("k1", b).want(s, 409, "REQUEST_IN_PROGRESS")
		if second.header.Get("Retry-After") == "" || second.StatusURL != "/results/order-batch" {
			s.Errorf("the second is not told when and where to ask: %v, %v", second, second.header)
		}
		ask := func() reply {
			return must(s.T)(send("GET", s.url+second.StatusURL, "", "X-User", alice, "Idempotency-Key", "k1"))
		}
		ask().want(s, 404, "NO_RESULT")
		b2 := someLines("B2", 20)
		s.order("k1", b2).want(s, 409, "IDEMPOTENCY_KEY_REUSED")

		release()
		got := databases.Await(s.T, first).want(s, 201, "")
		if again := s.order("k1", b).want(s, 201, ""); again.body != got.body {
			s.Errorf("the first got %v, the second %v", got, again)
		}
		if asked := ask().want(s, 200, ""); asked.body != got.body {
			s.Errorf("whoever asks got %v", asked)
		}
		s.wantOrders(20)
	})
}

// Many at once, with keys of their own and with one, for the same numbers in any order.
func TestManyAtOnce(t *testing.T) {
	each(t, func(s *shop) {
		forward, backward := someLines("B1", 20), someLines("B1", 20)
		slices.Reverse(backward.Lines)
		var ready sync.WaitGroup
		ready.Add(8)
		var all []<-chan reply
		for i := range 8 {
			c := make(chan reply, 1)
			all = append(all, c)
			go func() {
				ready.Done()
				ready.Wait()
				b, key := forward, "forward"
				if i%2 == 1 {
					b, key = backward, fmt.Sprint("backward", i/4)
				}
				r, err := send("POST", s.url+"/order-batches", object(b), "X-User", alice, "Idempotency-Key", key)
				if err != nil {
					s.Error(err)
				}
				c <- r
			}()
		}
		numbers := map[string]string{}
		for _, c := range all {
			r := databases.Await(s.T, c)
			if r.status != 201 && r.Code != "REQUEST_IN_PROGRESS" {
				s.Errorf("one got %v", r)
			}
			for _, o := range r.Orders {
				if was, ok := numbers[o.ExternalOrderNo]; ok && was != o.OrderNo {
					s.Errorf("%s is order %s and %s", o.ExternalOrderNo, was, o.OrderNo)
				}
				numbers[o.ExternalOrderNo] = o.OrderNo
			}
		}
		if len(numbers) != 20 {
			s.Errorf("%d numbers were answered", len(numbers))
		}
		s.wantOrders(20)
	})
}

// The provider calls three times, one after the other and at once, and a fourth time with an
// event of its own: one line in the ledger, one message, one parcel.
func TestCallbackThreeTimes(t *testing.T) {
	each(t, func(s *shop) {
		orders := s.order("k1", someLines("B1", 2)).want(s, 201, "").numbers()
		var first reply
		for i := range 3 {
			e := event{ID: "evt_1", Account: "acct_1", Amount: "10.90", SentAt: fmt.Sprint("12:00:0", i)}
			r := must(s.T)(s.callback(orders[0], e)).want(s, 200, "")
			if r.Status != "PAID" || r.OrderNo != orders[0] || i > 0 && r.body != first.body {
				s.Errorf("callback %d got %v", i+1, r)
			}
			first = r
			if i == 1 {
				s.tokend.LoseData() // the third is answered by the record
			}
		}
		must(s.T)(s.callback(orders[0], event{ID: "evt_2", Account: "acct_1", Amount: "10.90"})).want(s, 200, "")

		var ready sync.WaitGroup
		ready.Add(6)
		var all []<-chan reply
		for i := range 6 {
			c := make(chan reply, 1)
			all = append(all, c)
			go func() {
				ready.Done()
				ready.Wait()
				r, err := s.callback(orders[1], event{ID: fmt.Sprint("evt_1", i%2), Account: "acct_1", Amount: "11.90", SentAt: fmt.Sprint(i)})
				if err != nil {
					s.Error(err)
				}
				c <- r
			}()
		}
		for _, c := range all {
			if r := databases.Await(s.T, c); r.status != 200 && r.Code != "REQUEST_IN_PROGRESS" {
				s.Errorf("one of many callbacks got %v", r)
			}
		}
		if err := s.relay(s.Context()); err != nil {
			s.Fatal(err)
		}
		for table, want := range map[string]int{"ledger": 2, "outbox": 2, "parcel": 2} {
			if n := s.count("SELECT COUNT(*) FROM " + table); n != want {
				s.Errorf("%s has %d lines, want %d", table, n, want)
			}
		}
		s.wantOrders(2)
	})
}

// What is no payment changes nothing.
func TestCallbackRefused(t *testing.T) {
	each(t, func(s *shop) {
		no := s.order("k1", someLines("B1", 1)).want(s, 201, "").numbers()[0]
		must(s.T)(send("POST", s.url+"/orders/"+no+"/pay", object(event{ID: "evt_1", Account: "a", Amount: "10.90"}),
			"Provider-Signature", "00")).want(s, 401, "UNAUTHENTICATED")
		must(s.T)(s.callback(no, event{ID: "evt_1", Account: "a", Amount: "10.91"})).want(s, 422, "AMOUNT_MISMATCH")
		must(s.T)(s.callback("Onone", event{ID: "evt_2", Account: "a", Amount: "10.90"})).want(s, 404, "ORDER_NOT_FOUND")
		must(s.T)(s.callback(no, event{ID: "", Account: "a", Amount: "10.90"})).want(s, 400, "INVALID_REQUEST")
		if n := s.count("SELECT COUNT(*) FROM ledger"); n != 0 {
			s.Errorf("the ledger has %d lines", n)
		}
		// A refusal burns neither event nor order.
		must(s.T)(s.callback(no, event{ID: "evt_1", Account: "a", Amount: "10.90"})).want(s, 200, "")
	})
}

// add_balance sent twice adds once, and a key is needed for it. An absolute update has its
// version instead.
func TestBalances(t *testing.T) {
	each(t, func(s *shop) {
		const add = `{"action":"add_balance","amount":100}`
		first := s.patch("a1", "k1", add).want(s, 200, "")
		if first.Balance != 100 || first.Version != 1 {
			s.Errorf("the first: %v", first)
		}
		if again := s.patch("a1", "k1", add).want(s, 200, ""); again.body != first.body {
			s.Errorf("the second: %v", again)
		}
		s.tokend.LoseData()
		if again := s.patch("a1", "k1", add).want(s, 200, ""); again.body != first.body {
			s.Errorf("the third: %v", again)
		}
		s.patch("a1", "", add).want(s, 400, "IDEMPOTENCY_KEY_MISSING")
		s.patch("a1", "k1", `{"action":"add_balance","amount":200}`).want(s, 409, "IDEMPOTENCY_KEY_REUSED")
		if other := s.patch("a1", "k2", add).want(s, 200, ""); other.Balance != 200 || other.Version != 2 {
			s.Errorf("another increment: %v", other)
		}

		set := `{"balance":50,"version":2}`
		for range 2 { // the second finds what it wanted
			if r := s.patch("a1", "", set).want(s, 200, ""); r.Balance != 50 || r.Version != 3 {
				s.Errorf("set: %v", r)
			}
		}
		late := s.patch("a1", "", `{"balance":70,"version":2}`).want(s, 409, "VERSION_CONFLICT")
		if late.Balance != 50 || late.Version != 3 {
			s.Errorf("an update that came too late: %v", late)
		}
		s.patch("a1", "k3", `{"balance":60,"version":3}`).want(s, 200, "")
		for _, body := range []string{`{}`, `{"action":"add_balance"}`, `{"balance":1}`, `{"action":"add_balance","amount":1,"version":1}`, `{"action":"x","amount":1}`} {
			s.patch("a1", "k4", body).want(s, 400, "INVALID_REQUEST")
			s.patch("a1", "", body).want(s, 400, "INVALID_REQUEST")
		}
		if n := s.count("SELECT COUNT(*) FROM ledger WHERE kind = 'add_balance'"); n != 2 {
			s.Errorf("the ledger has %d increments", n)
		}
	})
}

// Every message comes twice, as its relay dies between sending it and noting that.
func TestMessagesTwice(t *testing.T) {
	each(t, func(s *shop) {
		for i, no := range s.order("k1", someLines("B1", 5)).want(s, 201, "").numbers() {
			must(s.T)(s.callback(no, event{ID: fmt.Sprint("evt_", i), Account: "a", Amount: amount(fmt.Sprintf("%d.90", 10+i))})).want(s, 200, "")
		}
		messages, err := s.unsent(s.Context())
		if err != nil || len(messages) != 5 {
			s.Fatalf("%v, %v", messages, err)
		}
		var sent sync.WaitGroup
		for _, m := range messages { // sent, and not noted; to two consumers at the same time
			for range 2 {
				sent.Go(func() {
					if err := s.shipping.handle(s.Context(), m); err != nil {
						s.Error(err)
					}
				})
			}
		}
		sent.Wait()
		for range 2 {
			if err := s.relay(s.Context()); err != nil {
				s.Fatal(err)
			}
		}
		if n := s.count("SELECT COUNT(*) FROM parcel"); n != 5 {
			s.Errorf("%d parcels for 5 orders", n)
		}
		if n := s.count("SELECT COUNT(*) FROM outbox WHERE sent_at IS NULL"); n != 0 {
			s.Errorf("%d messages are still to be sent", n)
		}
		s.wantOrders(5)
	})
}

// What cannot be read is refused before anything is asked or begun.
func TestBadBatches(t *testing.T) {
	t.Parallel()
	s := newShop(t, databases.SQLite(t))
	for name, body := range map[string]string{
		"none":              `{"lines":[]}`,
		"too many":          object(someLines("B", maxLines+1)),
		"a number twice":    `{"lines":[{"external_order_no":"B1","amount":1},{"external_order_no":"B1","amount":1}]}`,
		"no number":         `{"lines":[{"amount":1}]}`,
		"no amount":         `{"lines":[{"external_order_no":"B1"}]}`,
		"a negative amount": `{"lines":[{"external_order_no":"B1","amount":-1}]}`,
		"three decimals":    `{"lines":[{"external_order_no":"B1","amount":1.001}]}`,
		"an exponent":       `{"lines":[{"external_order_no":"B1","amount":1e3}]}`,
		"an injection":      `{"lines":[{"external_order_no":"B1'; DROP TABLE order_item","amount":1}]}`,
		"an unknown member": `{"lines":[],"x":1}`,
		"two values":        `{"lines":[]} {}`,
		"a member twice":    `{"lines":[{"external_order_no":"B1","amount":1}],"lines":[{"amount":5}]}`,
		"two amounts":       `{"lines":[{"external_order_no":"B1","amount":1,"amount":2}]}`,
		"capitals":          `{"LINES":[{"external_order_no":"B1","amount":1}]}`,
		"a long s":          "{\"line\u017f\":[{\"external_order_no\":\"B1\",\"amount\":1}]}",
		"no UTF-8":          "{\"lines\":[{\"external_order_no\":\"B1\xff\",\"amount\":1}]}",
		"no JSON":           `lines`,
	} {
		r := must(t)(send("POST", s.url+"/order-batches", body, "X-User", alice, "Idempotency-Key", "k1"))
		if r.status != 400 || r.Code != "INVALID_REQUEST" {
			t.Errorf("%s: %v", name, r)
		}
	}
	must(t)(send("POST", s.url+"/order-batches", object(someLines("B", 1)), "X-User", alice)).want(t, 400, "INVALID_REQUEST") // no key
	must(t)(send("POST", s.url+"/order-batches", object(someLines("B", 1)), "Idempotency-Key", "k1")).want(t, 401, "UNAUTHENTICATED")
	s.wantOrders(0)
	if n := s.gate.answered(); n != 0 {
		t.Errorf("tokend was asked %d times", n)
	}
}

// What can never be carried out is refused as the sender's fault, and leaves nothing.
func TestNeverPossible(t *testing.T) {
	t.Parallel()
	databases.Each(t, func(t *testing.T, d *databases.Database) {
		s := newShop(t, d)
		no := s.order("k1", someLines("B1", 1)).want(t, 201, "").numbers()[0]
		patch := func(path, body string) reply {
			return must(t)(send("PATCH", s.url+path, body, "X-User", alice, "Idempotency-Key", "k2"))
		}
		pay := func(no, body string) reply {
			return must(t)(send("POST", s.url+"/orders/"+no+"/pay", body, "Provider-Signature", hex.EncodeToString(signature(secret, []byte(body)))))
		}
		ask := func(method, path, user, key string) reply {
			return must(t)(send(method, s.url+path, object(someLines("B2", 1)), "X-User", user, "Idempotency-Key", key))
		}
		for name, r := range map[string]reply{
			"an amount that the ledger cannot hold":  patch("/accounts/a", `{"action":"add_balance","amount":10000000000}`),
			"a balance beyond all":                   patch("/accounts/a", `{"balance":9223372036854775807,"version":0}`),
			"two amounts":                            patch("/accounts/a", `{"action":"add_balance","amount":1,"amount":2}`),
			"an account with a NUL":                  patch("/accounts/a%00b", `{"action":"add_balance","amount":1}`),
			"an order with a NUL":                    pay("a%00b", `{"event_id":"e1","account":"a","amount":"10.90"}`),
			"an order that is no UTF-8":              pay("a%ffb", `{"event_id":"e2","account":"a","amount":"10.90"}`),
			"an event that is half a surrogate pair": pay(no, `{"event_id":"\ud800","account":"a","amount":"10.90"}`),
			"a user that is no UTF-8":                ask("POST", "/order-batches", "al\xffice", "k3"),
			"a user that is too long":                ask("POST", "/order-batches", strings.Repeat("x", sqlguard.UserMax+1), "k3"),
			"a key that is too long":                 ask("POST", "/order-batches", alice, strings.Repeat("k", sqlguard.KeyMax+1)),
			"a key to ask for that is too long":      ask("GET", "/results/order-batch", alice, strings.Repeat("k", sqlguard.KeyMax+1)),
		} {
			if r.status != 400 || r.Code != "INVALID_REQUEST" {
				t.Errorf("%s: %v", name, r)
			}
		}
		s.wantOrders(1)
		if n := s.count("SELECT COUNT(*) FROM ledger"); n != 0 {
			t.Errorf("the ledger has %d lines", n)
		}
	})
}

// A message that can never be handled is parked, and those behind it are sent.
func TestMessageParked(t *testing.T) {
	t.Parallel()
	databases.Each(t, func(t *testing.T, d *databases.Database) {
		s := newShop(t, d)
		for i, no := range s.order("k1", someLines("B1", 2)).want(t, 201, "").numbers() {
			must(t)(s.callback(no, event{ID: fmt.Sprint("evt_", i), Account: "a", Amount: amount(fmt.Sprintf("%d.90", 10+i))})).want(t, 200, "")
		}
		messages, err := s.unsent(t.Context())
		if err != nil || len(messages) != 2 {
			t.Fatalf("%v, %v", messages, err)
		}
		other := messages[0]
		other.OrderNo = messages[1].OrderNo // another message was handled under the first one's number
		if err := s.shipping.handle(t.Context(), other); err != nil {
			t.Fatal(err)
		}
		if err := s.relay(t.Context()); !errors.Is(err, sqlguard.ErrReused) {
			t.Errorf("the relay says %v", err)
		}
		if err := s.relay(t.Context()); err != nil {
			t.Errorf("the parked message is tried again: %v", err)
		}
		if n := s.count("SELECT COUNT(*) FROM outbox WHERE sent_at IS NOT NULL"); n != 1 {
			t.Errorf("%d messages were sent", n)
		}
		if n := s.count("SELECT COUNT(*) FROM outbox WHERE parked_at IS NOT NULL"); n != 1 {
			t.Errorf("%d messages were parked", n)
		}
	})
}

// Instances that start at the same time make the tables once.
func TestStartsAtOnce(t *testing.T) {
	t.Parallel()
	server := clienttest.New(t)
	for range 3 {
		d := databases.PostgreSQL(t)
		var starts sync.WaitGroup
		for range 4 {
			starts.Go(func() {
				made, err := newService(t.Context(), set(d, server.URL, server.ServiceKey, io.Discard))
				if err != nil {
					t.Error(err)
					return
				}
				made.close()
			})
		}
		starts.Wait()
	}
}

// A table that cannot be made is told of.
func TestStartFails(t *testing.T) {
	t.Parallel()
	server := clienttest.New(t)
	d := databases.SQLite(t)
	d.Exec("CREATE VIEW order_request_record AS SELECT 1 AS created_at")
	if _, err := newService(t.Context(), set(d, server.URL, server.ServiceKey, io.Discard)); err == nil {
		t.Error("a view is taken for the table")
	}
}

var hexes = regexp.MustCompile(`\b[0-9a-f]{64}\b|[0-9a-f]{8}\b`)

// A log line has who, under which key, which request, what became of the transaction and which
// lines were in conflict; and neither keys nor bodies.
func TestLog(t *testing.T) {
	t.Parallel()
	s := newShop(t, databases.SQLite(t))
	const key = "idem_20260827_7f3a"
	b := someLines("SECRETNO", 3)
	s.order(key, b).want(t, 201, "")
	s.order(key, b).want(t, 201, "")
	s.tokend.LoseData()
	s.order(key, b).want(t, 201, "")
	b.Lines[1].Amount = "77.77"
	s.order("another_key_that_is_long", b).want(t, 409, "ORDER_ALREADY_EXISTS")
	s.order(key, b).want(t, 409, "IDEMPOTENCY_KEY_REUSED")
	s.order("short", someLines("SECRETNO", 1)).want(t, 201, "")

	log := s.log.String()
	got := strings.Split(strings.TrimSpace(log), "\n")
	for i, want := range []string{
		`"user":"alice","key":"idem…DIGEST8","digest":"DIGEST","transaction":"committed","status":201,"code":""`,
		`"user":"alice","key":"idem…DIGEST8","digest":"DIGEST","transaction":"not begun","status":0,"code":"REPLAYED"`,
		`"user":"alice","key":"idem…DIGEST8","digest":"DIGEST","transaction":"replayed","status":201,"code":""`,
		`"user":"alice","key":"anot…DIGEST8","digest":"DIGEST","transaction":"rolled back","status":409,"code":"ORDER_ALREADY_EXISTS","conflict_lines":[2]`,
		`"user":"alice","key":"idem…DIGEST8","digest":"DIGEST","transaction":"not begun","status":409,"code":"IDEMPOTENCY_KEY_REUSED"`,
		`"user":"alice","key":"…DIGEST8","digest":"DIGEST","transaction":"committed","status":201,"code":""`,
	} {
		if i >= len(got) {
			t.Fatalf("the log ends after %d lines:\n%s", i, log)
		}
		if line := hexes.ReplaceAllStringFunc(got[i], func(h string) string {
			return map[bool]string{true: "DIGEST", false: "DIGEST8"}[len(h) == 64]
		}); !strings.Contains(line, want) {
			t.Errorf("line %d is\n%s\nwant\n%s", i+1, line, want)
		}
	}
	if len(got) != 6 {
		t.Errorf("there are %d lines:\n%s", len(got), log)
	}
	for _, secret := range []string{"SECRETNO", "77.77", key, "another_key", "short", "external_order_no"} {
		if strings.Contains(log, secret) {
			t.Errorf("the log shows %q:\n%s", secret, log)
		}
	}
}
