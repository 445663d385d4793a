package main

import (
	"net/http"

	"github.com/labstack/echo/v4"
)

// serveHello serves what tokend is measured against.
func serveHello(addr string) error {
	e := echo.New()
	e.HideBanner, e.HidePort = true, true
	body := []byte(`{"outcome":"consumed","ref":"t_00000000000000000000000000000000","user":"alice"}`)
	e.POST("/", func(c echo.Context) error { return c.JSONBlob(http.StatusOK, body) })
	return e.Start(addr)
}
