package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"example.com/tokend/e2e/internal/databases"
	"example.com/tokend/e2e/internal/topology"
	"example.com/tokend/internal/redistest"
)

// asProgram has the test binary be the program.
const asProgram = "ORDERS_TEST_AS_PROGRAM"

func beProgram() {
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(1) // the test is gone, and nobody kills
	}()
	if err := run(context.Background(), os.Getenv, slog.New(slog.NewJSONHandler(os.Stdout, nil))); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// process starts the program, and returns its URL and what kills it.
func (s *shop) process() (url string, kill func()) {
	s.Helper()
	cmd := exec.CommandContext(s.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), asProgram+"=1", "ORDERS_LISTEN=127.0.0.1:0", "ORDERS_LEASE="+lease.String(),
		"ORDERS_DRIVER="+s.Driver, "ORDERS_DSN="+s.DSN, "ORDERS_TOKEND_URL="+s.gate.url, "ORDERS_TOKEND_KEY="+s.tokend.ServiceKey,
		"ORDERS_PROVIDER_SECRET="+secret)
	cmd.Stderr = s.Output()
	if _, err := cmd.StdinPipe(); err != nil {
		s.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		s.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		s.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if _, rest, ok := strings.Cut(lines.Text(), `"msg":"listening","addr":"`); ok {
			url = "http://" + strings.TrimRight(rest, `"}`)
			break
		}
		s.Log(lines.Text())
	}
	drained := make(chan struct{})
	go func() {
		io.Copy(io.Discard, out)
		close(drained)
	}()
	kill = sync.OnceFunc(func() {
		cmd.Process.Kill() // SIGKILL
		<-drained
		cmd.Wait()
	})
	s.Cleanup(kill)
	if url == "" {
		kill()
		s.Fatal("the program does not start")
	}
	return url, kill
}

// committed returns the order numbers that are in the database, in the order of the lines.
func (s *shop) committed() (all []string) {
	s.Helper()
	rows, err := s.sql.QueryContext(s.Context(), "SELECT order_no FROM order_item ORDER BY external_order_no")
	if err != nil {
		s.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var no string
		if err := rows.Scan(&no); err != nil {
			s.Fatal(err)
		}
		all = append(all, no)
	}
	if err := rows.Err(); err != nil {
		s.Fatal(err)
	}
	return all
}

// The service is killed between the database's commit and tokend's complete. A repeat waits
// for the lease, takes the claim over, and gets the orders that are there: from the record. So it
// is where Redis is flushed in between, and nobody has to wait.
func TestKilledBeforeComplete(t *testing.T) {
	t.Parallel()
	for _, flushed := range []bool{false, true} {
		t.Run(fmt.Sprint("flushed ", flushed), func(t *testing.T) {
			t.Parallel()
			databases.Each(t, func(t *testing.T, d *databases.Database) {
				s := newShop(t, d)
				url, kill := s.process()
				end := s.gate.hold(t)
				b := someLines("B1", 20)
				go send("POST", url+"/order-batches", object(b), "X-User", alice, "Idempotency-Key", "k1") // and is never answered
				databases.Await(t, s.gate.at)                                                              // it has committed, and is about to complete
				kill()
				end(false)
				there := s.committed()
				if len(there) != 20 {
					t.Fatalf("%d orders were committed", len(there))
				}
				if flushed {
					s.tokend.LoseData()
				} else {
					s.order("k1", b).want(t, 409, "REQUEST_IN_PROGRESS")
					s.tokend.Advance(lease)
				}
				got := s.order("k1", b).want(t, 201, "")
				if got.replayed || !slices.Equal(got.numbers(), there) {
					t.Errorf("a repeat got the orders %v, and there are %v", got.numbers(), there)
				}
				if again := s.order("k1", b).want(t, 201, ""); !again.replayed || again.body != got.body {
					t.Errorf("the next one got %v", again)
				}
				s.wantOrders(20)
			})
		})
	}
}

// The service is killed before the database's commit: nothing is left, and a repeat orders.
func TestKilledBeforeCommit(t *testing.T) {
	t.Parallel()
	databases.Each(t, func(t *testing.T, d *databases.Database) {
		s := newShop(t, d)
		url, kill := s.process()
		b := someLines("B1", 20)
		release := s.hold("B1-015")
		go send("POST", url+"/order-batches", object(b), "X-User", alice, "Idempotency-Key", "k1")
		databases.Until(t, "it has its claim", func() bool { return s.gate.answered() == 1 })
		s.untilWaiting(1)
		kill()
		release()
		s.tokend.Advance(lease)
		s.order("k1", b).want(t, 201, "")
		s.wantOrders(20)
	})
}

// Redis is flushed while the first is at work: the second is let through, waits for the first's
// transaction, and gets its orders.
func TestFlushedWhileAtWork(t *testing.T) {
	each(t, func(s *shop) { s.twoHolders(s.tokend.LoseData) })
}

// The lease is lost while the first still works: another takes the claim over, and waits for
// the first's transaction in the same way.
func TestLeaseLostWhileAtWork(t *testing.T) {
	each(t, func(s *shop) { s.twoHolders(func() { s.tokend.Advance(lease) }) })
}

