package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/tokend/httpapi/wire"
)

// batchOf returns items for the tokens A, B, … of users a, b, ….
func batchOf(n int) []Item {
	items := make([]Item, n)
	for i := range items {
		name := string(rune('A' + i%26))
		items[i] = Item{User: strings.ToLower(name), Token: "ott_TOKEN-TEXT" + name}
	}
	return items
}

// results answers a batch for users a, b, … with rs: a wire.Code or any JSON, or nil for
// a success.
func results(rs ...any) step {
	users := make([]string, len(rs))
	for i := range users {
		users[i] = string(rune('a' + i))
	}
	return resultsFor(users, rs...)
}

func resultsFor(users []string, rs ...any) step {
	out := make([]any, len(rs))
	for i, r := range rs {
		switch r := r.(type) {
		case nil:
			out[i] = wire.ConsumeResponse{
				Outcome: wire.OutcomeConsumed, Ref: testRef, User: users[i], Purpose: "default", UsedAt: wire.TimeOf(issuedAt),
			}
		case wire.Code:
			k, _ := wire.KindOf(r)
			out[i] = wire.Problem{Code: r, Status: k.Status, Next: k.Next, Ref: testRef, RequestID: "r1"}
		default:
			out[i] = r
		}
	}
	b, err := json.Marshal(map[string]any{"results": out, "new": "member"})
	if err != nil {
		panic(err)
	}
	return answerWith(http.StatusOK, wire.TypeJSON, string(b))
}

// sent returns the items of each try.
func (f *fake) sent() [][]wire.ConsumeRequest {
	var all [][]wire.ConsumeRequest
	for _, m := range f.made() {
		var req wire.ConsumeBatchRequest
		if err := json.Unmarshal([]byte(m.body), &req); err != nil {
			f.t.Fatalf("%v in %s", err, m.body)
		}
		all = append(all, req.Items)
	}
	return all
}

// brief tells outcomes apart in few words.
func brief(outcomes []Outcome) []string {
	words := make([]string, len(outcomes))
	for i, o := range outcomes {
		no, isRefusal := errors.AsType[*Refusal](o.Err)
		down, isFault := errors.AsType[*Fault](o.Err)
		switch {
		case o.Err == nil:
			words[i] = "consumed by " + o.User
		case o.Consumed != Consumed{}, isRefusal == isFault:
			words[i] = fmt.Sprintf("two things at once: %+v", o)
		case isRefusal:
			words[i] = string(no.Code)
		default:
			words[i] = fmt.Sprintf("fault %s, %d tries, maybe done %t", down.Code, down.Tries, down.MaybeDone)
		}
	}
	return words
}

func TestConsumeBatch(t *testing.T) {
	inBubble(t, []step{results(nil, wire.CodeTokenUsed, nil)}, func(t *testing.T, c *Client, f *fake) {
		items := batchOf(3)
		items[0].Digest, items[0].Attempt = "d1", "a1"
		got, err := c.ConsumeBatch(t.Context(), items)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"consumed by a", "token_used", "consumed by c"}, brief(got)); diff != "" {
			t.Error(diff)
		}
		want := Consumed{Ref: testRef, User: "a", Purpose: "default", UsedAt: issuedAt}
		if got[0].Consumed != want {
			t.Error(cmp.Diff(want, got[0].Consumed))
		}
		if no, _ := errors.AsType[*Refusal](got[1].Err); !errors.Is(no, ErrUsed) || no.Ref != testRef || no.RequestID != "r1" {
			t.Errorf("got %+v", no)
		}
		body := f.made()[0].body
		first := `{"items":[{"token":"ott_TOKEN-TEXTA","user":"a","purpose":"default","digest":"d1","attempt":"a1"},{"token":"ott_TOKEN-TEXTB","user":"b","purpose":"default","attempt":"`
		if !strings.HasPrefix(body, first) {
			t.Errorf("sent %s", body)
		}
		if sent := f.sent()[0]; *sent[1].Attempt == *sent[2].Attempt || len(*sent[1].Attempt) < 26 {
			t.Error("two items share an attempt, or it can be guessed")
		}
	})
}

// Only what has no answer is sent again, with the attempts of the first try.
func TestConsumeBatchSendsAgain(t *testing.T) {
	later := wire.Problem{Code: wire.CodeStoreUnavailable, Status: 503, Next: wire.NextRetry, RetryAfter: 2}
	steps := []step{
		dropped,
		results(nil, wire.CodeStoreUnavailable, wire.CodeTokenExpired, later),
		resultsFor([]string{"b", "d"}, wire.CodeInternal, nil),
		resultsFor([]string{"b"}, nil),
	}
	inBubble(t, steps, func(t *testing.T, c *Client, f *fake) {
		got, err := c.ConsumeBatch(t.Context(), batchOf(4))
		if err != nil {
			t.Fatal(err)
		}
		want := []string{"consumed by a", "consumed by b", "token_expired", "consumed by d"}
		if diff := cmp.Diff(want, brief(got)); diff != "" {
			t.Error(diff)
		}
		sent := f.sent()
		all := sent[0]
		again := [][]wire.ConsumeRequest{all, all, {all[1], all[3]}, {all[1]}}
		if diff := cmp.Diff(again, sent); diff != "" {
			t.Error(diff)
		}
		// The longest Retry-After among the items counts.
		ms := time.Millisecond
		if diff := cmp.Diff([]time.Duration{0, 100 * ms, 2300 * ms, 2700 * ms}, f.at()); diff != "" {
			t.Error(diff)
		}
	})
}

