// Package browser is the script that sends a form as one submission, however often it is
// sent. It depends on nothing; its own head comment, in tokend.js, is its manual. tokend
// serves it, and so may any form service:
//
//	mux.HandleFunc("GET /tokend.js", func(w http.ResponseWriter, r *http.Request) {
//		w.Header().Set("Content-Type", browser.ContentType)
//		w.Write(browser.Module())
//	})
package browser

import (
	_ "embed"
	"strings"
)

// ContentType is the script's (RFC 9239).
const ContentType = "text/javascript; charset=utf-8"

//go:embed tokend.js
var module string

// The two ways of giving a page what the script has: as a module's export, and as a member
// of a global object.
const (
	exported = "\nexport { protect };\n"
	global   = "\nglobalThis.tokend = { protect };\n"
)

// Module returns the script as an ES module, which exports protect.
func Module() []byte { return []byte(module) }

// Global returns the script for a plain script element: it makes protect a member of the
// global object tokend, and nothing else.
func Global() []byte {
	body := strings.TrimSuffix(module, exported)
	return []byte("(() => {\n'use strict';\n" + body + global + "})();\n")
}
