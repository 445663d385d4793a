package config

import (
	"maps"
	"slices"

	"github.com/spf13/pflag"
)

// Register adds a flag for each setting to fs. After fs was parsed, [Load] reads them.
func Register(fs *pflag.FlagSet) {
	for _, name := range slices.Sorted(maps.Keys(spellings)) {
		sp := spellings[name]
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
