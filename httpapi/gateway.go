package httpapi

import (
	"cmp"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"example.com/tokend/httpapi/auth"
	"example.com/tokend/httpapi/wire"
	"example.com/tokend/token"
)

// Gateway says what the gateways that ask for their clients can be trusted to set. A header
// named here is one that they overwrite in every request, whatever their client sent: who
// can choose it is served twice, or as somebody else. Where one is named, it must be there
// once.
type Gateway struct {
	// MethodHeader holds the original method. Where it is empty,
	// wire.HeaderForwardedMethod and wire.HeaderOriginalMethod both do: a request is
	// passed where all that stands in them is safe, so that a client that sends the one
	// which its gateway does not set wins nothing.
	MethodHeader string
	// UserHeader holds the user. Where it is empty, Authorization holds the user's JWT.
	UserHeader string
	// PurposeHeader holds the purpose. Where it is empty, that is the default one.
	PurposeHeader string
	// AttemptHeader holds what is made up anew for each request of a client and is the
	// same where the gateway asks about it again. Where it is empty, the attempt is made
	// up here, and a gateway that asks again is another attempt.
	AttemptHeader string
	// Allowed is the status that lets a request through: 204 where 0, or 200.
	Allowed int
}

// prepared returns g with defaults and with its headers as net/http spells them.
func (g Gateway) prepared() Gateway {
	for _, name := range []*string{&g.MethodHeader, &g.UserHeader, &g.PurposeHeader, &g.AttemptHeader} {
		*name = http.CanonicalHeaderKey(*name)
	}
	g.Allowed = cmp.Or(g.Allowed, http.StatusNoContent)
	return g
}

// codePassed is what a request that uses no token is called in metrics. It is no outcome of
// a token, and is not logged.
const codePassed = "passed"

// routeGateway routes every method of wire.PathGateway and of all below it. Echo gives each
// of them to the handler of "not found" where a path has no other.
func (s *Server) routeGateway() {
	s.echo.RouteNotFound(wire.PathGateway, s.gateway)
	s.echo.RouteNotFound(wire.PathGateway+"/*", s.gateway)
}

// toGateway tells whether ec's route is one of those.
func toGateway(ec echo.Context) bool {
	return ec.Path() == wire.PathGateway || ec.Path() == wire.PathGateway+"/*"
}

// gateway handles wire.PathGateway. Neither the body nor the path below is read.
func (s *Server) gateway(ec echo.Context) error {
	c := s.begin(ec, opGateway)
	defer c.end()
	defer s.busy.Add(-1)
	if s.busy.Add(1) > maxBusy {
		return c.fail(errOverloaded)
	}
	g := &s.opts.Gateway
	if g.passes(ec.Request().Header) {
		c.outcome.code = codePassed
		c.write(g.Allowed, nil, nil)
		return nil
	}
	item, err := c.fromGateway(g)
	if err != nil {
		return c.fail(err)
	}
	got, err := s.opts.Tokens.Consume(c.ctx(), item.Consumption)
	if err != nil {
		return c.fail(err)
	}
	item.consumed(&c.outcome, got)
	c.outcome.status = g.Allowed
	ec.Response().Header()[wire.HeaderRef] = []string{c.outcome.ref}
	c.write(g.Allowed, nil, nil)
	return nil
}

// passes tells whether h is of a request that uses no token: its method is known, and safe.
func (g *Gateway) passes(h http.Header) bool {
	if g.MethodHeader != "" {
		methods := h[g.MethodHeader]
		return len(methods) == 1 && safe(methods[0])
	}
	known := false
	for _, name := range []string{wire.HeaderForwardedMethod, wire.HeaderOriginalMethod} {
		for _, method := range h[name] {
			if !safe(method) {
				return false
			}
			known = true
		}
	}
	return known
}

func safe(method string) bool {
	return method == http.MethodGet || method == http.MethodHead || method == http.MethodOptions
}

