package client

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/tokend/httpapi/wire"
)

var errOf = map[Code]error{
	wire.CodeTokenUsed:            ErrUsed,
	wire.CodeIdempotencyKeyReused: ErrReused,
	wire.CodeTokenExpired:         ErrExpired,
	wire.CodeTokenStale:           ErrStale,
	wire.CodeTokenLost:            ErrLost,
	wire.CodeTokenGone:            ErrGone,
	wire.CodeTokenRevoked:         ErrRevoked,
	wire.CodeWrongUser:            ErrWrongUser,
	wire.CodeWrongPurpose:         ErrWrongPurpose,
	wire.CodeTokenInvalid:         ErrInvalidToken,
	wire.CodeModeUnsupported:      ErrModeUnsupported,
	wire.CodeInvalidRequest:       ErrInvalidRequest,
	wire.CodeUnauthenticated:      ErrUnauthenticated,
	wire.CodeForbidden:            ErrForbidden,
	wire.CodeNotFound:             ErrNotFound,
	wire.CodeMethodNotAllowed:     ErrMethodNotAllowed,
	wire.CodeBodyTooLarge:         ErrBodyTooLarge,
	wire.CodeUnsupportedMediaType: ErrUnsupportedMediaType,
	wire.CodeRateLimited:          ErrRateLimited,
	wire.CodeTokenMissing:         ErrTokenMissing,
	wire.CodeRequestInProgress:    ErrInProgress,
	wire.CodeClaimUnfinished:      ErrUnfinished,
	wire.CodeClaimSuperseded:      ErrSuperseded,
	wire.CodeClaimEnded:           ErrClaimEnded,
	wire.CodeClaimCommitted:       ErrClaimCommitted,
}

// Each refusal on the wire has an Err value, and is no other's. Faults have none.
func TestEachRefusalHasErr(t *testing.T) {
	for _, k := range wire.Kinds() {
		if _, has := errOf[k.Code]; has == k.Fault {
			t.Errorf("%s: is a fault %t, has an Err value %t", k.Code, k.Fault, has)
		}
		err := fmt.Errorf("wrapped: %w", &Refusal{Code: k.Code})
		for code, target := range errOf {
			if got, want := errors.Is(err, target), code == k.Code; got != want {
				t.Errorf("errors.Is(%v, %v) is %t", err, target, got)
			}
		}
	}
	if len(errOf) != len(wire.Kinds())-3 {
		t.Errorf("%d Err values for %d codes, of which 3 are faults", len(errOf), len(wire.Kinds()))
	}
}

// No word of next is lost on the SDK's users but retry, which no refusal says.
func TestEachRefusalHasNext(t *testing.T) {
	have := []Next{NextStop, NextReissue, NextWait, NextVerify, NextFix}
	for _, k := range wire.Kinds() {
		var ok bool
		for _, n := range have {
			ok = ok || n == k.Next
		}
		if ok == (k.Next == wire.NextRetry) {
			t.Errorf("%s: next %s", k.Code, k.Next)
		}
	}
}

func TestRefusalHoldsTheProblem(t *testing.T) {
	at := func(s int) wire.Time { return wire.TimeOf(issuedAt.Add(time.Duration(s) * time.Second)) }
	p := wire.Problem{
		Code: "new", Next: wire.NextStop, Status: 418, Title: "t", Detail: "the rule", Field: "f", Ref: testRef,
		ExpiresAt: at(1), UsedAt: at(2), UsedBy: "01234567", RevokedAt: at(3), RetryAfter: 7, RequestID: "r1",
		LeaseExpiresAt: at(4),
	}
	inBubble(t, []step{problemWith(p)}, func(t *testing.T, c *Client, f *fake) {
		no, _ := errors.AsType[*Refusal](consumeOnce(t.Context(), c))
		want := &Refusal{
			Code: "new", Next: NextStop, Status: 418, Detail: "the rule", Field: "f", Ref: testRef,
			ExpiresAt: at(1).Time(), UsedAt: at(2).Time(), UsedBy: "01234567", RevokedAt: at(3).Time(),
			RetryAfter: 7 * time.Second, RequestID: "r1", LeaseExpiresAt: at(4).Time(),
		}
		if diff := cmp.Diff(want, no); diff != "" {
			t.Error(diff)
		}
	})
}

// A problem's type may have parameters, and any case; a request id may stand in the
// header alone.
func TestRefusalFromOddButGoodAnswer(t *testing.T) {
	odd := answerWith(409, "Application/Problem+JSON; charset=utf-8",
		`{"code":"token_used","status":409,"next":"stop","new":[1]}`, "X-Request-Id", "r1")
	inBubble(t, []step{odd}, func(t *testing.T, c *Client, f *fake) {
		err := consumeOnce(t.Context(), c)
		if no, ok := errors.AsType[*Refusal](err); !ok || !errors.Is(err, ErrUsed) || no.RequestID != "r1" {
			t.Errorf("got %v", err)
		}
	})
}

func TestErrorText(t *testing.T) {
	tests := []struct {
		err  error
		want string
	}{
		{ErrUsed, "tokend: token_used"},
		{&Refusal{Code: wire.CodeTokenUsed}, "tokend: token_used"},
		{&Refusal{Code: wire.CodeTokenUsed, Detail: "The token was used.", Ref: testRef, UsedBy: "01234567", RequestID: "r1"},
			"tokend: token_used: The token was used., ref " + testRef + ", used by 01234567, request r1"},
		{&Fault{Op: "consume", Tries: 1, Err: errRefused}, "tokend: consume: no answer: dial tcp: connect: connection refused"},
		{&Fault{Op: "consume", Tries: 3, MaybeDone: true, RequestID: "r1", Err: errors.New("EOF")},
			"tokend: consume: no answer in 3 tries, but it may be done, request r1: EOF"},
	}
	for _, tt := range tests {
		if got := tt.err.Error(); got != tt.want {
			t.Errorf("got  %s\nwant %s", got, tt.want)
		}
	}
}
