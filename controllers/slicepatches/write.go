package slicepatches

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-logr/logr"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/controllers"
	"github.com/tollgate-dev/tollgate/policy/slicepatch"
	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/sliceview"
)

// The number of rules is limited because every scheduler watches each of them.
const (
	// maxRules caps the rules of a patch.
	maxRules = 1000
	// maxTotalRules caps the rules of all patches.
	maxTotalRules = 5000
	// fewRules is a number of rules that one step can write.
	fewRules = 16
	// idlePause is how long a patch waits until the tracker has the written rules.
	idlePause = 250 * time.Millisecond
	// failurePause is how long a rule that cannot be written is not tried again.
	failurePause = time.Minute
)

var (
	// errStepLimit ends a step that has made its maximum number of requests.
	errStepLimit = errors.New("written enough for now")
	// errStale ends a step for a patch that has changed meanwhile.
	errStale = errors.New("the patch was written since")
)

// ruleWriter writes the rules of one patch in one step.
type ruleWriter struct {
	*Controller

	patch      *v1alpha1.ResourceSlicePatch
	m          *patchState
	left       int
	shortfalls []shortfall
	// confirmed is true after the API server returned the same version of the patch as the
	// cache, and wrote after the first write of a rule.
	confirmed, wrote bool
	// behind is true if the tracker does not have all writes yet.
	behind bool
}

// progress is the progress of writing the rules of a patch.
type progress int

const (
	// progressStale: the patch has changed meanwhile. progressIdle: more rules are to be
	// written, but this step wrote none because the tracker is behind.
	progressStale progress = iota
	progressIdle
	// progressUnfinished: more rules are to be written.
	progressUnfinished
	// progressWritten: all rules are written; the tracker is behind.
	progressWritten
	// progressSettled: the tracker has all rules, except those with a shortfall.
	progressSettled
)

// again returns the delay until the next step for pending writes, and whether there are
// any.
func (p progress) again() (time.Duration, bool) {
	switch p {
	case progressStale:
		return viewPause, true
	case progressIdle:
		return idlePause, true
	case progressUnfinished:
		return time.Millisecond, true
	case progressWritten, progressSettled:
	}
	return 0, false
}

// write creates and updates the rules of a patch and deletes all others of it; without
// taints, it deletes all. It returns the reasons why taints have no rules.
func (c *Controller) write(ctx context.Context, patch *v1alpha1.ResourceSlicePatch, m *patchState, taints []resourcev1.DeviceTaint, report *sliceview.Report) ([]shortfall, progress, error) {
	if c.options.Known == nil {
		if len(taints) == 0 {
			return nil, progressSettled, nil
		}
		return []shortfall{{ReasonRulesNotServed, "taints reach schedulers that apply patches only, and evict no pod: the feature gate " + c.options.RulesGate + " is off"}}, progressSettled, nil
	}
	w := &ruleWriter{Controller: c, patch: patch, m: m, left: writesAtOnce}
	err := w.all(ctx, w.wanted(patch, taints, report))
	switch {
	case errors.Is(err, errStale):
		return w.shortfalls, progressStale, nil
	case errors.Is(err, errStepLimit) && w.behind && !w.wrote:
		return w.shortfalls, progressIdle, nil
	case errors.Is(err, errStepLimit):
		return w.shortfalls, progressUnfinished, nil
	case errors.Is(err, controllers.ErrNotServed):
		return []shortfall{{ReasonRulesNotServed, "taints reach schedulers that apply patches only, and evict no pod: " + controllers.ErrNotServed.Error()}}, progressSettled, nil
	case err != nil:
		return nil, progressUnfinished, err
	case w.behind:
		return w.shortfalls, progressWritten, nil
	default:
		return w.shortfalls, progressSettled, nil
	}
}

// all writes and deletes rules. Unwanted rules are deleted first, because they may evict
// pods; but a few wanted rules are written before that, so that no taint is missing
// meanwhile.
func (w *ruleWriter) all(ctx context.Context, wanted []rule) error {
	if len(wanted) > 0 && len(wanted) <= fewRules {
		if err := w.ensureAll(ctx, wanted); err != nil {
			return err
		}
		return w.removeOthers(ctx, wanted)
	}
	if err := w.removeOthers(ctx, wanted); err != nil {
		return err
	}
	return w.ensureAll(ctx, wanted)
}

