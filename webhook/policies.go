package webhook

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/tolerations"
)

// tolerationPolicyJudge refuses TolerationPolicies that are not valid, or that
// ask for what this version does not evaluate.
type tolerationPolicyJudge struct{}

// Judge implements judge. What is written to a policy that is on its way out, or
// beside its spec, is nobody's concern here: a policy that became invalid with a
// change of versions must still be labelled, finalized and deleted.
func (tolerationPolicyJudge) Judge(_ context.Context, req admission.Request) (admission.Response, error) {
	var object, old v1alpha1.TolerationPolicy
	if err := unmarshal(req.Object.Raw, &object); err != nil {
		return admission.Response{}, &badReviewError{fmt.Errorf("decode TolerationPolicy: %w", err)}
	}
	if req.Operation == admissionv1.Update {
		if err := unmarshal(req.OldObject.Raw, &old); err != nil {
			return admission.Response{}, &badReviewError{fmt.Errorf("decode old TolerationPolicy: %w", err)}
		}
		if object.DeletionTimestamp != nil || equality.Semantic.DeepEqual(object.Spec, old.Spec) {
			return allowed(), nil
		}
	}
	return respond(policy.Decide(findings(tolerations.ValidatePolicy(&object))), nil), nil
}
