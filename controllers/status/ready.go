package status

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
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

// ready returns the condition that a policy of a generation should have, whose faults
// validate returns.
func (k *kind) ready(generation int64, validate func() field.ErrorList) metav1.Condition {
	condition := metav1.Condition{
		Type:               v1alpha1.ConditionReady,
		Status:             metav1.ConditionTrue,
		Reason:             reasonInForce,
		Message:            messageInForce,
		ObservedGeneration: generation,
	}
	if !k.enabled {
		condition.Status, condition.Reason = metav1.ConditionFalse, reasonDisabled
		condition.Message = "The feature gate " + k.gate + " is off: the policy has no effect."
		return condition
	}
	if errs := validate(); len(errs) > 0 {
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
