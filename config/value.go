package config

import (
	"fmt"
	"strings"
)

// Origin says where a value came from: "default", a variable's name, a flag, or a file
// and line.
type Origin string

// Default is the origin of a value that no source gave.
const Default Origin = "default"

// value is what a source gives for a name.
type value struct {
	items    []string // one, or a sequence's
	sequence bool
	origin   Origin
}

func textValue(text string, from Origin) value {
	return value{items: []string{text}, origin: from}
}

// text returns v as one text: a sequence is joined with commas.
func (v value) text() string { return strings.Join(v.items, ",") }

// list returns v's items: a sequence's as they stand, a text's between commas, without
// the spaces around them.
func (v value) list() []string {
	if v.sequence {
		return v.items
	}
	if v.text() == "" {
		return nil
	}
	items := strings.Split(v.text(), ",")
	for i := range items {
		items[i] = strings.TrimSpace(items[i])
	}
	return items
}

// layer is what one source gives, by YAML name.
type layer map[string]value

// field makes a setter of one value.
func field[T any](at func(*Config) *T, parse func(string) (T, error)) func(*Config, value) error {
	return func(c *Config, v value) error {
		t, err := parse(v.text())
		if err == nil {
			*at(c) = t
		}
		return err
	}
}

// listField makes a setter of a list.
func listField[T any](at func(*Config) *[]T, parse func(string) (T, error)) func(*Config, value) error {
	return func(c *Config, v value) error {
		var ts []T
		for i, item := range v.list() {
			t, err := parse(item)
			if err != nil {
				return fmt.Errorf("item %d %w", i+1, err)
			}
			ts = append(ts, t)
		}
		*at(c) = ts
		return nil
	}
}
