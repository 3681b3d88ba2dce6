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

// Each rule is an object that every scheduler watches.
const (
	// mostRules bounds those that are written out for a patch.
	mostRules = 1000
	// mostOfAll bounds those of all patches.
	mostOfAll = 5000
	// fewRules are written within one step.
	fewRules = 16
	// idlePause is for how long a patch waits until what was written is known.
	idlePause = 250 * time.Millisecond
	// stuckPause is until when a rule is not asked about that cannot be written.
	stuckPause = time.Minute
)

var (
	// errEnough ends a step that has asked for as much as one may.
	errEnough = errors.New("written enough for now")
	// errStale ends a step for a patch that is not what it was any more.
	errStale = errors.New("the patch was written since")
)

// writing is what is done to the rules of one patch in one step.
type writing struct {
	*Controller

	patch *v1alpha1.ResourceSlicePatch
	m     *memory
	left  int
	lacks []shortfall
	// confirmed is true once the API server has been asked whether the patch is as it is
	// known, and wrote once a rule was written.
	confirmed, wrote bool
	// behind is true if what is known of rules is to change by what was written.
	behind bool
}

// progress is how far the writing of the rules of a patch is.
type progress int

const (
	// stale says that the patch has changed meanwhile, and idle that there is more to
	// write and nothing was, because what is known is behind.
	stale progress = iota
	idle
	// unfinished says that there is more to write.
	unfinished
	// asked says that all is written, and is still to become known.
	asked
	// settled says that what is known is as it is to be, but for what lacks.
	settled
)

// again returns when to look again for the sake of what is not written yet, if anything is.
func (p progress) again() (time.Duration, bool) {
	switch p {
	case stale:
		return viewPause, true
	case idle:
		return idlePause, true
	case unfinished:
		return time.Millisecond, true
	case asked, settled:
	}
	return 0, false
}

// write has the rules of a patch be there as they are to be, and no others; all of them
// go if it has no taints. It returns what keeps taints from having rules.
func (c *Controller) write(ctx context.Context, patch *v1alpha1.ResourceSlicePatch, m *memory, taints []resourcev1.DeviceTaint, report *sliceview.Report) ([]shortfall, progress, error) {
	if c.options.Known == nil {
		if len(taints) == 0 {
			return nil, settled, nil
		}
		return []shortfall{{ReasonRulesNotServed, "taints reach schedulers that apply patches only, and evict no pod: the feature gate " + c.options.RulesGate + " is off"}}, settled, nil
	}
	w := &writing{Controller: c, patch: patch, m: m, left: writesAtOnce}
	err := w.all(ctx, w.wanted(patch, taints, report))
	switch {
	case errors.Is(err, errStale):
		return w.lacks, stale, nil
	case errors.Is(err, errEnough) && w.behind && !w.wrote:
		return w.lacks, idle, nil
	case errors.Is(err, errEnough):
		return w.lacks, unfinished, nil
	case errors.Is(err, controllers.ErrNotServed):
		return []shortfall{{ReasonRulesNotServed, "taints reach schedulers that apply patches only, and evict no pod: " + controllers.ErrNotServed.Error()}}, settled, nil
	case err != nil:
		return nil, unfinished, err
	case w.behind:
		return w.lacks, asked, nil
	default:
		return w.lacks, settled, nil
	}
}

