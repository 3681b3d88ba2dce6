package status

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/policyset"
)

// Reasons of the condition Ready.
const (
	reasonInForce  = "InForce"
	reasonPartOfIt = "PartlyInForce"
	reasonDisabled = "Disabled"

	messageInForce = "The policy is compiled and in force."
	// maxMessage bounds the message, which lists everything that is wrong.
	maxMessage = 1024
)

// readyCondition returns the condition that a policy should have.
func readyCondition(kind *policyset.Kind, enabled bool, object policyset.Object) metav1.Condition {
	condition := metav1.Condition{
		Type:               v1alpha1.ConditionReady,
		Status:             metav1.ConditionTrue,
		Reason:             reasonInForce,
		Message:            messageInForce,
		ObservedGeneration: object.GetGeneration(),
	}
	if !enabled {
		condition.Status, condition.Reason = metav1.ConditionFalse, reasonDisabled
		condition.Message = "The feature gate " + kind.Gate + " is off: the policy has no effect."
		return condition
	}
	if errs := kind.Validate(object); len(errs) > 0 {
		condition.Status, condition.Reason = metav1.ConditionFalse, reasonPartOfIt
		condition.Message = clip(errs.ToAggregate().Error())
	}
	return condition
}

func clip(message string) string {
	if len(message) <= maxMessage {
		return message
	}
	return strings.ToValidUTF8(message[:maxMessage], "") + "..."
}
