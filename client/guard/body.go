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
	haveBody(r)
	if token = r.Header.Get(HeaderToken); token != "" {
		return token, r.Body, nil
	}
	mediaType, params, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch { // where somebody has parsed it, what is left is theirs
	case mediaType == typeForm && len(r.PostForm) > 0:
		token = r.PostForm.Get(FieldToken)
		return token, r.Body, missing(token)
	case mediaType == typeMultipart && r.MultipartForm != nil:
		token = url.Values(r.MultipartForm.Value).Get(FieldToken)
		return token, r.Body, missing(token)
	case mediaType == typeMultipart:
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
	if err == errBodyRead && mediaType == typeForm && r.PostForm != nil {
		return "", nil, missing("") // it was parsed, and nothing could be made of it
	}
	if err != nil {
		return "", nil, err
	}
	if token, err = read(data); err != nil {
		return "", nil, err
	}
	return token, again(data, r.Body), missing(token)
}

// The media types of bodies that net/http parses: the first into PostForm, the second into
// MultipartForm.
const (
	typeForm      = "application/x-www-form-urlencoded"
	typeMultipart = "multipart/form-data"
)

// haveBody gives r the empty body that net/http would have given it.
func haveBody(r *http.Request) {
	if r.Body == nil {
		r.Body = http.NoBody
	}
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
	case mediaType == typeForm:
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
	return "", invalid("body", "The form cannot be read.")
}

// tokenInJSON reads an object's member, whose name is not folded.
func tokenInJSON(data []byte) (string, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(data, &members); err != nil {
		if json.Valid(data) {
			return "", nil // no object
		}
		return "", invalid("body", "The body is no JSON.")
	}
	raw, ok := members[FieldToken]
	if !ok {
		return "", nil
	}
	var token string
	if err := json.Unmarshal(raw, &token); err != nil {
		return "", invalid(FieldToken, FieldToken+" must be a string.")
	}
	return token, nil
}

// readBody reads all of r's body, or refuses r: too little must not pass for all of it. It is
// empty where the form is parsed already, which then stands for it.
func (s *settings) readBody(r *http.Request) ([]byte, error) {
	haveBody(r)
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

// parsed tells whether something before the guard has read r's body as a form, and what it
// found is there. ParseForm makes PostForm of nothing where it does not read the body, as it
// does not read JSON, and MultipartReader a MultipartForm.
func parsed(r *http.Request) bool {
	switch mediaType, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); mediaType {
	case typeForm:
		return len(r.PostForm) > 0
	case typeMultipart:
		return r.MultipartForm != nil && len(r.MultipartForm.Value)+len(r.MultipartForm.File) > 0
	}
	return false
}

// unread returns what is said of a body that could not be read.
func unread(err error) *Refused {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return tooLarge()
	}
	no := invalid("body", "The body did not come whole; nothing was done.")
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
		return "", nil, invalid("body", "The form cannot be read.")
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
