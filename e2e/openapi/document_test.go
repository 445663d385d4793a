package openapi_test

import (
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/pb33f/libopenapi"
	validator "github.com/pb33f/libopenapi-validator"
	"github.com/pb33f/libopenapi-validator/config"
	"github.com/pb33f/libopenapi-validator/errors"
	"github.com/pb33f/libopenapi-validator/schema_validation"
	"github.com/pb33f/libopenapi/datamodel/high/base"
	v3 "github.com/pb33f/libopenapi/datamodel/high/v3"
	"go.yaml.in/yaml/v3"

	"example.com/tokend/httpapi/wire"
)

// document is the description, as the service serves it.
type document struct {
	validator.Validator
	*v3.Document
}

// readDocument reads the description from s. The validator lets no answer have a member or
// header that is not described, although the document lets clients expect more.
func readDocument(t *testing.T, s *service) document {
	t.Helper()
	resp, err := http.Get(s.http.URL + wire.PathOpenAPI)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := libopenapi.NewDocument(closed(t, b))
	if err != nil {
		t.Fatal(err)
	}
	v, errs := validator.NewValidator(doc, config.WithFormatAssertions(), config.WithStrictMode(),
		config.WithStrictIgnorePaths("$.body.**"), // strict mode takes members of an allOf in a oneOf for unknown
		config.WithStrictIgnoredHeaders("Accept", "Accept-Encoding", "Authorization", "Connection", "Content-Length",
			"Content-Type", "Date", "Host", "User-Agent", "X-Content-Type-Options"),
	)
	if errs != nil {
		t.Fatal(errs)
	}
	t.Cleanup(v.Release)
	model, err := doc.BuildV3Model()
	if err != nil {
		t.Fatal(err)
	}
	return document{v, &model.Model}
}

// closed returns the document b with schemas that take no other members than those listed.
func closed(t *testing.T, b []byte) []byte {
	t.Helper()
	var doc map[string]any
	if err := yaml.Unmarshal(b, &doc); err != nil {
		t.Fatal(err)
	}
	for name, schema := range doc["components"].(map[string]any)["schemas"].(map[string]any) {
		is := schema.(map[string]any)
		if name != "Problem" && (is["properties"] != nil || is["allOf"] != nil) { // Problem is what others are made of
			is["unevaluatedProperties"] = false
		}
	}
	b, err := yaml.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// why returns what errs say, to be shown by a test.
func why(errs []*errors.ValidationError) string {
	var b strings.Builder
	for _, e := range errs {
		b.WriteString("\n\t" + e.Message + ": " + e.Reason)
		for _, s := range e.SchemaValidationErrors {
			b.WriteString("\n\t\t" + s.FieldPath + ": " + s.Reason)
		}
	}
	return b.String()
}

// answer is one that an operation may give: with a status, and one of the words that tell
// such answers apart (a code, a state, an outcome, or the media type where it is not JSON);
// none where there are no such words.
type answer struct {
	operation string // "POST /v1/tokens"
	status    int
	word      string
}

// answers returns all answers that d promises.
func (d document) answers(t *testing.T) map[answer]bool {
	t.Helper()
	all := make(map[answer]bool)
	for path, item := range d.Paths.PathItems.FromOldest() {
		for method, op := range item.GetOperations().FromOldest() {
			for code, resp := range op.Responses.Codes.FromOldest() {
				status, err := strconv.Atoi(code)
				if err != nil {
					t.Fatalf("%s %s: a response is called %q", method, path, code)
				}
				for _, word := range wordsOfResponse(resp) {
					all[answer{strings.ToUpper(method) + " " + path, status, word}] = true
				}
			}
		}
	}
	return all
}

func wordsOfResponse(resp *v3.Response) (words []string) {
	for typ, media := range resp.Content.FromOldest() {
		if !isJSON(typ) {
			words = append(words, typ)
			continue
		}
		words = append(words, wordsOfSchema(media.Schema.Schema())...)
	}
	if len(words) == 0 {
		words = []string{""}
	}
	return words
}

func isJSON(typ string) bool { return typ == wire.TypeJSON || typ == wire.TypeProblem }

// tellApart are the members whose values are words.
var tellApart = []string{"code", "state", "outcome"}

func wordsOfSchema(s *base.Schema) (words []string) {
	for _, kind := range [][]*base.SchemaProxy{s.OneOf, s.AllOf} {
		for _, part := range kind {
			words = append(words, wordsOfSchema(part.Schema())...)
		}
	}
	for name, member := range s.Properties.FromOldest() { // which is nil where there are none
		switch is := member.Schema(); {
		case name == "results":
			words = append(words, wordsOfSchema(is.Items.A.Schema())...)
		case !slices.Contains(tellApart, name):
		case is.Const != nil:
			words = append(words, is.Const.Value)
		default:
			for _, e := range is.Enum {
				words = append(words, e.Value)
			}
		}
	}
	return words
}

func TestDocument(t *testing.T) {
	d := readDocument(t, newService(t))
	if ok, errs := d.ValidateDocument(); !ok {
		t.Errorf("not a document in OpenAPI 3.1:%s", why(errs))
	}
}

// TestExamples holds each example to the schema that it stands beside, and each place where
// one may stand to have one.
func TestExamples(t *testing.T) {
	d := readDocument(t, newService(t))
	check := func(where string, content iterMedia) {
		for typ, media := range content {
			if !isJSON(typ) {
				continue
			}
			if media.Examples.Len() == 0 {
				t.Errorf("%s: no example", where)
			}
			for name, example := range media.Examples.FromOldest() {
				checkExample(t, where+": "+name, media.Schema.Schema(), example.Value.Decode)
			}
		}
	}
	for path, item := range d.Paths.PathItems.FromOldest() {
		for method, op := range item.GetOperations().FromOldest() {
			if op.RequestBody != nil {
				check(method+" "+path, op.RequestBody.Content.FromOldest())
			}
			for code, resp := range op.Responses.Codes.FromOldest() {
				check(method+" "+path+" "+code, resp.Content.FromOldest())
			}
		}
	}
	for name, resp := range d.Components.Responses.FromOldest() {
		check(name, resp.Content.FromOldest())
	}
}

type iterMedia = func(yield func(string, *v3.MediaType) bool)

func checkExample(t *testing.T, where string, schema *base.Schema, decode func(any) error) {
	t.Helper()
	var value any
	if err := decode(&value); err != nil {
		t.Errorf("%s: %v", where, err)
		return
	}
	v := schema_validation.NewSchemaValidator(config.WithFormatAssertions())
	if ok, errs := v.ValidateSchemaString(schema, encode(value)); !ok {
		t.Errorf("%s does not fit its schema:%s", where, why(errs))
	}
}
