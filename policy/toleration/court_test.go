package toleration

import (
	"context"
	"slices"
	"sync"

	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// court is an authorizer that knows who may tolerate what, as "user key", and writes
// down what it was asked.
type court struct {
	allows []string
	fault  error
	// who is whom the fault is about; empty for everybody.
	who string

	mu    sync.Mutex
	asked []string
}

func (c *court) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	question := a.GetUser().GetName() + " " + a.GetName()
	c.asked = append(c.asked, question)
	right := a.IsResourceRequest() && a.GetVerb() == "tolerate" && a.GetAPIGroup() == "tollgate.dev" && a.GetResource() == "taints"
	switch {
	case right && slices.Contains(c.allows, question):
		return authorizer.DecisionAllow, "", nil
	case c.fault != nil && (c.who == "" || c.who == a.GetUser().GetName()):
		return authorizer.DecisionNoOpinion, "", c.fault
	default:
		return authorizer.DecisionNoOpinion, "", nil
	}
}

func (c *court) ConditionsAwareAuthorize(ctx context.Context, a authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionFromParts(c.Authorize(ctx, a))
}

func (c *court) EvaluateConditions(context.Context, authorizer.ConditionsAwareDecision, authorizer.ConditionsData) (authorizer.Decision, string, error) {
	return authorizer.DecisionDeny, "", authorizer.ErrorConditionEvaluationNotSupported
}
