package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.com/tokend/config"
	"example.com/tokend/httpapi/wire"
)

func newHealthcheck(p *program) *cobra.Command {
	var base string
	var live bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "healthcheck",
		Short: "Ask a running service whether it is healthy, for container probes",
		Long: `Ask a running service whether it can serve (/readyz), or with --live whether its process
lives (/livez). The exit status is 0 if so, else 1.

Without --url it is the service on this machine that the same configuration describes; as
its certificate names no loopback address, it is not verified then.`,
		Example: `  tokend healthcheck
  tokend healthcheck --live --timeout 1s
  tokend healthcheck --url https://tokend.internal`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			transport := &http.Transport{}
			if base == "" {
				cfg, faults := load(p, cmd, nil)
				if err := faults.Err(); err != nil {
					return err
				}
				base = localURL(cfg.Listen, cfg.TLS.CertFile != "")
				transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: true} // nothing secret is sent to ourselves
			}
			path := wire.PathReadyz
			if live {
				path = wire.PathLivez
			}
			target, err := url.JoinPath(base, path)
			if err != nil || !strings.HasPrefix(base, "http://") && !strings.HasPrefix(base, "https://") {
				return usagef("--url must be an http:// or https:// URL")
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return probe(ctx, &http.Client{Transport: transport}, target)
		},
	}
	cmd.Flags().StringVar(&base, "url", "", "where the service is; this machine's where not given")
	cmd.Flags().BoolVar(&live, "live", false, "ask whether the process lives, Redis or not")
	cmd.Flags().DurationVar(&timeout, "timeout", 3*time.Second, "how long to wait for the answer")
	config.RegisterOnly(cmd.Flags(), "listen", "tls.cert_file", "tls.key_file")
	return cmd
}

// probe returns nil if target answers 200.
func probe(ctx context.Context, c *http.Client, target string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return usagef("--url must be a URL")
	}
	resp, err := c.Do(req)
	if err != nil {
		if ue, ok := errors.AsType[*url.Error](err); ok {
			err = ue.Err
		}
		return &unhealthyError{fmt.Sprintf("not healthy: no answer: %v", err)}
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 200))
		return &unhealthyError{fmt.Sprintf("not healthy: %d %q", resp.StatusCode, strings.TrimSpace(string(text)))}
	}
	return nil
}

// localURL returns the URL by which this machine reaches a server that listens on addr.
func localURL(addr string, encrypted bool) string {
	scheme := "http://"
	if encrypted {
		scheme = "https://"
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return scheme + addr
	}
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		host = "localhost" // and not 127.0.0.1: the listener may take IPv6 only
	}
	return scheme + net.JoinHostPort(host, port)
}