// twoHolders has a second request pass tokend while the first is at work, as lose has it.
func (s *shop) twoHolders(lose func()) {
	s.Helper()
	b := someLines("B1", 20)
	release := s.hold("B1-007")
	first := s.later("k1", b)
	databases.Until(s.T, "the first has its claim", func() bool { return s.gate.answered() == 1 })
	s.untilWaiting(1)
	lose()
	second := s.later("k1", b)
	databases.Until(s.T, "the second has its claim", func() bool { return s.gate.answered() == 2 })
	s.untilWaiting(2)
	release()

	one, other := databases.Await(s.T, first), databases.Await(s.T, second).want(s, 201, "")
	// The first may hear that its claim is another's, whose result counts.
	if one.Code != "REQUEST_IN_PROGRESS" && one.body != other.body {
		s.Errorf("the first got %v, the second %v", one, other)
	}
	if there := s.committed(); !slices.Equal(other.numbers(), there) {
		s.Errorf("the second got the orders %v, and there are %v", other.numbers(), there)
	}
	if again := s.order("k1", b).want(s, 201, ""); again.body != other.body {
		s.Errorf("a repeat got %v", again)
	}
	s.wantOrders(20)
}

// The database gives a deadlock out: the batch is run again, and nobody hears of it.
func TestDeadlock(t *testing.T) {
	t.Parallel()
	for name, make := range map[string]func(testing.TB) *databases.Database{"PostgreSQL": databases.PostgreSQL, "MariaDB": databases.MariaDB} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, make(t))
			b := someLines("B1", 2)
			// The test holds the second number, the batch the first one; then the test wants that too.
			conn, err := s.sql.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			insert := func(number string) error {
				_, err := conn.ExecContext(t.Context(), "INSERT INTO order_item (order_no, user_id, external_order_no, amount, status, created_at)"+
					" VALUES ('"+number+"', 'alice', '"+number+"', 1, 'HELD', '2026-01-01 00:00:00')")
				return err
			}
			if _, err := conn.ExecContext(t.Context(), "BEGIN"); err != nil {
				t.Fatal(err)
			}
			if err := insert("B1-002"); err != nil {
				t.Fatal(err)
			}
			// Whoever is heavier survives a deadlock in InnoDB.
			for i := range 50 {
				if err := insert(fmt.Sprint("heavy-", i)); err != nil {
					t.Fatal(err)
				}
			}
			first := s.later("k1", b)
			s.untilWaiting(1)
			mine := insert("B1-001") // one of the two is given up
			if _, err := conn.ExecContext(t.Context(), "ROLLBACK"); err != nil {
				t.Fatal(err)
			}
			t.Logf("the test got %v", mine)
			databases.Await(t, first).want(t, 201, "")
			s.wantOrders(2)
		})
	}
}

// A failover forgets the newest writes: a replica takes over that had fallen behind. The claims
// are free again, and the records answer.
func TestFailoverForgets(t *testing.T) {
	t.Parallel()
	program, err := topology.Build(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	master := redistest.Start(t)
	host, port, _ := net.SplitHostPort(master.Addr)
	replica := redistest.Start(t, "--replicaof", host+" "+port)
	databases.Until(t, "the replica follows", func() bool {
		info, err := replica.Client().Info(t.Context(), "replication").Result()
		return err == nil && strings.Contains(info, "master_link_status:up")
	})
	way := newWay(t, master.Addr)
	tokend, err := program.Serve("redis://"+way.addr+"/0", "standalone")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tokend.Close)

	kinds := map[string]func(testing.TB) *databases.Database{"PostgreSQL": databases.PostgreSQL, "MariaDB": databases.MariaDB, "SQLite": databases.SQLite}
	shops := map[string]*shop{}
	for name, make := range kinds {
		d := make(t)
		s := &shop{T: t, Database: d, sql: d.Open(), log: new(lines)}
		s.service = newInstance(t, d, tokend.URL, program.ServiceKey(), s.log)
		s.url = serve(t, s.service)
		shops[name] = s
	}
	b, firsts := someLines("B1", 20), map[string]reply{}
	for name, s := range shops {
		s.order(name+"-before", someLines("B0", 1)).want(t, 201, "") // which the replica still hears of
	}
	known := func() int64 {
		n, err := replica.Client().DBSize(t.Context()).Result()
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	databases.Until(t, "the replica knows the keys", func() bool { return known() == 3 })
	if err := replica.Client().Do(t.Context(), "REPLICAOF", "NO", "ONE").Err(); err != nil {
		t.Fatal(err) // it hears of nothing more, and takes over when the master is gone
	}
	for name, s := range shops {
		firsts[name] = s.order(name, b).want(t, 201, "")
		if again := s.order(name, b).want(t, 201, ""); !again.replayed {
			t.Errorf("%s: tokend does not know the key before the failover", name)
		}
	}
	master.Kill()
	way.lead(replica.Addr)
	for name, s := range shops {
		var again reply
		databases.Until(t, "tokend has found the new master", func() bool {
			again = s.order(name, b)
			return again.status != 503
		})
		if again.want(t, 201, ""); again.replayed || again.body != firsts[name].body {
			t.Errorf("%s: after the failover a repeat got %v, the first %v", name, again, firsts[name])
		}
		if old := s.order(name+"-before", someLines("B0", 1)).want(t, 201, ""); !old.replayed {
			t.Errorf("%s: what the replica knew is forgotten", name)
		}
		s.wantOrders(21)
	}
	if n := known(); n != 6 {
		t.Errorf("the new master knows %d keys", n)
	}
}

// way is an address that leads to one server, and then to another.
type way struct {
	addr string
	mu   sync.Mutex
	to   string
}

func newWay(t *testing.T, to string) *way {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	w := &way{addr: l.Addr().String(), to: to}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go w.join(c)
		}
	}()
	return w
}

// lead has new connections lead to another server.
func (w *way) lead(to string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.to = to
}

func (w *way) join(from net.Conn) {
	defer from.Close()
	w.mu.Lock()
	addr := w.to
	w.mu.Unlock()
	to, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer to.Close()
	go func() {
		io.Copy(to, from)
		to.Close()
	}()
	io.Copy(from, to)
}
