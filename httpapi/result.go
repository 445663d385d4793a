package httpapi

import (
	"encoding/base64"
	"strings"
	"unicode"

	"example.com/tokend/httpapi/wire"
	"example.com/tokend/token"
)

// result reads what a claim is completed with; nil where that is nothing.
func (s *Server) result(req *wire.ResultRequest) (*token.Result, error) {
	if req == nil {
		return nil, nil
	}
	if req.Status == nil || *req.Status < 100 || *req.Status > 599 {
		return nil, &token.InvalidError{Field: "result.status", Rule: "must be a whole number from 100 to 599"}
	}
	if err := checkHeaders(req.Headers); err != nil {
		return nil, err
	}
	r := &token.Result{Status: int(*req.Status), Headers: req.Headers, BodyOmitted: flag(req.BodyOmitted)}
	if req.Body == nil {
		return r, nil
	}
	if r.BodyOmitted {
		return nil, &token.InvalidError{Field: "result.body_omitted", Rule: "must not stand beside a body"}
	}
	var err error
	r.Body, err = s.resultBody(*req.Body)
	return r, err
}

// resultBody decodes a body, of which there is one spelling only: Go's strict base64 still
// skips CR and LF.
func (s *Server) resultBody(text string) ([]byte, error) {
	b, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil || base64.StdEncoding.EncodedLen(len(b)) != len(text) {
		return nil, &token.InvalidError{Field: "result.body", Rule: "must be padded standard base64"}
	}
	if limit := s.opts.ResultBytes; int64(len(b)) > limit {
		return nil, &problemError{
			code: wire.CodeBodyTooLarge, field: "result.body",
			detail: "the result's body must be at most " + itoa(limit) + " bytes: complete with body_omitted instead",
		}
	}
	return b, nil
}

// checkHeaders refuses what cannot be replayed as headers: names must be tokens of RFC 9110,
// and differ in more than case, and values must have no control characters.
func checkHeaders(headers map[string]string) error {
	seen := make(map[string]bool, len(headers))
	for name, value := range headers {
		lower := strings.ToLower(name)
		switch {
		case !headerName(name):
			return &token.InvalidError{Field: "result.headers", Rule: "must have names of one or more of [A-Za-z0-9!#$%&'*+.^_`|~-]"}
		case seen[lower]:
			return &token.InvalidError{Field: "result.headers", Rule: "must have names that differ in more than case"}
		case strings.ContainsFunc(value, unicode.IsControl):
			return &token.InvalidError{Field: "result.headers", Rule: "must have values without control characters"}
		}
		seen[lower] = true
	}
	return nil
}

func headerName(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0:
		default:
			return false
		}
	}
	return s != ""
}

// resultOf returns what r is on the wire, with empty members where there is nothing.
func resultOf(r *token.Result) *wire.Result {
	if r == nil {
		return nil
	}
	resp := &wire.Result{Status: int64(r.Status), Headers: r.Headers, Body: r.Body, BodyOmitted: r.BodyOmitted}
	if resp.Headers == nil {
		resp.Headers = map[string]string{}
	}
	if resp.Body == nil {
		resp.Body = []byte{}
	}
	return resp
}
