package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Client calls one tokend. It is safe for concurrent use; make one and keep it, since
// it holds the connections.
type Client struct {
	base       string // without a slash at its end
	credential Credential
	http       *http.Client
	userAgent  string
	tryTimeout time.Duration
	maxTries   int
	budget     time.Duration
	wait       func(tries int, retryAfter time.Duration) time.Duration
}

// New returns a Client of the tokend at rawURL, which is http or https, a host, and
// a path where a gateway asks for one; a user, query or fragment is refused. For a
// Unix socket pass any host, and an [HTTPClient] that dials the socket. New does not
// call tokend. Its error names all that is wrong and quotes neither URL nor credential.
func New(rawURL string, credential Credential, opts ...Option) (*Client, error) {
	base, errURL := parseBase(rawURL)
	c := &Client{
		base:       base,
		credential: credential,
		http:       &http.Client{Transport: newTransport()},
		userAgent:  "tokend-go",
		tryTimeout: 3 * time.Second,
		maxTries:   5,
		budget:     10 * time.Second,
		wait:       backOff,
	}
	errs := []error{errURL, credential.check()}
	for _, o := range opts {
		errs = append(errs, o(c))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return c, nil
}

func parseBase(rawURL string) (string, error) {
	u, err := url.Parse(rawURL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" ||
		u.User != nil || u.RawQuery != "" || u.ForceQuery || strings.Contains(rawURL, "#") {
		return "", errors.New("the URL must be http://HOST[:PORT][/PATH] or https://…, and nothing else")
	}
	return strings.TrimRight(u.String(), "/"), nil
}

// newTransport returns net/http's defaults, but for the numbers of a client that
// sends many small requests to one host.
func newTransport() *http.Transport {
	dialer := &net.Dialer{Timeout: 2 * time.Second, KeepAlive: 30 * time.Second}
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            dialer.DialContext,
		ForceAttemptHTTP2:      true,
		TLSHandshakeTimeout:    2 * time.Second,
		MaxIdleConnsPerHost:    256,
		IdleConnTimeout:        60 * time.Second,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: 64 << 10,
		DisableCompression:     true, // answers are smaller than what gzip adds
	}
}

// Purpose returns the calls for one purpose: [a-z0-9][a-z0-9._-]{0,63}, which tokend
// checks, not this package. A token that was issued for one purpose is no good for
// another.
func (c *Client) Purpose(name string) Purpose { return Purpose{c, name} }

// Issue is [Purpose.Issue] for the purpose "default".
func (c *Client) Issue(ctx context.Context, user string, opts ...IssueOption) (Token, error) {
	return c.Purpose(defaultPurpose).Issue(ctx, user, opts...)
}

// Consume is [Purpose.Consume] for the purpose "default".
func (c *Client) Consume(ctx context.Context, user, token string, opts ...ConsumeOption) (Consumed, error) {
	return c.Purpose(defaultPurpose).Consume(ctx, user, token, opts...)
}

// IssueBatch is [Purpose.IssueBatch] for the purpose "default".
func (c *Client) IssueBatch(ctx context.Context, user string, n int, opts ...IssueOption) ([]Token, error) {
	return c.Purpose(defaultPurpose).IssueBatch(ctx, user, n, opts...)
}

// ConsumeBatch is [Purpose.ConsumeBatch] for the purpose "default".
func (c *Client) ConsumeBatch(ctx context.Context, items []Item) ([]Outcome, error) {
	return c.Purpose(defaultPurpose).ConsumeBatch(ctx, items)
}

// Status is [Purpose.Status] for the purpose "default".
func (c *Client) Status(ctx context.Context, user, token string) (Status, error) {
	return c.Purpose(defaultPurpose).Status(ctx, user, token)
}

// Revoke is [Purpose.Revoke] for the purpose "default".
func (c *Client) Revoke(ctx context.Context, user, token string) (Revoked, error) {
	return c.Purpose(defaultPurpose).Revoke(ctx, user, token)
}

// CloseIdleConnections closes the connections that no call is using. The Client stays
// usable. With [HTTPClient] they are those of the caller's transport.
func (c *Client) CloseIdleConnections() { c.http.CloseIdleConnections() }
