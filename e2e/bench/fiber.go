package main

import (
	"net"
	"runtime"
	"strconv"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/idempotency"
	fiberredis "github.com/gofiber/storage/redis/v3"

	"example.com/tokend/token"
	"example.com/tokend/token/redisstore"
)

// Two form services whose handler must run once per submission. They are the same Fiber
// app with as many connections to the same Redis; what differs is the middleware.
//
// The two do not promise the same. Fiber's takes three round trips: it looks for a stored
// response twice and then stores one, which a repetition is answered with. Its lock is a
// mutex within the process, so two instances run the handler twice, and so does one whose
// Redis fails at the end. A consumed token is one round trip, elects one winner among all
// instances, and a repetition is refused rather than replayed.

const submission = `{"order":"created"}`

func newForm() *fiber.App { return fiber.New() }

func handleSubmission(c fiber.Ctx) error {
	c.Set(fiber.HeaderContentType, fiber.MIMEApplicationJSON)
	return c.SendString(submission)
}

// serveIdempotency serves the form behind Fiber's idempotency middleware, as it comes.
func serveIdempotency(addr, redisAddr string) error {
	host, port, err := net.SplitHostPort(redisAddr)
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		return err
	}
	storage := fiberredis.New(fiberredis.Config{Host: host, Port: n, PoolSize: 10 * runtime.GOMAXPROCS(0)})
	app := newForm()
	app.Use(idempotency.New(idempotency.Config{Storage: storage, Lifetime: life}))
	app.Post("/orders", handleSubmission)
	return app.Listen(addr, fiber.ListenConfig{DisableStartupMessage: true})
}

// serveConsume serves the form behind a middleware that consumes the submission's token.
func serveConsume(addr, redisAddr string) error {
	tokens, err := newTokens(redisstore.New(newRedis(redisAddr), redisstore.Options{}))
	if err != nil {
		return err
	}
	app := newForm()
	app.Use(func(c fiber.Ctx) error {
		// The strings of a Fiber context are good until the handler returns only, and so is
		// what is asked of them here: the store keeps nothing of a token's text.
		opened, err := tokens.Open(token.Use{Text: c.Get("Tokend-Token"), User: user, Purpose: purpose})
		if err == nil {
			_, err = tokens.Consume(c.Context(), token.Consumption{User: user, Token: opened, Attempt: token.NewAttempt()})
		}
		if err != nil {
			return c.Status(fiber.StatusConflict).SendString(err.Error())
		}
		return c.Next()
	})
	app.Post("/orders", handleSubmission)
	return app.Listen(addr, fiber.ListenConfig{DisableStartupMessage: true})
}
