package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// maxFile bounds what is read of a file.
const maxFile = 1 << 20

// ReadFile returns what stands in the file at path, a megabyte at most. Its errors name the
// path as [FileError] does.
func ReadFile(path string) ([]byte, error) {
	b, err := readFile(path)
	if err != nil {
		return nil, FileError(err)
	}
	return b, nil
}

// readFile is ReadFile, but that its errors are as the system gives them.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(b) > maxFile {
		return nil, &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("it is larger than %d bytes", maxFile)}
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

// FileError returns what went wrong with a file, with its whole path: a relative one goes by
// the working directory, which may not be the one that was meant. A text that does not look
// like a path is left out: it may be a secret in the wrong place.
func FileError(err error) error {
	pe, ok := errors.AsType[*fs.PathError](err)
	if !ok {
		return err
	}
	if !pathLike(pe.Path) {
		return pe.Err
	}
	return withPath(pe)
}

// withPath is err with its path from the root.
func withPath(err *fs.PathError) error {
	path, absErr := filepath.Abs(err.Path)
	if absErr != nil {
		path = err.Path
	}
	return fmt.Errorf("%s: %w", path, err.Err)
}

var pathText = regexp.MustCompile(`^[A-Za-z0-9._/~ -]+$`)

// pathLike tells whether s has the looks of a path that people give to files: keys and URLs
// have other characters, and passwords no slash or dot.
func pathLike(s string) bool { return pathText.MatchString(s) && strings.ContainsAny(s, "./") }