// wanted returns the desired rules, within the limits.
func (w *ruleWriter) wanted(patch *v1alpha1.ResourceSlicePatch, taints []resourcev1.DeviceTaint, report *sliceview.Report) []rule {
	if len(taints) == 0 {
		return nil
	}
	room := min(maxRules, maxTotalRules-w.otherRules(patch.Name))
	devices, all := report.FirstMatched, report.Matched
	if fit := max(room, 0) / len(taints); slicepatch.Conditional(patch.Spec.Devices.Filter) && len(devices) > fit {
		devices = devices[:fit]
		w.shortfalls = append(w.shortfalls, shortfall{ReasonTooManyDevices, fmt.Sprintf(
			"taints reach other schedulers, and evict pods, on the first %d of %d devices only: no more than %d DeviceTaintRules are written for a patch and %d for all; select whole drivers or pools, without class and selectors, for one rule a taint",
			fit, all, maxRules, maxTotalRules)})
	}
	return rulesOf(patch, taints, devices, w.options.Shared)
}

// otherRules counts the rules of other patches.
func (w *ruleWriter) otherRules(name string) int {
	others, last := 0, name
	for _, patch := range w.options.Known.Patches() { // sorted by name
		if patch.Name != name && patch.Name != last {
			others += len(w.options.Known.PatchRules(patch.Name))
		}
		last = patch.Name
	}
	return others
}

func (w *ruleWriter) ensureAll(ctx context.Context, wanted []rule) error {
	for i := range wanted {
		if err := w.ensure(ctx, &wanted[i]); err != nil {
			return err
		}
	}
	return nil
}

// confirm checks once that the API server has the same version of the patch, before a
// write can cause evictions: the cache of a new leader may be old.
func (w *ruleWriter) confirm(ctx context.Context) error {
	if w.confirmed {
		return nil
	}
	live := &v1alpha1.ResourceSlicePatch{}
	err := w.options.Live.Get(ctx, types.NamespacedName{Name: w.patch.Name}, live)
	switch {
	case apierrors.IsNotFound(err):
		return errStale
	case err != nil:
		return fmt.Errorf("read ResourceSlicePatch %s: %w", w.patch.Name, err)
	case live.UID != w.patch.UID || live.Generation != w.patch.Generation:
		return errStale
	}
	w.confirmed = true
	return nil
}

// countRequest counts a rule for which requests are made; it returns errStepLimit if none
// is left.
func (w *ruleWriter) countRequest() error {
	if w.left == 0 {
		return errStepLimit
	}
	w.left--
	return nil
}

// ensure creates or updates a rule. The tracked rule decides whether to read the stored
// one, and the stored rule decides what to write.
func (w *ruleWriter) ensure(ctx context.Context, wanted *rule) error {
	if tracked, ok := w.options.Known.Rule(wanted.name); ok && wanted.matches(&tracked) {
		return nil
	}
	if s, ok := w.m.failed[wanted.name]; ok && s.generation == w.patch.Generation && w.options.Local.Now().Before(s.until) {
		w.addShortfall(s.shortfall)
		return nil
	}
	if err := w.countRequest(); err != nil {
		return err
	}
	if err := w.confirm(ctx); err != nil {
		return err
	}
	stored, err := w.options.Rules.Get(ctx, wanted.name)
	if apierrors.IsNotFound(err) {
		return w.finish(ctx, operationCreate, wanted.name, w.options.Rules.Create(ctx, wanted.object))
	}
	if err != nil {
		return fmt.Errorf("read rule %s: %w", wanted.name, err)
	}
	if owner, ours := patchOf(stored); !ours || owner.Name != wanted.patch.Name {
		w.recordFailure(wanted.name, shortfall{ReasonRuleExists, fmt.Sprintf(
			"the DeviceTaintRule %s cannot be written, because there is one of that name that is not of this patch; delete it", wanted.name)})
		return nil
	}
	if wanted.matches(new(tracker.RuleOf(stored))) {
		w.behind = true
		return nil
	}
	return w.finish(ctx, operationUpdate, wanted.name, w.options.Rules.Update(ctx, stored, wanted.object))
}

