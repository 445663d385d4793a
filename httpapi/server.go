package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/labstack/echo/v4"

	"example.com/tokend/httpapi/auth"
	"example.com/tokend/httpapi/wire"
	"example.com/tokend/token"
)

// Tokens is what the API asks of the token service.
type Tokens interface {
	Issue(context.Context, token.IssueRequest) (token.IssuedToken, error)
	IssueBatch(ctx context.Context, req token.IssueRequest, n int) ([]token.IssuedToken, error)
	Open(token.Use) (*token.Token, error)
	Consume(context.Context, token.Consumption) (token.Consumed, error)
	ConsumeBatch(context.Context, []token.Consumption) ([]token.Consumed, []error)
	Status(context.Context, token.Subject) (token.Status, error)
	Revoke(context.Context, token.Subject) (token.Status, error)

	Claim(context.Context, token.ClaimRequest) (token.Claimed, error)
	ClaimStatus(context.Context, token.Subject) (token.Status, error)
	OpenHandle(text string) (h token.Handle, keyID string, err error)
	Commit(context.Context, token.Handle) (token.Held, error)
	Renew(ctx context.Context, h token.Handle, lease time.Duration) (token.Held, error)
	Complete(context.Context, token.Handle, *token.Result) (token.Completed, error)
	Release(context.Context, token.Handle) error
}

var _ Tokens = (*token.Service)(nil)

// Callers tells who is calling, from all values of the Authorization header. Its errors
// are *auth.Refusal and *auth.Fault.
type Callers interface {
	Authenticate(ctx context.Context, authorization []string) (auth.Identity, error)
}

// Options are a Server's. All in the first group are required.
type Options struct {
	Tokens  Tokens
	Callers Callers
	Ping    func(context.Context) error // asks the store whether it can serve
	Metrics *Metrics
	Log     *slog.Logger // its handler must be done with a record's attributes when it returns

	Outcomes  Outcomes
	LogUser   LogUser
	BodyBytes int64 // the largest body; 65536 where 0
	// ResultBytes is the largest body of a result that is kept; 262144 where 0. As base64 it
	// comes on top of BodyBytes for the call that completes a claim.
	ResultBytes int64

	CORSOrigins []string // whose pages may call, as browsers send them; none where empty
	Gateway     Gateway
	Tracing     *Tracing // nil: none
}

// Server answers the API's calls. It is safe for concurrent use.
type Server struct {
	opts     Options
	echo     *echo.Echo
	ready    *readiness
	draining context.Context // ends when Drain is called
	drain    context.CancelFunc
	busy     atomic.Int64 // calls being answered, but for those that wait for a body or a claim
	waiting  atomic.Int64 // calls that may wait for a claim to end
}

// New returns a Server.
func New(opts Options) *Server {
	if opts.BodyBytes == 0 {
		opts.BodyBytes = 65536
	}
	if opts.ResultBytes == 0 {
		opts.ResultBytes = 262144
	}
	opts.Gateway = opts.Gateway.prepared()
	s := &Server{opts: opts, echo: echo.New(), ready: newReadiness(opts.Ping)}
	s.draining, s.drain = context.WithCancel(context.Background())
	s.echo.HTTPErrorHandler = s.unrouted
	s.echo.IPExtractor = echo.ExtractIPDirect() // the default trusts X-Forwarded-For from anyone

	s.echo.POST(wire.PathTokens, handle(s, opIssue, issuers, s.issue))
	s.echo.POST(wire.PathBatch, handle(s, opIssueBatch, issuers, s.issueBatch))
	s.echo.POST(wire.PathConsume, handle(s, opConsume, consumers, s.consume))
	s.echo.POST(wire.PathConsumeBatch, handle(s, opConsumeBatch, consumers, s.consumeBatch))
	s.echo.POST(wire.PathStatus, handle(s, opStatus, readers, s.status))
	s.echo.POST(wire.PathRevoke, handle(s, opRevoke, readers, s.revoke))
	s.echo.POST(wire.PathClaims, handle(s, opClaim, consumers, s.claim))
	s.echo.POST(wire.PathClaimStatus, handle(s, opClaimStatus, consumers, s.claimStatus))
	s.echo.POST(wire.PathCommit(":claim"), handle(s, opCommit, consumers, s.commit))
	s.echo.POST(wire.PathRenew(":claim"), handle(s, opRenew, consumers, s.renew))
	s.echo.PUT(wire.PathResult(":claim"), handle(s, opComplete, consumers, s.complete))
	s.echo.DELETE(wire.PathClaim(":claim"), handle(s, opRelease, consumers, s.release))
	s.routeGateway()
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		s.echo.Add(method, wire.PathLivez, s.livez)
		s.echo.Add(method, wire.PathReadyz, s.readyz)
	}
	s.describe()
	s.allowOrigins(opts.CORSOrigins)
	return s
}

