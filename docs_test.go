// Package tokend_test holds what README.md, SECURITY.md and docs/ say to what the code
// does.
package tokend_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/tokend/config"
	"example.com/tokend/httpapi/wire"
	"example.com/tokend/internal/redistest"
)

// page is a document.
type page struct {
	path, text string
	blocks     []block  // code between fences
	spans      []string // code within lines
	links      []string
	anchors    []string // of headings
}

// block is code between fences.
type block struct{ section, lang, text string }

var (
	codeSpan   = regexp.MustCompile("`([^`]+)`")
	link       = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	noAnchor   = regexp.MustCompile(`[^a-z0-9 _-]`)
	fenceStart = "```"
)

// read reads the page at path.
func read(t *testing.T, path string) *page {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	p := &page{path: path, text: string(b)}
	var section string
	var open *block
	var prose strings.Builder
	for line := range strings.Lines(p.text) {
		fence := strings.HasPrefix(line, fenceStart)
		switch {
		case fence && open != nil:
			p.blocks = append(p.blocks, *open)
			open = nil
		case fence:
			open = &block{section: section, lang: strings.TrimSpace(line[len(fenceStart):])}
		case open != nil:
			open.text += line
		default:
			if hashes, title, ok := strings.Cut(line, " "); ok && hashes != "" && strings.Trim(hashes, "#") == "" {
				section = strings.TrimSpace(title)
				anchor := noAnchor.ReplaceAllString(strings.ToLower(section), "")
				p.anchors = append(p.anchors, strings.ReplaceAll(anchor, " ", "-"))
			}
			prose.WriteString(line)
		}
	}
	if open != nil {
		t.Fatalf("%s: a fence is not closed", path)
	}
	for _, m := range codeSpan.FindAllStringSubmatch(prose.String(), -1) {
		p.spans = append(p.spans, strings.ReplaceAll(m[1], "\n", " "))
	}
	for _, m := range link.FindAllStringSubmatch(prose.String(), -1) {
		p.links = append(p.links, m[1])
	}
	return p
}

// pages reads all pages.
func pages(t *testing.T) (all []*page) {
	t.Helper()
	paths, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append(paths, "README.md", "SECURITY.md") {
		all = append(all, read(t, path))
	}
	return all
}

// code returns p's lines and spans of code; a line that ends in a backslash goes on.
func (p *page) code() []string {
	code := slices.Clone(p.spans)
	for _, b := range p.blocks {
		if b.lang == "go" {
			continue
		}
		for line := range strings.Lines(strings.ReplaceAll(b.text, "\\\n", " ")) {
			code = append(code, line)
		}
	}
	return code
}

func between(t *testing.T, text, begin, end string) string {
	t.Helper()
	_, rest, ok1 := strings.Cut(text, begin+"\n")
	inside, _, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		t.Fatalf("there is no text between %s and %s", begin, end)
	}
	return inside
}

func TestConfigTable(t *testing.T) {
	got := between(t, read(t, "README.md").text, "<!-- config:begin -->", "<!-- config:end -->")
	if diff := cmp.Diff(config.Markdown(), got); diff != "" {
		t.Errorf("put the output of `tokend config --markdown` into the README (-code +README):\n%s", diff)
	}
}

// TestFormInREADME holds the README's form service to the one that runs.
func TestFormInREADME(t *testing.T) {
	source, err := os.ReadFile("examples/go/shop.go")
	if err != nil {
		t.Fatal(err)
	}
	want := strings.TrimSpace(between(t, string(source), "// readme:begin", "// readme:end"))
	got := between(t, read(t, "README.md").text, "<!-- form:begin -->", "<!-- form:end -->")
	if diff := cmp.Diff("```go\n"+want+"\n```\n", got); diff != "" {
		t.Errorf("-examples/go/shop.go +README:\n%s", diff)
	}
	n := 0
	for _, p := range pages(t) {
		for _, b := range p.blocks {
			if b.lang == "go" {
				n++
			}
		}
	}
	if n != 1 {
		t.Errorf("the pages hold %d blocks of Go, of which only the form service is compiled", n)
	}
}

