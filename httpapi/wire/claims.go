package wire

import "encoding/json"

// Bounds of claims, in seconds.
const (
	LeaseMax     = 3600
	LeaseDefault = 30
	WaitMax      = 30
)

// The states of claims.
const (
	StateClaimed   = "claimed"
	StateCompleted = "completed"
)

// ClaimRequest is the body of POST /v1/claims.
type ClaimRequest struct {
	Token   *string `json:"token,omitzero"` // one of Token and Key
	Key     *string `json:"key,omitzero"`
	User    *string `json:"user,omitzero"`
	Purpose *string `json:"purpose,omitzero"`
	Digest  *string `json:"digest,omitzero"`
	Attempt *string `json:"attempt,omitzero"`
	Lease   *int64  `json:"lease,omitzero"` // seconds, 1 to LeaseMax
	Wait    *int64  `json:"wait,omitzero"`  // seconds, 0 to WaitMax
	Commit  *bool   `json:"commit,omitzero"`
	Resolve *bool   `json:"resolve,omitzero"`
}

// ClaimResponse answers POST /v1/claims: one of the two, as State in each says.
type ClaimResponse struct {
	Claimed   *Claimed
	Completed *Replay
}

// Claimed is the answer to whoever may do the work.
type Claimed struct {
	State          string `json:"state"` // StateClaimed
	Claim          string `json:"claim"` // the handle for the later steps
	Ref            string `json:"ref"`
	Fence          int64  `json:"fence"`
	Takeover       bool   `json:"takeover"`
	Committed      bool   `json:"committed"`
	LeaseExpiresAt Time   `json:"lease_expires_at"`
	Replayed       bool   `json:"replayed"`
}

// Replay is the answer where the work was done before.
type Replay struct {
	State    string  `json:"state"` // StateCompleted
	Ref      string  `json:"ref"`
	Replayed bool    `json:"replayed"` // true
	Result   *Result `json:"result"`   // null where none was given
}

// MarshalJSON writes the one that r holds.
func (r ClaimResponse) MarshalJSON() ([]byte, error) {
	if r.Claimed != nil {
		return json.Marshal(r.Claimed)
	}
	return json.Marshal(r.Completed)
}

// UnmarshalJSON reads the one that the state names.
func (r *ClaimResponse) UnmarshalJSON(b []byte) error {
	var is struct {
		State string `json:"state"`
	}
	if err := json.Unmarshal(b, &is); err != nil {
		return err
	}
	*r = ClaimResponse{}
	if is.State == StateCompleted {
		r.Completed = new(Replay)
		return json.Unmarshal(b, r.Completed)
	}
	r.Claimed = new(Claimed)
	return json.Unmarshal(b, r.Claimed)
}

// Result is what a claim was completed with.
type Result struct {
	Status      int64             `json:"status"`
	Headers     map[string]string `json:"headers"`
	Body        []byte            `json:"body"`         // in padded standard base64
	BodyOmitted bool              `json:"body_omitted"` // it was too big to be kept
}

// ClaimStatusRequest is the body of POST /v1/claims/status.
type ClaimStatusRequest struct {
	Token   *string `json:"token,omitzero"` // one of Token and Key
	Key     *string `json:"key,omitzero"`
	User    *string `json:"user,omitzero"`
	Purpose *string `json:"purpose,omitzero"`
}

// ClaimStatusResponse answers POST /v1/claims/status.
type ClaimStatusResponse struct {
	StatusResponse
	Result *Result `json:"result"` // null where none was given, or it is not completed
}

// CommitRequest is the body of POST /v1/claims/{claim}/commit.
type CommitRequest struct{}

// RenewRequest is the body of POST /v1/claims/{claim}/renew.
type RenewRequest struct {
	Lease *int64 `json:"lease,omitzero"` // seconds, 1 to LeaseMax
}

// HeldResponse answers a commit and a renewal.
type HeldResponse struct {
	State          string `json:"state"` // StateClaimed
	Ref            string `json:"ref"`
	Fence          int64  `json:"fence"`
	Committed      bool   `json:"committed"`
	LeaseExpiresAt Time   `json:"lease_expires_at"`
}

// CompleteRequest is the body of PUT /v1/claims/{claim}/result.
type CompleteRequest struct {
	Result *ResultRequest `json:"result,omitzero"`
}

// ResultRequest is what every later claim is to be answered with.
type ResultRequest struct {
	Status      *int64            `json:"status,omitzero"` // 100 to 599
	Headers     map[string]string `json:"headers,omitzero"`
	Body        *string           `json:"body,omitzero"` // in padded standard base64
	BodyOmitted *bool             `json:"body_omitted,omitzero"`
}

// CompleteResponse answers PUT /v1/claims/{claim}/result.
type CompleteResponse struct {
	State       string `json:"state"` // StateCompleted
	Ref         string `json:"ref"`
	CompletedAt Time   `json:"completed_at"`
	Replayed    bool   `json:"replayed"` // it was completed before, and its result stays
}

// ReleaseRequest is the body of DELETE /v1/claims/{claim}, which is answered with none.
type ReleaseRequest struct{}
