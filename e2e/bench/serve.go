package main

import (
	"fmt"
	"net/http"
	"runtime/debug"

	"github.com/labstack/echo/v4"
)

// serveContestant serves as the contestant called name does.
func serveContestant(name, addr, redisAddr string) error {
	if name != "hello" {
		debug.SetGCPercent(800) // as tokend has it; hello is Echo as it comes
	}
	switch name {
	case "hello":
		return serveHello(addr)
	case "idempotency":
		return serveIdempotency(addr, redisAddr)
	case "consume":
		return serveConsume(addr, redisAddr)
	}
	if w := wayNamed(name); w != nil {
		return servePlain(addr, redisAddr, w)
	}
	return fmt.Errorf("there is no contestant %s", name)
}

// serveHello serves what tokend is measured against.
func serveHello(addr string) error {
	e := echo.New()
	e.HideBanner, e.HidePort = true, true
	body := []byte(`{"outcome":"consumed","ref":"t_00000000000000000000000000000000","user":"alice"}`)
	e.POST("/", func(c echo.Context) error { return c.JSONBlob(http.StatusOK, body) })
	return e.Start(addr)
}