// all writes and removes. What is wrong goes first, because it may evict pods; but where
// there are few rules to write these come first, so that no taint is missing meanwhile.
func (w *writing) all(ctx context.Context, wanted []rule) error {
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

// wanted returns the rules, as many as there may be.
func (w *writing) wanted(patch *v1alpha1.ResourceSlicePatch, taints []resourcev1.DeviceTaint, report *sliceview.Report) []rule {
	if len(taints) == 0 {
		return nil
	}
	room := min(mostRules, mostOfAll-w.ofOthers(patch.Name))
	devices, all := report.FirstMatched, report.Matched
	if fit := max(room, 0) / len(taints); slicepatch.Conditional(patch.Spec.Devices.Filter) && len(devices) > fit {
		devices = devices[:fit]
		w.lacks = append(w.lacks, shortfall{ReasonTooManyDevices, fmt.Sprintf(
			"taints reach other schedulers, and evict pods, on the first %d of %d devices only: no more than %d DeviceTaintRules are written for a patch and %d for all; select whole drivers or pools, without class and selectors, for one rule a taint",
			fit, all, mostRules, mostOfAll)})
	}
	return rulesOf(patch, taints, devices, w.options.Shared)
}

// ofOthers counts the rules of other patches.
func (w *writing) ofOthers(name string) int {
	others, last := 0, name
	for _, patch := range w.options.Known.Patches() { // sorted by name
		if patch.Name != name && patch.Name != last {
			others += len(w.options.Known.PatchRules(patch.Name))
		}
		last = patch.Name
	}
	return others
}

func (w *writing) ensureAll(ctx context.Context, wanted []rule) error {
	for i := range wanted {
		if err := w.ensure(ctx, &wanted[i]); err != nil {
			return err
		}
	}
	return nil
}

// confirm asks the API server whether the patch is what it is known to be, before anything
// is written that evicts pods: a replica that has just come to lead may know an old one.
func (w *writing) confirm(ctx context.Context) error {
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

// spend counts a rule that the API server is asked about.
func (w *writing) spend() error {
	if w.left == 0 {
		return errEnough
	}
	w.left--
	return nil
}

// ensure has a rule be there as it is to be. What is known of it decides whether to ask;
// what is asked decides what is written.
func (w *writing) ensure(ctx context.Context, wanted *rule) error {
	if known, ok := w.options.Known.Rule(wanted.name); ok && wanted.same(&known) {
		return nil
	}
	if s, ok := w.m.stuck[wanted.name]; ok && s.generation == w.patch.Generation && w.options.Local.Now().Before(s.until) {
		w.lack(s.shortfall)
		return nil
	}
	if err := w.spend(); err != nil {
		return err
	}
	if err := w.confirm(ctx); err != nil {
		return err
	}
	stored, err := w.options.Rules.Get(ctx, wanted.name)
	if apierrors.IsNotFound(err) {
		return w.done(ctx, operationCreate, wanted.name, w.options.Rules.Create(ctx, wanted.object))
	}
	if err != nil {
		return fmt.Errorf("read rule %s: %w", wanted.name, err)
	}
	if owner, ours := madeFor(stored); !ours || owner.Name != wanted.patch.Name {
		w.stick(wanted.name, shortfall{ReasonRuleExists, fmt.Sprintf(
			"the DeviceTaintRule %s cannot be written, because there is one of that name that is not of this patch; delete it", wanted.name)})
		return nil
	}
	if wanted.same(new(tracker.RuleOf(stored))) {
		w.behind = true
		return nil
	}
	return w.done(ctx, operationUpdate, wanted.name, w.options.Rules.Update(ctx, stored, wanted.object))
}

// stick notes that a rule cannot be written, and why.
func (w *writing) stick(name string, why shortfall) {
	if w.m.stuck == nil {
		w.m.stuck = map[string]stuck{}
	}
	maps.DeleteFunc(w.m.stuck, func(_ string, s stuck) bool { return s.generation != w.patch.Generation })
	w.m.stuck[name] = stuck{shortfall: why, generation: w.patch.Generation, until: w.options.Local.Now().Add(stuckPause)}
	w.lack(why)
}

// lack says once of each reason why a rule lacks.
func (w *writing) lack(why shortfall) {
	if !slices.ContainsFunc(w.lacks, func(s shortfall) bool { return s.reason == why.reason }) {
		w.lacks = append(w.lacks, why)
	}
}

// removeOthers deletes the rules of a patch that are not wanted.
func (w *writing) removeOthers(ctx context.Context, wanted []rule) error {
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

// remove deletes a rule that was written out for a patch.
func (w *writing) remove(ctx context.Context, name, patch string) error {
	if s, ok := w.m.stuck[name]; ok && s.generation == w.patch.Generation && w.options.Local.Now().Before(s.until) {
		w.lack(s.shortfall)
		return nil
	}
	if err := w.spend(); err != nil {
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
	if owner, ours := madeFor(stored); !ours || owner.Name != patch {
		return nil
	}
	return w.done(ctx, operationDelete, name, client404(w.options.Rules.Delete(ctx, stored)))
}

// client404 leaves out that something is gone already.
func client404(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// done takes in what came of a write. One that the API server refuses does not keep
// others from being written.
func (w *writing) done(ctx context.Context, operation, name string, err error) error {
	switch {
	case err == nil:
		w.behind, w.wrote = true, true
		w.options.Metrics.writes.WithLabelValues(operation).Inc()
		logr.FromContextOrDiscard(ctx).V(1).Info("wrote a rule of a ResourceSlicePatch", "operation", operation, "rule", name)
		return nil
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err):
		w.stick(name, shortfall{ReasonRulesRefused, fmt.Sprintf("%s DeviceTaintRule %s: %v", operation, name, err)})
		return nil
	default:
		return fmt.Errorf("%s rule %s: %w", operation, name, err)
	}
}

// gone deletes the rules of a patch that is gone. The garbage collector would, but where
// a TaintPolicy governs the key it may not.
func (c *Controller) gone(ctx context.Context, name string) (time.Duration, error) {
	if c.options.Known == nil || len(c.options.Known.PatchRules(name)) == 0 {
		return 0, nil
	}
	// What is known may lag behind.
	patch := &v1alpha1.ResourceSlicePatch{}
	err := c.options.Live.Get(ctx, types.NamespacedName{Name: name}, patch)
	if err == nil {
		return syncPause, nil
	}
	if !apierrors.IsNotFound(err) {
		return 0, fmt.Errorf("read ResourceSlicePatch %s: %w", name, err)
	}
	patch.Name = name
	w := &writing{Controller: c, patch: patch, m: &memory{}, left: writesAtOnce}
	err = w.removeOthers(ctx, nil)
	switch {
	case errors.Is(err, errEnough) && w.wrote:
		return time.Millisecond, nil
	case err == nil && len(w.lacks) > 0:
		return 0, fmt.Errorf("remove the rules of ResourceSlicePatch %s, which is gone: %s", name, w.lacks[0].message)
	}
	return 0, err
}
