package rulestatus

import (
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ConditionEvictionPreview is the condition of rules with the effect None that says
// what they would do. Unlike EvictionInProgress, it is kept up to date. Its last
// transition is when any of its numbers last changed.
const ConditionEvictionPreview = "tollgate.dev/EvictionPreview"

// The reasons of EvictionPreview.
const (
	ReasonPodsWouldBeEvicted = "PodsWouldBeEvicted"
	ReasonNoPods             = "NoPods"
)

// evictionPreview returns the condition EvictionPreview, undated.
func evictionPreview(in *input) metav1.Condition {
	c := metav1.Condition{
		Type: ConditionEvictionPreview, Status: metav1.ConditionFalse, Reason: ReasonNoPods,
		Message: previewMessage(&in.tally), ObservedGeneration: in.rule.Generation,
	}
	if in.tally.pods > 0 {
		c.Status, c.Reason = metav1.ConditionTrue, ReasonPodsWouldBeEvicted
	}
	return c
}

// samePreview reports whether a preview, nil for none, has the numbers that it
// should have. Which pods are named is no reason to write: where pods come and go
// and their number stays, it would be written every minute.
func samePreview(stored *metav1.Condition, in *input) bool {
	return stored != nil && stored.ObservedGeneration == in.rule.Generation &&
		strings.HasPrefix(stored.Message, summary(&in.tally))
}

// ownConditions returns the conditions of a rule that are written here, nil for
// those that it does not have.
func ownConditions(stored []metav1.Condition) (eviction, preview *metav1.Condition) {
	return meta.FindStatusCondition(stored, resourcev1.DeviceTaintConditionEvictionInProgress),
		meta.FindStatusCondition(stored, ConditionEvictionPreview)
}