// TestGoVersion holds the Go that the READMEs ask for to go.mod's.
func TestGoVersion(t *testing.T) {
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindSubmatch(mod)
	if m == nil {
		t.Fatal("go.mod names no version")
	}
	for path, phrase := range map[string]string{"README.md": "needs Go ", "README.zh-CN.md": "只需要 Go "} {
		if want := phrase + string(m[1]); !strings.Contains(read(t, path).text, want) {
			t.Errorf("%s does not say %q", path, want)
		}
	}
}

func TestCodesTable(t *testing.T) {
	rows := regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (\\d+) \\| `([a-z]+)` \\|").
		FindAllStringSubmatch(read(t, "README.md").text, -1)
	var got, want []string
	for _, row := range rows {
		got = append(got, strings.Join(row[1:], " "))
	}
	for _, k := range wire.Kinds() {
		want = append(want, fmt.Sprint(k.Code, " ", k.Status, " ", k.Next))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the table of codes (-code +README):\n%s", diff)
	}
}

// commands returns each command with its flags, as its help says.
func commands(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	listed := regexp.MustCompile(`(?m)^  ([a-z]+) +[A-Z]`)
	flag := regexp.MustCompile(`(?m)^ +(?:-\w, )?--([a-z-]+)`)
	var walk func(path []string)
	walk = func(path []string) {
		help := tokend(t, append(path, "--help")...)
		for _, m := range flag.FindAllStringSubmatch(help, -1) {
			all[strings.Join(path, " ")] = append(all[strings.Join(path, " ")], m[1])
		}
		_, list, _ := strings.Cut(help, "Available Commands:\n")
		list, _, _ = strings.Cut(list, "\n\n")
		for _, m := range listed.FindAllStringSubmatch(list, -1) {
			if m[1] != "help" {
				walk(append(slices.Clone(path), m[1]))
			}
		}
	}
	walk(nil)
	return all
}

var (
	commandLine = regexp.MustCompile(`\btokend ([a-z]+(?: [a-z]+)?)([^|;&)]*)`)
	anyFlag     = regexp.MustCompile(`(?:^|[\s(])--([a-z][a-z-]*)`)
)

// others are flags of other programs.
var others = []string{"quoted-input", "rm", "env-file", "from-file"}

func TestCommandsExist(t *testing.T) {
	known := commands(t)
	if len(known) < 10 {
		t.Fatalf("help lists the commands %v", known)
	}
	for _, p := range pages(t) {
		for _, code := range p.code() {
			if strings.Contains(code, "docker ") || strings.Contains(code, "kubectl ") || strings.HasPrefix(code, "{") || strings.HasPrefix(code, "ACL ") {
				continue // the image, a cluster, a log line, a user of Redis
			}
			for _, m := range commandLine.FindAllStringSubmatch(code, -1) {
				name := m[1]
				if _, ok := known[name]; !ok {
					name, _, _ = strings.Cut(name, " ")
				}
				flags, ok := known[name]
				if !ok {
					t.Errorf("%s names the command tokend %s, which does not exist", p.path, name)
				}
				for _, f := range anyFlag.FindAllStringSubmatch(m[2], -1) {
					if !slices.Contains(flags, f[1]) && !(name == "config" && f[1] == "markdown") {
						t.Errorf("%s: tokend %s has no flag --%s", p.path, name, f[1])
					}
				}
			}
			for _, f := range anyFlag.FindAllStringSubmatch(commandLine.ReplaceAllString(code, ""), -1) {
				if !slices.Contains(known["serve"], f[1]) && !slices.Contains(others, f[1]) {
					t.Errorf("%s names the flag --%s, which serve does not have", p.path, f[1])
				}
			}
		}
	}
}

