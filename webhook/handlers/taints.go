package handlers

import (
	"context"
	"fmt"
	"slices"

	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/cel"
	"github.com/tollgate-dev/tollgate/policy/taint"
)

// taintInput returns the input of TaintPolicies for a request.
func (r request) taintInput(writes []taint.Write) taint.Input {
	return taint.Input{
		User:   &r.UserInfo,
		Review: &cel.Review{Request: &r.AdmissionRequest, Authorizer: r.Operators, Turns: r.OperatorTurns},
		Writes: writes,
		Now:    r.ServerClock.Now(),
	}
}

// enforce adds the violations of TaintPolicies to the findings, and unless these deny, those of a
// preview and its warnings. An expression that fails is no fault where something else denies. What
// does not decode is not judged: a preview may count against the next ones.
func (r request) enforce(
	ctx context.Context, in taint.Input, found []policy.Finding, warnings []string, preview func() (previewed, error),
) (Result, error) {
	if err := r.Err(); err != nil {
		return Result{}, err
	}
	if err := r.inForce(); err != nil {
		return Result{}, err
	}
	var fault error
	if set := r.policies.Taints; len(in.Writes) > 0 && set.Len() > 0 {
		violations, err := set.Judge(ctx, in)
		if err != nil {
			fault = fmt.Errorf("judge taints: %w", err)
		} else {
			found = append(found, violations.Findings...)
		}
	}
	result := decided(found, warnings, r.policies)
	if result.Verdict == policy.Denied {
		return result, nil
	}
	if fault != nil {
		return Result{}, fault
	}
	seen, err := preview()
	if err != nil {
		return Result{}, err
	}
	result = decided(slices.Concat(result.Findings, seen.Findings), slices.Concat(warnings, seen.warnings), r.policies)
	seen.Settle(result.Verdict == policy.Allowed && r.Err() == nil)
	return result, nil
}
