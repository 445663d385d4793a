package guard

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"strings"

	"example.com/tokend/httpapi/wire"
)

// findToken returns the token that r came with, and r's body as the handler is to read it:
// from its beginning.
func (s *settings) findToken(r *http.Request) (token string, body io.ReadCloser, err error) {
	if token = r.Header.Get(HeaderToken); token != "" {
		return token, r.Body, nil
	}
	if r.PostForm != nil || r.MultipartForm != nil { // somebody has parsed it; what is left is theirs
		token = r.PostForm.Get(FieldToken)
		if token == "" && r.MultipartForm != nil {
			token = url.Values(r.MultipartForm.Value).Get(FieldToken)
		}
		return token, r.Body, missing(token)
	}
	mediaType, params, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if mediaType == "multipart/form-data" {
		if token, body, err = s.findPart(r, params["boundary"]); err != nil {
			return "", nil, err
		}
		return token, body, missing(token)
	}
	read := tokenIn(mediaType)
	if read == nil {
		return "", nil, missing("")
	}
	data, err := s.readBody(r)
	if err != nil {
		return "", nil, err
	}
	if token, err = read(data); err != nil {
		return "", nil, err
	}
	return token, again(data, r.Body), missing(token)
}

func missing(token string) error {
	if token == "" {
		return newRefused(CodeTokenMissing, nil)
	}
	return nil
}

// tokenIn returns how a body of the type is read for a token, or nil.
func tokenIn(mediaType string) func([]byte) (string, error) {
	switch {
	case mediaType == "application/x-www-form-urlencoded":
		return tokenInForm
	case isJSON(mediaType):
		return tokenInJSON
	}
	return nil
}

func isJSON(mediaType string) bool {
	return mediaType == wire.TypeJSON || strings.HasPrefix(mediaType, "application/") && strings.HasSuffix(mediaType, "+json")
}

func tokenInForm(data []byte) (string, error) {
	values, err := url.ParseQuery(string(data))
	if token := values.Get(FieldToken); token != "" || err == nil {
		return token, nil
	}
	return "", invalid("body", "the form cannot be read")
}

// tokenInJSON reads an object's member, whose name is not folded.
func tokenInJSON(data []byte) (string, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(data, &members); err != nil {
		if json.Valid(data) {
			return "", nil // no object
		}
		return "", invalid("body", "the body is no JSON")
	}
	raw, ok := members[FieldToken]
	if !ok {
		return "", nil
	}
	var token string
	if err := json.Unmarshal(raw, &token); err != nil {
		return "", invalid(FieldToken, FieldToken+" must be a string")
	}
	return token, nil
}

// readBody reads all of r's body, or refuses r: too little must not pass for all of it. It is
// empty where the form is parsed already, which then stands for it.
func (s *settings) readBody(r *http.Request) ([]byte, error) {
	if r.ContentLength > s.bodyLimit {
		return nil, tooLarge()
	}
	data, err := io.ReadAll(io.LimitReader(r.Body, s.bodyLimit+1))
	switch {
	case err != nil:
		return nil, unread(err)
	case int64(len(data)) > s.bodyLimit:
		return nil, tooLarge()
	case r.ContentLength > int64(len(data)) && !(len(data) == 0 && parsed(r)):
		return nil, errBodyRead // net/http itself would have said so
	}
	return data, nil
}

// parsed tells whether something before the guard has read a form from r.
func parsed(r *http.Request) bool { return len(r.PostForm) > 0 || r.MultipartForm != nil }

// unread returns what is said of a body that could not be read.
func unread(err error) *Refused {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return tooLarge()
	}
	no := invalid("body", "the body did not come whole; nothing was done")
	no.Err = err
	return no
}

// again returns a body that begins with data, which was read from the one it closes.
func again(data []byte, rest io.ReadCloser) io.ReadCloser {
	return struct {
		io.Reader
		io.Closer
	}{bytes.NewReader(data), rest}
}

// findPart reads r's parts up to the one that is the token.
func (s *settings) findPart(r *http.Request, boundary string) (token string, body io.ReadCloser, err error) {
	if boundary == "" {
		return "", nil, invalid("body", "the form cannot be read")
	}
	var held bytes.Buffer
	limited := &io.LimitedReader{R: r.Body, N: s.bodyLimit + 1}
	form := multipart.NewReader(io.TeeReader(limited, &held), boundary)
	for {
		part, err := form.NextPart()
		if err == nil && (part.FormName() != FieldToken || part.FileName() != "") {
			continue
		}
		var value []byte
		if err == nil {
			value, err = io.ReadAll(io.LimitReader(part, 4<<10))
		}
		switch {
		case limited.N <= 0 && err != nil:
			return "", nil, tooLarge()
		case err == io.EOF && bytes.Contains(held.Bytes(), []byte("--"+boundary+"--")):
			// The end, and not where the body broke off: the token is not there.
		case err != nil:
			return "", nil, unread(err)
		}
		return string(value), struct {
			io.Reader
			io.Closer
		}{io.MultiReader(&held, r.Body), r.Body}, nil
	}
}