// fromGateway reads what a gateway asks to consume, and notes it in c's outcome.
func (c *call) fromGateway(g *Gateway) (item consumption, err error) {
	h := c.echo.Request().Header
	if c.caller, err = c.bearerOf(wire.HeaderGatewayKey); err != nil {
		return item, err
	}
	if err := consumers(c.caller); err != nil {
		return item, err
	}
	text, err := once(h, wire.HeaderToken)
	if err != nil {
		return item, err
	}
	if text == "" {
		return item, &problemError{code: wire.CodeTokenMissing, detail: "the request came without its token in " + wire.HeaderToken + ": a token in its body is not seen here", field: wire.HeaderToken}
	}
	use := token.Use{Text: text, Purpose: token.DefaultPurpose}
	if use.User, err = c.gatewaysUser(g); err != nil {
		return item, err
	}
	c.outcome.user = use.User
	if g.PurposeHeader != "" {
		if use.Purpose, err = gatewaysOwn(h, g.PurposeHeader, token.ParsePurpose); err != nil {
			return item, err
		}
	}
	c.outcome.purpose = use.Purpose
	item.User, item.purpose, item.Attempt = use.User, use.Purpose, token.NewAttempt()
	if g.AttemptHeader != "" {
		if item.Attempt, err = gatewaysOwn(h, g.AttemptHeader, token.ParseAttempt); err != nil {
			return item, err
		}
	}
	c.outcome.attempt = item.Attempt
	item.Token, err = c.open(&c.outcome, use)
	return item, err
}

// gatewaysUser reads whose request the gateway asks about.
func (c *call) gatewaysUser(g *Gateway) (token.User, error) {
	if g.UserHeader == "" {
		id, err := c.bearerOf("Authorization")
		if err == nil && !id.IsUser() {
			err = &problemError{code: wire.CodeForbidden, detail: "Authorization must hold the JWT of a user", field: "Authorization"}
		}
		return id.User, err
	}
	if len(c.echo.Request().Header[g.UserHeader]) == 0 {
		return "", &problemError{code: wire.CodeUnauthenticated, detail: "the gateway names no user in " + g.UserHeader, field: g.UserHeader}
	}
	return gatewaysOwn(c.echo.Request().Header, g.UserHeader, token.ParseUser)
}

// bearerOf returns who the bearer in the header called name is. A refusal names the header:
// there are two that may hold one.
func (c *call) bearerOf(name string) (auth.Identity, error) {
	id, err := c.srv.opts.Callers.Authenticate(c.ctx(), c.echo.Request().Header[name])
	if no, ok := errors.AsType[*auth.Refusal](err); ok {
		detail := strings.ReplaceAll(no.Reason.Detail(), "Authorization", name)
		return id, &problemError{code: no.Reason.Code(), detail: detail, field: name}
	}
	return id, err
}

// once returns the value of the header called name, or "" where there is none. Of two,
// nobody knows which the service behind the gateway goes by.
func once(h http.Header, name string) (string, error) {
	switch values := h[name]; len(values) {
	case 0:
		return "", nil
	case 1:
		return values[0], nil
	}
	return "", &token.InvalidError{Field: name, Rule: "must be sent once"}
}

// gatewaysOwn parses the header called name, which the gateway sets in every request.
func gatewaysOwn[T any](h http.Header, name string, parse func(string) (T, error)) (v T, err error) {
	text, err := once(h, name)
	if err != nil {
		return v, err
	}
	if len(h[name]) == 0 {
		return v, &token.InvalidError{Field: name, Rule: "must be set by the gateway in every request"}
	}
	v, err = parse(text)
	if wrong, ok := errors.AsType[*token.InvalidError](err); ok {
		return v, &token.InvalidError{Field: name, Rule: wrong.Rule}
	}
	return v, err
}

// deny turns p into what a gateway is told, and returns the status of the answer. Gateways
// hand it on to browsers, to whom "the same attempt again" means nothing.
func (c *call) deny(p *wire.Problem) (status int) {
	kind, _ := wire.KindOf(p.Code)
	status = http.StatusForbidden
	if kind.Fault {
		status = http.StatusServiceUnavailable
		if p.Next == wire.NextRetry {
			p.Next, p.RetryAfter = wire.NextWait, max(p.RetryAfter, retrySoon)
		}
		if p.Code == wire.CodeStoreUnavailable {
			p.Detail = "whether the token is good cannot be told at the moment: send the same again later; it may turn out to be used although nothing was done"
		}
	}
	c.outcome.next = p.Next
	h := c.echo.Response().Header()
	h[wire.HeaderStatus] = []string{strconv.Itoa(p.Status)}
	h[wire.HeaderCode] = []string{string(p.Code)}
	h[wire.HeaderNext] = []string{string(p.Next)}
	if p.Ref != "" {
		h[wire.HeaderRef] = []string{p.Ref}
	}
	return status
}