// An item hears what the single call would hear after the same tries.
func TestConsumeBatchItemEnds(t *testing.T) {
	named := wire.Problem{Code: wire.CodeTokenUsed, Status: 409, Next: wire.NextStop, UsedBy: "01234567"}
	tests := []struct {
		name  string
		steps []step
		want  []string
	}{
		{"a fault that asking again does not mend", []step{results(wire.CodeOutcomeUnknown, nil)},
			[]string{"fault outcome_unknown, 1 tries, maybe done true", "consumed by b"}},
		{"the same beside one that asking again mends",
			[]step{results(wire.CodeOutcomeUnknown, wire.CodeStoreUnavailable), resultsFor([]string{"b"}, nil)},
			[]string{"fault outcome_unknown, 1 tries, maybe done true", "consumed by b"}},
		{"used by who knows, after a lost reply", []step{dropped, results(wire.CodeTokenUsed, named)},
			[]string{"fault , 2 tries, maybe done true", "token_used"}},
		{"used by who knows, after its own fault",
			[]step{results(wire.CodeStoreUnavailable, wire.CodeTokenUsed), results(wire.CodeTokenUsed)},
			[]string{"fault , 2 tries, maybe done true", "token_used"}},
		{"no more tries", slices.Repeat([]step{results(wire.CodeStoreUnavailable, wire.CodeStoreUnavailable)}, 3),
			[]string{"fault store_unavailable, 3 tries, maybe done true", "fault store_unavailable, 3 tries, maybe done true"}},
		{"no more tries, for several reasons", slices.Repeat([]step{results(wire.CodeStoreUnavailable, wire.CodeInternal)}, 3),
			[]string{"fault , 3 tries, maybe done true", "fault , 3 tries, maybe done true"}},
		{"the call fails later", []step{results(nil, wire.CodeStoreUnavailable), dropped, dropped},
			[]string{"consumed by a", "fault , 3 tries, maybe done true"}},
		{"the call is refused later", []step{results(nil, wire.CodeStoreUnavailable), problemOf(wire.CodeForbidden)},
			[]string{"consumed by a", "fault , 2 tries, maybe done true"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, tt.steps, func(t *testing.T, c *Client, f *fake) {
				got, err := c.ConsumeBatch(t.Context(), batchOf(2))
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tt.want, brief(got)); diff != "" {
					t.Error(diff)
				}
			}, MaxTries(3))
		})
	}
}

// An item's fault tells of a context that ended the call.
func TestConsumeBatchContextEnds(t *testing.T) {
	inBubble(t, []step{results(nil, wire.CodeStoreUnavailable), silent}, func(t *testing.T, c *Client, f *fake) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		got, err := c.ConsumeBatch(ctx, batchOf(2))
		if err != nil || got[0].Err != nil || !errors.Is(got[1].Err, context.DeadlineExceeded) {
			t.Errorf("got %v, %v", got, err)
		}
		wantFault(t, got[1].Err, Fault{Op: "consume_batch", MaybeDone: true, Tries: 2})
	})
}

func TestConsumeBatchFails(t *testing.T) {
	tests := []struct {
		name string
		step step
		want error // nil is a fault
	}{
		{"unauthenticated", problemOf(wire.CodeUnauthenticated), ErrUnauthenticated},
		{"body_too_large", problemOf(wire.CodeBodyTooLarge), ErrBodyTooLarge},
		{"forbidden", problemOf(wire.CodeForbidden), ErrForbidden},
		{"store_unavailable", problemOf(wire.CodeStoreUnavailable), nil},
		{"lost", dropped, nil},
		{"too few results", results(nil), nil},
		{"too many results", results(nil, nil, nil), nil},
		{"no results", answerWith(200, wire.TypeJSON, "{}"), nil},
		{"a null", results(nil, json.RawMessage("null")), nil},
		{"an empty result", results(nil, json.RawMessage("{}")), nil},
		{"an array", results(nil, json.RawMessage("[]")), nil},
		{"a problem without a status", results(nil, json.RawMessage(`{"code":"token_used"}`)), nil},
		{"another outcome", results(nil, json.RawMessage(`{"outcome":"queued"}`)), nil},
		{"a single answer", grantedWith(nil), nil},
		{"out of order", resultsFor([]string{"b", "a"}, nil, nil), nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, []step{tt.step}, func(t *testing.T, c *Client, f *fake) {
				got, err := c.ConsumeBatch(t.Context(), batchOf(2))
				if got != nil {
					t.Errorf("outcomes beside an error: %v", brief(got))
				}
				if tt.want == nil {
					wantFault(t, err, Fault{Op: "consume_batch", MaybeDone: true, Tries: 1})
				} else if !errors.Is(err, tt.want) {
					t.Errorf("got %v, want %v", err, tt.want)
				}
			}, MaxTries(1))
		})
	}
}

