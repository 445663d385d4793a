package httpapi

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"example.com/tokend/client/browser"
	"example.com/tokend/httpapi/wire"
)

// script routes the script for browsers, in both of its builds. It is no-store, as every
// answer is: an old script beside a new service costs more than a few kilobytes, and a
// service that wants it cached serves it itself.
func (s *Server) script() {
	module, global := browser.Module(), browser.Global()
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		s.echo.Add(method, wire.PathScript, func(ec echo.Context) error { return s.page(ec, typeScript, module) })
		s.echo.Add(method, wire.PathScriptGlobal, func(ec echo.Context) error { return s.page(ec, typeScript, global) })
	}
}

var typeScript = []string{browser.ContentType}
