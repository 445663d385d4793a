package guard_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"example.com/tokend/client"
	"example.com/tokend/client/clienttest"
	"example.com/tokend/client/guard"
)

// fill writes what a form's answer may be.
func fill(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	io.WriteString(w, strings.Repeat("<p>thank you</p>", 64))
}

// benchmark measures h with a fresh token in each request.
func benchmark(b *testing.B, guarded func(client.Purpose) http.Handler) {
	tokend := clienttest.New(b)
	forms := tokend.Client().Purpose(purpose)
	h := guarded(forms)
	b.ReportAllocs()
	var tokens []client.Token
	for b.Loop() {
		if len(tokens) == 0 {
			b.StopTimer()
			var err error
			if tokens, err = forms.IssueBatch(b.Context(), user, client.BatchMax); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, form(tokens[0].Value, "item", "tea"))
		tokens = tokens[1:]
		if w.Code != http.StatusOK {
			b.Fatalf("%d %s", w.Code, w.Body)
		}
	}
}

func BenchmarkBare(b *testing.B) {
	benchmark(b, func(client.Purpose) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.PostFormValue("item")
			fill(w)
		})
	})
}

// What a service pays that consumes by itself, without a guard.
func BenchmarkConsumeOnly(b *testing.B) {
	benchmark(b, func(forms client.Purpose) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, err := forms.Consume(r.Context(), user, r.PostFormValue(guard.FieldToken)); err != nil {
				b.Error(err)
			}
			fill(w)
		})
	})
}

func BenchmarkOnceConsumeFirst(b *testing.B) {
	benchmark(b, func(forms client.Purpose) http.Handler {
		return guard.New(forms, guard.User(sessionUser), guard.ConsumeFirst()).Once(http.HandlerFunc(
			func(w http.ResponseWriter, r *http.Request) { fill(w) }))
	})
}

func BenchmarkOnce(b *testing.B) {
	benchmark(b, func(forms client.Purpose) http.Handler {
		return guard.New(forms, guard.User(sessionUser)).Once(http.HandlerFunc(
			func(w http.ResponseWriter, r *http.Request) {
				if err := guard.Consume(r.Context()); err == nil {
					fill(w)
				}
			}))
	})
}

func BenchmarkReplay(b *testing.B) {
	benchmark(b, func(forms client.Purpose) http.Handler {
		return guard.New(forms, guard.User(sessionUser)).Replay(http.HandlerFunc(
			func(w http.ResponseWriter, r *http.Request) { fill(w) }))
	})
}

func BenchmarkReplayCommit(b *testing.B) {
	benchmark(b, func(forms client.Purpose) http.Handler {
		return guard.New(forms, guard.User(sessionUser)).Replay(http.HandlerFunc(
			func(w http.ResponseWriter, r *http.Request) {
				if err := guard.Commit(r.Context()); err == nil {
					fill(w)
				}
			}))
	})
}

// A repeat, which gets the first answer.
func BenchmarkReplayed(b *testing.B) {
	forms := clienttest.New(b).Client().Purpose(purpose)
	h := guard.New(forms, guard.User(sessionUser)).Replay(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) { fill(w) }))
	t, err := forms.Issue(b.Context(), user)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, form(t.Value))
		if w.Code != http.StatusOK {
			b.Fatalf("%d %s", w.Code, w.Body)
		}
	}
}
