package client

import (
	"bytes"
	"errors"
	"io"
	"sync/atomic"
)

// payload is a request's body that knows whether a transport has begun to send it.
// Until then nothing can have been done: tokend acts on whole bodies only. Dial errors
// alone would not tell, as each transport has its own and a context ends all alike.
type payload struct {
	data  []byte
	state atomic.Int32
}

const (
	unread int32 = iota
	read
	sealed
)

var errSealed = errors.New("client: the try is over")

// open returns a reader of the body from its start. net/http may ask for several, to
// send on another connection what it could not send on the first.
func (p *payload) open() io.ReadCloser { return &payloadReader{p, bytes.NewReader(p.data)} }

// seal tells whether some of the body may have been sent. If not, none will be: a
// transport may still be at work when its RoundTrip has returned.
func (p *payload) seal() (sent bool) { return !p.state.CompareAndSwap(unread, sealed) }

type payloadReader struct {
	payload *payload
	data    *bytes.Reader
}

func (r *payloadReader) Read(b []byte) (int, error) {
	if !r.payload.state.CompareAndSwap(unread, read) && r.payload.state.Load() == sealed {
		return 0, errSealed
	}
	return r.data.Read(b)
}

func (r *payloadReader) Close() error { return nil }
