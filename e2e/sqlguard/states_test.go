package sqlguard_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"example.com/tokend/client/sqlguard"
	"example.com/tokend/e2e/internal/databases"
)

// orders makes a table of one order that waits to be paid.
func (p *place) orders() *sqlguard.States {
	p.Helper()
	p.exec("CREATE TABLE orders (order_no VARCHAR(20) PRIMARY KEY, status VARCHAR(16) NOT NULL, paid_by INT)")
	p.exec("CREATE TABLE outbox (order_no VARCHAR(20))")
	p.exec("INSERT INTO orders (order_no, status) VALUES ('O1', 'WAIT_PAY')")
	s, err := p.g.States(sqlguard.Graph{Table: "orders", ID: "order_no", State: "status", Transitions: []sqlguard.Transition{
		{Name: "begin", From: []string{"WAIT_PAY"}, To: "PAYING"},
		{Name: "pay", From: []string{"WAIT_PAY", "PAYING"}, To: "PAID"},
		{Name: "refund", From: []string{"PAID"}, To: "REFUNDED"},
	}})
	if err != nil {
		p.Fatal(err)
	}
	return s
}

// pay moves the order, and writes what follows from that on the branch where it has moved.
func (p *place) pay(s *sqlguard.States, by int) (moved sqlguard.Moved, err error) {
	err = p.g.Run(p.Context(), p.db, func(ctx context.Context, tx sqlguard.Tx) (err error) {
		moved, err = s.Take(ctx, tx, "O1", "pay", sqlguard.Set{Column: "paid_by", Value: by})
		if err == nil && moved.Moved {
			_, err = tx.ExecContext(ctx, "INSERT INTO outbox (order_no) VALUES ('O1')")
		}
		return err
	}, sqlguard.MaxTries(100))
	return moved, err
}

func TestMove(t *testing.T) {
	each(t, func(p *place) {
		s := p.orders()
		for run := range 3 {
			moved, err := p.pay(s, run+1)
			if err != nil || moved.Moved != (run == 0) || moved.State != "PAID" {
				p.Errorf("run %d: %+v, %v", run, moved, err)
			}
		}
		if n := p.count("SELECT paid_by FROM orders"); n != 1 {
			p.Errorf("the order was paid by %d", n)
		}
		if n := p.count("SELECT COUNT(*) FROM outbox"); n != 1 {
			p.Errorf("%d messages", n)
		}
		err := p.g.Run(p.Context(), p.db, func(ctx context.Context, tx sqlguard.Tx) error {
			if m, err := s.Move(ctx, tx, "O1", []string{"PAYING"}, "PAID"); err != nil || m.Moved {
				p.Errorf("from where it is not: %+v, %v", m, err)
			}
			if m, err := s.Take(ctx, tx, "O1", "refund"); err != nil || !m.Moved || m.State != "REFUNDED" {
				p.Errorf("refund: %+v, %v", m, err)
			}
			if m, err := s.Take(ctx, tx, "O1", "pay"); err != nil || m.Moved || m.State != "REFUNDED" {
				p.Errorf("pay what was refunded: %+v, %v", m, err)
			}
			_, err := s.Take(ctx, tx, "O2", "pay")
			return err
		})
		if !errors.Is(err, sqlguard.ErrNoRow) {
			p.Errorf("an order that is not there: %v", err)
		}
	})
}

// Of many at once one moves the order.
func TestMoveAtOnce(t *testing.T) {
	each(t, func(p *place) {
		s := p.orders()
		var ready sync.WaitGroup
		ready.Add(8)
		moved := make(chan bool, 8)
		for i := range 8 {
			go func() {
				ready.Done()
				ready.Wait()
				m, err := p.pay(s, i)
				if err != nil || m.State != "PAID" {
					p.Errorf("%+v, %v", m, err)
				}
				moved <- m.Moved
			}()
		}
		n := 0
		for range 8 {
			if databases.Await(p, moved) {
				n++
			}
		}
		if n != 1 {
			p.Errorf("%d have moved it", n)
		}
		if n := p.count("SELECT COUNT(*) FROM outbox"); n != 1 {
			p.Errorf("%d messages", n)
		}
	})
}

// The first rolls back with three waiting: one of them moves the order.
func TestMoveRolledBack(t *testing.T) {
	each(t, func(p *place) {
		s := p.orders()
		failure := errors.New("failed")
		working, goOn := make(chan struct{}), make(chan struct{})
		first := make(chan error, 1)
		go func() {
			first <- p.g.Run(p.Context(), p.db, func(ctx context.Context, tx sqlguard.Tx) error {
				m, err := s.Take(ctx, tx, "O1", "pay")
				if !m.Moved {
					p.Error("the first has not moved it")
				}
				close(working)
				<-goOn
				return errors.Join(failure, err)
			})
		}()
		databases.Await(p, working)
		moved := make(chan bool, 3)
		for i := range 3 {
			go func() {
				m, err := p.pay(s, i)
				if err != nil {
					p.Error(err)
				}
				moved <- m.Moved
			}()
		}
		p.untilWaiting(3)
		close(goOn)
		if err := databases.Await(p, first); !errors.Is(err, failure) {
			p.Error(err)
		}
		n := 0
		for range 3 {
			if databases.Await(p, moved) {
				n++
			}
		}
		if n != 1 {
			p.Errorf("%d have moved it", n)
		}
	})
}
