package httpapi

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html/template"
	"sync"
	texttemplate "text/template"

	"example.com/tokend/httpapi/wire"
)

// problemPage is what /problems/{code} shows, in both forms.
type problemPage struct{ html, text []byte }

// problemPages returns the page of every code. Nothing of a request is ever in them, so
// they are made once.
var problemPages = sync.OnceValue(func() map[wire.Code]problemPage {
	pages := make(map[wire.Code]problemPage)
	for _, kind := range wire.Kinds() {
		data := struct {
			wire.Kind
			NextMeans string
			explanation
			Style template.CSS
		}{kind, nextMeans[kind.Next], explanations[kind.Code], template.CSS(pageStyle)}
		var html, text bytes.Buffer
		if err := htmlPage.Execute(&html, data); err != nil {
			panic(err)
		}
		if err := textPage.Execute(&text, data); err != nil {
			panic(err)
		}
		pages[kind.Code] = problemPage{html.Bytes(), text.Bytes()}
	}
	return pages
})

var (
	//go:embed problem.html
	htmlSource string
	//go:embed problem.txt
	textSource string
	//go:embed problem.css
	pageStyle string

	htmlPage = template.Must(template.New("problem.html").Parse(htmlSource))
	textPage = texttemplate.Must(texttemplate.New("problem.txt").Parse(textSource))

	// pagePolicy lets a page have its own style and nothing else: no script, no picture,
	// no frame around it.
	pagePolicy = []string{"default-src 'none'; style-src '" + hashSource(pageStyle) + "'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"}
)

// hashSource returns the source expression of CSP that allows exactly text.
func hashSource(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}
