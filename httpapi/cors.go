package httpapi

import (
	"net/http"
	"slices"
	"strings"

	"github.com/labstack/echo/v4/middleware"

	"example.com/tokend/httpapi/wire"
)

// preflightFor is how many seconds a browser may remember what a preflight said: each POST
// of a page costs two round trips without it. It is also how long an origin that was taken
// out may go on sending; it reads no answers by then.
const preflightFor = 600

// allowOrigins lets pages from origins call and read every answer, errors and unknown
// paths too, so that a page can tell "wait" from "broken". Origins are compared byte for
// byte; "*" and "null" match none, as calls carry Authorization, and every sandboxed page
// and local file is "null". Cookies are never let in: nothing here reads them. Where there
// are no origins nothing is on the requests' path.
func (s *Server) allowOrigins(origins []string) {
	if len(origins) == 0 {
		return
	}
	s.echo.Use(middleware.CORSWithConfig(middleware.CORSConfig{
		Skipper: toGateway, // what it asks about is another service's, preflights too
		AllowOriginFunc: func(origin string) (bool, error) {
			return strings.Contains(origin, "://") && slices.Contains(origins, origin), nil
		},
		AllowHeaders:  []string{"Authorization", "Content-Type"},
		ExposeHeaders: []string{"Retry-After", wire.HeaderIdempotentReplayed, wire.HeaderRequestID},
		MaxAge:        preflightFor,
	}))
}

// stamp gives the answer to OPTIONS the headers that every answer has: Echo gives it by
// itself, to a preflight and to a route's OPTIONS alike.
func stamp(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodOptions {
		setCommon(w.Header(), wire.RequestID(r.Header))
	}
}