// ServeHTTP serves the public listener.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	stamp(w, r)
	s.echo.ServeHTTP(w, r)
}

// Drain makes /readyz answer 503 from now on, and answers at once those who wait for a
// claim to end; everything else is served as before.
func (s *Server) Drain() { s.drain() }

// unrouted answers what no route of ours does: an unknown path, a wrong method. Routes
// answer their own errors.
func (s *Server) unrouted(err error, ec echo.Context) {
	c := s.begin(ec, opNone)
	defer c.end()
	c.fail(err)
}

// The calls, as they are named in log lines and metrics.
const (
	opIssue        = "issue"
	opIssueBatch   = "issue_batch"
	opConsume      = "consume"
	opConsumeBatch = "consume_batch"
	opStatus       = "status"
	opRevoke       = "revoke"
	opClaim        = "claim"
	opClaimStatus  = "claim_status"
	opCommit       = "commit"
	opRenew        = "renew"
	opComplete     = "complete"
	opRelease      = "release"
	opGateway      = "gateway"
	opNone         = "none" // no route
)

// ops are the calls that have an endpoint.
var ops = []string{
	opIssue, opIssueBatch, opConsume, opConsumeBatch, opStatus, opRevoke,
	opClaim, opClaimStatus, opCommit, opRenew, opComplete, opRelease, opGateway,
}

// handle returns the one path that every call takes: who is calling, whether admit lets
// the caller in, the body, what do says, and the answer.
func handle[Req, Resp any](s *Server, op string, admit func(auth.Identity) error, do func(*call, *Req) (Resp, error)) echo.HandlerFunc {
	return func(ec echo.Context) error {
		c := s.begin(ec, op)
		defer c.end()
		if s.busy.Load() >= maxBusy {
			return c.fail(errOverloaded)
		}
		var err error
		if c.caller, err = s.opts.Callers.Authenticate(c.ctx(), ec.Request().Header["Authorization"]); err != nil {
			return c.fail(err)
		}
		c.outcome.user = c.caller.User // of a user; a service names one in the body
		if err := admit(c.caller); err != nil {
			return c.fail(err)
		}
		req := new(Req)
		if err := c.decode(req); err != nil {
			return c.fail(err)
		}
		// It counts from here on: who sends a body slowly holds nobody else up.
		defer s.busy.Add(-1)
		if s.busy.Add(1) > maxBusy {
			return c.fail(errOverloaded)
		}
		resp, err := do(c, req)
		if err != nil {
			return c.fail(err)
		}
		return c.succeed(resp)
	}
}

// maxBusy bounds the calls that are answered at the same time. Whoever comes above it is
// told at once to come again: late answers to all help nobody. At the pace of two cores it
// is what is done in a tenth of a second.
const maxBusy = 2048

var errOverloaded = &problemError{code: wire.CodeStoreUnavailable, detail: tooMany, retry: retrySoon}

const tooMany = "the service has more calls than it can answer in time: send the same request again, with the same attempt if it has one"

// Who may call what.
func issuers(id auth.Identity) error {
	if id.IsUser() {
		return nil
	}
	return needScope(id, wire.ScopeIssue)
}

func consumers(id auth.Identity) error { return needScope(id, wire.ScopeConsume) }

func readers(id auth.Identity) error {
	if id.IsUser() {
		return nil
	}
	return needScope(id, wire.ScopeConsume)
}

func needScope(id auth.Identity, scope string) error {
	if id.Has(scope) {
		return nil
	}
	return &problemError{code: wire.CodeForbidden, detail: "the call needs a service with the scope " + scope}
}

// cacheControl and others are headers that never change; sharing them spares each answer
// their making.
var (
	noStore     = []string{"no-store"}
	noSniff     = []string{"nosniff"}
	typeJSON    = []string{wire.TypeJSON}
	typeProblem = []string{wire.TypeProblem}
	isTrue      = []string{"true"}
)
