// Package wire holds what tokend's server and its clients say to each other: requests,
// responses, header names, and the one table that pairs a code with its status and next.
// It imports the standard library only.
//
// In requests a nil member is left out. In responses every member listed stands, empty
// ones too; a client ignores members that it does not know.
package wire

import (
	"encoding/json"
	"fmt"
	"time"
)

// Header names that are not net/http's own.
const (
	HeaderRequestID          = "X-Request-Id"
	HeaderIdempotencyKey     = "Idempotency-Key"
	HeaderIdempotentReplayed = "Idempotent-Replayed"
)

// Media types.
const (
	TypeJSON    = "application/json"
	TypeProblem = "application/problem+json"
)

// Paths of the calls.
const (
	PathTokens       = "/v1/tokens"
	PathBatch        = "/v1/tokens/batch"
	PathConsume      = "/v1/tokens/consume"
	PathConsumeBatch = "/v1/tokens/consume/batch"
	PathStatus       = "/v1/tokens/status"
	PathRevoke       = "/v1/tokens/revoke"
	PathClaims       = "/v1/claims"
	PathClaimStatus  = "/v1/claims/status"
	PathLivez        = "/livez"
	PathReadyz       = "/readyz"
	PathOpenAPI      = "/openapi.yaml"
	PathScript       = "/tokend.js"        // for browsers, as a module
	PathScriptGlobal = "/tokend.global.js" // the same for a plain script element
	PathMetrics      = "/metrics"          // of the admin listener
)

// PathClaim returns the path of a claim, which its release goes to.
func PathClaim(claim string) string { return PathClaims + "/" + claim }

// PathCommit returns the path of a claim's commit.
func PathCommit(claim string) string { return PathClaim(claim) + "/commit" }

// PathRenew returns the path of a claim's renewal.
func PathRenew(claim string) string { return PathClaim(claim) + "/renew" }

// PathResult returns the path of a claim's result, which completes it.
func PathResult(claim string) string { return PathClaim(claim) + "/result" }

// Scopes of services.
const (
	ScopeIssue   = "tokend.issue"
	ScopeConsume = "tokend.consume"
)

// ProblemTypePrefix and a code make a problem's type.
const ProblemTypePrefix = "/problems/"

// Time is an instant on the wire: RFC 3339 in UTC with milliseconds.
type Time struct{ t time.Time }

// TimeOf returns t for the wire.
func TimeOf(t time.Time) Time { return Time{t.UTC()} }

// Time returns the instant.
func (t Time) Time() time.Time { return t.t }

// IsZero tells whether t is left out.
func (t Time) IsZero() bool { return t.t.IsZero() }

// String returns t as it stands on the wire.
func (t Time) String() string {
	b, _ := t.AppendText(make([]byte, 0, len("2006-01-02T15:04:05.000Z")))
	return string(b)
}

// MarshalText writes t as it stands on the wire.
func (t Time) MarshalText() ([]byte, error) { return t.AppendText(nil) }

// AppendText appends t as it stands on the wire.
func (t Time) AppendText(b []byte) ([]byte, error) {
	// Whole seconds have a fast way in time; a layout with milliseconds is interpreted.
	b = t.t.AppendFormat(b, time.RFC3339)
	ms := t.t.Nanosecond() / 1e6
	return append(b[:len(b)-1], '.', '0'+byte(ms/100), '0'+byte(ms/10%10), '0'+byte(ms%10), 'Z'), nil
}

// UnmarshalText reads any RFC 3339 time.
func (t *Time) UnmarshalText(b []byte) error {
	got, err := time.Parse(time.RFC3339Nano, string(b))
	if err != nil {
		return fmt.Errorf("not an RFC 3339 time")
	}
	t.t = got.UTC()
	return nil
}

// IssueRequest is the body of POST /v1/tokens.
type IssueRequest struct {
	Purpose *string `json:"purpose,omitzero"`
	TTL     *int64  `json:"ttl,omitzero"` // seconds
	User    *string `json:"user,omitzero"`
}

// IssueResponse answers POST /v1/tokens.
type IssueResponse struct {
	Token     string `json:"token"`
	Ref       string `json:"ref"`
	User      string `json:"user"`
	Purpose   string `json:"purpose"`
	IssuedAt  Time   `json:"issued_at"`
	ExpiresAt Time   `json:"expires_at"`
	TTL       int64  `json:"ttl"` // seconds
}

// BatchMax is how many tokens a batch issues or consumes at most.
const BatchMax = 100

// IssueBatchRequest is the body of POST /v1/tokens/batch.
type IssueBatchRequest struct {
	Count   *int64  `json:"count,omitzero"` // 1 to BatchMax
	Purpose *string `json:"purpose,omitzero"`
	TTL     *int64  `json:"ttl,omitzero"` // seconds
	User    *string `json:"user,omitzero"`
}

// IssueBatchResponse answers POST /v1/tokens/batch.
type IssueBatchResponse struct {
	Tokens []IssueResponse `json:"tokens"`
}

