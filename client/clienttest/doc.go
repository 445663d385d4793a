// Package clienttest has a tokend for the tests of services that use one: the real API
// over the real store, in the process of the test, on a Redis in memory. There is nothing
// to install and nothing to fake.
//
//	func TestDoubleSubmission(t *testing.T) {
//		t.Parallel()
//		tokend := clienttest.New(t) // ends with the test
//		shop := newShop(tokend.Client())
//
//		token := shop.showForm(t, "alice")
//		wantStatus(t, shop.submit("alice", token), http.StatusCreated)
//		wantStatus(t, shop.submit("alice", token), http.StatusSeeOther) // to the first one's order
//		shop.wantOrders(t, 1)
//	}
//
// A service that makes its own client gets [Server.URL] and [Server.ServiceKey], as it
// would get them from its configuration. [Server.Client] differs from that one in that it
// does not wait between its tries, so that an outage costs no time; client.Backoff does
// the same for the service's own.
//
// # Time
//
// The server's time stands still until [Server.Advance] moves it on. No test sleeps:
//
//	func TestExpiredForm(t *testing.T) {
//		t.Parallel()
//		tokend := clienttest.New(t, clienttest.TTL(10*time.Minute))
//		shop := newShop(tokend.Client())
//
//		token := shop.showForm(t, "alice")
//		tokend.Advance(10 * time.Minute)
//		wantStatus(t, shop.submit("alice", token), http.StatusUnprocessableEntity) // the form again
//		shop.wantOrders(t, 0)
//	}
//
// Leases end by the server's time, too. A client counts what is left of its own on the clock
// of its process, which Advance leaves alone: so it does to whoever holds a claim what a
// stall of the process would do. Another takes the claim over, and the first hears
// client.ErrSuperseded at its next step, or when it next renews its lease by itself.
//
// # Faults
//
// What goes wrong in production goes wrong when a test says so:
//
//   - [Server.Down]: the store cannot be asked, so tokend answers store_unavailable.
//   - [Server.LoseReplies]: calls are carried out, and the caller does not hear of it.
//   - [Server.LoseStoreReplies]: the same between tokend and its store. In delete mode it
//     is what makes outcome_unknown.
//   - [Server.BadGateway]: calls get no further than a gateway, whose answer is not tokend's.
//   - [Server.LoseData]: the store has lost everything, so live tokens are token_lost.
//   - [Server.Close]: nothing gets through any more, and the client can tell.
//
// The client makes up to five tries, each a request. A fault that hits fewer is one that
// the service does not notice:
//
//	func TestLostReply(t *testing.T) {
//		t.Parallel()
//		tokend := clienttest.New(t)
//		shop := newShop(tokend.Client())
//
//		token := shop.showForm(t, "alice")
//		tokend.LoseReplies(1)
//		wantStatus(t, shop.submit("alice", token), http.StatusCreated) // granted once, told twice
//		shop.wantOrders(t, 1)
//	}
//
// # What it does not show
//
// How a real Redis fails: it has no memory limit, persistence, replicas or failover.
package clienttest
