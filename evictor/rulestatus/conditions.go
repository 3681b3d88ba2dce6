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

// input has all values from which the conditions of a rule are computed. Times are given
// as durations before now, so that a changed clock cannot delay a write for hours.
type input struct {
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
	// told is true after a status of the generation of the rule was written, and unfinished
	// if Tollgate last wrote that the eviction is in progress. Writes of other controllers
	// are corrected after the usual pause, so that two writers do not race.
	told, unfinished bool
	// stood is how long ago the generation of the rule was first seen.
	stood time.Duration
	// written and previewed are how long ago the status and the preview were last
	// written.
	written, previewed time.Duration
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
	// again is when to look again.
	again time.Duration
}

// conditions returns the conditions that a rule should have at now. The first status of a
// generation is written at once (DE-61); other changes wait for the minimum pause, even if
// another writer removes the conditions.
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

// previewed reports whether a rule has a preview. A rule with an unsupported selector has
// none: a later version, which supports it, could evict pods.
func previewed(rule *tracker.Rule) bool {
	return rule.Taint.Effect == resourcev1.DeviceTaintEffectNone && len(rule.Unsupported) == 0 &&
		hasRoomFor(rule.Conditions, ConditionEvictionPreview)
}

// change records that a condition differs and may be written after wait. It reports
// whether it is written now.
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

// preview adds the stored or the desired preview.
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

// same reports whether a stored condition, nil for none, equals another, apart from
// lastTransitionTime (DE-64).
func same(stored, wanted *metav1.Condition) bool {
	return stored != nil && stored.Status == wanted.Status && stored.Reason == wanted.Reason &&
		stored.Message == wanted.Message && stored.ObservedGeneration == wanted.ObservedGeneration
}

// hasRoomFor reports whether a rule can have another condition of Tollgate: the API limits
// their number. EvictionInProgress has priority, and existing conditions stay.
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
