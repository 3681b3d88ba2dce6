package status

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// Reasons of the condition Ready.
const (
	reasonOpen    = "Open"
	reasonUsed    = "Used"
	reasonExpired = "Expired"
)

// covers reports whether a taint written at a time used the approval.
func covers(approval *v1alpha1.EvictionApproval, at time.Time) bool {
	return !at.Before(approval.CreationTimestamp.Time) && !at.After(expiryOf(approval))
}

// expiryOf returns the time at which an approval expires.
func expiryOf(approval *v1alpha1.EvictionApproval) time.Time {
	return approval.CreationTimestamp.Add(approval.Spec.ExpiresAfter.Duration)
}

// approvalReady returns the condition Ready of an approval. The status says whether it was
// used.
func approvalReady(approval *v1alpha1.EvictionApproval, now time.Time) metav1.Condition {
	condition := metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse,
		ObservedGeneration: approval.Generation, LastTransitionTime: metav1.NewTime(now),
	}
	end := expiryOf(approval)
	switch {
	case approval.Spec.EvictionPolicy != "":
		policyReady(&condition, approval, now.Before(end))
	case approval.Status.UsedAt != nil:
		condition.Reason = reasonUsed
		condition.Message = "The taint was set, or a breaker let pods go because of it; the approval cannot be used for another."
	case !now.Before(end):
		condition.Reason = reasonExpired
		condition.Message = fmt.Sprintf("The approval could be used until %s, and was not.", end.UTC().Format(time.RFC3339))
	default:
		condition.Status, condition.Reason = metav1.ConditionTrue, reasonOpen
		condition.Message = fmt.Sprintf("The approval can be used once, until %s.", end.UTC().Format(time.RFC3339))
	}
	return condition
}

// policyReady fills in the condition of an approval for an EvictionPolicy, which releases
// pods one after the other until it expires.
func policyReady(condition *metav1.Condition, approval *v1alpha1.EvictionApproval, lasts bool) {
	released, end := approval.Status.Released, expiryOf(approval).UTC().Format(time.RFC3339)
	switch {
	case lasts && released < approval.Spec.MaxPods:
		condition.Status, condition.Reason = metav1.ConditionTrue, reasonOpen
		condition.Message = fmt.Sprintf("The breaker of EvictionPolicy %s may let %d more pods go, until %s.",
			approval.Spec.EvictionPolicy, approval.Spec.MaxPods-released, end)
	case approval.Status.UsedAt != nil:
		condition.Reason = reasonUsed
		condition.Message = fmt.Sprintf("The breaker of EvictionPolicy %s has let %d pods go because of it.", approval.Spec.EvictionPolicy, released)
	default:
		condition.Reason = reasonExpired
		condition.Message = fmt.Sprintf("The approval could be used until %s, and was not.", end)
	}
}

// kindOf returns the kind, in lower case, of the object that an approval is for.
func kindOf(approval *v1alpha1.EvictionApproval) string {
	if approval.Spec.EvictionPolicy != "" {
		return "evictionpolicy"
	}
	return string(sourceOf(approval).Kind)
}
