package config

import (
	"slices"
	"strings"
)

// variablePrefix begins the variables that are tokend's.
const variablePrefix = "TOKEND_"

// Setting is one row of the table of settings.
type Setting struct {
	Name    string // as in YAML: a dot descends into a section
	Type    string // what help calls its value
	Default string
	Secret  bool // never shown, and can be read from the file that Name_file names
	Help    string

	list    bool // YAML may give a sequence
	virtual bool // no setting of its own in YAML: the YAML file's own path
	set     func(*Config, value) error
}

// Flag returns the setting's flag, without dashes.
func (s *Setting) Flag() string { return flagOf(s.Name) }

// Variable returns the setting's environment variable.
func (s *Setting) Variable() string { return variableOf(s.Name) }

func flagOf(name string) string {
	return strings.NewReplacer(".", "-", "_", "-").Replace(name)
}

func variableOf(name string) string {
	return variablePrefix + strings.ToUpper(strings.ReplaceAll(name, ".", "_"))
}

// fileSuffix behind a secret's name makes the name of the file that holds it.
const fileSuffix = "_file"

// where names s for people: its flag, variable and YAML name.
func (s *Setting) where() string {
	w := "--" + s.Flag() + ", " + s.Variable()
	if !s.virtual {
		w += ", " + s.Name + " in YAML"
	}
	return w
}

// Settings returns a copy of the table.
func Settings() []Setting { return append([]Setting(nil), settings...) }

// spelling is a name that a source may give a value to.
type spelling struct {
	setting *Setting
	file    bool // the value is the path of the file that holds the setting's
}

// spellings holds every such name in its YAML form.
var spellings = func() map[string]spelling {
	m := map[string]spelling{}
	for i := range settings {
		s := &settings[i]
		m[s.Name] = spelling{setting: s}
		if s.Secret {
			m[s.Name+fileSuffix] = spelling{setting: s, file: true}
		}
	}
	return m
}()

// yamlNames holds every name that may stand in the YAML file, sorted.
var yamlNames = func() []string {
	names := []string{purposesName}
	for name, sp := range spellings {
		if !sp.setting.virtual {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}()

// sections holds the names that stand before a dot in the names of settings.
var sections = func() map[string]bool {
	m := map[string]bool{}
	for _, s := range settings {
		for i, r := range s.Name {
			if r == '.' {
				m[s.Name[:i]] = true
			}
		}
	}
	return m
}()