// ConsumeRequest is the body of POST /v1/tokens/consume, and an item of a batch.
type ConsumeRequest struct {
	Token   *string `json:"token,omitzero"`
	User    *string `json:"user,omitzero"`
	Purpose *string `json:"purpose,omitzero"`
	Digest  *string `json:"digest,omitzero"`
	Attempt *string `json:"attempt,omitzero"`
}

// OutcomeConsumed is the outcome of a successful consume.
const OutcomeConsumed = "consumed"

// ConsumeResponse answers POST /v1/tokens/consume.
type ConsumeResponse struct {
	Outcome  string `json:"outcome"` // OutcomeConsumed
	Ref      string `json:"ref"`
	User     string `json:"user"`
	Purpose  string `json:"purpose"`
	UsedAt   Time   `json:"used_at"`
	Takeover bool   `json:"takeover"`
	Replayed bool   `json:"replayed"`
}

// ConsumeBatchRequest is the body of POST /v1/tokens/consume/batch.
type ConsumeBatchRequest struct {
	Items []ConsumeRequest `json:"items"` // 1 to BatchMax
}

// ConsumeBatchResponse answers POST /v1/tokens/consume/batch: a result for each item, in
// their order.
type ConsumeBatchResponse struct {
	Results []ConsumeResult `json:"results"`
}

// ConsumeResult is what the single call would have answered to one item: one of the two.
type ConsumeResult struct {
	Consumed *ConsumeResponse
	Problem  *Problem
}

// MarshalJSON writes the one that r holds.
func (r ConsumeResult) MarshalJSON() ([]byte, error) {
	if r.Consumed != nil {
		return json.Marshal(r.Consumed)
	}
	return json.Marshal(r.Problem)
}

// UnmarshalJSON reads a success if there is an outcome, and a problem if not.
func (r *ConsumeResult) UnmarshalJSON(b []byte) error {
	var is struct {
		Outcome string `json:"outcome"`
	}
	if err := json.Unmarshal(b, &is); err != nil {
		return err
	}
	*r = ConsumeResult{}
	if is.Outcome != "" {
		r.Consumed = new(ConsumeResponse)
		return json.Unmarshal(b, r.Consumed)
	}
	r.Problem = new(Problem)
	return json.Unmarshal(b, r.Problem)
}

// StatusRequest is the body of POST /v1/tokens/status and of POST /v1/tokens/revoke. A
// service may name the token (or a key, to ask for its status) by Ref instead, and leaves
// Purpose out then.
type StatusRequest struct {
	Token   *string `json:"token,omitzero"`
	Ref     *string `json:"ref,omitzero"`
	User    *string `json:"user,omitzero"`
	Purpose *string `json:"purpose,omitzero"`
}

// StatusResponse answers POST /v1/tokens/status. The times that belong to the state
// stand, and no others; of a token named by Ref whose record is gone, none is known.
type StatusResponse struct {
	State          string `json:"state"`
	Ref            string `json:"ref"`
	ExpiresAt      Time   `json:"expires_at,omitzero"` // a token's, as issued_at
	IssuedAt       Time   `json:"issued_at,omitzero"`
	UsedAt         Time   `json:"used_at,omitzero"`
	CompletedAt    Time   `json:"completed_at,omitzero"`
	UsedBy         string `json:"used_by,omitzero"`
	RevokedAt      Time   `json:"revoked_at,omitzero"`
	LeaseExpiresAt Time   `json:"lease_expires_at,omitzero"` // of what is claimed, as the next two
	Fence          int64  `json:"fence,omitzero"`
	Committed      *bool  `json:"committed,omitzero"`
}

// RevokeResponse answers POST /v1/tokens/revoke.
type RevokeResponse struct {
	State string `json:"state"` // revoked, or what the token is and stays: used, completed, claimed (committed), expired, stale, lost, gone
	Ref   string `json:"ref"`
}

// Problem is the body of every answer that is not a success (RFC 9457).
type Problem struct {
	Type      string `json:"type"` // ProblemTypePrefix and the code
	Title     string `json:"title"`
	Status    int    `json:"status"`
	Detail    string `json:"detail"` // the rule that was broken
	Code      Code   `json:"code"`
	Next      Next   `json:"next"`
	RequestID string `json:"request_id"`
	Ref       string `json:"ref,omitzero"` // of a token or key that could be read

	Field      string `json:"field,omitzero"` // the member or header at fault
	ExpiresAt  Time   `json:"expires_at,omitzero"`
	UsedAt     Time   `json:"used_at,omitzero"`
	UsedBy     string `json:"used_by,omitzero"` // 8 hex digits of the winning attempt's hash, or of the one whose claim it is
	RevokedAt  Time   `json:"revoked_at,omitzero"`
	RetryAfter int64  `json:"retry_after,omitzero"` // seconds, as in the header

	LeaseExpiresAt Time `json:"lease_expires_at,omitzero"` // of what is claimed
}
