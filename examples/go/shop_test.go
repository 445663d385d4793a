package main

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"example.com/tokend/client"
	"example.com/tokend/client/clienttest"
)

// send asks h for the form as alice; a form makes it a POST.
func send(ctx context.Context, h http.Handler, form url.Values) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, "/orders/new", nil)
	if form != nil {
		r = httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(form.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	r.Header.Set("Accept", "text/html")
	r.Header.Set("X-User", "alice")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r.WithContext(ctx))
	return w
}

var formToken = regexp.MustCompile(`name="tokend_token" autocomplete="off" value="(ott_[A-Za-z0-9_-]+)"`)

// tokenOf returns the token in the form that w shows.
func tokenOf(w *httptest.ResponseRecorder) string {
	m := formToken.FindStringSubmatch(w.Body.String())
	if m == nil {
		return ""
	}
	return m[1]
}

// TestForm runs the README's form service against a tokend.
func TestForm(t *testing.T) {
	t.Parallel()
	tokend := clienttest.New(t)
	atOnce := client.Backoff(func(int, time.Duration) time.Duration { return 0 })
	s, err := newShop(tokend.URL, tokend.ServiceKey, atOnce)
	if err != nil {
		t.Fatal(err)
	}
	open := func() url.Values {
		t.Helper()
		w := send(t.Context(), s, nil)
		if tokenOf(w) == "" || w.Header().Get("Cache-Control") != "no-store" {
			t.Fatalf("no form: %d %v %s", w.Code, w.Header(), w.Body)
		}
		return url.Values{"tokend_token": {tokenOf(w)}, "item": {"tea"}}
	}
	want := func(what string, form url.Values, status, made int) *httptest.ResponseRecorder {
		t.Helper()
		w := send(t.Context(), s, form)
		if w.Code != status || len(s.orders.rows) != made {
			t.Errorf("%s: %d with %d orders, want %d with %d\n%s", what, w.Code, len(s.orders.rows), status, made, w.Body)
		}
		return w
	}

	form := open()
	form.Set("item", "")
	if w := want("with a mistake", form, http.StatusUnprocessableEntity, 0); tokenOf(w) != form.Get("tokend_token") {
		t.Errorf("a form with a mistake comes back with the token %q, want its own", tokenOf(w))
	}
	form.Set("item", "tea")
	first := want("mended", form, http.StatusSeeOther, 1).Header().Get("Location")
	if second := want("sent twice", form, http.StatusSeeOther, 1).Header().Get("Location"); second != first {
		t.Errorf("the second submission leads to %q, the first to %q", second, first)
	}
	clear(s.orders.rows)
	want("sent twice, the first one not done", form, http.StatusConflict, 0)

	late := open()
	tokend.Advance(time.Hour)
	w := want("expired", late, http.StatusGone, 0)
	if fresh := tokenOf(w); fresh == "" || fresh == late.Get("tokend_token") {
		t.Errorf("an expired form comes back with the token %q, want a fresh one", fresh)
	}
	late.Set("tokend_token", tokenOf(w))
	want("sent again with the fresh token", late, http.StatusSeeOther, 1)
	want("forged", url.Values{"tokend_token": {"ott_x"}, "item": {"tea"}}, http.StatusBadRequest, 1)
	lost := open()
	tokend.LoseData()
	want("lost", lost, http.StatusGone, 1)

	form = open()
	tokend.LoseReplies(2)
	want("lost replies", form, http.StatusSeeOther, 2)
	form = open()
	tokend.LoseReplies(100)
	want("all replies lost", form, http.StatusServiceUnavailable, 2)
	tokend.LoseReplies(0)
	form = open()
	tokend.Close()
	want("no tokend", form, http.StatusServiceUnavailable, 2)
	if w := send(t.Context(), s, nil); w.Code != http.StatusServiceUnavailable {
		t.Errorf("a form without tokend: %d", w.Code)
	}
}

// TestFormSecondClick has the browser give the first request up before it is looked at, as it
// may when a second click takes its place: then the second one makes the order.
func TestFormSecondClick(t *testing.T) {
	t.Parallel()
	tokend := clienttest.New(t)
	s, err := newShop(tokend.URL, tokend.ServiceKey)
	if err != nil {
		t.Fatal(err)
	}
	form := url.Values{"tokend_token": {tokenOf(send(t.Context(), s, nil))}, "item": {"tea"}}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	send(gone, s, form)
	if w := send(t.Context(), s, form); w.Code != http.StatusSeeOther || len(s.orders.rows) != 1 {
		t.Errorf("the second click: %d with %d orders, want one", w.Code, len(s.orders.rows))
	}
}

// TestFormOwnFault: a service that tokend does not let in must not tell its users that their
// page is at fault.
func TestFormOwnFault(t *testing.T) {
	t.Parallel()
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil)))
	s, err := newShop(clienttest.New(t).URL, "tsk_not-a-key")
	if err != nil {
		t.Fatal(err)
	}
	if w := send(t.Context(), s, url.Values{"tokend_token": {"ott_x"}, "item": {"tea"}}); w.Code != http.StatusInternalServerError {
		t.Errorf("with a wrong service key: %d %s", w.Code, w.Body)
	}
}

// TestShopOverHTTP opens and sends the form as a browser does: what it is to show must come as
// HTML, with a mistake and after a refusal too, and a double click ends at the one order.
func TestShopOverHTTP(t *testing.T) {
	t.Parallel()
	tokend := clienttest.New(t)
	s, err := newShop(tokend.URL, tokend.ServiceKey)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(site(s))
	t.Cleanup(server.Close)
	var page string
	ask := func(form url.Values, status int, mediaType string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/orders/new", nil)
		if form != nil {
			r, err = http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/orders", strings.NewReader(form.Encode()))
		}
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Accept", "text/html")
		resp, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if got := resp.Header.Get("Content-Type"); err != nil || resp.StatusCode != status || got != mediaType+"; charset=utf-8" {
			t.Errorf("%v: %d %q, %v, want %d %s\n%s", form, resp.StatusCode, got, err, status, mediaType, body)
		}
		page = string(body)
	}
	form := func() url.Values {
		t.Helper()
		m := formToken.FindStringSubmatch(page)
		if m == nil {
			t.Fatalf("no form in %s", page)
		}
		return url.Values{"tokend_token": {m[1]}}
	}
	ask(nil, http.StatusOK, "text/html")
	ask(form(), http.StatusUnprocessableEntity, "text/html")
	ask(url.Values{"tokend_token": {"ott_x"}, "item": {"tea"}}, http.StatusBadRequest, "text/html")
	order := form()
	order.Set("item", "tea")
	ask(order, http.StatusOK, "text/plain")
	first := page
	if ask(order, http.StatusOK, "text/plain"); page != first || !strings.HasSuffix(page, ": tea\n") {
		t.Errorf("the second click ends at %q, the first at %q", page, first)
	}
}
