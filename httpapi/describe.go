package httpapi

import (
	_ "embed"
	"net/http"

	"github.com/labstack/echo/v4"
	"github.com/munnerz/goautoneg"

	"example.com/tokend/httpapi/wire"
)

// description is the API's, in OpenAPI 3.1. The module e2e holds it to what the server
// does.
//
//go:embed openapi.yaml
var description []byte

// describe routes what tells people about the API: its description, and a page for each
// code of a problem.
func (s *Server) describe() {
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		s.echo.Add(method, wire.PathOpenAPI, s.openAPI)
		s.echo.Add(method, wire.ProblemTypePrefix+":code", s.problemPage)
	}
	s.script()
}

// openAPI handles /openapi.yaml.
func (s *Server) openAPI(ec echo.Context) error {
	return s.page(ec, typeYAML, description)
}

// problemPage handles /problems/{code}: what a problem's type leads to. It is HTML for
// those who ask for that, as browsers do, and plain text for all others.
func (s *Server) problemPage(ec echo.Context) error {
	page, ok := problemPages()[wire.Code(ec.Param("code"))]
	if !ok {
		return &problemError{code: wire.CodeNotFound, detail: "there is no problem with this code"}
	}
	h := ec.Response().Header()
	h.Add("Vary", "Accept")
	if goautoneg.Negotiate(ec.Request().Header.Get("Accept"), []string{"text/plain", "text/html"}) != "text/html" {
		return s.page(ec, typeText, page.text)
	}
	h["Content-Security-Policy"] = pagePolicy
	return s.page(ec, typeHTML, page.html)
}

// page answers with body. Like a probe's, the answer is no outcome, and is not logged.
func (s *Server) page(ec echo.Context, contentType []string, body []byte) error {
	s.begin(ec, opNone).write(http.StatusOK, contentType, body)
	return nil
}

var (
	typeYAML = []string{"application/yaml"} // RFC 9512
	typeText = []string{"text/plain; charset=utf-8"}
	typeHTML = []string{"text/html; charset=utf-8"}
)