// What cannot be sent is refused without asking, and keeps nothing else from being sent.
func TestConsumeBatchCannotBeSent(t *testing.T) {
	bad := []Item{
		{User: "a\xff", Token: testToken},
		{User: "a", Token: strings.Repeat("a", maxToken+1)},
	}
	inBubble(t, nil, func(t *testing.T, c *Client, f *fake) {
		for _, n := range []int{0, BatchMax + 1} {
			_, err := c.ConsumeBatch(t.Context(), batchOf(n))
			wantSentNothing(t, err, ErrInvalidRequest, "items")
		}
		got, err := c.ConsumeBatch(t.Context(), bad)
		if err != nil {
			t.Fatal(err)
		}
		wantSentNothing(t, got[0].Err, ErrInvalidRequest, "user")
		wantSentNothing(t, got[1].Err, ErrInvalidToken, "")
	})
	inBubble(t, []step{results(nil, nil)}, func(t *testing.T, c *Client, f *fake) {
		good := batchOf(2)
		got, err := c.ConsumeBatch(t.Context(), []Item{bad[0], good[0], bad[1], good[1]})
		if err != nil {
			t.Fatal(err)
		}
		want := []string{"invalid_request", "consumed by a", "token_invalid", "consumed by b"}
		if diff := cmp.Diff(want, brief(got)); diff != "" {
			t.Error(diff)
		}
	})
}

func TestConsumeBatchOfTheMost(t *testing.T) {
	items, users := batchOf(BatchMax), []string(nil)
	for _, it := range items {
		users = append(users, it.User)
	}
	inBubble(t, []step{resultsFor(users, make([]any, BatchMax)...)}, func(t *testing.T, c *Client, f *fake) {
		got, err := c.ConsumeBatch(t.Context(), items)
		if err != nil || len(got) != BatchMax {
			t.Fatalf("%d outcomes, %v", len(got), err)
		}
	})
}

func TestItemShowsNothing(t *testing.T) {
	it := batchOf(1)[0]
	var log bytes.Buffer
	for _, h := range []slog.Handler{slog.NewTextHandler(&log, nil), slog.NewJSONHandler(&log, nil)} {
		slog.New(h).Info("m", "item", it, "list", []Item{it}, "struct", struct{ I *Item }{&it})
	}
	fmt.Fprintf(&log, "%v %+v %#v %q %x", it, []Item{it}, &it, it, it)
	if strings.Contains(log.String(), "TOKEN-TEXT") {
		t.Errorf("logged %s", &log)
	}
}

func TestIssueBatch(t *testing.T) {
	one := map[string]any{
		"token": testToken, "ref": testRef, "user": testUser, "purpose": "default", "ttl": 3600,
		"issued_at": wire.TimeOf(issuedAt), "expires_at": wire.TimeOf(expiresAt),
	}
	other := map[string]any{}
	for k, v := range one {
		other[k] = v
	}
	other["user"] = "bob"
	answer := func(tokens ...any) step {
		b, _ := json.Marshal(map[string]any{"tokens": tokens})
		return answerWith(http.StatusCreated, wire.TypeJSON, string(b))
	}
	inBubble(t, []step{dropped, answer(one, one)}, func(t *testing.T, c *Client, f *fake) {
		got, err := c.IssueBatch(t.Context(), testUser, 2, TTL(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		want := Token{
			Value: testToken, Ref: testRef, User: testUser, Purpose: "default",
			IssuedAt: issuedAt, ExpiresAt: expiresAt, TTL: time.Hour,
		}
		if !slices.Equal(got, []Token{want, want}) {
			t.Error(cmp.Diff([]Token{want, want}, got))
		}
		if got, want := f.made()[1].body, `{"count":2,"purpose":"default","ttl":3600,"user":"alice"}`; got != want {
			t.Errorf("sent %s, want %s", got, want)
		}
	})
	for _, s := range []step{
		answer(), answer(one), answer(one, one, one), answer(one, nil), answer(one, other), answerWith(201, wire.TypeJSON, "{}"),
	} {
		inBubble(t, []step{s}, func(t *testing.T, c *Client, f *fake) {
			got, err := c.IssueBatch(t.Context(), testUser, 2)
			wantFault(t, err, Fault{Op: "issue_batch", MaybeDone: true, Tries: 1})
			if got != nil {
				t.Error("tokens beside the error")
			}
		}, MaxTries(1))
	}
	inBubble(t, nil, func(t *testing.T, c *Client, f *fake) {
		_, err := c.IssueBatch(t.Context(), "a\xff", 2)
		wantSentNothing(t, err, ErrInvalidRequest, "user")
	})
	// How many there may be is tokend's to say.
	inBubble(t, []step{problemWith(wire.Problem{Code: wire.CodeInvalidRequest, Field: "count"})}, func(t *testing.T, c *Client, f *fake) {
		if _, err := c.IssueBatch(t.Context(), testUser, -1); !errors.Is(err, ErrInvalidRequest) {
			t.Errorf("got %v", err)
		}
	})
}
