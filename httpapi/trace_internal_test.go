package httpapi

import (
	"net/http/httptest"
	"testing"

	"example.com/tokend/httpapi/wire"
)

// TestUntracedCostsNothing holds that a call without tracing allocates nothing for it.
func TestUntracedCostsNothing(t *testing.T) {
	s := New(Options{})
	r := httptest.NewRequest("POST", wire.PathConsume, nil)
	c := &call{srv: s, echo: s.echo.NewContext(r, httptest.NewRecorder()), op: opConsume}
	if n := testing.AllocsPerRun(100, func() {
		c.beginSpan()
		c.traceID()
		c.endSpan()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
