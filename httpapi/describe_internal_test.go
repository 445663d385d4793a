package httpapi

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/labstack/echo/v4"
	"go.yaml.in/yaml/v3"

	"example.com/tokend/httpapi/wire"
)

// document is what these tests read of openapi.yaml. The module e2e validates the whole.
type document struct {
	Paths      map[string]map[string]yaml.Node
	Components struct {
		Schemas map[string]struct {
			AllOf []struct {
				Properties struct{ Type, Title, Status, Code, Next struct{ Const string } }
			} `yaml:"allOf"`
		}
		Examples map[string]struct {
			Value struct{ Type, Title, Status, Code, Next string }
		}
	}
}

func readDocument(t *testing.T) (doc document) {
	t.Helper()
	if err := yaml.Unmarshal(description, &doc); err != nil {
		t.Fatal(err)
	}
	return doc
}

// param is a parameter in a route's path.
var param = regexp.MustCompile(`:(\w+)`)

// TestEveryRouteIsDescribed holds the description's paths and methods to the routes.
func TestEveryRouteIsDescribed(t *testing.T) {
	var described, routed []string
	for path, item := range readDocument(t).Paths {
		for method := range item {
			if method != "parameters" {
				described = append(described, strings.ToUpper(method)+" "+path)
			}
		}
	}
	for _, r := range New(Options{}).echo.Routes() {
		if r.Method == echo.RouteNotFound { // any: the description has one method for all
			r.Method = map[string]string{wire.PathGateway: "GET", wire.PathGateway + "/*": "POST"}[r.Path]
			r.Path = strings.Replace(r.Path, "*", ":path", 1)
		}
		routed = append(routed, r.Method+" "+param.ReplaceAllString(r.Path, "{$1}"))
	}
	slices.Sort(described)
	slices.Sort(routed)
	if diff := cmp.Diff(routed, described); diff != "" {
		t.Errorf("routes that are not described (-) and what is described and not routed (+):\n%s", diff)
	}
}

// TestEveryCodeIsDescribed holds the description's problems, and the example of each, to
// the one table of codes.
func TestEveryCodeIsDescribed(t *testing.T) {
	type row struct{ Type, Title, Status, Code, Next string }
	var table, schemas, examples []row
	for _, k := range wire.Kinds() {
		table = append(table, row{wire.ProblemTypePrefix + string(k.Code), k.Title, strconv.Itoa(k.Status), string(k.Code), string(k.Next)})
	}
	doc := readDocument(t)
	for name, schema := range doc.Components.Schemas {
		if strings.HasSuffix(name, "Problem") && name != "Problem" { // that is what they have in common
			p := schema.AllOf[1].Properties
			schemas = append(schemas, row{p.Type.Const, p.Title.Const, p.Status.Const, p.Code.Const, p.Next.Const})
		}
	}
	for name, example := range doc.Components.Examples {
		if _, ok := wire.KindOf(wire.Code(name)); ok {
			examples = append(examples, row(example.Value))
		}
	}
	byCode := cmpopts.SortSlices(func(a, b row) bool { return a.Code < b.Code })
	if diff := cmp.Diff(table, schemas, byCode); diff != "" {
		t.Errorf("schemas differ from the table of codes (-table +schemas):\n%s", diff)
	}
	if diff := cmp.Diff(table, examples, byCode); diff != "" {
		t.Errorf("examples differ from the table of codes (-table +examples):\n%s", diff)
	}
}
