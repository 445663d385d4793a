package guard_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"example.com/tokend/client/guard"
)

// Whatever is valid JSON stays valid and means the same, and is ordered only once.
func FuzzOrdered(f *testing.F) {
	for _, s := range []string{
		`{"b":1,"a":[{"d":2,"c":3},"x\"y",null]}`, `[]`, `{}`, ` "a" `, `1e3`, `{"a":{},"":[[],[1]]}`, `{"a":1,"a":2}`, `"\\"`, `{"\\\"":"}"}`,
	} {
		f.Add([]byte(s))
	}
	decode := func(data []byte) (v any, err error) {
		d := json.NewDecoder(bytes.NewReader(data))
		d.UseNumber()
		return v, d.Decode(&v)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if !json.Valid(data) {
			return
		}
		got := guard.Ordered(data)
		want, err := decode(data)
		if err != nil {
			return // nested deeper than the package reads
		}
		if v, err := decode(got); err != nil || !reflect.DeepEqual(v, want) {
			t.Errorf("%q became %q: %v", data, got, err)
		}
		if twice := guard.Ordered(got); !bytes.Equal(twice, got) {
			t.Errorf("%q became %q, and that %q", data, got, twice)
		}
	})
}

// A body of braces must not take longer than any other of its length.
func TestOrderedDeep(t *testing.T) {
	t.Parallel()
	deep := bytes.Repeat([]byte(`{"b":`), 9000)
	deep = append(append(deep, '1'), bytes.Repeat([]byte(`,"a":1}`), 9000)...)
	if !json.Valid(deep) {
		t.Fatal("not JSON")
	}
	if got := guard.Ordered(deep); !bytes.Equal(got, deep) {
		t.Error("it was ordered")
	}
}
