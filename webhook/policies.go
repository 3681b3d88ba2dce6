package webhook

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/tolerations"
)

// tolerationPolicyJudge refuses TolerationPolicies that are not valid, or that
// ask for what this version does not evaluate.
type tolerationPolicyJudge struct{}

// Judge implements judge.
func (tolerationPolicyJudge) Judge(_ context.Context, req admission.Request) (admission.Response, error) {
	var object v1alpha1.TolerationPolicy
	if err := unmarshal(req.Object.Raw, &object); err != nil {
		return admission.Response{}, &badReviewError{fmt.Errorf("decode TolerationPolicy: %w", err)}
	}
	return respond(policy.Decide(findings(tolerations.ValidatePolicy(&object))), nil), nil
}
