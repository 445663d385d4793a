package wire

// PathGateway is where gateways ask whether a request of theirs is let through; so is every
// path below it, as some append the path that they were asked for.
const PathGateway = "/v1/gateway/consume"

// What a gateway sends besides the headers of the request that it asks about.
const (
	HeaderGatewayKey      = "Tokend-Authorization" // its own service key, as Authorization would hold it
	HeaderForwardedMethod = "X-Forwarded-Method"   // the request's own method
	HeaderOriginalMethod  = "X-Original-Method"    // the same, of other gateways
)

// What a gateway is told. A refusal is 403 and a fault 503, whatever else they would be:
// gateways tell few statuses apart.
const (
	HeaderStatus = "Tokend-Status" // the status that it would be
	HeaderCode   = "Tokend-Code"
	HeaderNext   = "Tokend-Next" // what the sender can do; never NextRetry
	HeaderRef    = "Tokend-Ref"  // of a token that could be read; stands where it was consumed too
)
