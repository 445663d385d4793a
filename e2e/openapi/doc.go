// Package openapi holds the API's description, httpapi/openapi.yaml, to what the service
// does: every exchange of a broad table is validated against it, and every answer that it
// promises must come up in the table.
//
// It has tests only, and is in this module since what validates the document has many
// dependencies.
package openapi
