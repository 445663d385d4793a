package sqlguard

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
)

// What is quoted is one identifier, whatever it is made of, or it is refused.
func FuzzQuote(f *testing.F) {
	for _, name := range []string{"orders", "a.b", `a"b`, "a`b", "a b", "", "1a", "ä", "a--", "a\x00", "SELECT", "_", "a;b", "ſ"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		for d, mark := range map[Dialect]string{PostgreSQL: `"`, MySQL: "`", SQLite: `"`} {
			got, err := d.quote(name)
			if err != nil {
				if got != "" {
					t.Errorf("%q is refused and quoted", name)
				}
				continue
			}
			if got != mark+name+mark || len(name) < 1 || len(name) > 63 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789") != "" {
				t.Errorf("%v takes %q for a name, as %s", d, name, got)
			}
		}
	})
}

func TestBind(t *testing.T) {
	t.Parallel()
	const query = "UPDATE t SET a = ?, b = ? WHERE c = ?"
	if got := PostgreSQL.bind(query); got != "UPDATE t SET a = $1, b = $2 WHERE c = $3" {
		t.Error(got)
	}
	if got := MySQL.bind(query); got != query {
		t.Error(got)
	}
}

// No two lists of parts have one digest.
func FuzzDigest(f *testing.F) {
	f.Add("a", "b", 1)
	f.Add("", "ab", 0)
	f.Fuzz(func(t *testing.T, a, b string, n int) {
		all := a + b
		n = max(0, n) % (len(all) + 1)
		same := all[:n] == a
		if (Digest(a, b) == Digest(all[:n], all[n:])) != same || Digest(a, b) == Digest(all) || Digest(all) == Digest(all, "") {
			t.Errorf("%q and %q", []string{a, b}, []string{all[:n], all[n:]})
		}
	})
}

func TestIDs(t *testing.T) {
	t.Parallel()
	f, db, g := newFake(t, PostgreSQL)
	work := func(context.Context, Tx) ([]byte, error) { t.Error("the work is run"); return nil, nil }
	long := func(n int) string { return strings.Repeat("x", n) }
	for _, tt := range []struct {
		id     ID
		digest string
	}{
		{ID{"", "u", "k"}, "d"}, {ID{"s", "", "k"}, "d"}, {ID{"s", "u", ""}, "d"}, {ID{"s", "u", "k"}, ""},
		{ID{long(65), "u", "k"}, "d"}, {ID{"s", long(257), "k"}, "d"}, {ID{"s", "u", long(256)}, "d"}, {ID{"s", "u", "k"}, long(129)},
	} {
		if _, err := g.Do(t.Context(), db, tt.id, tt.digest, work); err == nil {
			t.Errorf("%v, %q is taken", tt.id, tt.digest)
		}
	}
	for _, statement := range f.log() {
		if statement != "begin" && statement != "rollback" {
			t.Errorf("%s was sent", statement)
		}
	}
}

func TestSpelt(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		read, given any
		want        bool
	}{
		{"19.90", "19.9", true},
		{[]byte("19.90"), "19.90", true},
		{"19.90", 19.9, true},
		{"42", 42, true},
		{"42", int8(42), true},
		{"42abc", 42, false}, // which MySQL takes for the same
		{"9007199254740993", "9007199254740992", false},
		{"9007199254740993", int64(9007199254740993), true},
		{"ABC", "abc", false},
		{"abc", "abc ", false},
		{"1", "1 ", false},
		{"1", "1e0", false},
		{"1/2", "0.5", false},
		{"abc", []byte("abc"), true},
		{"1", true, true},
		{int64(7), "7", true},
		{int64(7), " 7.0", true},
		{int64(7), 7.0, true},
		{int64(12), "12xyz", false}, // which MySQL takes for the same
		{int64(0), "xyz", false},
		{int64(0), []byte("xyz"), false},
		{uint64(1<<63 + 1), "9223372036854775809", true},
		{uint64(1<<63 + 1), "9223372036854775808", false},
		{7.5, "7.5x", true}, // the database has compared them
		{nil, "x", true},
		{"x", nil, true},
		{"", "", true},
		{"-0.0", "0", true},
		{strings.Repeat("9", 200), strings.Repeat("9", 200) + ".0", false},
	} {
		got, err := spelt(tt.read, tt.given)
		if err != nil || got != tt.want {
			t.Errorf("read %#v, given %#v: %v, %v", tt.read, tt.given, got, err)
		}
	}
}

