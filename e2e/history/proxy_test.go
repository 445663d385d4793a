package history_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// proxy stands between two programs and makes their network a bad one.
type proxy struct {
	*toxiproxy.Proxy
	t testing.TB
}

// newProxy starts a proxy to upstream.
func newProxy(t testing.TB, name, upstream string) *proxy {
	t.Helper()
	p := toxiproxy.NewProxy(toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()), name, "127.0.0.1:0", upstream)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	return &proxy{p, t}
}

// toxic is one of toxiproxy's, of the part of the connections that toxicity says.
type toxic struct {
	kind, stream string
	attributes   string // JSON
	toxicity     float64
}

// poison adds toxics. heal takes them away again; connections that are broken stay so.
func (p *proxy) poison(toxics ...toxic) (heal func()) {
	var names []string
	for n, x := range toxics {
		name := fmt.Sprintf("%s-%s-%d", x.kind, x.stream, n)
		text := fmt.Sprintf(`{"name": %q, "type": %q, "stream": %q, "toxicity": %f, "attributes": %s}`, name, x.kind, x.stream, x.toxicity, x.attributes)
		if _, err := p.Toxics.AddToxicJson(strings.NewReader(text)); err != nil {
			p.t.Errorf("%s: %v", text, err)
			continue
		}
		names = append(names, name)
	}
	return func() {
		for _, name := range names {
			done := make(chan error, 1)
			go func() { done <- p.Toxics.RemoveToxic(context.Background(), name) }()
			select {
			case err := <-done:
				if err != nil {
					p.t.Errorf("%s cannot be taken away: %v", name, err)
				}
			case <-time.After(patience):
				p.t.Fatalf("%s: %s is not taken away", p.Name, name)
			}
		}
	}
}
