package httpapi

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"net/http"
	"reflect"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"example.com/tokend/httpapi/wire"
	"example.com/tokend/token"
)

// decode reads the request's body into req. An empty body is {}. The body is read to its
// end, and counted, before any of it is looked at: a chunked one says no length.
func (c *call) decode(req any) error {
	buf := newBody()
	defer recycle(buf)
	r := c.echo.Request()
	limit := c.bodyLimit()
	if r.ContentLength > limit {
		return tooLarge(limit)
	}
	body := r.Body
	if r.ContentLength < 0 { // else the server lets no more of it through than that
		body = http.MaxBytesReader(c.echo.Response().Writer, body, limit)
	}
	if _, err := buf.ReadFrom(body); err != nil {
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return tooLarge(limit)
		}
		return &problemError{
			code: wire.CodeInvalidRequest, field: "body", cause: err,
			detail: "body must come whole and in time, and be as long as Content-Length says",
		}
	}
	if err := checkType(r.Header, buf.Len() == 0); err != nil {
		return err
	}
	if buf.Len() == 0 {
		return nil
	}
	return unmarshal(buf.Bytes(), req)
}

// bodyLimit returns how long a body may be: one with a result may be longer than others.
func (c *call) bodyLimit() int64 {
	if c.op == opComplete {
		return c.srv.opts.BodyBytes + (c.srv.opts.ResultBytes+2)/3*4
	}
	return c.srv.opts.BodyBytes
}

// bodies holds buffers for bodies, read or to be written; decoded values are copies.
var bodies = sync.Pool{New: func() any { return bytes.NewBuffer(make([]byte, 0, 1024)) }}

// newBody returns an empty buffer; recycle it after use.
func newBody() *bytes.Buffer {
	buf := bodies.Get().(*bytes.Buffer)
	buf.Reset()
	return buf
}

// recycle keeps buf for another body, unless a few such would hold much memory for long.
func recycle(buf *bytes.Buffer) {
	if buf.Cap() <= 1<<17 {
		bodies.Put(buf)
	}
}

// checkType refuses a body that does not say it is JSON in UTF-8. An empty one need not
// say anything.
func checkType(h http.Header, empty bool) error {
	types := h["Content-Type"]
	switch {
	case len(types) == 0 && empty:
		return nil
	case len(types) != 1, h.Get("Content-Encoding") != "" && !strings.EqualFold(h.Get("Content-Encoding"), "identity"):
		return errMediaType
	case types[0] == wire.TypeJSON:
		return nil
	}
	media, params, err := mime.ParseMediaType(types[0])
	if err != nil || media != wire.TypeJSON {
		return errMediaType
	}
	for name, value := range params {
		if name != "charset" || !strings.EqualFold(value, "utf-8") {
			return errMediaType
		}
	}
	return nil
}

var errMediaType = &problemError{
	code:   wire.CodeUnsupportedMediaType,
	detail: "the body must be application/json in UTF-8, and not compressed",
	field:  "Content-Type",
}

func tooLarge(limit int64) error {
	return &problemError{code: wire.CodeBodyTooLarge, detail: "the body must be at most " + itoa(limit) + " bytes"}
}

// unmarshal reads the one JSON object that b must be. Members are matched by their exact
// names; an unknown or duplicate one, a null, invalid UTF-8 and anything behind the object
// are refused. Errors are *token.InvalidError and quote no value.
func unmarshal(b []byte, req any) error {
	if err := json.Unmarshal(b, req, json.RejectUnknownMembers(true)); err != nil {
		return invalidJSON(err)
	}
	// The package lets null stand for a zero value.
	if bytes.Contains(b, []byte("null")) {
		return refuseNull(b)
	}
	return nil
}

func refuseNull(b []byte) error {
	dec := jsontext.NewDecoder(bytes.NewReader(b))
	for {
		tok, err := dec.ReadToken()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return invalidJSON(err)
		}
		if tok.Kind() == 'n' {
			return &token.InvalidError{Field: field(dec.StackPointer()), Rule: "must not be null: leave it out instead"}
		}
	}
}

// invalidJSON says what rule err broke.
func invalidJSON(err error) error {
	if e, ok := errors.AsType[*json.SemanticError](err); ok {
		rule := "must be a JSON object"
		switch {
		case errors.Is(err, json.ErrUnknownName):
			rule = "is not a member of this request (names are matched exactly)"
		case e.GoType == nil:
		case e.GoType.Kind() == reflect.String:
			rule = "must be a string"
		case e.GoType.Kind() == reflect.Int64:
			rule = "must be a whole number, without fraction or exponent"
		case e.GoType.Kind() == reflect.Bool:
			rule = "must be true or false"
		case e.GoType.Kind() == reflect.Slice:
			rule = "must be a JSON array"
		}
		return &token.InvalidError{Field: field(e.JSONPointer), Rule: rule}
	}
	if e, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		if errors.Is(err, jsontext.ErrDuplicateName) {
			return &token.InvalidError{Field: field(e.JSONPointer), Rule: "must not stand twice"}
		}
		return &token.InvalidError{
			Field: field(e.JSONPointer),
			Rule:  "must be one JSON document in valid UTF-8, and is not from byte " + itoa(e.ByteOffset) + " on",
		}
	}
	return &token.InvalidError{Field: "body", Rule: "must be one JSON object"}
}

// field spells p as a path: items[3].user. What the caller named its members is shown only
// where it is short and plain, so that nothing is passed on that does not belong in a log
// or on a page.
func field(p jsontext.Pointer) string {
	var b strings.Builder
	for name := range p.Tokens() {
		switch {
		case !plain(name):
			name = "a member"
			fallthrough
		case b.Len() == 0:
			b.WriteString(name)
		case '0' <= name[0] && name[0] <= '9':
			b.WriteString("[" + name + "]")
		default:
			b.WriteString("." + name)
		}
	}
	if b.Len() == 0 {
		return "body"
	}
	return b.String()
}

func plain(name string) bool { return len(name) <= 32 && wire.ValidRequestID(name) }
