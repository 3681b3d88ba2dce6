package handlers

import (
	"context"
	"fmt"
	"slices"

	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/cel"
	"github.com/tollgate-dev/tollgate/policy/policyset"
	"github.com/tollgate-dev/tollgate/policy/taint"
	"github.com/tollgate-dev/tollgate/webhook/review"
)

// isSelf reports whether the request is Tollgate's own. TaintPolicies do not apply to it, because
// Tollgate writes taints on behalf of policies.
func (r *reviewer) isSelf(req *review.Request) bool {
	return slices.Contains(r.Selves, req.UserInfo.Username)
}

// taintInput returns the input of TaintPolicies for a request.
func (r *reviewer) taintInput(req *review.Request, writes []taint.Write) taint.Input {
	return taint.Input{
		User:   &req.UserInfo,
		Review: &cel.Review{Request: &req.AdmissionRequest, Authorizer: r.Operators, Turns: r.OperatorTurns},
		Writes: writes,
		Now:    r.ServerClock.Now(),
	}
}

// enforce adds the violations of TaintPolicies to the findings, and unless these deny, those of a
// preview and its warnings. An expression that fails is no fault where something else denies.
func enforce(
	ctx context.Context, policies *policyset.Set, in taint.Input, found []policy.Finding, warnings []string, preview func() (previewed, error),
) (Result, error) {
	var fault error
	if len(in.Writes) > 0 && policies.Taints.Len() > 0 {
		violations, err := policies.Taints.Judge(ctx, in)
		if err != nil {
			fault = fmt.Errorf("judge taints: %w", err)
		} else {
			found = append(found, violations.Findings...)
		}
	}
	decision := policy.Decide(found)
	if decision.Verdict == policy.Allowed {
		if fault != nil {
			return Result{}, fault
		}
		seen, err := preview()
		if err != nil {
			return Result{}, err
		}
		decision = policy.Decide(slices.Concat(decision.Findings, seen.findings))
		if seen.settled != nil {
			seen.settled(decision.Verdict == policy.Allowed)
		}
		warnings = slices.Concat(warnings, seen.warnings)
	}
	return decided(decision, warnings, policies), nil
}