// What a number is does not depend on how it is spelt, and text is compared byte for byte.
func FuzzSpelt(f *testing.F) {
	f.Add("1.0", "1.00")
	f.Add("a", "A")
	f.Fuzz(func(t *testing.T, a, b string) {
		ab, err1 := spelt(a, b)
		ba, err2 := spelt([]byte(b), []byte(a))
		if err1 != nil || err2 != nil || ab != ba {
			t.Errorf("%q, %q: %v, %v", a, b, ab, ba)
		}
		if self, _ := spelt(a, a); !self {
			t.Errorf("%q is not itself", a)
		}
		if digits := "+-.0123456789"; ab && a != b && strings.Trim(a, digits)+strings.Trim(b, digits) != "" {
			t.Errorf("%q is taken for %q", a, b)
		}
		if bytes.Equal([]byte(a), []byte(b)) && !ab {
			t.Errorf("%q differs from itself", a)
		}
	})
}

func TestRowsDeclared(t *testing.T) {
	t.Parallel()
	_, _, g := newFake(t, MySQL)
	for name, r := range map[string]Rows{
		"no table":       {Key: []string{"a"}},
		"no key":         {Table: "t"},
		"a bad column":   {Table: "t", Key: []string{"a"}, Match: []string{"b`"}},
		"a bad return":   {Table: "t", Key: []string{"a"}, Return: []string{"b c"}},
		"a column twice": {Table: "t", Key: []string{"a"}, Match: []string{"a"}},
	} {
		if _, err := g.Unique(r); err == nil {
			t.Errorf("%s: it is taken", name)
		}
	}
}

