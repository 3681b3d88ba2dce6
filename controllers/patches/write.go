package patches

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/controllers/ruleclient"
	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/merged"
)

// Each rule is an object that every scheduler watches.
const (
	// mostRules bounds those that are written out for a patch.
	mostRules = 1000
	// mostOfAll bounds those of all patches.
	mostOfAll = 5000
)

// errEnough ends a step that has written as much as one may.
var errEnough = errors.New("written enough for now")

// writing is what is done to the rules of one patch in one step.
type writing struct {
	*Controller

	left  int
	lacks []shortfall
	// behind is true if what is known of rules is to change by what was written.
	behind bool
	// refused is true once it has been said that the API server refuses rules.
	refused bool
}

// progress is how far the writing of the rules of a patch is.
type progress int

const (
	// unfinished says that there is more to write.
	unfinished progress = iota
	// asked says that all is written, and is still to become known.
	asked
	// settled says that what is known is as it is to be, but for what lacks.
	settled
)

// write has the rules of a patch be there as they are to be, and no others; all of them
// go if it has no taints. It returns what keeps taints from having rules.
func (c *Controller) write(ctx context.Context, patch *v1alpha1.ResourceSlicePatch, taints []resourcev1.DeviceTaint, report *merged.Report) ([]shortfall, progress, error) {
	if c.options.Known == nil {
		if len(taints) == 0 {
			return nil, settled, nil
		}
		return []shortfall{{ReasonRulesNotServed, "taints reach schedulers that apply patches only, and evict no pod: the feature DeviceTaintEviction is off"}}, settled, nil
	}
	w := &writing{Controller: c, left: writesAtOnce}
	wanted := w.wanted(patch, taints, report)
	err := w.ensureAll(ctx, wanted)
	if err == nil {
		err = w.removeOthers(ctx, patch, wanted)
	}
	switch {
	case errors.Is(err, errEnough):
		return w.lacks, unfinished, nil
	case errors.Is(err, ruleclient.ErrNotServed):
		return []shortfall{{ReasonRulesNotServed, "taints reach schedulers that apply patches only, and evict no pod: " + ruleclient.ErrNotServed.Error()}}, settled, nil
	case err != nil:
		return nil, unfinished, err
	case w.behind:
		return w.lacks, asked, nil
	default:
		return w.lacks, settled, nil
	}
}

// wanted returns the rules, as many as there may be.
func (w *writing) wanted(patch *v1alpha1.ResourceSlicePatch, taints []resourcev1.DeviceTaint, report *merged.Report) []rule {
	if len(taints) == 0 {
		return nil
	}
	room := min(mostRules, mostOfAll-w.ofOthers(patch.Name))
	devices, all := report.FirstMatched, report.Matched
	if fit := max(room, 0) / len(taints); conditional(patch) && len(devices) > fit {
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
	if err := w.spend(); err != nil {
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
		w.taken(wanted.name)
		return nil
	}
	if wanted.same(new(tracker.RuleOf(stored))) {
		w.behind = true
		return nil
	}
	return w.done(ctx, operationUpdate, wanted.name, w.options.Rules.Update(ctx, stored, wanted.object))
}

// taken notes that somebody else has the name of a rule.
func (w *writing) taken(name string) {
	w.lacks = append(w.lacks, shortfall{ReasonRuleExists, fmt.Sprintf(
		"the DeviceTaintRule %s cannot be written, because there is one of that name that is not of this patch; delete it", name)})
}

// removeOthers deletes the rules of a patch that are not wanted.
func (w *writing) removeOthers(ctx context.Context, patch *v1alpha1.ResourceSlicePatch, wanted []rule) error {
	names := make(map[string]bool, len(wanted))
	for i := range wanted {
		names[wanted[i].name] = true
	}
	for _, name := range w.options.Known.PatchRules(patch.Name) {
		if names[name] {
			continue
		}
		if err := w.remove(ctx, name, patch.Name); err != nil {
			return err
		}
	}
	return nil
}

// remove deletes a rule that was written out for a patch.
func (w *writing) remove(ctx context.Context, name, patch string) error {
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
		w.behind = true
		w.options.Metrics.writes.WithLabelValues(operation).Inc()
		logr.FromContextOrDiscard(ctx).V(1).Info("wrote a rule of a ResourceSlicePatch", "operation", operation, "rule", name)
		return nil
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err):
		if !w.refused {
			w.refused = true
			w.lacks = append(w.lacks, shortfall{ReasonRulesRefused, fmt.Sprintf("%s DeviceTaintRule %s: %v", operation, name, err)})
		}
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
	w := &writing{Controller: c, left: writesAtOnce}
	err = w.removeOthers(ctx, patch, nil)
	if errors.Is(err, errEnough) {
		return time.Millisecond, nil
	}
	return 0, err
}
