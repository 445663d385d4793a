package wire

// What carries a token from the page to the service that it protects. package guard, the
// script for browsers and gateways share these names.
const (
	HeaderToken = "Tokend-Token" // of a script's request; it goes before the field
	FieldToken  = "tokend_token" // in a form, or at the top of a JSON object; never in a URL
)

// HeaderBodyOmitted stands in a replay whose body was too long to be kept.
const HeaderBodyOmitted = "Tokend-Body-Omitted"
