package config

import (
	"maps"
	"slices"

	"github.com/spf13/pflag"
)

// Register adds a flag for each setting to fs. After fs was parsed, [Load] reads them.
func Register(fs *pflag.FlagSet) {
	RegisterOnly(fs, slices.Sorted(maps.Keys(spellings))...)
}

// RegisterOnly adds the flags of the settings called names to fs, for a command that
// needs no others, and the configuration file's own.
func RegisterOnly(fs *pflag.FlagSet, names ...string) {
	for _, name := range append(names, "config") {
		sp := spellings[name]
		if fs.Lookup(flagOf(name)) != nil {
			continue
		}
		v := &flagValue{name: name, kind: sp.setting.Type, text: sp.setting.Default}
		help := sp.setting.Help
		if sp.file {
			v.kind, v.text, help = "file", "", "file that holds "+sp.setting.Name
		}
		f := fs.VarPF(v, flagOf(name), "", help)
		if v.kind == "bool" {
			f.NoOptDefVal = "true"
		}
	}
}

// flagValue keeps a flag's text as it stands: Load looks at all sources at once.
type flagValue struct {
	name, kind, text string
}

func (v *flagValue) String() string     { return v.text }
func (v *flagValue) Type() string       { return v.kind }
func (v *flagValue) Set(s string) error { v.text = s; return nil }

// flagLayer returns what the flags of fs give, which may be nil.
func flagLayer(fs *pflag.FlagSet) layer {
	l := layer{}
	if fs == nil {
		return l
	}
	fs.Visit(func(f *pflag.Flag) {
		if v, ok := f.Value.(*flagValue); ok {
			l[v.name] = textValue(v.text, Origin("--"+f.Name))
		}
	})
	return l
}
