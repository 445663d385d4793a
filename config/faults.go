package config

import (
	"fmt"
	"slices"
	"strings"
)

// Faults collects what is wrong with a configuration, so that all of it can be said at
// once. The zero Faults is ready to use.
type Faults struct{ list []fault }

type fault struct {
	setting string // its name, or "" for what is no setting
	text    string
}

// Add adds what is wrong with the setting called name, and the mend: "must be …", "is
// required …". The text must not quote a value. It panics where there is no such
// setting.
func (f *Faults) Add(name, text string) {
	if name != purposesName {
		if s, ok := spellings[name]; !ok || s.file {
			panic("config: no setting " + name)
		}
	}
	f.list = append(f.list, fault{setting: name, text: text})
}

// add adds what is wrong with a name that is no setting.
func (f *Faults) add(text string) { f.list = append(f.list, fault{text: text}) }

// Has tells whether any of the settings called names has a fault.
func (f *Faults) Has(names ...string) bool {
	return slices.ContainsFunc(f.list, func(x fault) bool { return slices.Contains(names, x.setting) })
}

// Err returns f as an error, or nil where nothing is wrong.
func (f *Faults) Err() error {
	if len(f.list) == 0 {
		return nil
	}
	return f
}

// Error lists the faults, a line each, in the table's order.
func (f *Faults) Error() string {
	list := slices.Clone(f.list)
	slices.SortStableFunc(list, func(a, b fault) int { return rank(a.setting) - rank(b.setting) })
	var b strings.Builder
	fmt.Fprintf(&b, "%d faults in the configuration:", len(list))
	if len(list) == 1 {
		b.Reset()
		b.WriteString("a fault in the configuration:")
	}
	for _, x := range list {
		b.WriteString("\n  ")
		switch {
		case x.setting == purposesName:
			b.WriteString(purposesName + " in YAML: ")
		case x.setting != "":
			b.WriteString(spellings[x.setting].setting.where() + ": ")
		}
		b.WriteString(x.text)
	}
	return b.String()
}

// rank is the place of the setting called name in the message.
func rank(name string) int {
	i := slices.IndexFunc(settings, func(s Setting) bool { return s.Name == name })
	switch {
	case i >= 0:
		return i
	case name == purposesName:
		return len(settings)
	}
	return len(settings) + 1
}
