package guard_test

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io"
	"log"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"

	"github.com/labstack/echo/v4"

	"example.com/tokend/client"
	"example.com/tokend/client/clienttest"
	"example.com/tokend/client/guard"
)

// newForms starts a tokend for an example.
func newForms() (forms client.Purpose, stop func()) {
	s, err := clienttest.Start()
	if err != nil {
		log.Fatal(err)
	}
	return s.Client().Purpose("order.create"), s.Close
}

// browser is somebody at a browser.
type browser struct {
	http *http.Client
	url  string
}

func newBrowser(h http.Handler) (b browser, stop func()) {
	srv := httptest.NewServer(h)
	jar, err := cookiejar.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	b = browser{&http.Client{
		Jar: jar, Transport: srv.Client().Transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, srv.URL}
	return b, srv.Close
}

var tokenField = regexp.MustCompile(`name="tokend_token" autocomplete="off" value="([^"]+)"`)

// open loads a page and returns its form.
func (b browser) open(path string) url.Values {
	resp, err := b.http.Get(b.url + path)
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	return formOf(resp.Body)
}

func formOf(page io.Reader) url.Values {
	text, err := io.ReadAll(page)
	if err != nil {
		log.Fatal(err)
	}
	m := tokenField.FindSubmatch(text)
	if m == nil {
		log.Fatalf("no form in %s", text)
	}
	return url.Values{"tokend_token": {string(m[1])}}
}

// send sends a form in, and prints what came of it.
func (b browser) send(path string, form url.Values, header ...string) {
	r, err := http.NewRequest(http.MethodPost, b.url+path, strings.NewReader(form.Encode()))
	if err != nil {
		log.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := b.http.Do(r)
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	fmt.Println(strings.TrimSpace(fmt.Sprint(resp.StatusCode, " ", resp.Header.Get("Location"))))
}

// requireLogin stands around the guard: it is asked for repeats too.
func requireLogin(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := r.Cookie("session"); err != nil {
			http.Error(w, "Please log in.", http.StatusUnauthorized)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// loggedIn returns who is logged in, as the service's session store has it.
func loggedIn(*http.Request) string { return "alice" }

// A form of a service with a login, on the standard mux.
func Example() {
	forms, stop := newForms() // elsewhere: client.New("https://tokend.internal", …).Purpose("order.create")
	defer stop()
	page := template.Must(template.New("").Parse(`<!doctype html><title>Order</title><form method="post" action="/orders">{{.}}<input name="item"></form>`))
	show := func(w http.ResponseWriter, r *http.Request) { page.Execute(w, guard.Field(r.Context())) }
	create := func(w http.ResponseWriter, r *http.Request) {
		if r.PostFormValue("item") == "" { // nothing is used up: the form again, with the token that it has
			w.WriteHeader(http.StatusUnprocessableEntity)
			show(w, r)
			return
		}
		if err := guard.Consume(r.Context()); err != nil {
			return // the guard answers
		}
		// The order gets a unique column for the ref: the last fence, and how it is found again.
		http.Redirect(w, r, "/orders/1", http.StatusSeeOther)
	}

	g := guard.New(forms, guard.User(loggedIn), guard.Page(func(w http.ResponseWriter, r *http.Request, no *guard.Refused) {
		if errors.Is(no, client.ErrUsed) { // a double click: what the first one made, by its ref
			http.Redirect(w, r, "/orders/1", http.StatusSeeOther)
			return
		}
		show(w, r) // with a fresh token, for a person to send
	}))
	mux := http.NewServeMux()
	mux.Handle("POST /login", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.SetCookie(w, &http.Cookie{Name: "session", Value: rand.Text()})
	}))
	mux.Handle("GET /orders/new", requireLogin(g.Issue(http.HandlerFunc(show))))
	mux.Handle("POST /orders", requireLogin(g.Once(http.HandlerFunc(create))))

	b, stopServer := newBrowser(mux)
	defer stopServer()
	b.send("/orders", url.Values{})
	b.send("/login", url.Values{})
	form := b.open("/orders/new")
	b.send("/orders", form) // with a mistake
	form.Set("item", "tea")
	b.send("/orders", form)                        // mended
	b.send("/orders", form, "Accept", "text/html") // and sent again
	b.send("/orders", form)                        // by a script, which takes a problem
	// Output:
	// 401
	// 200
	// 422
	// 303 /orders/1
	// 303 /orders/1
	// 409
}

// A form without a login binds its token to a session made for it: a random ID in a cookie
// that scripts cannot read.
func ExampleGuard_Issue() {
	forms, stop := newForms()
	defer stop()
	const cookie = "form_session"
	session := func(r *http.Request) string {
		c, err := r.Cookie(cookie)
		if err != nil {
			return ""
		}
		return "session:" + c.Value
	}
	withSession := func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if session(r) == "" {
				c := &http.Cookie{
					Name: cookie, Value: rand.Text(), Path: "/", MaxAge: 3600,
					HttpOnly: true, Secure: r.TLS != nil, SameSite: http.SameSiteLaxMode,
				}
				http.SetCookie(w, c)
				r.AddCookie(c) // for this request's own guard
			}
			h.ServeHTTP(w, r)
		})
	}

	g := guard.New(forms, guard.User(session))
	mux := http.NewServeMux()
	mux.Handle("GET /contact", withSession(g.Issue(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `<!doctype html><title>Contact</title><form method="post">%s</form>`, guard.Field(r.Context()))
	}))))
	mux.Handle("POST /contact", g.Once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "sent") // nothing in it can be wrong
	}), guard.ConsumeFirst()))

	alice, stopServer := newBrowser(mux)
	defer stopServer()
	form := alice.open("/contact")
	other := alice
	other.http = &http.Client{Transport: alice.http.Transport} // no cookies
	other.send("/contact", form)
	alice.send("/contact", form)
	alice.send("/contact", form)
	// Output:
	// 401
	// 200
	// 409
}

