package sqlguard

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Graph declares the states that the rows of a table have, and the ways between them.
type Graph struct {
	Table string
	ID    string // the column that a row is found by, and that is unique
	State string // the column that the state stands in: printable ASCII, never NULL

	// Transitions are all there are. A cycle lets a late repeat move a row again: there the
	// call needs Once, or a version column, beside it.
	Transitions []Transition
}

// Transition is a named way from some states to another.
type Transition struct {
	Name string
	From []string
	To   string
}

// States moves rows along a [Graph].
type States struct {
	g                *Guard
	graph            Graph
	table, id, state string // quoted
}

// Set is a column that is set with the state: when it was paid, say.
type Set struct {
	Column string
	Value  any
}

// Moved is what became of a move.
type Moved struct {
	Moved bool   // by this call: side effects belong here and nowhere else
	State string // as it is now, in this transaction
}

// States returns what moves rows along graph. Its error names all that is wrong with it.
func (g *Guard) States(graph Graph) (*States, error) {
	graph.Transitions = slices.Clone(graph.Transitions)
	for i, t := range graph.Transitions {
		graph.Transitions[i].From = slices.Clone(t.From)
	}
	s := &States{g: g, graph: graph}
	var errs []error
	for _, n := range []struct {
		quote func(string) (string, error)
		name  string
		to    *string
	}{{g.dialect.quoteTable, graph.Table, &s.table}, {g.dialect.quote, graph.ID, &s.id}, {g.dialect.quote, graph.State, &s.state}} {
		var err error
		*n.to, err = n.quote(n.name)
		errs = append(errs, err)
	}
	spelt := map[string]string{}
	names := map[string]bool{}
	for _, t := range graph.Transitions {
		if t.Name == "" || names[t.Name] {
			errs = append(errs, fmt.Errorf("sqlguard: the transition %q must have a name of its own", t.Name))
		}
		names[t.Name] = true
		if len(t.From) == 0 {
			errs = append(errs, fmt.Errorf("sqlguard: the transition %s comes from nowhere", t.Name))
		}
		if slices.Contains(t.From, t.To) {
			errs = append(errs, fmt.Errorf("sqlguard: the transition %s goes from %s to itself", t.Name, t.To))
		}
		for _, state := range append([]string{t.To}, t.From...) {
			// By a collation the database may take two spellings for one state, and outside of
			// ASCII nobody knows which.
			if strings.ContainsFunc(state, func(r rune) bool { return r < ' ' || r > '~' }) {
				errs = append(errs, fmt.Errorf("sqlguard: the state %q is not printable ASCII", state))
			}
			folded := strings.ToLower(strings.TrimSpace(state))
			if was, ok := spelt[folded]; folded != strings.ToLower(state) || folded == "" || ok && was != state {
				errs = append(errs, fmt.Errorf("sqlguard: the state %q is empty, or differs from another by case or space alone", state))
			}
			spelt[folded] = state
		}
	}
	if len(graph.Transitions) == 0 {
		errs = append(errs, errors.New("sqlguard: the graph has no transitions"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return s, nil
}

// Take is [States.Move] along the transition called name, from wherever it may come.
func (s *States) Take(ctx context.Context, tx Tx, id any, name string, set ...Set) (Moved, error) {
	for _, t := range s.graph.Transitions {
		if t.Name == name {
			return s.Move(ctx, tx, id, t.From, t.To, set...)
		}
	}
	return Moved{}, fmt.Errorf("%w: %s has none called %q", ErrNoTransition, s.graph.Table, name)
}

// Move moves the row id to a state, where it is in one of from: by one conditional update, so
// that of many at the same time one moves it. It answers whether this call did, and which state
// the row is in now. It is no error that a row has moved already: that is what a repeat finds.
//
// Where the graph has no way from one of from, or from is the state itself, it is
// [ErrNoTransition] and nothing is sent to the database. [ErrNoRow] is a row that is not there.
// Where MySQL alone takes id for that of a row ('12abc' for 12) it is an error, and Run rolls
// back.
func (s *States) Move(ctx context.Context, tx Tx, id any, from []string, to string, set ...Set) (Moved, error) {
	if err := checkTx(tx); err != nil {
		return Moved{}, err
	}
	if len(from) == 0 {
		return Moved{}, fmt.Errorf("%w: from nowhere to %s", ErrNoTransition, to)
	}
	for _, f := range from {
		if !s.edge(f, to) {
			return Moved{}, fmt.Errorf("%w: %s: from %s to %s", ErrNoTransition, s.graph.Table, f, to)
		}
	}
	sets, args := []string{s.state + " = ?"}, []any{to}
	for _, c := range set {
		name, err := s.g.dialect.quote(c.Column)
		if err != nil {
			return Moved{}, err
		}
		if strings.EqualFold(c.Column, s.graph.State) || strings.EqualFold(c.Column, s.graph.ID) {
			return Moved{}, fmt.Errorf("sqlguard: %s is not to be set beside the state", c.Column)
		}
		sets, args = append(sets, name+" = ?"), append(args, c.Value)
	}
	args = append(args, id)
	for _, f := range from {
		args = append(args, f)
	}
	update := "UPDATE " + s.table + " SET " + strings.Join(sets, ", ") +
		" WHERE " + s.id + " = ? AND " + s.state + " IN (?" + strings.Repeat(", ?", len(from)-1) + ")"
	done, err := tx.ExecContext(ctx, s.g.dialect.bind(update), args...)
	if err != nil {
		return Moved{}, s.g.told(err)
	}
	// The state is never one of from afterwards, so a row that is found is changed, and both
	// ways to count are the same.
	n, err := done.RowsAffected()
	switch {
	case err != nil:
		return Moved{}, err
	case n > 1:
		return Moved{}, fail(tx, fmt.Errorf("sqlguard: %s: %d rows have one %s", s.graph.Table, n, s.graph.ID))
	case n == 1 && s.g.dialect != MySQL:
		return Moved{Moved: true, State: to}, nil
	}
	now, err := s.now(ctx, tx, id)
	switch {
	case err != nil:
		return Moved{}, err
	case n == 1:
		return Moved{Moved: true, State: to}, nil
	case slices.Contains(from, now): // it has come there since the update looked
		return Moved{}, fmt.Errorf("%w: the row has just changed", ErrRetryTransaction)
	}
	return Moved{State: now}, nil
}

// now returns the state of the row id. MySQL takes '12abc' for 12, and 0 for any text without a
// number: so a row whose id is another is an error, and what was done to it is not committed.
func (s *States) now(ctx context.Context, tx Tx, id any) (string, error) {
	query := "SELECT " + s.id + ", " + s.state + " FROM " + s.table + " WHERE " + s.id + " = ?" + s.g.dialect.current()
	var found any
	var state sql.NullString
	switch err := tx.QueryRowContext(ctx, s.g.dialect.bind(query), id).Scan(&found, &state); {
	case errors.Is(err, sql.ErrNoRows):
		return "", fmt.Errorf("%w: in %s", ErrNoRow, s.graph.Table)
	case err != nil:
		return "", s.g.told(err)
	case !state.Valid:
		return "", fail(tx, fmt.Errorf("sqlguard: %s: the state of the row is NULL", s.graph.Table))
	}
	if s.g.dialect == MySQL {
		if alike, err := spelt(found, id); err != nil || !alike {
			return "", fail(tx, errors.Join(fmt.Errorf("sqlguard: %s: the %s of the row is not the one given", s.graph.Table, s.graph.ID), err))
		}
	}
	return strings.TrimRight(state.String, " "), nil // CHAR is padded
}

// edge tells whether the graph has a way from one state to another.
func (s *States) edge(from, to string) bool {
	return slices.ContainsFunc(s.graph.Transitions, func(t Transition) bool {
		return t.To == to && slices.Contains(t.From, from)
	})
}
