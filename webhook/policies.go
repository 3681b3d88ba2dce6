package webhook

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/eviction"
	"github.com/tollgate-dev/tollgate/policy/gate"
	"github.com/tollgate-dev/tollgate/policy/placement"
	"github.com/tollgate-dev/tollgate/policy/taint"
	"github.com/tollgate-dev/tollgate/policy/toleration"
)

// written is a pointer to an object of our own API.
type written[T any] interface {
	*T
	client.Object
}

// policyJudge refuses objects of one kind of our own API that are not valid.
type policyJudge[T any, P written[T]] struct {
	kind     string
	spec     func(P) any
	validate func(P) field.ErrorList
	// warn says what the object will do; nil for nothing.
	warn func(P) []string
}

// Judge implements judge. What is written to an object that is on its way out, or
// beside its spec, is nobody's concern here: a policy that became invalid with a
// change of versions must still be labelled, finalized and deleted.
func (j *policyJudge[T, P]) Judge(ctx context.Context, req admission.Request) (admission.Response, error) {
	object, old := P(new(T)), P(new(T))
	if err := unmarshal(req.Object.Raw, object); err != nil {
		return admission.Response{}, &badReviewError{fmt.Errorf("decode %s: %w", j.kind, err)}
	}
	if req.Operation == admissionv1.Update {
		if err := unmarshal(req.OldObject.Raw, old); err != nil {
			return admission.Response{}, &badReviewError{fmt.Errorf("decode old %s: %w", j.kind, err)}
		}
		if object.GetDeletionTimestamp() != nil || equality.Semantic.DeepEqual(j.spec(object), j.spec(old)) {
			return allowed(), nil
		}
	}
	decision := policy.Decide(findings(j.validate(object)))
	var warnings []string
	if j.warn != nil && decision.Verdict == policy.Allowed {
		warnings = j.warn(object)
	}
	return respond(ctx, decision, warnings), nil
}

func newTolerationPolicyJudge() judge {
	return &policyJudge[v1alpha1.TolerationPolicy, *v1alpha1.TolerationPolicy]{
		kind:     "TolerationPolicy",
		spec:     func(p *v1alpha1.TolerationPolicy) any { return p.Spec },
		validate: toleration.ValidatePolicy,
		warn:     toleration.Warnings,
	}
}

func newPlacementPolicyJudge() judge {
	return &policyJudge[v1alpha1.PlacementPolicy, *v1alpha1.PlacementPolicy]{
		kind:     "PlacementPolicy",
		spec:     func(p *v1alpha1.PlacementPolicy) any { return p.Spec },
		validate: placement.ValidatePolicy,
	}
}

func newGatePolicyJudge() judge {
	return &policyJudge[v1alpha1.GatePolicy, *v1alpha1.GatePolicy]{
		kind:     "GatePolicy",
		spec:     func(p *v1alpha1.GatePolicy) any { return p.Spec },
		validate: gate.ValidatePolicy,
	}
}

func newEvictionPolicyJudge() judge {
	return &policyJudge[v1alpha1.EvictionPolicy, *v1alpha1.EvictionPolicy]{
		kind: "EvictionPolicy",
		spec: func(p *v1alpha1.EvictionPolicy) any { return []any{p.Spec, p.Annotations[formerRelease]} },
		validate: func(p *v1alpha1.EvictionPolicy) field.ErrorList {
			return append(eviction.ValidatePolicy(p), validateRelease(p)...)
		},
	}
}

// formerRelease is the annotation that released a breaker before EvictionApprovals did.
const formerRelease = "tollgate.dev/release-breaker"

// validateRelease refuses the annotation, which would do nothing.
func validateRelease(p *v1alpha1.EvictionPolicy) field.ErrorList {
	if _, ok := p.Annotations[formerRelease]; !ok {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("metadata", "annotations").Key(formerRelease),
		"releases no breaker any more: create an EvictionApproval with spec.evictionPolicy: "+p.Name+" and spec.maxPods")}
}

// registrations says what the taints that a policy registers would do to pods.
type registrations interface {
	registration(p *v1alpha1.TaintPolicy) []string
}

// newTaintPolicyJudge returns a judge that warns of what is legal and probably not
// meant, and of what preview says.
func newTaintPolicyJudge(preview registrations) judge {
	return &policyJudge[v1alpha1.TaintPolicy, *v1alpha1.TaintPolicy]{
		kind:     "TaintPolicy",
		spec:     func(p *v1alpha1.TaintPolicy) any { return p.Spec },
		validate: taint.ValidatePolicy,
		warn: func(p *v1alpha1.TaintPolicy) []string {
			return append(taint.Warnings(p), preview.registration(p)...)
		},
	}
}

func newApprovalJudge() judge {
	return &policyJudge[v1alpha1.EvictionApproval, *v1alpha1.EvictionApproval]{
		kind:     "EvictionApproval",
		spec:     func(a *v1alpha1.EvictionApproval) any { return a.Spec },
		validate: validateApproval,
	}
}
