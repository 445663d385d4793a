package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// yamlFile walks a YAML document. It works on the nodes and not on decoded values, for a
// password that looks like a number must stay as it was written, and a fault names its
// line.
type yamlFile struct {
	name     string // of the file, for origins and faults
	faults   *Faults
	given    layer
	purposes *yaml.Node // what stands under purposes, or nil
}

// yamlLayer reads the YAML file at path.
func yamlLayer(path string, faults *Faults) yamlFile {
	y := yamlFile{name: filepath.Base(path), faults: faults, given: layer{}}
	b, err := readFile(path)
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		err = withPath(pe) // of this one nobody takes the path for a secret
	}
	if err != nil {
		faults.Add("config", "the file cannot be read: "+err.Error())
		return y
	}
	y.read(b)
	return y
}

func (y *yamlFile) read(b []byte) {
	d := yaml.NewDecoder(bytes.NewReader(b))
	var doc yaml.Node
	switch err := d.Decode(&doc); {
	case errors.Is(err, io.EOF): // nothing in it
		return
	case err != nil:
		y.faults.Add("config", y.name+" is not YAML "+trouble(b, err))
		return
	}
	switch err := d.Decode(new(yaml.Node)); {
	case errors.Is(err, io.EOF):
	case err != nil:
		y.faults.Add("config", y.name+" is not YAML "+trouble(b, err))
		return
	default:
		y.faults.Add("config", y.name+" must be one YAML document, and holds several")
		return
	}
	root := doc.Content[0]
	if isNull(root) {
		return
	}
	if root.Kind != yaml.MappingNode {
		y.faults.Add("config", y.name+" must be a mapping of names to values")
		return
	}
	y.section("", root)
}

var (
	yamlLine   = regexp.MustCompile(`line [0-9]+`)
	yamlAnchor = regexp.MustCompile(`unknown anchor '([^']*)'`)
	// What the library says without quoting the file: words, and signs of YAML's.
	yamlSays = regexp.MustCompile(`^(?:yaml: )?(?:line [0-9]+: )?((?:[A-Za-z, -]|UTF-8|'[^\pL\pN]'|<[a-z -]+>)+)$`)
)

// trouble says where in the file b the trouble is that the library's err tells, and what it
// is where that quotes nothing of the file.
func trouble(b []byte, err error) string {
	text := err.Error()
	if m := yamlAnchor.FindStringSubmatch(text); m != nil {
		return fmt.Sprintf("near line %d: a text that begins with * needs quotes", lineAt(b, bytes.Index(b, []byte("*"+m[1]))))
	}
	where := yamlLine.FindString(text)
	if where == "" { // it leaves out the first line, and that of what is no text
		where = fmt.Sprintf("line %d", lineAt(b, noText(b)))
	}
	if m := yamlSays.FindStringSubmatch(text); m != nil {
		return "near " + where + ": " + m[1]
	}
	return "near " + where
}

// lineAt returns the line of b's byte i; the first where i is negative.
func lineAt(b []byte, i int) int { return 1 + bytes.Count(b[:max(i, 0)], []byte("\n")) }

// noText returns where b begins to be no text, or -1.
func noText(b []byte) int {
	for i := 0; i < len(b); {
		r, size := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && size == 1 || unicode.IsControl(r) && !strings.ContainsRune("\t\r\n\u0085", r) {
			return i
		}
		i += size
	}
	return -1
}

// section reads the mapping n, whose names begin with prefix.
func (y *yamlFile) section(prefix string, n *yaml.Node) {
	for key, val := range pairs(n) {
		name := prefix + key.Value
		sp, ok := spellings[name]
		switch {
		case ok && !sp.setting.virtual:
			if _, twice := y.given[name]; twice {
				y.faults.Add(sp.setting.Name, "stands twice: remove "+y.at(key))
				continue
			}
			y.setting(name, sp, key, val)
		case name == purposesName:
			y.purposes = val
		case sections[name] && val.Kind == yaml.MappingNode:
			y.section(name+".", val)
		case sections[name] && isNull(val):
		case sections[name]:
			y.faults.add(y.at(key) + ": " + name + " is a section: put its settings below it")
		default:
			y.unknown(prefix, key)
		}
	}
}

// setting reads the value of the setting called name.
func (y *yamlFile) setting(name string, sp spelling, key, n *yaml.Node) {
	v := value{origin: Origin(y.at(key))}
	switch {
	case n.Kind == yaml.ScalarNode && !isNull(n):
		v.items = []string{n.Value}
	case n.Kind == yaml.SequenceNode && sp.setting.list && !sp.file:
		v.sequence = true
		for _, item := range n.Content {
			item = target(item)
			if item.Kind != yaml.ScalarNode || isNull(item) {
				y.faults.Add(sp.setting.Name, "must be a list of texts; a text that looks like something else needs quotes ("+y.at(item)+")")
				return
			}
			v.items = append(v.items, item.Value)
		}
	default:
		y.faults.Add(sp.setting.Name, "must have a value, and a text that looks like something else needs quotes ("+y.at(key)+")")
		return
	}
	y.given[name] = v
}

var printable = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// unknown adds the fault that nothing below prefix is called as key says. The name is not
// quoted where it might be something else that stands in the wrong place.
func (y *yamlFile) unknown(prefix string, key *yaml.Node) {
	name := prefix + key.Value
	if !printable.MatchString(name) {
		y.faults.add(y.at(key) + ": no setting has the name that stands there: remove or mend it")
		return
	}
	var known, alone []string // what may stand here, and what would with its section
	for _, n := range yamlNames {
		if strings.HasPrefix(n, prefix) {
			known = append(known, n)
		}
		if strings.HasSuffix(n, "."+name) {
			alone = append(alone, n)
		}
	}
	if prefix == "" {
		known = append(known, slices.Sorted(maps.Keys(sections))...)
	}
	near := Suggest(name, known)
	if len(alone) == 1 {
		near = didYouMean(alone[0])
	}
	y.faults.add(y.at(key) + ": no setting is called " + name + ": remove or mend it" + near)
}

// at says where n stands.
func (y *yamlFile) at(n *yaml.Node) string { return fmt.Sprintf("%s:%d", y.name, n.Line) }

// pairs yields the names and values of the mapping n. A name that is no text yields a
// name that no setting has.
func pairs(n *yaml.Node) func(yield func(key, val *yaml.Node) bool) {
	return func(yield func(key, val *yaml.Node) bool) {
		for i := 0; i+1 < len(n.Content); i += 2 {
			if !yield(target(n.Content[i]), target(n.Content[i+1])) {
				return
			}
		}
	}
}

// target returns what n stands for: itself, or an alias's anchor.
func target(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }
