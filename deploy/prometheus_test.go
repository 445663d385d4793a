package deploy_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/tokend/httpapi/wire"
)

// rules is a file of Prometheus's rules.
type rules struct {
	Groups []struct {
		Name  string
		Rules []rule
	}
}

type rule struct {
	Record, Alert, Expr, For string
	Labels                   map[string]string
	Annotations              map[string]string
}

// ruleTests is what promtool test rules reads.
type ruleTests struct {
	RuleFiles          []string `yaml:"rule_files"`
	EvaluationInterval string   `yaml:"evaluation_interval"`
	Tests              []struct {
		Name, Interval string
		InputSeries    []struct{ Series, Values string } `yaml:"input_series"`
		AlertRuleTest  []struct {
			EvalTime  string `yaml:"eval_time"`
			Alertname string
			ExpAlerts []struct {
				ExpLabels      map[string]string `yaml:"exp_labels"`
				ExpAnnotations map[string]string `yaml:"exp_annotations"`
			} `yaml:"exp_alerts"`
		} `yaml:"alert_rule_test"`
	}
}

// home is where runbooks are; whoever gives the module another path changes it with that.
const home = "https://example.com/tokend/blob/main/docs/operations.md#"

// headings returns the anchors of docs/operations.md.
func headings(t *testing.T) (anchors []string) {
	t.Helper()
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(file(t, "../docs/operations.md"), -1) {
		anchor := regexp.MustCompile(`[^a-z0-9 _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		anchors = append(anchors, strings.ReplaceAll(anchor, " ", "-"))
	}
	return anchors
}

// TestAlerts holds that each alert says what to do, and where more of it stands; and that each
// is tested both ways. promtool runs the tests, in e2e/program.
func TestAlerts(t *testing.T) {
	var r rules
	decode(t, "prometheus/rules.yml", &r)
	var tests ruleTests
	decode(t, "prometheus/rules_test.yml", &tests)
	fires, quiet := map[string]bool{}, map[string]bool{}
	for _, tt := range tests.Tests {
		for _, a := range tt.AlertRuleTest {
			for _, exp := range a.ExpAlerts {
				fires[a.Alertname+" "+exp.ExpLabels["severity"]] = true
			}
			quiet[a.Alertname] = quiet[a.Alertname] || len(a.ExpAlerts) == 0
		}
	}
	anchors := headings(t)
	var names []string
	for _, g := range r.Groups {
		for _, rule := range g.Rules {
			if rule.Record != "" {
				continue
			}
			name, severity := rule.Alert, rule.Labels["severity"]
			names = append(names, strings.ToLower(name))
			if severity != "critical" && severity != "warning" {
				t.Errorf("%s is of severity %q", name, severity)
			}
			if !fires[name+" "+severity] || !quiet[name] {
				t.Errorf("%s, %s: rules_test.yml does not show that it fires, or that it does not", name, severity)
			}
			if a := rule.Annotations; a["summary"] == "" || a["description"] == "" || a["runbook_url"] != home+strings.ToLower(name) {
				t.Errorf("%s: annotations: %v", name, a)
			}
			if !slices.Contains(anchors, strings.ToLower(name)) {
				t.Errorf("docs/operations.md has no heading for %s", name)
			}
		}
	}
	for _, a := range anchors {
		if strings.HasPrefix(a, "tokend") && !slices.Contains(names, a) {
			t.Errorf("docs/operations.md has a heading for %s, which is no alert", a)
		}
	}
}

// TestRefusalsCovered holds that each refusal and fault is watched: among those out of the
// ordinary, or by an alert of its own.
func TestRefusalsCovered(t *testing.T) {
	var r rules
	decode(t, "prometheus/rules.yml", &r)
	var own, together []string
	code := regexp.MustCompile(`code=~?"([^"]+)"`)
	for _, g := range r.Groups {
		for _, rule := range g.Rules {
			for _, m := range code.FindAllStringSubmatch(rule.Expr, -1) {
				codes := strings.Split(m[1], "|")
				if rule.Record != "" {
					together = append(together, codes...)
				} else {
					own = append(own, codes...)
				}
			}
			if strings.Contains(rule.Expr, "tokend_unfinished_total") {
				own = append(own, string(wire.CodeClaimUnfinished))
			}
		}
	}
	watched := slices.Concat(own, together)
	var kinds []string
	for _, k := range wire.Kinds() {
		kinds = append(kinds, string(k.Code))
		if k.Fault && slices.Contains(together, string(k.Code)) {
			t.Errorf("%s is a fault, and no refusal", k.Code)
		}
	}
	for _, list := range []*[]string{&watched, &kinds} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	if diff := cmp.Diff(kinds, watched); diff != "" {
		t.Errorf("codes (-tokend +watched):\n%s", diff)
	}
}
