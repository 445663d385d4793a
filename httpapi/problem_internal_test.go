package httpapi

import (
	"fmt"
	"testing"

	"github.com/labstack/echo/v4"

	"example.com/tokend/httpapi/auth"
	"example.com/tokend/httpapi/wire"
	"example.com/tokend/token"
)

// TestEveryRefusalHasACode holds the one mapping of refusals to codes complete, wrapped
// ones too.
func TestEveryRefusalHasACode(t *testing.T) {
	for _, reason := range token.Refusals() {
		p := problemOf(fmt.Errorf("wrapped: %w", &token.Refusal{Reason: reason}))
		if p.Code == wire.CodeInternal {
			t.Errorf("%v has no code", reason)
		}
	}
	if len(refusals) != len(token.Refusals()) {
		t.Errorf("%d refusals are mapped, of %d", len(refusals), len(token.Refusals()))
	}
	for _, reason := range auth.Reasons() {
		if p := problemOf(fmt.Errorf("wrapped: %w", &auth.Refusal{Reason: reason})); p.Status != 401 && p.Status != 403 {
			t.Errorf("%v: %d", reason, p.Status)
		}
	}
	if p := problemOf(fmt.Errorf("wrapped: %w", echo.ErrNotFound)); p.Code != wire.CodeNotFound {
		t.Errorf("a wrapped 404: %s", p.Code)
	}
	if p := problemOf(&auth.Fault{Err: fmt.Errorf("x")}); p.Code != wire.CodeStoreUnavailable {
		t.Errorf("keys that cannot be fetched: %s", p.Code)
	}
}
