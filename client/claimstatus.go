package client

import (
	"context"
	"net/http"

	"example.com/tokend/httpapi/wire"
)

// ClaimStatus is a subject's state, and its result.
type ClaimStatus struct {
	Status
	Result *Result // StateCompleted; nil where it was completed without one
}

var claimStatusCall = endpoint{op: "claim_status", path: wire.PathClaimStatus, success: http.StatusOK, results: true}

// ClaimStatus tells the state of s, with its result where it is completed, and claims
// nothing. It is no check before a Claim: the state may be another by then. It takes a
// service with the scope tokend.consume.
//
// The refusals are as for [Purpose.Status], and [ErrModeUnsupported] where delete mode cannot
// claim; every state is an answer. A [*Fault] never says MaybeDone.
func (c *Client) ClaimStatus(ctx context.Context, s Subject) (ClaimStatus, error) {
	if no := s.check(); no != nil {
		return ClaimStatus{}, no
	}
	req := wire.ClaimStatusRequest{Token: s.token, Key: s.key, User: s.user, Purpose: s.purpose}
	got, err := call(ctx, c, claimStatusCall, req, func(a *wire.ClaimStatusResponse) bool {
		return a.State != "" && a.Ref != "" && (s.token == nil || !a.ExpiresAt.IsZero())
	})
	if err != nil {
		return ClaimStatus{}, err
	}
	st := ClaimStatus{Status: statusOf(&got.StatusResponse)}
	if got.Result != nil {
		st.Result = new(resultOf(got.Result))
	}
	return st, nil
}
