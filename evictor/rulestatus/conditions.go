package rulestatus

import (
	"strings"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/tracker"
)

// evictionInProgress is the condition of KEP-5055.
const evictionInProgress = resourcev1.DeviceTaintConditionEvictionInProgress

// The conditions of Tollgate.
const (
	// ConditionEvictionPreview says what a rule with the effect None would evict. Unlike
	// EvictionInProgress, it is kept up to date. Its last transition is the last change of
	// any of its numbers.
	ConditionEvictionPreview = "tollgate.dev/EvictionPreview"
	// ConditionEvictionHeld says whether pods are held that have to leave because of the
	// rule by now. A rule that never had such pods does not have the condition.
	ConditionEvictionHeld = "tollgate.dev/EvictionHeld"
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

// The reasons of EvictionPreview.
const (
	ReasonPodsWouldBeEvicted = "PodsWouldBeEvicted"
	ReasonNoPods             = "NoPods"
)

// ReasonNotHeld is the reason of EvictionHeld while no pod is held. Otherwise the reason
// is the cause that holds most pods.
const ReasonNotHeld = "NotHeld"

const (
	// settleTime is the age of a generation from which the status may say that there is
	// nothing to evict (DE-76).
	settleTime = 5 * time.Second
	// writePause is the least time between two writes for one generation (DE-63). The end
	// of an eviction is written at once: people and programs wait for it.
	writePause = 10 * time.Second
	// previewPause is the least time between two writes of a preview.
	previewPause = time.Minute
	// longestPause is the delay between two evaluations of a rule without events.
	longestPause = time.Minute
)

// input has all values from which the conditions of a rule are computed. The times of the
// memory are those of this machine, so that a changed clock of the API server cannot delay
// a write for hours.
type input struct {
	*memory

	// rule is the rule with the conditions that it has.
	rule *tracker.Rule
	// tally has the counts of devices and pods of the rule.
	tally tally
	// evicted is how many pods were ever evicted for the rule.
	evicted int
	// held are the pods of the rule that are held.
	held heldPods
	// heldOnly leaves EvictionInProgress to another controller.
	heldOnly bool
}

// heldPods is the number of pods of a rule that are held, and the cause that holds most of
// them.
type heldPods struct {
	pods        int
	reason, why string
}

// verdict is the desired status of a rule, and whether and when to write it.
type verdict struct {
	// conditions are all conditions that Tollgate writes. Its other conditions are removed.
	conditions []metav1.Condition
	// write is true when that has to be written now.
	write bool
	// previews is true when the preview is among what changes.
	previews bool
	// unfinished is true while the eviction is in progress.
	unfinished bool
	// again is the delay until the next evaluation.
	again time.Duration
}

// conditions returns the conditions that a rule should have at now. The first status of a
// generation is written at once (DE-61); other changes wait for the minimum pause, even if
// another writer removes the conditions.
func conditions(now moment, in *input) verdict {
	v := verdict{again: longestPause}
	pause := writePause - now.since(in.written)
	if !in.heldOnly {
		stored := storedCondition(in.rule, evictionInProgress)
		wanted, settling := in.progress(now, stored)
		if settling > 0 {
			v.again = min(v.again, settling)
		}
		v.unfinished = wanted.Status == metav1.ConditionTrue
		wait := pause
		if in.unfinished && !v.unfinished {
			wait = 0
		}
		v.add(in, stored, wanted, wait)
	}
	if stored := storedCondition(in.rule, ConditionEvictionHeld); (in.held.pods > 0 || stored != nil) && hasRoomFor(in.rule, ConditionEvictionHeld) {
		v.add(in, stored, in.heldCondition(now, stored), pause)
	}
	// A rule with an unsupported selector has no preview: a later version, which supports
	// it, could evict pods.
	if in.rule.Taint.Effect == resourcev1.DeviceTaintEffectNone && len(in.rule.Unsupported) == 0 && hasRoomFor(in.rule, ConditionEvictionPreview) {
		stored := storedCondition(in.rule, ConditionEvictionPreview)
		if stored != nil {
			pause = max(pause, previewPause-now.since(in.previewed))
		}
		v.previews = v.add(in, stored, in.preview(now, stored), pause)
	}
	return v
}

// add adds a desired condition if it differs from the stored one, nil for none, and does
// not have to wait; otherwise it adds the stored one. It reports whether the desired one
// is written (DE-64).
func (v *verdict) add(in *input, stored *metav1.Condition, wanted metav1.Condition, wait time.Duration) bool {
	differs := stored == nil || stored.Status != wanted.Status || stored.Reason != wanted.Reason ||
		stored.Message != wanted.Message || stored.ObservedGeneration != wanted.ObservedGeneration
	if differs && (!in.told || wait <= 0) {
		v.conditions, v.write = append(v.conditions, wanted), true
		return true
	}
	if differs {
		v.again = min(v.again, wait)
	}
	if stored != nil {
		v.conditions = append(v.conditions, *stored)
	}
	return false
}

// condition returns a condition whose last transition is now.
func (in *input) condition(now moment, kind string, holds bool, reason, message string) metav1.Condition {
	c := metav1.Condition{
		Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: message,
		ObservedGeneration: in.rule.Generation, LastTransitionTime: metav1.NewTime(now.server.Truncate(time.Second)),
	}
	if holds {
		c.Status = metav1.ConditionTrue
	}
	return c
}

// progress returns the condition EvictionInProgress, and how long the rule still settles
// if that is its reason.
func (in *input) progress(now moment, stored *metav1.Condition) (c metav1.Condition, settling time.Duration) {
	remaining, effect := settleTime-now.since(in.seen), in.rule.Taint.Effect
	var holds bool
	var reason, message string
	switch {
	case len(in.rule.Unsupported) > 0:
		reason, message = ReasonUnsupportedSelector, unsupportedMessage(in.rule.Unsupported)
	case effect == resourcev1.DeviceTaintEffectNone:
		reason, message = ReasonNoEffect, in.noEffect(stored)
	case effect != resourcev1.DeviceTaintEffectNoExecute: // An effect of a later Kubernetes does not evict either (DE-02).
		reason, message = ReasonOtherEffect, otherMessage
	case in.tally.pods > 0:
		holds, reason, message = true, ReasonPodsPendingEviction, pendingMessage(&in.tally)
	case remaining > 0:
		holds, reason, message, settling = true, ReasonSettling, settlingMessage, remaining
	case in.evicted > 0:
		reason = ReasonCompleted
	default:
		reason = ReasonNotStarted
	}
	return in.condition(now, evictionInProgress, holds, reason, withEvicted(message, in.evicted)), settling
}

// noEffect returns the message of a rule with the effect None, which is written once for a
// generation: the API promises that it is not updated, so that a restart is no reason to
// write another one.
func (in *input) noEffect(stored *metav1.Condition) string {
	if stored != nil && stored.ObservedGeneration == in.rule.Generation && stored.Reason == ReasonNoEffect {
		if message, _ := withoutEvicted(stored.Message); strings.HasSuffix(message, seePreview) {
			return message
		}
	}
	return summary(&in.tally) + " " + seePreview
}

// heldCondition returns the condition EvictionHeld. Another number or cause of held pods is
// no transition.
func (in *input) heldCondition(now moment, stored *metav1.Condition) metav1.Condition {
	reason, message := ReasonNotHeld, "No pod is held that has to leave by now."
	if in.held.pods > 0 {
		reason, message = in.held.reason, counted(in.held.pods, "pod is", "pods are")+" held: "+in.held.why+"."
	}
	c := in.condition(now, ConditionEvictionHeld, in.held.pods > 0, reason, message)
	if stored != nil && stored.Status == c.Status {
		c.LastTransitionTime = stored.LastTransitionTime
	}
	return c
}

// preview returns the condition EvictionPreview. A preview with the desired numbers keeps
// its message: where pods come and go and their number stays, it would be written every
// minute for the names of the pods.
func (in *input) preview(now moment, stored *metav1.Condition) metav1.Condition {
	reason, message := ReasonNoPods, previewMessage(&in.tally)
	if in.tally.pods > 0 {
		reason = ReasonPodsWouldBeEvicted
	}
	if stored != nil && strings.HasPrefix(stored.Message, summary(&in.tally)) {
		message = stored.Message
	}
	return in.condition(now, ConditionEvictionPreview, in.tally.pods > 0, reason, message)
}

// storedCondition returns a condition that a rule has, nil for none.
func storedCondition(rule *tracker.Rule, kind string) *metav1.Condition {
	return meta.FindStatusCondition(rule.Conditions, kind)
}

// hasRoomFor reports whether a rule can have a condition of Tollgate: the API limits their
// number. EvictionInProgress has priority, and existing conditions stay.
func hasRoomFor(rule *tracker.Rule, kind string) bool {
	room := resourcev1.DeviceTaintRuleStatusMaxConditions - len(rule.Conditions)
	if storedCondition(rule, evictionInProgress) == nil {
		room--
	}
	return room > 0 || storedCondition(rule, kind) != nil
}