// recordFailure records why a rule cannot be written.
func (w *ruleWriter) recordFailure(name string, why shortfall) {
	if w.m.failed == nil {
		w.m.failed = map[string]failedRule{}
	}
	maps.DeleteFunc(w.m.failed, func(_ string, s failedRule) bool { return s.generation != w.patch.Generation })
	w.m.failed[name] = failedRule{shortfall: why, generation: w.patch.Generation, until: w.options.Local.Now().Add(failurePause)}
	w.addShortfall(why)
}

// addShortfall adds a shortfall, one for each reason.
func (w *ruleWriter) addShortfall(why shortfall) {
	if !slices.ContainsFunc(w.shortfalls, func(s shortfall) bool { return s.reason == why.reason }) {
		w.shortfalls = append(w.shortfalls, why)
	}
}

// removeOthers deletes the unwanted rules of a patch.
func (w *ruleWriter) removeOthers(ctx context.Context, wanted []rule) error {
	names := make(map[string]bool, len(wanted))
	for i := range wanted {
		names[wanted[i].name] = true
	}
	for _, name := range w.options.Known.PatchRules(w.patch.Name) {
		if names[name] {
			continue
		}
		if err := w.remove(ctx, name, w.patch.Name); err != nil {
			return err
		}
	}
	return nil
}

// remove deletes a rule of a patch.
func (w *ruleWriter) remove(ctx context.Context, name, patch string) error {
	if s, ok := w.m.failed[name]; ok && s.generation == w.patch.Generation && w.options.Local.Now().Before(s.until) {
		w.addShortfall(s.shortfall)
		return nil
	}
	if err := w.countRequest(); err != nil {
		return err
	}
	stored, err := w.options.Rules.Get(ctx, name)
	if apierrors.IsNotFound(err) {
		w.behind = true
		return nil
	}
	if err != nil {
		return fmt.Errorf("read rule %s: %w", name, err)
	}
	if owner, ours := patchOf(stored); !ours || owner.Name != patch {
		return nil
	}
	return w.finish(ctx, operationDelete, name, ignoreNotFound(w.options.Rules.Delete(ctx, stored)))
}

// ignoreNotFound returns nil for NotFound errors.
func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// finish handles the result of a write. A refused write is a shortfall and does not stop
// the others.
func (w *ruleWriter) finish(ctx context.Context, operation, name string, err error) error {
	switch {
	case err == nil:
		w.behind, w.wrote = true, true
		w.options.Metrics.writes.WithLabelValues(operation).Inc()
		logr.FromContextOrDiscard(ctx).V(1).Info("wrote a rule of a ResourceSlicePatch", "operation", operation, "rule", name)
		return nil
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err):
		w.recordFailure(name, shortfall{ReasonRulesRefused, fmt.Sprintf("%s DeviceTaintRule %s: %v", operation, name, err)})
		return nil
	default:
		return fmt.Errorf("%s rule %s: %w", operation, name, err)
	}
}

// removeRules deletes the rules of a deleted patch. Where a TaintPolicy governs the key,
// the garbage collector may not delete them.
func (c *Controller) removeRules(ctx context.Context, name string) (time.Duration, error) {
	if c.options.Known == nil || len(c.options.Known.PatchRules(name)) == 0 {
		return 0, nil
	}
	// The cache may lag behind.
	patch := &v1alpha1.ResourceSlicePatch{}
	err := c.options.Live.Get(ctx, types.NamespacedName{Name: name}, patch)
	if err == nil {
		return syncPause, nil
	}
	if !apierrors.IsNotFound(err) {
		return 0, fmt.Errorf("read ResourceSlicePatch %s: %w", name, err)
	}
	patch.Name = name
	w := &ruleWriter{Controller: c, patch: patch, m: &patchState{}, left: writesAtOnce}
	err = w.removeOthers(ctx, nil)
	switch {
	case errors.Is(err, errStepLimit) && w.wrote:
		return time.Millisecond, nil
	case err == nil && len(w.shortfalls) > 0:
		return 0, fmt.Errorf("remove the rules of ResourceSlicePatch %s, which is gone: %s", name, w.shortfalls[0].message)
	}
	return 0, err
}
