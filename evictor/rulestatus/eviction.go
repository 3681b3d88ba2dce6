package rulestatus

import (
	"strings"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The reasons of EvictionInProgress. All but Settling and UnsupportedSelector are
// those of Kubernetes' own controller.
const (
	ReasonPodsPendingEviction = "PodsPendingEviction"
	ReasonSettling            = "Settling"
	ReasonCompleted           = "Completed"
	ReasonNotStarted          = "NotStarted"
	ReasonNoEffect            = "NoEffect"
	ReasonOtherEffect         = "OtherEffect"
	ReasonUnsupportedSelector = "UnsupportedSelector"
)

// evictionInProgress returns the condition EvictionInProgress, undated, and how long
// it takes until the rule has settled, if that is what it says.
func evictionInProgress(in *input, stored *metav1.Condition) (metav1.Condition, time.Duration) {
	c := metav1.Condition{
		Type: resourcev1.DeviceTaintConditionEvictionInProgress, Status: metav1.ConditionFalse,
		ObservedGeneration: in.rule.Generation,
	}
	if len(in.rule.Unsupported) > 0 {
		c.Reason, c.Message = ReasonUnsupportedSelector, withEvicted(unsupportedMessage(in.rule.Unsupported), in.evicted)
		return c, 0
	}
	var settles time.Duration
	switch in.rule.Taint.Effect {
	case resourcev1.DeviceTaintEffectNoExecute:
		settles = executing(&c, in)
	case resourcev1.DeviceTaintEffectNone:
		c.Reason, c.Message = ReasonNoEffect, noEffect(in, stored)
	case resourcev1.DeviceTaintEffectNoSchedule:
		c.Reason, c.Message = ReasonOtherEffect, otherMessage
	default: // An effect of a later Kubernetes does not evict either (DE-02).
		c.Reason, c.Message = ReasonOtherEffect, otherMessage
	}
	c.Message = withEvicted(c.Message, in.evicted)
	return c, settles
}

// executing fills in the condition of a rule that evicts.
func executing(c *metav1.Condition, in *input) (settles time.Duration) {
	switch {
	case in.tally.pods > 0:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, ReasonPodsPendingEviction, pendingMessage(&in.tally)
	case in.stood < settleTime:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, ReasonSettling, settlingMessage
		return settleTime - in.stood
	case in.evicted > 0:
		c.Reason = ReasonCompleted
	default:
		c.Reason = ReasonNotStarted
	}
	return 0
}

// noEffect returns what is said once about a generation with the effect None. The
// API promises that it is not updated, so that a restart is no reason to say it
// anew.
func noEffect(in *input, stored *metav1.Condition) string {
	if stored != nil && stored.ObservedGeneration == in.rule.Generation && stored.Reason == ReasonNoEffect {
		if said, _ := withoutEvicted(stored.Message); strings.HasSuffix(said, seePreview) {
			return said
		}
	}
	return summary(&in.tally) + " " + seePreview
}
