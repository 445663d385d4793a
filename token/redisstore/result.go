package redisstore

import (
	"encoding/binary"
	"errors"
	"maps"
	"slices"

	"example.com/tokend/token"
)

// A result in a record is, numbers big-endian:
//
//	1  version: 1
//	1  1 where the body was omitted
//	2  status
//	   how many headers, as a varint; of each the name and the value, behind their lengths
//	   as varints, in the order of the names
//	   the body, to the end
//
// Each result has one spelling only.
const (
	resultVersion = 1
	resultOmitted = 1
	resultFixed   = 4
)

// appendResult appends r, or nothing where it is nil.
func appendResult(b []byte, r *token.Result) []byte {
	if r == nil {
		return b
	}
	var flags byte
	if r.BodyOmitted {
		flags = resultOmitted
	}
	b = append(b, resultVersion, flags)
	b = binary.BigEndian.AppendUint16(b, uint16(r.Status))
	b = binary.AppendUvarint(b, uint64(len(r.Headers)))
	for _, name := range slices.Sorted(maps.Keys(r.Headers)) {
		for _, text := range []string{name, r.Headers[name]} {
			b = binary.AppendUvarint(b, uint64(len(text)))
			b = append(b, text...)
		}
	}
	return append(b, r.Body...)
}

var errResult = errors.New("a stored result in an unknown form")

// parseResult reads s, or returns nil where it is empty.
func parseResult(s string) (*token.Result, error) {
	if s == "" {
		return nil, nil
	}
	if len(s) < resultFixed || s[0] != resultVersion || s[1] > resultOmitted {
		return nil, errResult
	}
	r := &token.Result{
		Status:      int(s[2])<<8 | int(s[3]),
		Headers:     make(map[string]string),
		BodyOmitted: s[1] == resultOmitted,
	}
	rest := s[resultFixed:]
	n, rest, err := cutNumber(rest)
	if err != nil || n > uint64(len(rest)) {
		return nil, errResult
	}
	before := ""
	for i := range n {
		var name, value string
		if name, rest, err = cutText(rest); err != nil {
			return nil, err
		}
		if value, rest, err = cutText(rest); err != nil {
			return nil, err
		}
		if i > 0 && name <= before {
			return nil, errResult
		}
		r.Headers[name], before = value, name
	}
	r.Body = []byte(rest)
	return r, nil
}

func cutText(s string) (text, rest string, err error) {
	n, rest, err := cutNumber(s)
	if err != nil || n > uint64(len(rest)) {
		return "", "", errResult
	}
	return rest[:n], rest[n:], nil
}

// cutNumber reads a varint in its shortest spelling.
func cutNumber(s string) (n uint64, rest string, err error) {
	var buf [binary.MaxVarintLen64]byte
	n, size := binary.Uvarint(buf[:copy(buf[:], s)])
	if size <= 0 || size > 1 && s[size-1] == 0 {
		return 0, "", errResult
	}
	return n, s[size:], nil
}
