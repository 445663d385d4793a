package main

import (
	"crypto/tls"
	"log/slog"
	"os"
	"sync"
	"time"
)

// certificate is a certificate and its key in files, which are read again when they
// change. It is safe for concurrent use.
type certificate struct {
	certFile, keyFile string
	log               *slog.Logger
	now               func() time.Time

	mu      sync.Mutex
	pair    *tls.Certificate
	stamps  [2]stamp
	checked time.Time
}

// stamp tells whether a file is the one that was read.
type stamp struct {
	modified time.Time
	size     int64
}

// checkEvery is how long a certificate is served without a look at its files.
const checkEvery = time.Second

// newCertificate reads a certificate.
func newCertificate(certFile, keyFile string, log *slog.Logger) (*certificate, error) {
	c := &certificate{certFile: certFile, keyFile: keyFile, log: log, now: time.Now}
	stamps, err := c.stat()
	if err != nil {
		return nil, err
	}
	return c, c.load(stamps)
}

// get is a tls.Config's GetCertificate. Where the changed files are no good pair, half
// written say, the old one stays.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	if now.Sub(c.checked) < checkEvery {
		return c.pair, nil
	}
	c.checked = now
	stamps, err := c.stat()
	if err == nil && stamps != c.stamps {
		if err = c.load(stamps); err == nil {
			c.log.Info("certificate reloaded", "file", c.certFile)
		}
	}
	if err != nil {
		c.log.Error("certificate not reloaded, the old one stays", "file", c.certFile, "error", err)
	}
	return c.pair, nil
}

// load reads the pair whose files have stamps.
func (c *certificate) load(stamps [2]stamp) error {
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return err
	}
	c.pair, c.stamps = &pair, stamps
	return nil
}

func (c *certificate) stat() (stamps [2]stamp, err error) {
	for i, name := range []string{c.certFile, c.keyFile} {
		info, err := os.Stat(name)
		if err != nil {
			return stamps, err
		}
		stamps[i] = stamp{info.ModTime(), info.Size()}
	}
	return stamps, nil
}
