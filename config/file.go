package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// maxFile bounds what is read of a file.
const maxFile = 1 << 20

// ReadFile returns what stands in the file at path, a megabyte at most. Its errors do
// not name the path: see [WithoutPath].
func ReadFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, WithoutPath(err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, WithoutPath(err)
	}
	if len(b) > maxFile {
		return nil, fmt.Errorf("it is larger than %d bytes", maxFile)
	}
	return b, nil
}

// ReadSecret returns the secret that the file at path holds: all of it but for one final
// newline, which editors and echo put there.
func ReadSecret(path string) (Secret, error) {
	b, err := ReadFile(path)
	if rest, ok := bytes.CutSuffix(b, []byte("\r\n")); ok {
		return Secret(rest), err
	}
	return Secret(bytes.TrimSuffix(b, []byte("\n"))), err
}

// WithoutPath returns what went wrong with a file, without its path: that may be a
// secret in the wrong place.
func WithoutPath(err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err
	}
	return err
}