// echoMiddleware makes Echo's middleware of a guard's. An error of the handler is written
// here, inside the guard: Echo itself would write it when the guard has taken it for an empty
// 200.
func echoMiddleware(guarded func(http.Handler) http.Handler) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return echo.WrapMiddleware(guarded)(func(c echo.Context) error {
			if err := next(c); err != nil {
				c.Error(err)
			}
			return nil
		})
	}
}

// Under Echo.
func Example_echo() {
	forms, stop := newForms()
	defer stop()
	g := guard.New(forms, guard.User(loggedIn))
	issue := echoMiddleware(func(h http.Handler) http.Handler { return g.Issue(h) })
	once := echoMiddleware(func(h http.Handler) http.Handler { return g.Once(h) })

	e := echo.New()
	e.GET("/orders/new", func(c echo.Context) error {
		return c.HTML(http.StatusOK, "<form>"+string(guard.Field(c.Request().Context()))+"</form>")
	}, issue) // a login's middleware stands before it
	e.POST("/orders", func(c echo.Context) error {
		if c.FormValue("item") == "" {
			return echo.NewHTTPError(http.StatusUnprocessableEntity, "which item?")
		}
		if err := guard.Consume(c.Request().Context()); err != nil {
			guard.Refuse(c.Response(), c.Request(), err)
			return nil
		}
		return c.Redirect(http.StatusSeeOther, "/orders/1")
	}, once)

	b, stopServer := newBrowser(e)
	defer stopServer()
	form := b.open("/orders/new")
	b.send("/orders", form)
	form.Set("item", "tea")
	b.send("/orders", form)
	b.send("/orders", form)
	// Output:
	// 422
	// 303 /orders/1
	// 409
}

// chi takes func(http.Handler) http.Handler as it is, and so does every router that does:
//
//	r := chi.NewRouter()
//	r.With(requireLogin, once).Post("/orders", create)
func Example_chi() {
	forms, stop := newForms()
	defer stop()
	g := guard.New(forms, guard.User(loggedIn))
	issue := func(h http.Handler) http.Handler { return g.Issue(h) }
	once := func(h http.Handler) http.Handler { return g.Once(h) }

	show := func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, string(guard.Field(r.Context()))) }
	create := func(w http.ResponseWriter, r *http.Request) {
		if guard.Consume(r.Context()) == nil {
			w.WriteHeader(http.StatusCreated)
		}
	}
	mux := http.NewServeMux()
	mux.Handle("GET /orders/new", issue(http.HandlerFunc(show)))
	mux.Handle("POST /orders", once(http.HandlerFunc(create)))
	b, stopServer := newBrowser(mux)
	defer stopServer()
	form := b.open("/orders/new")
	b.send("/orders", form)
	b.send("/orders", form)
	// Output:
	// 201
	// 409
}

