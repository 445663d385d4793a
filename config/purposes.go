package config

import (
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"example.com/tokend/token"
)

// purposesName is the one name that can stand in the YAML file only:
//
//	purposes:
//	  order.create: {ttl: 10m, max_ttl: 1h, retention: 48h, keys_retention: 24h}
//	  account.delete: {}
//
// Where it stands, only the purposes below it may be issued. What one of them leaves out
// is as for all tokens and keys.
const purposesName = "purposes"

// purposeSettings are the settings of one purpose, in the order of the message.
var purposeSettings = []struct {
	name string
	at   func(*Purpose) *time.Duration
}{
	{"ttl", func(p *Purpose) *time.Duration { return &p.TTL }},
	{"max_ttl", func(p *Purpose) *time.Duration { return &p.MaxTTL }},
	{"retention", func(p *Purpose) *time.Duration { return &p.Retention }},
	{"keys_retention", func(p *Purpose) *time.Duration { return &p.KeysRetention }},
}

// readPurposes sets c.Purposes from what stands under purposes. The settings that a
// purpose inherits are set already.
func (y *yamlFile) readPurposes(c *Config) {
	if y.purposes == nil {
		return
	}
	if y.purposes.Kind != yaml.MappingNode || len(y.purposes.Content) == 0 {
		y.faults.Add(purposesName, "must map at least one purpose to its settings; leave it out to allow any purpose")
		return
	}
	c.Purposes = map[token.Purpose]Purpose{}
	for key, val := range pairs(y.purposes) {
		name, err := token.ParsePurpose(key.Value)
		if err != nil {
			y.badPurpose(key, err)
			continue
		}
		if _, twice := c.Purposes[name]; twice {
			y.purposeFault(key, string(name)+" stands twice")
			continue
		}
		c.Purposes[name] = y.purpose(c, name, val)
	}
}

// purpose reads the settings n of the purpose called name.
func (y *yamlFile) purpose(c *Config, name token.Purpose, n *yaml.Node) Purpose {
	p := Purpose{c.Tokens.Settings}
	p.KeysRetention = c.Keys.Retention
	if isNull(n) {
		return p
	}
	if n.Kind != yaml.MappingNode {
		y.purposeFault(n, string(name)+" must map settings to durations, or be {}")
		return p
	}
	given := map[string]bool{}
	for key, val := range pairs(n) {
		at := purposeSetting(&p, key.Value)
		if at == nil {
			y.unknownOfPurpose(key, name)
			continue
		}
		if given[key.Value] {
			y.purposeFault(key, string(name)+": "+key.Value+" stands twice")
			continue
		}
		given[key.Value] = true
		d, err := wholeSeconds(val.Value)
		if err != nil {
			y.purposeFault(key, string(name)+": "+key.Value+" "+err.Error())
			continue
		}
		*at = d
		c.values = append(c.values, Value{
			Name:   purposesName + "." + string(name) + "." + key.Value,
			Text:   short(d),
			Origin: Origin(y.at(key)),
		})
	}
	switch {
	case p.TTL <= p.MaxTTL:
	case !given["ttl"]: // inherited: as long as this purpose allows
		p.TTL = p.MaxTTL
	default:
		y.purposeFault(n, string(name)+": ttl must not be above max_ttl, "+short(p.MaxTTL)+" here")
	}
	return p
}

// badPurpose adds the fault that key is no name of a purpose, and the one that is probably
// meant. As in unknown, a name that might be something else is not quoted.
func (y *yamlFile) badPurpose(key *yaml.Node, err error) {
	if !printable.MatchString(key.Value) {
		y.purposeFault(key, err.Error())
		return
	}
	near := ""
	if p, err := token.ParsePurpose(strings.TrimLeft(strings.ToLower(key.Value), "._-")); err == nil {
		near = didYouMean(string(p))
	}
	y.purposeFault(key, key.Value+": "+err.Error()+near)
}

// unknownOfPurpose adds the fault that a purpose has no setting called as key says.
func (y *yamlFile) unknownOfPurpose(key *yaml.Node, purpose token.Purpose) {
	var known []string
	for _, s := range purposeSettings {
		known = append(known, s.name)
	}
	text := string(purpose) + " has a setting other than ttl, max_ttl, retention and keys_retention"
	if printable.MatchString(key.Value) {
		text += ": " + key.Value + Suggest(key.Value, known)
	}
	y.purposeFault(key, text)
}

func purposeSetting(p *Purpose, name string) *time.Duration {
	for _, s := range purposeSettings {
		if s.name == name {
			return s.at(p)
		}
	}
	return nil
}

func (y *yamlFile) purposeFault(n *yaml.Node, text string) {
	y.faults.Add(purposesName, text+" ("+y.at(n)+")")
}
