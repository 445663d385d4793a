package config

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

// variables maps each variable to the YAML name that it gives a value to.
var variables = func() map[string]string {
	m := map[string]string{}
	for name := range spellings {
		m[variableOf(name)] = name
	}
	return m
}()

// clientVariables are for the commands that call a running service.
var clientVariables = []string{"TOKEND_URL", "TOKEND_TOKEN", "TOKEND_TOKEN_FILE"}

// Kubernetes injects variables for each Service into every pod of its namespace. Those
// of Services whose names begin with tokend look like ours, so no setting's variable may
// look like one of them.
var (
	injected     = regexp.MustCompile(`_SERVICE_HOST$|_SERVICE_PORT$|_SERVICE_PORT_.+$|_PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?$`)
	injectedPort = regexp.MustCompile(`_PORT$`)
	portValue    = regexp.MustCompile(`^(tcp|udp|sctp)://`)
)

func isInjected(variable, text string) bool {
	return injected.MatchString(variable) || injectedPort.MatchString(variable) && portValue.MatchString(text)
}

// environLayer returns what environ gives, which is in os.Environ's form.
func environLayer(environ []string, faults *Faults) layer {
	l := layer{}
	for _, e := range environ {
		variable, text, _ := strings.Cut(e, "=")
		if !strings.HasPrefix(variable, variablePrefix) {
			continue
		}
		name, ok := variables[variable]
		switch {
		case ok:
			l[name] = textValue(text, Origin(variable))
		case slices.Contains(clientVariables, variable), isInjected(variable, text):
		case variable == variableOf(purposesName):
			faults.Add(purposesName, "can stand in the YAML file only: unset "+variable)
		default:
			known := append(slices.Sorted(maps.Keys(variables)), clientVariables...)
			faults.add(variable + ": no setting has this variable: unset or rename it" + Suggest(variable, known))
		}
	}
	return l
}
