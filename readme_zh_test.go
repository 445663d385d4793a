package tokend_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
)

// headings are README.md's and what README.zh-CN.md calls them, in their order.
var headings = [][2]string{
	{"# tokend", "# tokend"},
	{"## Why not just …", "## 为什么不直接用别的办法"},
	{"## A tour with curl", "## 用 curl 走一遍"},
	{"## A tour with Go", "## 用 Go 走一遍"},
	{"## From other languages", "## 其他语言"},
	{"## The first result for every repeat", "## 每次重复都得到第一次的响应"},
	{"## The attempt", "## 执行标识 attempt"},
	{"## What is refused", "## 会拒绝哪些请求"},
	{"## What is promised", "## 做出哪些保证"},
	{"## Configuration", "## 配置"},
	{"## In production", "## 生产环境"},
	{"## Where things are", "## 目录结构"},
	{"## Development", "## 开发"},
}

// section is what stands between a heading and the next one.
type section struct {
	heading string
	code    []string // blocks, with their fences
	prose   string   // all else
}

func (s section) spans() []string { return firsts(codeSpan, s.prose) }
func (s section) links() []string { return firsts(link, s.prose) }

// firsts returns what the first group of re matches in text, sorted, each once.
func firsts(re *regexp.Regexp, text string) (all []string) {
	for _, m := range re.FindAllStringSubmatch(text, -1) {
		all = append(all, strings.ReplaceAll(m[1], "\n", " "))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

var (
	fenced       = regexp.MustCompile("(?ms)^```.*?^```\n")
	headingLine  = regexp.MustCompile(`(?m)^#+ .*\n`)
	configRegion = regexp.MustCompile(`(?s)<!-- config:begin -->\n.*<!-- config:end -->\n`)
	tableRow     = regexp.MustCompile(`(?m)^\|.*\n`)
	codeRow      = regexp.MustCompile("(?m)^\\| `[a-z_]+` \\| \\d+ \\| `[a-z]+` \\|")
)

// sections divides the page at path, and returns the table of settings on its own.
func sections(t *testing.T, path string) (all []section, settings []string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := configRegion.ReplaceAllStringFunc(string(b), func(region string) string {
		settings = tableRow.FindAllString(region, -1)
		return ""
	})
	blocks := fenced.FindAllString(text, -1)
	text = fenced.ReplaceAllString(text, "\x00") // a # within a block is no heading
	starts := headingLine.FindAllStringIndex(text, -1)
	for i, at := range starts {
		end := len(text)
		if i+1 < len(starts) {
			end = starts[i+1][0]
		}
		s := section{heading: strings.TrimSpace(text[at[0]:at[1]]), prose: text[at[1]:end]}
		n := strings.Count(s.prose, "\x00")
		s.code, blocks = blocks[:n], blocks[n:]
		all = append(all, s)
	}
	return all, settings
}

// TestChineseREADME holds README.zh-CN.md to README.md: a reader of either finds the same
// sections, commands, codes, settings and links. What they say of them is each one's own.
func TestChineseREADME(t *testing.T) {
	english, all := sections(t, "README.md")
	chinese, some := sections(t, "README.zh-CN.md")
	var names [2][]string
	for _, h := range headings {
		names[0], names[1] = append(names[0], h[0]), append(names[1], h[1])
	}
	for i, page := range [][]section{english, chinese} {
		var got []string
		for _, s := range page {
			got = append(got, s.heading)
		}
		if diff := cmp.Diff(names[i], got); diff != "" {
			t.Fatalf("headings: change README.md, README.zh-CN.md and the list here together (-list +%s):\n%s",
				[]string{"README.md", "README.zh-CN.md"}[i], diff)
		}
	}
	known := map[string]bool{}
	for _, s := range english {
		for _, span := range s.spans() {
			known[span] = true
		}
	}
	for i, en := range english {
		zh := chinese[i]
		if diff := cmp.Diff(en.code, zh.code); diff != "" {
			t.Errorf("%s, the blocks (-README.md +README.zh-CN.md):\n%s", zh.heading, diff)
		}
		if diff := cmp.Diff(codeRow.FindAllString(en.prose, -1), codeRow.FindAllString(zh.prose, -1)); diff != "" {
			t.Errorf("%s, the table's codes (-README.md +README.zh-CN.md):\n%s", zh.heading, diff)
		}
		if diff := cmp.Diff(firstCells(en), firstCells(zh)); diff != "" {
			t.Errorf("%s, the tables' first cells (-README.md +README.zh-CN.md):\n%s", zh.heading, diff)
		}
		if diff := cmp.Diff(files(en), files(zh)); diff != "" {
			t.Errorf("%s, the links to files (-README.md +README.zh-CN.md):\n%s", zh.heading, diff)
		}
		spans := zh.spans()
		for _, span := range en.spans() {
			if binding.MatchString(span) && !slices.Contains(spans, span) {
				t.Errorf("%s of README.zh-CN.md does not have `%s`, which README.md has under %s", zh.heading, span, en.heading)
			}
		}
		for _, span := range spans {
			if !known[span] {
				t.Errorf("%s of README.zh-CN.md has `%s`, which README.md does not have", zh.heading, span)
			}
		}
	}

	// The Chinese table has the settings that are asked for most, in README.md's order.
	if len(some) < 10 {
		t.Fatalf("the Chinese table has %d lines", len(some))
	}
	for _, row := range some[2:] { // what follows the two lines of its head
		i := slices.IndexFunc(all, func(r string) bool { return fourCells(r) == fourCells(row) })
		if i < 0 {
			t.Errorf("README.md's table of settings has no such line, or a later one has it before:\n%s", row)
			continue
		}
		all = all[i+1:]
	}
}

// binding are the spans that a reader types or looks up: commands, flags, variables, settings,
// paths and addresses.
var binding = regexp.MustCompile(`^(tokend|make|go|git|java) |^-|^[A-Z_]{4,}(=|$)|^[a-z]+\.[a-z_]+$|/|_`)

// firstCells returns the code in the first column of s's tables.
func firstCells(s section) (cells []string) {
	for _, row := range tableRow.FindAllString(s.prose, -1) {
		if cell := strings.TrimSpace(strings.Split(row, "|")[1]); strings.HasPrefix(cell, "`") {
			cells = append(cells, cell)
		}
	}
	return cells
}

// fourCells returns a line of the table of settings without its text.
func fourCells(row string) string {
	cells := strings.SplitN(row, "|", 6)
	return strings.Join(cells[:min(5, len(cells))], "|")
}

// files returns s's links that lead to another file, but to README.md's other language.
func files(s section) (all []string) {
	for _, l := range s.links() {
		if !strings.HasPrefix(l, "#") && !strings.HasPrefix(l, "README.") && !strings.Contains(l, "://") {
			all = append(all, l)
		}
	}
	return all
}

// TestChineseLinks follows the links of README.zh-CN.md, whose headings are not ASCII.
func TestChineseLinks(t *testing.T) {
	anchors := func(path string) (all []string) {
		page, _ := sections(t, path)
		for _, s := range page {
			all = append(all, anchor(s.heading))
		}
		return all
	}
	page, _ := sections(t, "README.zh-CN.md")
	n := 0
	for _, s := range page {
		for _, l := range s.links() {
			path, at, found := strings.Cut(l, "#")
			switch {
			case strings.Contains(l, "://"):
				continue
			case path == "":
				path = "README.zh-CN.md"
			}
			n++
			if _, err := os.Stat(filepath.FromSlash(path)); err != nil {
				t.Errorf("%s links to %s: %v", s.heading, l, err)
			} else if found && !slices.Contains(anchors(path), at) {
				t.Errorf("%s links to %s, and there is no such heading", s.heading, l)
			}
		}
	}
	if n < 20 {
		t.Errorf("%d links", n)
	}
	for _, back := range []struct{ from, to string }{{"README.md", "README.zh-CN.md"}, {"README.zh-CN.md", "README.md"}} {
		page, _ := sections(t, back.from)
		if !slices.Contains(page[0].links(), back.to) {
			t.Errorf("%s does not lead to %s", back.from, back.to)
		}
	}
}

// anchor returns the name by which a heading is linked to.
func anchor(heading string) string {
	_, title, _ := strings.Cut(heading, " ")
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-', r == '_', unicode.IsLetter(r), unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, title)
}

// TestExamplesInREADME holds the blocks of other languages to the examples that run.
func TestExamplesInREADME(t *testing.T) {
	examples := map[string]string{
		"python": "examples/python/shop.py",
		"js":     "examples/node/shop.mjs",
		"java":   "examples/java/Shop.java",
	}
	marked := regexp.MustCompile(`(?s)\n( *)(?://|#) readme:begin\n(.*?)\n *(?://|#) readme:end\n`)
	shown := 0
	for _, b := range read(t, "README.md").blocks {
		path, ok := examples[b.lang]
		if !ok {
			continue
		}
		shown++
		source, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		m := marked.FindStringSubmatch(string(source))
		if m == nil {
			t.Fatalf("%s has no part for the README", path)
		}
		var want strings.Builder
		for line := range strings.Lines(m[2] + "\n") {
			want.WriteString(strings.TrimPrefix(line, m[1]))
		}
		if diff := cmp.Diff(want.String(), b.text); diff != "" {
			t.Errorf("-%s +README.md:\n%s", path, diff)
		}
	}
	if shown != len(examples) {
		t.Errorf("the README shows %d of %d examples", shown, len(examples))
	}
}
