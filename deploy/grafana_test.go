package deploy_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"example.com/tokend/httpapi/wire"
)

type dashboard struct {
	UID, Title    string
	SchemaVersion int
	Panels        []panel
	Templating    struct {
		List []struct{ Name, Type string }
	}
	Links []struct{ URL string }
}

type panel struct {
	ID          int
	Type, Title string
	Description string
	GridPos     struct{ X, Y, W, H int }
	Datasource  *struct{ UID string }
	Targets     []struct {
		RefID, Expr, LegendFormat string
		Datasource                struct{ UID string }
	}
}

// TestDashboard holds the dashboard in shape: no two panels with one ID or in one place, the
// data source by variable throughout, and links that lead somewhere. What its queries find is
// tested in e2e/program, against a running Prometheus.
func TestDashboard(t *testing.T) {
	var d dashboard
	if err := json.Unmarshal([]byte(file(t, "grafana/tokend.json")), &d); err != nil {
		t.Fatal(err)
	}
	if d.UID != "tokend" || d.Title != "tokend" || d.SchemaVersion < 39 {
		t.Errorf("it is %q, %q, of schema %d", d.UID, d.Title, d.SchemaVersion)
	}
	var variables []string
	for _, v := range d.Templating.List {
		variables = append(variables, v.Name)
	}
	if !slices.Equal(variables, []string{"datasource", "job", "instance", "redis_job"}) {
		t.Errorf("variables: %v", variables)
	}
	anchors := headings(t)
	ids, taken, titles := map[int]bool{}, map[string]string{}, map[string]bool{}
	for _, p := range d.Panels {
		if ids[p.ID] || p.ID == 0 || titles[p.Title] {
			t.Errorf("%s: the ID %d or the title stands twice", p.Title, p.ID)
		}
		ids[p.ID], titles[p.Title] = true, true
		g := p.GridPos
		if g.X < 0 || g.W < 1 || g.H < 1 || g.X+g.W > 24 {
			t.Errorf("%s is at %+v", p.Title, g)
		}
		for x := g.X; x < g.X+g.W; x++ {
			for y := g.Y; y < g.Y+g.H; y++ {
				at := fmt.Sprint(x, " ", y)
				if other := taken[at]; other != "" {
					t.Fatalf("%s stands over %s", p.Title, other)
				}
				taken[at] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		if p.Datasource == nil || p.Datasource.UID != "${datasource}" || len(p.Targets) == 0 {
			t.Errorf("%s asks another data source, or nothing", p.Title)
		}
		refs := map[string]bool{}
		for _, q := range p.Targets {
			if q.Datasource.UID != "${datasource}" || refs[q.RefID] {
				t.Errorf("%s: the query %s asks another data source, or stands twice", p.Title, q.RefID)
			}
			refs[q.RefID] = true
			for _, m := range regexp.MustCompile(`\$(\w+)`).FindAllStringSubmatch(q.Expr, -1) {
				if !slices.Contains(variables, m[1]) && m[1] != "__rate_interval" {
					t.Errorf("%s: there is no variable %s", p.Title, m[0])
				}
			}
		}
		for _, m := range regexp.MustCompile(`#([a-z]+)`).FindAllStringSubmatch(p.Description, -1) {
			if !slices.Contains(anchors, m[1]) {
				t.Errorf("%s: docs/operations.md has no %s", p.Title, m[0])
			}
		}
	}
	for _, l := range d.Links {
		if anchor, ok := strings.CutPrefix(l.URL, home); !ok || !slices.Contains(anchors, anchor) {
			t.Errorf("a link to %s", l.URL)
		}
	}
}

// TestDashboardShowsEveryRefusal holds the panel of refusals to the codes.
func TestDashboardShowsEveryRefusal(t *testing.T) {
	var d dashboard
	if err := json.Unmarshal([]byte(file(t, "grafana/tokend.json")), &d); err != nil {
		t.Fatal(err)
	}
	shown := map[string]bool{}
	for _, p := range d.Panels {
		if p.Title != "Refusals by code and reason" && p.Title != "Faults by code" {
			continue
		}
		for _, m := range regexp.MustCompile(`code=~"([^"]+)"`).FindAllStringSubmatch(p.Targets[0].Expr, -1) {
			for code := range strings.SplitSeq(m[1], "|") {
				shown[code] = true
			}
		}
	}
	for _, k := range wire.Kinds() {
		if !shown[string(k.Code)] {
			t.Errorf("%s is not shown", k.Code)
		}
	}
	if len(shown) != len(wire.Kinds()) {
		t.Errorf("%d codes are shown, there are %d", len(shown), len(wire.Kinds()))
	}
}
