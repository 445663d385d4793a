package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"example.com/tokend/client/sqlguard"
)

// message is what the outbox sends: at least once, and so now and then twice.
type message struct {
	ID      int64
	Kind    string
	OrderNo string
}

// shipping consumes messages. Its record is in a table of its own beside what it writes: where
// the message is produced, it would not tell of what was consumed.
type shipping struct {
	db   *database
	once *sqlguard.Guard
}

func newShipping(ctx context.Context, db *database) (*shipping, error) {
	once, err := sqlguard.New(db.dialect, sqlguard.ErrorCode(errorCode), sqlguard.Table("shipping_record"))
	if err != nil {
		return nil, err
	}
	return &shipping{db, once}, once.CreateTable(ctx, db.DB)
}

// handle packs a parcel for an order that is paid. An error has the message sent again.
func (s *shipping) handle(ctx context.Context, m message) error {
	id := sqlguard.ID{Scope: m.Kind, User: "orders", Key: strconv.FormatInt(m.ID, 10)}
	_, err := s.once.Do(ctx, s.db.DB, id, sqlguard.Digest(m.OrderNo), func(ctx context.Context, tx sqlguard.Tx) ([]byte, error) {
		_, err := tx.ExecContext(ctx, s.db.q("INSERT INTO parcel (order_no, created_at) VALUES (?, ?)"), m.OrderNo, time.Now().UTC())
		return nil, err
	})
	return err
}

// relay sends what stands in the outbox. If it dies between sending and noting that, the
// message is sent again; so it is where two relays run. A message that fails is tried again the
// next time, and one that can never be handled is parked; those behind it are sent.
func (s *service) relay(ctx context.Context) error {
	messages, err := s.unsent(ctx)
	if err != nil {
		return err
	}
	var failed []error
	for _, m := range messages {
		column := "sent_at"
		if err := s.shipping.handle(ctx, m); err != nil {
			failed = append(failed, fmt.Errorf("message %d: %w", m.ID, err))
			if !errors.Is(err, sqlguard.ErrReused) && !errors.Is(err, sqlguard.ErrNoResult) {
				continue
			}
			column = "parked_at"
		}
		if _, err := s.db.ExecContext(ctx, s.db.q("UPDATE outbox SET "+column+" = ? WHERE id = ?"), time.Now().UTC(), m.ID); err != nil {
			return errors.Join(append(failed, err)...)
		}
	}
	return errors.Join(failed...)
}

func (s *service) unsent(ctx context.Context) (all []message, err error) {
	rows, err := s.db.QueryContext(ctx, "SELECT id, kind, order_no FROM outbox WHERE sent_at IS NULL AND parked_at IS NULL ORDER BY id LIMIT 100")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var m message
		if err := rows.Scan(&m.ID, &m.Kind, &m.OrderNo); err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, rows.Err()
}