// TestNotThereYet holds that what the README announces for later is not there.
func TestNotThereYet(t *testing.T) {
	_, rest, ok := strings.Cut(read(t, "README.md").text, "\nNot there yet: ")
	if !ok {
		return // nothing is announced
	}
	later, _, _ := strings.Cut(rest, "\n\n")
	known := commands(t)
	for _, m := range regexp.MustCompile("`([a-z]+)`").FindAllStringSubmatch(later, -1) {
		if _, ok := known[m[1]]; ok {
			t.Errorf("tokend %s is there", m[1])
		}
	}
	for what, path := range map[string]string{"middleware": "client/guard", "script for browsers": "client/browser", "demo page": "internal/demo", "claims": "token/redisstore/claim.lua"} {
		if _, err := os.Stat(path); err == nil && strings.Contains(later, what) {
			t.Errorf("%s: %s is there", what, path)
		}
	}
}

// TestSettingsExist looks up each variable and each setting that the pages name.
func TestSettingsExist(t *testing.T) {
	variables := []string{"TOKEND_URL", "TOKEND_TOKEN", "TOKEND_TOKEN_FILE"}
	var names []string
	sections := map[string]bool{}
	for _, s := range config.Settings() {
		variables, names = append(variables, s.Variable()), append(names, s.Name)
		if s.Secret {
			variables, names = append(variables, s.Variable()+"_FILE"), append(names, s.Name+"_file")
		}
		if section, _, ok := strings.Cut(s.Name, "."); ok {
			sections[section] = true
		}
	}
	setting := regexp.MustCompile(`^([a-z]+)\.[a-z_]+`)
	for _, p := range pages(t) {
		for _, v := range regexp.MustCompile(`\bTOKEND_[A-Z_]+`).FindAllString(p.text, -1) {
			if !slices.Contains(variables, v) {
				t.Errorf("%s names the variable %s, which does not exist", p.path, v)
			}
		}
		for _, span := range p.spans {
			m := setting.FindStringSubmatch(span)
			if m != nil && sections[m[1]] && !slices.Contains(names, m[0]) {
				t.Errorf("%s names the setting %s, which does not exist", p.path, m[0])
			}
		}
	}
}

