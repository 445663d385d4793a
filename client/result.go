package client

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"unicode/utf8"

	"example.com/tokend/httpapi/wire"
)

// Result is what a claim is completed with, and every later claim of the same subject is
// answered with. The zero Result says that there is none.
type Result struct {
	Status int // of HTTP, 100 to 599
	// Header has the names as they were given, each with one value. Names differ in more than
	// case, and values have no control characters.
	Header map[string]string
	Body   []byte // byte for byte; as long as tokend's results.max_bytes, 256 KiB where not set
	// BodyOmitted says that there was a body, which was too big to be kept.
	BodyOmitted bool
}

// JSON returns the Result of status that says v. Its error is encoding/json's.
func JSON(status int, v any) (Result, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return Result{}, err
	}
	return Result{Status: status, Header: map[string]string{"Content-Type": wire.TypeJSON}, Body: b}, nil
}

// Completed is what a claim came to.
type Completed struct {
	Result
	Ref string // the token's or key's, for logs and tickets
	// Replayed says that Result is an earlier claim's: the work was not done again.
	Replayed bool
}

// check refuses what JSON cannot carry; all else is tokend's to judge.
func (r *Result) check() *Refusal {
	for name, value := range r.Header {
		if !utf8.ValidString(name) || !utf8.ValidString(value) {
			return refuse(wire.CodeInvalidRequest, "result.headers", "result.headers must be valid UTF-8")
		}
	}
	return nil
}

// request returns r as it is sent; nil where there is none.
func (r *Result) request() *wire.ResultRequest {
	if r.Status == 0 && len(r.Header) == 0 && len(r.Body) == 0 && !r.BodyOmitted {
		return nil
	}
	req := &wire.ResultRequest{Status: new(int64(r.Status)), Headers: r.Header}
	if len(r.Body) > 0 {
		req.Body = new(base64.StdEncoding.EncodeToString(r.Body))
	}
	if r.BodyOmitted {
		req.BodyOmitted = new(true)
	}
	return req
}

// smaller returns what to complete with where r is too large, and false where nothing is
// left to be omitted.
func (r Result) smaller() (Result, bool) {
	if len(r.Body) > 0 {
		r.Body, r.BodyOmitted = nil, true
		return r, true
	}
	return Result{Status: r.Status, BodyOmitted: true}, len(r.Header) > 0
}

// unkeepable tells whether err is about the result, and not about the claim.
func unkeepable(err error) bool {
	no, ok := errors.AsType[*Refusal](err)
	return ok && no.Code == wire.CodeInvalidRequest && strings.HasPrefix(no.Field, "result")
}

// placeholder returns what to complete with where r is no result: the work is done all the
// same.
func (r *Result) placeholder() Result {
	kept := Result{Status: r.Status, BodyOmitted: true}
	if kept.Status < 100 || kept.Status > 599 {
		kept.Status = http.StatusInternalServerError
	}
	return kept
}

func resultOf(r *wire.Result) Result {
	if r == nil {
		return Result{}
	}
	got := Result{Status: int(r.Status), Header: r.Headers, Body: r.Body, BodyOmitted: r.BodyOmitted}
	if len(got.Body) == 0 {
		got.Body = nil
	}
	return got
}