// A script fetches its token from the service, by POST, and sends it in a header.
func ExampleGuard_IssueHandler() {
	forms, stop := newForms()
	defer stop()
	g := guard.New(forms, guard.User(loggedIn))
	mux := http.NewServeMux()
	mux.Handle("POST /token", g.IssueHandler())
	mux.Handle("POST /api/orders", g.Once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if guard.Consume(r.Context()) == nil {
			w.WriteHeader(http.StatusCreated)
		}
	})))
	b, stopServer := newBrowser(mux)
	defer stopServer()

	resp, err := b.http.Post(b.url+"/token", "", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		log.Fatal(err)
	}
	token := strings.Split(string(answer), `"`)[3] // {"token":"ott_…", …
	b.send("/api/orders", url.Values{}, guard.HeaderToken, token)
	b.send("/api/orders", url.Values{}, guard.HeaderToken, token)
	// Output:
	// 201
	// 409
}

// A payment: its repeats get the first answer, and the card is charged once.
func ExampleGuard_Replay() {
	forms, stop := newForms()
	defer stop()
	g := guard.New(forms, guard.User(loggedIn))
	charges := 0
	pay := func(w http.ResponseWriter, r *http.Request) {
		if r.PostFormValue("card") == "" { // 4xx: nothing was done, and the token stays good
			http.Error(w, "which card?", http.StatusUnprocessableEntity)
			return
		}
		if err := guard.Commit(r.Context()); err != nil {
			return // nothing may be done; the guard answers
		}
		charges++ // guard.Ref(ctx) is what the bank may be told as its idempotency key
		w.Header().Set("Location", fmt.Sprint("/payments/", charges))
		w.WriteHeader(http.StatusSeeOther)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /pay", g.Issue(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, string(guard.Field(r.Context())))
	})))
	mux.Handle("POST /pay", g.Replay(http.HandlerFunc(pay)))

	b, stopServer := newBrowser(mux)
	defer stopServer()
	form := b.open("/pay")
	b.send("/pay", form)
	form.Set("card", "4242")
	b.send("/pay", form)
	b.send("/pay", form)
	fmt.Println(charges, "charge")
	// Output:
	// 422
	// 303 /payments/1
	// 303 /payments/1
	// 1 charge
}

// A callback has no login. Its signature is checked around the guard, its event's ID is the
// key, and its user is whoever sends it.
func ExampleKeyFunc() {
	forms, stop := newForms()
	defer stop()
	type event struct{ ID, Account string }
	read := func(body []byte) (e event, err error) { return e, json.Unmarshal(body, &e) }
	g := guard.New(forms.Client().Purpose("payment.callback"))
	handled := 0
	callback := g.Replay(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			handled++
			w.WriteHeader(http.StatusNoContent)
		}),
		guard.KeyFunc(func(r *http.Request, body []byte) (string, error) {
			e, err := read(body)
			return e.ID, err
		}),
		guard.UserFunc(func(r *http.Request, body []byte) (string, error) {
			e, err := read(body)
			return "stripe:" + e.Account, err
		}),
		// What changes from one resend to the next, the time of sending say, is left out.
		guard.DigestFunc(func(r *http.Request, body []byte) ([]byte, error) {
			e, err := read(body)
			return []byte(e.Account), err
		}),
	)
	for range 2 {
		r := httptest.NewRequest(http.MethodPost, "/stripe", strings.NewReader(`{"ID":"evt_1","Account":"acct_1"}`))
		w := httptest.NewRecorder()
		callback.ServeHTTP(w, r)
		fmt.Println(w.Code, w.Header().Get("Idempotent-Replayed") == "true")
	}
	fmt.Println(handled, "event")
	// Output:
	// 204 false
	// 204 true
	// 1 event
}