// TestYAML loads each YAML block of the pages as a configuration.
func TestYAML(t *testing.T) {
	const key = "k1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
	secrets := map[string]string{
		"redis.url": "redis://localhost:6379/0", "signing.keys": key, "service.keys": "a:b:c",
	}
	all := pages(t)
	dir := t.TempDir()
	for name, text := range secrets {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	for _, p := range all {
		for _, b := range p.blocks {
			if b.lang != "yaml" {
				continue
			}
			n++
			file := filepath.Join(dir, "tokend.yaml")
			text := strings.ReplaceAll(b.text, "/etc/tokend/", dir+"/")
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, faults := config.Load(config.Sources{Environ: []string{"TOKEND_CONFIG=" + file}}); faults.Err() != nil {
				t.Errorf("%s, in %q: %v", p.path, b.section, faults)
			}
		}
	}
	if n == 0 {
		t.Error("no page shows a YAML file")
	}
}

func TestLinks(t *testing.T) {
	anchors := map[string][]string{}
	all := pages(t)
	for _, p := range all {
		anchors[p.path] = p.anchors
	}
	for _, p := range all {
		for _, l := range p.links {
			if strings.Contains(l, "://") {
				continue
			}
			path, anchor, _ := strings.Cut(l, "#")
			target := p.path
			if path != "" {
				target = filepath.Join(filepath.Dir(p.path), path)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s: %v", p.path, l, err)
			}
			if anchor != "" && !slices.Contains(anchors[target], anchor) {
				t.Errorf("%s links to %s, and there is no such heading", p.path, l)
			}
		}
	}
}

// tests returns the tests of the module by package, as redisstore.TestMemory, and the cases
// of the suite that every store must pass as redisstore.TestRedis/OneWinner.
func tests(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	var cases, suites []string
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return nil // being written
		}
		pkg := strings.TrimSuffix(file.Name.Name, "_test")
		if pkg == "main" {
			pkg = filepath.Base(filepath.Dir(path))
		}
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			switch {
			case !ok:
			case pkg == "tokentest" && f.Name.Name == "Run":
				cases = literals(f)
			case strings.HasSuffix(path, "_test.go") && strings.HasPrefix(f.Name.Name, "Test"):
				found[pkg+"."+f.Name.Name] = true
				if callsSuite(f) {
					suites = append(suites, pkg+"."+f.Name.Name)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(cases) == 0 || len(suites) == 0 {
		t.Fatal("the suite is not where it was")
	}
	for _, suite := range suites {
		for _, c := range cases {
			found[suite+"/"+c] = true
		}
	}
	return found
}

// literals returns the strings that stand first in f's composite literals.
func literals(f *ast.FuncDecl) (texts []string) {
	ast.Inspect(f, func(n ast.Node) bool {
		if c, ok := n.(*ast.CompositeLit); ok && len(c.Elts) > 0 {
			if lit, ok := c.Elts[0].(*ast.BasicLit); ok && lit.Kind == token.STRING {
				text, _ := strconv.Unquote(lit.Value)
				texts = append(texts, text)
			}
		}
		return true
	})
	return texts
}

// callsSuite tells whether f calls tokentest.Run.
func callsSuite(f *ast.FuncDecl) (calls bool) {
	ast.Inspect(f, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok && s.Sel.Name == "Run" {
			if x, ok := s.X.(*ast.Ident); ok && x.Name == "tokentest" {
				calls = true
			}
		}
		return true
	})
	return calls
}

// TestTestsExist looks up each test that the pages name, and holds that each promise
// names some.
func TestTestsExist(t *testing.T) {
	known := tests(t)
	name := regexp.MustCompile(`\b[a-z]+\.Test\w+(/\w+)?`)
	for _, p := range pages(t) {
		for _, n := range name.FindAllString(p.text, -1) {
			if !known[n] {
				t.Errorf("%s names the test %s, which does not exist", p.path, n)
			}
		}
	}
	text := read(t, "docs/guarantees.md").text
	for i := 1; i <= 8; i++ {
		_, rest, ok := strings.Cut(text, fmt.Sprintf("\n### %d. ", i))
		promise, _, _ := strings.Cut(rest, "\n#")
		if !ok || !name.MatchString(promise) {
			t.Errorf("docs/guarantees.md names no test for promise %d", i)
		}
	}
	for _, section := range []string{"Claims", "Delete mode", "Every answer, and what holds it", "A checked history"} {
		_, rest, ok := strings.Cut(text, "\n## "+section+"\n")
		inside, _, _ := strings.Cut(rest, "\n## ")
		if !ok || !name.MatchString(inside) {
			t.Errorf("docs/guarantees.md names no test for %q", section)
		}
	}
	// Each answer that there is has a row, each row tests, and each case of the suite holds
	// something that is promised.
	_, rest, _ := strings.Cut(text, "\n## Every answer, and what holds it\n")
	table, _, _ := strings.Cut(rest, "\n## ")
	answered := map[string]bool{}
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 || strings.Contains(line, "---") || strings.Contains(cells[len(cells)-2], " tests ") {
			continue
		}
		if !name.MatchString(cells[len(cells)-2]) {
			t.Errorf("docs/guarantees.md names no test for %s", line)
		}
		for _, m := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(cells[len(cells)-3], -1) {
			answered[m[1]] = true
		}
	}
	for _, k := range wire.Kinds() {
		if !answered[string(k.Code)] {
			t.Errorf("docs/guarantees.md has no row for %s", k.Code)
		}
	}
	for n := range known {
		if suite, c, ok := strings.Cut(n, "/"); ok && suite == "redisstore.TestMiniredis" && !regexp.MustCompile(`Test\w+/`+c+`\b`).MatchString(text) {
			t.Errorf("docs/guarantees.md does not say what the case %s of the suite holds", c)
		}
	}
}

// TestRedisUser holds the Redis user that the pages show to the one in deploy/redis.acl, which
// is tried out beside it.
func TestRedisUser(t *testing.T) {
	want, err := redistest.Rules("tokend", "PASSWORD")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, b := range read(t, "docs/operations.md").blocks {
		if rules, ok := strings.CutPrefix(b.text, "ACL SETUSER tokend "); ok {
			got = strings.Fields(strings.ReplaceAll(rules, "\\\n", " "))
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the user (-deploy/redis.acl +docs/operations.md):\n%s", diff)
	}
}
