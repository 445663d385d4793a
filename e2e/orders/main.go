// Orders is a small order service that is exactly once: each layer guards against what the
// others cannot see. It is an example to copy from, and its tests are the acceptance lists that
// such a service is held to.
//
//	POST  /order-batches       up to 100 lines with the sender's own order numbers, all or none
//	POST  /orders/{no}/pay     a payment provider's callback, which comes several times
//	PATCH /accounts/{id}       {"action":"add_balance","amount":100} or {"balance":200,"version":3}
//	GET   /results/{scope}     what became of an Idempotency-Key: "order-batch" or "account"
//
// A request passes, from the outside in:
//
//   - guard.Replay, which asks tokend: a repeat gets the first answer and costs the database
//     nothing; one that comes while the first is at work hears so at once.
//   - sqlguard.Do: the key's record in the transaction of the work. It answers where tokend was
//     away, has lost its data, or was not told of the end.
//   - sqlguard.Unique: the sender's order number is one, whatever key it comes under.
//   - sqlguard.States: of many callbacks one moves the order to PAID, and what follows from
//     that stands beside the move: a line of the ledger, and a message in the outbox.
//   - shipping gets each message at least once, and keeps a record of its own.
//
// It is set up by variables:
//
//	ORDERS_DRIVER           pgx, mysql or sqlite
//	ORDERS_DSN              the database, as the driver spells it
//	ORDERS_TOKEND_URL       tokend, and
//	ORDERS_TOKEND_KEY       a service key with the scope tokend.consume
//	ORDERS_PROVIDER_SECRET  signs the callbacks: HMAC-SHA256 of the body, hex, in Provider-Signature
//	ORDERS_LISTEN           127.0.0.1:8090 where not set
//	ORDERS_LEASE            how long a crash blocks repeats: 30s where not set
//
// Whoever is logged in stands in the header X-User: a gateway in front puts it there, and
// takes away what came in under that name.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	if err := run(ctx, os.Getenv, log); err != nil {
		fmt.Fprintln(os.Stderr, "orders:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, getenv func(string) string, log *slog.Logger) error {
	lease := 30 * time.Second
	if text := getenv("ORDERS_LEASE"); text != "" {
		var err error
		if lease, err = time.ParseDuration(text); err != nil {
			return fmt.Errorf("ORDERS_LEASE: %w", err)
		}
	}
	s, err := newService(ctx, settings{
		driver: getenv("ORDERS_DRIVER"), dsn: getenv("ORDERS_DSN"),
		tokendURL: getenv("ORDERS_TOKEND_URL"), tokendKey: getenv("ORDERS_TOKEND_KEY"),
		providerSecret: getenv("ORDERS_PROVIDER_SECRET"), lease: lease, log: log,
	})
	if err != nil {
		return err
	}
	defer s.close()
	listen := getenv("ORDERS_LISTEN")
	if listen == "" {
		listen = "127.0.0.1:8090"
	}
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	log.Info("listening", "addr", l.Addr().String())
	go s.every(ctx, 200*time.Millisecond, "relay", s.relay)
	go s.every(ctx, time.Hour, "purge", s.purge)
	web := &http.Server{
		Handler: s.handler(), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	ended := make(chan error, 1)
	go func() { ended <- web.Serve(l) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second)
	defer cancel()
	return errors.Join(web.Shutdown(ctx), s.guard.Drain(ctx))
}

// every calls do until ctx ends. What fails is tried again the next time.
func (s *service) every(ctx context.Context, interval time.Duration, what string, do func(context.Context) error) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		if err := do(ctx); err != nil && ctx.Err() == nil {
			s.log.Error(what, "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
