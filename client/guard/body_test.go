package guard_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"example.com/tokend/client"
	"example.com/tokend/client/guard"
	"example.com/tokend/httpapi/wire"
)

// What stands before a guard may ask for the form whatever the body is. What it has read
// stands for the body, and what it has left alone is read: a token is found either way, and
// the work is done once.
func TestParsedBeforeWhateverTheBody(t *testing.T) {
	t.Parallel()
	parses := map[string]func(*http.Request){
		"nothing":            func(*http.Request) {},
		"ParseForm":          func(r *http.Request) { r.ParseForm() },
		"ParseMultipartForm": func(r *http.Request) { r.ParseMultipartForm(1 << 20) },
		"FormValue":          func(r *http.Request) { r.FormValue("csrf") },
		"both":               func(r *http.Request) { r.ParseForm(); r.ParseMultipartForm(1 << 20) },
	}
	bodies := map[string]func(token string) *http.Request{
		"JSON": func(token string) *http.Request {
			return submission("application/json", `{"a":"1","`+guard.FieldToken+`":"`+token+`"}`)
		},
		"JSON of a type": func(token string) *http.Request {
			return submission("application/vnd.o+json", `{"`+guard.FieldToken+`":"`+token+`"}`)
		},
		"multipart": func(token string) *http.Request {
			return submission(parts(t, "B", guard.FieldToken, token, "f/x", "1"))
		},
		"urlencoded": func(token string) *http.Request { return form(token, "a", "1") },
	}
	type guarding func(*service, http.Handler, ...guard.Option) http.Handler
	guards := map[string]guarding{
		"Once": func(s *service, _ http.Handler, opts ...guard.Option) http.Handler {
			return s.guard.Once(http.HandlerFunc(s.work), opts...)
		},
		"Replay": func(s *service, run http.Handler, opts ...guard.Option) http.Handler {
			return s.guard.Replay(run, opts...)
		},
		"Optional": func(s *service, run http.Handler, opts ...guard.Option) http.Handler {
			return s.guard.Replay(run, append(opts, guard.Optional())...)
		},
	}
	tokend := newService(t).tokend
	for guardName, guarded := range guards {
		for bodyName, make := range bodies {
			for parseName, parse := range parses {
				t.Run(guardName+" "+bodyName+" "+parseName, func(t *testing.T) {
					s := newServiceOn(t, tokend)
					run := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						data, err := io.ReadAll(r.Body)
						if err != nil || len(data) == 0 && len(r.PostForm) == 0 && r.MultipartForm == nil {
							t.Errorf("the handler finds nothing of the body: %v", err)
						}
						s.run(w, r)
					})
					h := guarded(s, run)
					token := s.token()
					for n := range 2 {
						r := make(token)
						parse(r)
						w := send(h, r)
						if guardName == "Once" && n == 1 {
							wantProblem(t, w, 409, "token_used", client.NextStop)
						} else {
							wantAnswer(t, w, http.StatusCreated, "run 1")
						}
					}
					s.wantRuns(1)
				})
			}
		}
	}
}

// A request without a body, made by hand, is one with an empty body.
func TestNoBodyAtAll(t *testing.T) {
	t.Parallel()
	s := newService(t)
	n := 0
	for name, guarded := range map[string]func(http.Handler, ...guard.Option) http.Handler{"Once": s.guard.Once, "Replay": s.guard.Replay} {
		for _, contentType := range []string{"", "application/json", "application/x-www-form-urlencoded", "multipart/form-data; boundary=B"} {
			for _, header := range []bool{false, true} {
				r, err := http.NewRequest(http.MethodPost, "/orders", nil)
				if err != nil {
					t.Fatal(err)
				}
				r.Body = nil
				r.Header.Set("Content-Type", contentType)
				r.Header.Set("X-Test-User", user)
				if header {
					r.Header.Set(guard.HeaderToken, s.token())
				}
				w := send(guarded(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if data, err := io.ReadAll(r.Body); len(data) > 0 || err != nil {
						t.Errorf("%s %s: the handler read %q, %v", name, contentType, data, err)
					}
					if name == "Once" {
						s.work(w, r)
						return
					}
					s.run(w, r)
				})), r)
				broken := strings.HasPrefix(contentType, "multipart") && (name == "Replay" || !header) || contentType == "application/json" && !header
				switch {
				case broken:
					if w.Code != 400 {
						t.Errorf("%s %s %t: %d %s", name, contentType, header, w.Code, w.Body)
					}
				case header:
					n++
					wantAnswer(t, w, http.StatusCreated, fmt.Sprint("run ", n))
				default:
					wantProblem(t, w, 400, guard.CodeTokenMissing, client.NextReissue)
				}
			}
		}
	}
}

// ParseForm does not read the body of a DELETE; and where it has read one of which nothing
// can be made, there is no token in it.
func TestParsedInVain(t *testing.T) {
	t.Parallel()
	s := newService(t)
	for _, h := range []http.Handler{
		s.guard.Once(http.HandlerFunc(s.work)),
		s.guard.Replay(http.HandlerFunc(s.run), guard.Optional()),
	} {
		token := s.token()
		r := form(token)
		r.Method = http.MethodDelete
		r.ParseForm()
		if w := send(h, r); w.Code != http.StatusCreated {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		if state := s.state(token); state == client.StateIssued {
			t.Errorf("the work was done, and the token is %s", state)
		}
	}
	r := submission("application/x-www-form-urlencoded", "a=%zz")
	r.ParseForm()
	wantProblem(t, send(s.guard.Once(http.HandlerFunc(s.work)), r), 400, guard.CodeTokenMissing, client.NextReissue)
}

// A reader of the parts leaves an empty form behind, which does not stand for the body: any
// other would be the same.
func TestPartsReadBefore(t *testing.T) {
	t.Parallel()
	s := newService(t, guard.IdempotencyKey())
	h := s.guard.Replay(http.HandlerFunc(s.run))
	r := submission(parts(t, "B", "a", "1"))
	r.Header.Set("Idempotency-Key", "k")
	m, err := r.MultipartReader()
	for err == nil {
		_, err = m.NextPart()
	}
	wantProblem(t, send(h, r), 500, wire.CodeInternal, client.NextWait)
	s.wantRuns(0)
}