func TestRowsGiven(t *testing.T) {
	t.Parallel()
	f, db, g := newFake(t, MySQL)
	u, err := g.Unique(Rows{Table: "t", Key: []string{"k"}, Match: []string{"m"}})
	if err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]Row{
		"no key":      {"m": 1},
		"no match":    {"k": 1},
		"NULL":        {"k": nil, "m": 1},
		"a structure": {"k": struct{}{}, "m": 1},
	} {
		err := g.Run(t.Context(), db, func(ctx context.Context, tx Tx) error {
			_, err := u.EnsureEach(ctx, tx, Row{"k": 1, "m": 1}, row)
			return err
		})
		if err == nil || !strings.Contains(err.Error(), "row 1") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, statement := range f.log() {
		if statement != "begin" && statement != "rollback" {
			t.Errorf("%s was sent", statement)
		}
	}
	// A column that is inserted beside is a name too.
	err = g.Run(t.Context(), db, func(ctx context.Context, tx Tx) error {
		_, err := u.EnsureEach(ctx, tx, Row{"k": 1, "m": 1, "x) VALUES (1); --": 1})
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "no name") {
		t.Errorf("an injection: %v", err)
	}
}

func TestGraph(t *testing.T) {
	t.Parallel()
	_, _, g := newFake(t, MySQL)
	way := func(name, to string, from ...string) Transition { return Transition{name, from, to} }
	right := Graph{Table: "orders", ID: "id", State: "state", Transitions: []Transition{way("pay", "PAID", "NEW", "PAYING"), way("refund", "REFUNDED", "PAID")}}
	if _, err := g.States(right); err != nil {
		t.Error(err)
	}
	for name, ways := range map[string][]Transition{
		"none":              nil,
		"without a name":    {way("", "B", "A")},
		"a name twice":      {way("x", "B", "A"), way("x", "C", "A")},
		"to itself":         {way("x", "A", "B", "A")},
		"from nowhere":      {way("x", "A")},
		"an empty state":    {way("x", "", "A")},
		"case alone":        {way("x", "paid", "NEW"), way("y", "PAID", "paying")},
		"a space at an end": {way("x", "PAID ", "NEW")},
		"beyond ASCII":      {way("x", "résumé", "resume")},
		"a control":         {way("x", "PAID\x00", "NEW")},
	} {
		bad := right
		bad.Transitions = ways
		if _, err := g.States(bad); err == nil {
			t.Errorf("%s: it is taken", name)
		}
	}
	for _, bad := range []Graph{{"a b", "id", "state", right.Transitions}, {"t", "i'd", "state", right.Transitions}, {"t", "id", "", right.Transitions}} {
		if _, err := g.States(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// What the caller does to a graph afterwards changes nothing.
func TestGraphIsCopied(t *testing.T) {
	t.Parallel()
	_, _, g := newFake(t, MySQL)
	ways := []Transition{{"pay", []string{"NEW"}, "PAID"}}
	s, err := g.States(Graph{Table: "orders", ID: "id", State: "state", Transitions: ways})
	if err != nil {
		t.Fatal(err)
	}
	ways[0].From[0] = "PAID"
	ways[0].To = "NEW"
	if !s.edge("NEW", "PAID") || s.edge("PAID", "NEW") {
		t.Error("the graph was changed from outside")
	}
}

// Two tables whose long names begin alike have an index of their own each.
func TestIndexName(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 60)
	one, two := indexName(long+"_1"), indexName(long+"_2")
	if one == two || len(one) > nameLimit || indexName("records") != "records_created_at" {
		t.Errorf("%s and %s", one, two)
	}
}

// What the graph does not have is refused before anything is sent.
func TestNoTransition(t *testing.T) {
	t.Parallel()
	f, db, g := newFake(t, MySQL)
	s, err := g.States(Graph{Table: "orders", ID: "id", State: "state", Transitions: []Transition{
		{"pay", []string{"NEW", "PAYING"}, "PAID"}, {"refund", []string{"PAID"}, "REFUNDED"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for name, move := range map[string]func(ctx context.Context, tx Tx) (Moved, error){
		"no such edge": func(ctx context.Context, tx Tx) (Moved, error) {
			return s.Move(ctx, tx, 1, []string{"NEW"}, "REFUNDED")
		},
		"backwards": func(ctx context.Context, tx Tx) (Moved, error) { return s.Move(ctx, tx, 1, []string{"PAID"}, "NEW") },
		"to itself": func(ctx context.Context, tx Tx) (Moved, error) { return s.Move(ctx, tx, 1, []string{"PAID"}, "PAID") },
		"one edge of two": func(ctx context.Context, tx Tx) (Moved, error) {
			return s.Move(ctx, tx, 1, []string{"NEW", "REFUNDED"}, "PAID")
		},
		"from nowhere":       func(ctx context.Context, tx Tx) (Moved, error) { return s.Move(ctx, tx, 1, nil, "PAID") },
		"no such transition": func(ctx context.Context, tx Tx) (Moved, error) { return s.Take(ctx, tx, 1, "ship") },
	} {
		err := g.Run(t.Context(), db, func(ctx context.Context, tx Tx) error {
			_, err := move(ctx, tx)
			return err
		})
		if !errors.Is(err, ErrNoTransition) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, set := range map[string]Set{"an injection": {"paid_at = 1 --", 1}, "the state": {"STATE", "NEW"}, "the id": {"id", 2}} {
		err := g.Run(t.Context(), db, func(ctx context.Context, tx Tx) error {
			_, err := s.Take(ctx, tx, 1, "pay", set)
			return err
		})
		if err == nil {
			t.Errorf("%s: it is set", name)
		}
	}
	if _, err := s.Take(t.Context(), db, 1, "pay"); err == nil {
		t.Error("a database is taken for a transaction")
	}
	for _, statement := range f.log() {
		if statement != "begin" && statement != "rollback" {
			t.Errorf("%s was sent", statement)
		}
	}
}
