package webhook

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/cel"
	"github.com/tollgate-dev/tollgate/policy/policyset"
	"github.com/tollgate-dev/tollgate/policy/taint"
)

// governor holds writes of taints against TaintPolicies, for the judges of all that
// carries taints. A nil governor knows no policies. It is safe for concurrent use.
type governor struct {
	policies   policySource
	authorizer authorizer.Authorizer
	clock      clock.PassiveClock
	// selves are the users that Tollgate itself is. What it writes, it writes because a
	// policy says so.
	selves []string
}

// current returns the policies in force, none where nobody knows of any.
func (g *governor) current() (*policyset.Set, error) {
	if g == nil || g.policies == nil {
		return &policyset.Set{}, nil
	}
	policies := g.policies.Current()
	if policies == nil {
		return nil, errNoPolicies
	}
	return policies, nil
}

// isSelf reports whether the request is Tollgate's own.
func (g *governor) isSelf(req *admission.Request) bool {
	return g != nil && slices.Contains(g.selves, req.UserInfo.Username)
}

// input returns what is judged of a request.
func (g *governor) input(req *admission.Request, writes []taint.Write) taint.Input {
	in := taint.Input{
		User:   &req.UserInfo,
		Review: &cel.Review{Request: &req.AdmissionRequest},
		Writes: writes,
	}
	if g != nil {
		in.Now = g.clock.Now()
		in.Review.Authorizer = g.authorizer
	}
	return in
}

// judge returns what the policies have against the writes.
func (g *governor) judge(ctx context.Context, set *taint.Set, in taint.Input) ([]policy.Finding, error) {
	if len(in.Writes) == 0 || set.Len() == 0 {
		return nil, nil
	}
	decision, err := set.Judge(ctx, in)
	if err != nil {
		return nil, fmt.Errorf("judge taints: %w", err)
	}
	return decision.Findings, nil
}

// respond adds what was foreseen to a decision, and says what became of the request.
func (p previewed) respond(ctx context.Context, decision policy.Decision, warnings []string) admission.Response {
	decision = policy.Decide(slices.Concat(decision.Findings, p.findings))
	p.settle(decision)
	return respond(ctx, decision, slices.Concat(warnings, p.warnings))
}
