package guard

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"hash"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// hashing hashes strings so that no two lists of them hash alike: each behind its length.
type hashing struct{ hash.Hash }

func newHashing(kind string) hashing {
	h := hashing{sha256.New()}
	h.add(kind)
	return h
}

func (h hashing) add(parts ...string) {
	var length [8]byte
	for _, p := range parts {
		binary.BigEndian.PutUint64(length[:], uint64(len(p)))
		h.Write(length[:])
		io.WriteString(h, p)
	}
}

func (h hashing) hex() string { return hex.EncodeToString(h.Sum(nil)) }

// keyFor returns the key that tokend is sent for key: the same one means something else in
// another method or path.
func keyFor(r *http.Request, key string) string {
	h := newHashing("tokend guard key")
	h.add(r.Method, sentPath(r), key)
	return h.hex()
}

// sentPath returns the path that r was sent to. r.URL's may have been rewritten on its way to
// the guard: under http.StripPrefix, what is mounted twice has the same one twice. Where r did
// not come from a connection, r.URL's is all there is.
func sentPath(r *http.Request) string {
	if u, err := url.ParseRequestURI(r.RequestURI); err == nil && strings.HasPrefix(u.Path, "/") {
		return u.EscapedPath()
	}
	return r.URL.EscapedPath()
}

// digestOf returns the fingerprint of r, whose body is data.
func (s *settings) digestOf(r *http.Request, data []byte) (string, error) {
	h := newHashing("tokend guard digest 1")
	h.add(r.Method, sentPath(r))
	if s.digest != nil {
		own, err := s.digest(withBody(r, data), data)
		if err != nil {
			return "", callersFault("body", err)
		}
		h.add("own", string(own))
		return h.hex(), nil
	}
	mediaType, params, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	h.add(r.URL.RawQuery, mediaType)
	switch {
	case len(data) == 0 && parsed(r):
		if err := s.addParsed(h, r); err != nil {
			return "", err
		}
	case mediaType == typeMultipart:
		if err := s.addParts(h, data, params["boundary"]); err != nil {
			return "", err
		}
	case mediaType == typeForm && len(s.without) > 0:
		h.add("fields")
		for pair := range strings.SplitSeq(string(data), "&") {
			name, _, _ := strings.Cut(pair, "=")
			if name, err := url.QueryUnescape(name); err != nil || !slices.Contains(s.without, name) {
				h.add(pair)
			}
		}
	case isJSON(mediaType) && s.jsonAnyOrder && json.Valid(data):
		h.add("ordered", string(ordered(data)))
	default:
		h.add("bytes", string(data))
	}
	return h.hex(), nil
}

// addParts adds a form's parts to h, in their order: a boundary is another each time.
func (s *settings) addParts(h hashing, data []byte, boundary string) error {
	if boundary == "" {
		return invalid("body", "The form cannot be read.")
	}
	h.add("parts")
	form := multipart.NewReader(bytes.NewReader(data), boundary)
	for {
		p, err := form.NextRawPart()
		if err == io.EOF && bytes.Contains(data, []byte("--"+boundary+"--")) {
			return nil
		}
		if err != nil {
			return unread(err)
		}
		body, err := io.ReadAll(p)
		if err != nil {
			return unread(err)
		}
		if p.FileName() != "" || !slices.Contains(s.without, p.FormName()) {
			h.add(p.FormName(), p.FileName(), p.Header.Get("Content-Type"), p.Header.Get("Content-Transfer-Encoding"), string(body))
		}
	}
}

// addParsed adds a form to h whose body is gone: what the handler will find of it, in the
// order of the names.
func (s *settings) addParsed(h hashing, r *http.Request) error {
	h.add("parsed")
	values := r.PostForm // of a multipart form too, where ParseMultipartForm has read it
	files := map[string][]*multipart.FileHeader{}
	if r.MultipartForm != nil {
		files = r.MultipartForm.File
		if len(values) == 0 {
			values = r.MultipartForm.Value
		}
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if !slices.Contains(s.without, name) {
			h.add("value", name, strconv.Itoa(len(values[name])))
			h.add(values[name]...)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		for _, f := range files[name] {
			h.add("file", name, f.Filename, f.Header.Get("Content-Type"), strconv.FormatInt(f.Size, 10))
			body, err := f.Open()
			if err != nil {
				return err
			}
			_, err = io.Copy(h, body)
			body.Close()
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// ordered returns data, which is valid JSON, without space and with the members of each
// object in the order of their names. All else stays as it is spelt: numbers that a float
// would make one are two, and so are a member that stands twice and one that stands once.
// What is nested deeper than anybody means it is left as it is: it would take long.
func ordered(data []byte) []byte {
	var compact bytes.Buffer
	if json.Compact(&compact, data) != nil || nesting(compact.Bytes()) > 64 {
		return data
	}
	out, _ := appendOrdered(nil, compact.Bytes())
	return out
}

// nesting returns how deep the values in data are, which is valid JSON.
func nesting(data []byte) (most int) {
	depth := 0
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '"':
			i += stringEnd(data[i:]) - 1
		case '{', '[':
			depth++
			most = max(most, depth)
		case '}', ']':
			depth--
		}
	}
	return most
}

// appendOrdered appends the value that begins data, and returns what follows it.
func appendOrdered(out, data []byte) (_, rest []byte) {
	switch data[0] {
	case '{':
		var members []member
		for data = data[1:]; data[0] != '}'; {
			if data[0] == ',' {
				data = data[1:]
			}
			var m member
			n := stringEnd(data)
			m.name, data = data[:n], data[n+1:] // and the colon
			m.value, data = appendOrdered(nil, data)
			members = append(members, m)
		}
		slices.SortStableFunc(members, func(a, b member) int { return bytes.Compare(a.name, b.name) })
		out = append(out, '{')
		for i, m := range members {
			if i > 0 {
				out = append(out, ',')
			}
			out = append(append(append(out, m.name...), ':'), m.value...)
		}
		return append(out, '}'), data[1:]
	case '[':
		out = append(out, '[')
		for data = data[1:]; data[0] != ']'; {
			if data[0] == ',' {
				out, data = append(out, ','), data[1:]
			}
			out, data = appendOrdered(out, data)
		}
		return append(out, ']'), data[1:]
	case '"':
		n := stringEnd(data)
		return append(out, data[:n]...), data[n:]
	}
	n := bytes.IndexAny(data, ",]}")
	if n < 0 {
		n = len(data)
	}
	return append(out, data[:n]...), data[n:]
}

type member struct{ name, value []byte }

// stringEnd returns the length of the string that begins data.
func stringEnd(data []byte) int {
	for i := 1; ; i++ {
		switch data[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
}

// withBody returns r for a function of the service's own to read: what it parses does not
// show in r.
func withBody(r *http.Request, data []byte) *http.Request {
	own := r.WithContext(r.Context())
	own.Body = io.NopCloser(bytes.NewReader(data))
	own.ContentLength = int64(len(data))
	return own
}

// callersFault refuses a request that a function of the service's own could not read.
func callersFault(field string, err error) *Refused {
	no := invalid(field, "The request cannot be read; nothing was done.")
	no.Err = err
	return no
}
