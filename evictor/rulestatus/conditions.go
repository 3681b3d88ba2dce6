package rulestatus

import (
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/tracker"
)

const (
	// settleTime is how long a generation has to stand until it can be said that
	// there is nothing to evict (DE-76).
	settleTime = 5 * time.Second
	// writePause is the least time between two writes for one generation (DE-63). That an
	// eviction is over is written at once: people and programs wait for it.
	writePause = 10 * time.Second
	// previewPause is the least time between two writes of a preview.
	previewPause = time.Minute
	// longestPause is how long a rule is not looked at if nothing seems to happen.
	longestPause = time.Minute
)

// input is what the conditions of a rule follow from. Durations say how long ago
// something was, so that no clock that is set can hold a write back for hours.
type input struct {
	// rule is the rule with the conditions that it has.
	rule *tracker.Rule
	// tally is what the rule comes to.
	tally tally
	// evicted is how many pods were ever evicted for the rule.
	evicted int
	// held are the pods of the rule that are held.
	held heldPods
	// heldOnly leaves EvictionInProgress to somebody else.
	heldOnly bool
	// told is true once the status has told of the generation of the rule, and unfinished if
	// Tollgate told that the eviction is in progress. What somebody else writes in its place is
	// overruled when it is time, so that two writers do not race.
	told, unfinished bool
	// stood is how long ago the generation of the rule was first seen.
	stood time.Duration
	// written and previewed are how long ago the status and the preview were last
	// written.
	written, previewed time.Duration
}

// verdict is what to do about the status of a rule.
type verdict struct {
	// conditions are all that Tollgate says about the rule. A condition of ours that
	// is not among them goes away.
	conditions []metav1.Condition
	// write is true when that has to be written now.
	write bool
	// previews is true when the preview is among what changes.
	previews bool
	// unfinished is true while the eviction is in progress.
	unfinished bool
	// again is when to look again.
	again time.Duration
}

// conditions says which conditions a rule should have at now. A generation that was
// not told of yet is written about at once (DE-61), other changes wait for their
// turn, also where somebody else takes away what is written here.
func conditions(now time.Time, in *input) verdict {
	stamp := metav1.NewTime(now.Truncate(time.Second))
	v := verdict{again: longestPause}
	if !in.heldOnly {
		v.progress(in, stamp)
	}
	v.held(in, stamp)
	if previewed(in.rule) {
		v.preview(in, stamp)
	}
	return v
}

// progress adds the condition EvictionInProgress.
func (v *verdict) progress(in *input, stamp metav1.Time) {
	stored := meta.FindStatusCondition(in.rule.Conditions, resourcev1.DeviceTaintConditionEvictionInProgress)
	wanted, settles := evictionInProgress(in, stored)
	switch {
	case same(stored, &wanted):
		wanted.LastTransitionTime = stored.LastTransitionTime
		v.lookAgain(settles)
	case in.unfinished && wanted.Status == metav1.ConditionFalse:
		wanted.LastTransitionTime = stamp
		v.change(in, 0)
	default:
		wanted.LastTransitionTime = stamp
		v.change(in, writePause-in.written)
		v.lookAgain(settles)
	}
	v.unfinished = wanted.Status == metav1.ConditionTrue
	v.conditions = append(v.conditions, wanted)
}

// previewed reports whether a rule has a preview. That a selector which is not
// understood would evict nobody is nothing to rely on.
func previewed(rule *tracker.Rule) bool {
	return rule.Taint.Effect == resourcev1.DeviceTaintEffectNone && len(rule.Unsupported) == 0 &&
		hasRoomFor(rule.Conditions, ConditionEvictionPreview)
}

// change says that something differs, and may be written at once or in a while. It
// reports whether it may be written at once.
func (v *verdict) change(in *input, wait time.Duration) bool {
	if !in.told || wait <= 0 {
		v.write = true
		return true
	}
	v.lookAgain(wait)
	return false
}

func (v *verdict) lookAgain(wait time.Duration) {
	if wait > 0 {
		v.again = min(v.again, wait)
	}
}

// preview adds the preview, as it is or as it should be.
func (v *verdict) preview(in *input, stamp metav1.Time) {
	stored := meta.FindStatusCondition(in.rule.Conditions, ConditionEvictionPreview)
	wait := writePause - in.written
	if stored != nil {
		wait = max(wait, previewPause-in.previewed)
	}
	if !samePreview(stored, in) && v.change(in, wait) {
		wanted := evictionPreview(in)
		wanted.LastTransitionTime = stamp
		v.conditions = append(v.conditions, wanted)
		v.previews = true
		return
	}
	if stored != nil {
		v.conditions = append(v.conditions, *stored)
	}
}

// same reports whether a condition, nil for none, says what another says. When it
// was said does not matter (DE-64).
func same(stored, wanted *metav1.Condition) bool {
	return stored != nil && stored.Status == wanted.Status && stored.Reason == wanted.Reason &&
		stored.Message == wanted.Message && stored.ObservedGeneration == wanted.ObservedGeneration
}

// hasRoomFor reports whether there is room for a condition of ours: the API allows a rule
// so many and no more. EvictionInProgress goes first, what a rule has stays, and room for
// a preview is not kept where it has none.
func hasRoomFor(stored []metav1.Condition, kind string) bool {
	if meta.FindStatusCondition(stored, kind) != nil {
		return true
	}
	taken := len(stored)
	if meta.FindStatusCondition(stored, resourcev1.DeviceTaintConditionEvictionInProgress) == nil {
		taken++
	}
	return taken+1 <= resourcev1.DeviceTaintRuleStatusMaxConditions
}
