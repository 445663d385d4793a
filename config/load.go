package config

import (
	"errors"

	"github.com/spf13/pflag"
)

// Sources are where a configuration comes from.
type Sources struct {
	Flags   *pflag.FlagSet // parsed, after [Register]; nil where there are none
	Environ []string       // in os.Environ's form
	// Defaults replace the table's, by YAML name: what a development server makes up.
	Defaults map[string]string
}

// Load reads the configuration. It always returns one: a setting that has a fault is as
// if it were not given.
//
// What only a server needs (a Redis URL, signing keys, a way to authenticate) may be
// missing: see [Config.Require]. Paths that do not begin with / go by the working directory,
// those in the YAML file too.
func Load(src Sources) (*Config, *Faults) {
	c, faults := new(Config), new(Faults)
	layers := []layer{flagLayer(src.Flags), environLayer(src.Environ, faults)}
	var file yamlFile
	for _, l := range layers {
		if v, ok := l["config"]; ok && v.text() != "" {
			file = yamlLayer(v.text(), faults)
			layers = append(layers, file.given)
			break
		}
	}
	for i := range settings {
		c.load(&settings[i], layers, src.Defaults, faults)
	}
	c.check(faults)
	file.readPurposes(c)
	return c, faults
}

// load sets s from the first of layers that gives it, else from its default.
func (c *Config) load(s *Setting, layers []layer, defaults map[string]string, faults *Faults) {
	v := textValue(s.Default, Default)
	if d, ok := defaults[s.Name]; ok {
		v = textValue(d, Default)
	}
	byDefault := v
	for _, l := range layers {
		given, ok, err := s.from(l)
		if err != nil {
			faults.Add(s.Name, err.Error())
			break
		}
		if ok {
			v = given
			break
		}
	}
	if s.set != nil {
		if err := s.set(c, v); err != nil {
			faults.Add(s.Name, err.Error()+" (set by "+string(v.origin)+")")
			v = byDefault
			_ = s.set(c, v) // the rules between settings need something sound
		}
	}
	text := v.text()
	if s.Secret {
		text = Secret(text).String()
	}
	c.values = append(c.values, Value{Name: s.Name, Text: text, Origin: v.origin})
}

// from returns what l gives for s, by itself or in a file, and whether it gives any.
func (s *Setting) from(l layer) (value, bool, error) {
	given, ok := l[s.Name]
	path, inFile := l[s.Name+fileSuffix]
	switch {
	case !s.Secret || !inFile:
		return given, ok, nil
	case ok:
		return value{}, false, errors.New("is given twice, by " + string(given.origin) + " and by " + string(path.origin) + ": keep one of them")
	}
	secret, err := ReadSecret(path.text())
	if err != nil {
		return value{}, false, errors.New("needs a file that can be read, and the one that " + string(path.origin) + " names cannot be: " + err.Error())
	}
	return textValue(secret.Reveal(), path.origin), true, nil
}
