package rulestatus

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ConditionEvictionHeld is the condition that says whether pods are held that have to
// leave because of the rule by now. Rules of which none ever was do not have it.
const ConditionEvictionHeld = "tollgate.dev/EvictionHeld"

// ReasonNotHeld is the reason of EvictionHeld where no pod is held. Where some are, it
// is what holds most of them.
const ReasonNotHeld = "NotHeld"

// heldPods is how many pods of a rule are held, and why most of them are.
type heldPods struct {
	pods        int
	reason, why string
}

// held adds the condition EvictionHeld if pods are held or were.
func (v *verdict) held(in *input, stamp metav1.Time) {
	stored := meta.FindStatusCondition(in.rule.Conditions, ConditionEvictionHeld)
	if (in.held.pods == 0 && stored == nil) || !hasRoomFor(in.rule.Conditions, ConditionEvictionHeld) {
		return
	}
	wanted := evictionHeld(in)
	switch {
	case same(stored, &wanted):
		wanted.LastTransitionTime = stored.LastTransitionTime
	case v.change(in, writePause-in.written):
		wanted.LastTransitionTime = stamp
		if stored != nil && stored.Status == wanted.Status {
			wanted.LastTransitionTime = stored.LastTransitionTime
		}
	case stored == nil:
		return
	default:
		wanted = *stored
	}
	v.conditions = append(v.conditions, wanted)
}

// evictionHeld returns the condition EvictionHeld, undated.
func evictionHeld(in *input) metav1.Condition {
	c := metav1.Condition{
		Type: ConditionEvictionHeld, Status: metav1.ConditionFalse, Reason: ReasonNotHeld,
		Message: "No pod is held that has to leave by now.", ObservedGeneration: in.rule.Generation,
	}
	if in.held.pods > 0 {
		verb := "are"
		if in.held.pods == 1 {
			verb = "is"
		}
		c.Status, c.Reason = metav1.ConditionTrue, in.held.reason
		c.Message = fmt.Sprintf("%s %s held: %s.", counted(in.held.pods, "pod"), verb, in.held.why)
	}
	return c
}
