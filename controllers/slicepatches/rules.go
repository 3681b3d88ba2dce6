package slicepatches

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/controllers/devicetaints"
	"github.com/tollgate-dev/tollgate/policy/slicepatch"
	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/device"
	"github.com/tollgate-dev/tollgate/tracker/sliceview"
)

const (
	kindPatch = "ResourceSlicePatch"
	// hashBytes is the number of bytes of a hash in a name.
	hashBytes = 8
	// maxRules caps the rules of a patch, and maxTotalRules those of all patches, because
	// every scheduler watches each of them.
	maxRules      = 1000
	maxTotalRules = 5000
	// fewRules is a number of rules that one attempt can write, and writesAtOnce the number
	// that it writes.
	fewRules     = 16
	writesAtOnce = 50
	// idlePause is how long a patch waits until the tracker has the written rules.
	idlePause = 250 * time.Millisecond
	// failurePause is how long a rule that cannot be written is not tried again.
	failurePause = time.Minute
)

var (
	// errLimit ends an attempt that has made its maximum number of requests.
	errLimit = errors.New("written enough for now")
	// errStale ends an attempt for a patch that has changed meanwhile.
	errStale = errors.New("the patch was written since")
)

// rule is a desired DeviceTaintRule.
type rule struct {
	name     string
	patch    tracker.PatchRef
	selector resourcev1.DeviceTaintSelector
	// taint is the taint of the patch, with a time; native is the effect in the spec of
	// the rule.
	taint  resourcev1.DeviceTaint
	native resourcev1.DeviceTaintEffect
}

// rulesOf returns the rules of a patch for devices, which are nil if it selects by names
// alone. Each taint has a time. shared is true if Kubernetes evicts too; then components
// without support for patches see NoSchedule instead of NoExecute.
func rulesOf(patch *v1alpha1.ResourceSlicePatch, taints []resourcev1.DeviceTaint, devices []device.ID, shared bool) []rule {
	selectors := []resourcev1.DeviceTaintSelector{slicepatch.NamesOf(patch.Spec.Devices.Filter)}
	if slicepatch.Conditional(patch.Spec.Devices.Filter) {
		selectors = selectors[:0]
		for i := range devices {
			selectors = append(selectors, resourcev1.DeviceTaintSelector{Driver: &devices[i].Driver, Pool: &devices[i].Pool, Device: &devices[i].Name})
		}
	}
	rules := make([]rule, 0, len(selectors)*len(taints))
	for i := range selectors {
		// A device may have several taints of one key and effect (DE-21).
		duplicates := map[[2]string]int{}
		for _, taint := range taints {
			kind, native := [2]string{taint.Key, string(taint.Effect)}, taint.Effect
			if shared && native == resourcev1.DeviceTaintEffectNoExecute {
				native = resourcev1.DeviceTaintEffectNoSchedule
			}
			rules = append(rules, rule{
				name:  ruleName(patch.Name, &selectors[i], kind, duplicates[kind]),
				patch: tracker.PatchRef{Name: patch.Name, UID: patch.UID}, selector: selectors[i],
				taint: taint, native: native,
			})
			duplicates[kind]++
		}
	}
	return rules
}

// ruleName returns the name of a rule. It does not depend on the value and the time of the
// taint: the rule is updated when they change.
func ruleName(patch string, s *resourcev1.DeviceTaintSelector, kind [2]string, index int) string {
	// No driver, pool or device can have the name "*".
	return devicetaints.HashedName(patch, hashBytes,
		patch, ptr.Deref(s.Driver, "*"), ptr.Deref(s.Pool, "*"), ptr.Deref(s.Device, "*"), kind[0], kind[1], strconv.Itoa(index))
}

// object returns the rule in an API version.
func (r *rule) object(version string) *resourcev1.DeviceTaintRule {
	object := &resourcev1.DeviceTaintRule{
		TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: devicetaints.KindRule},
		ObjectMeta: metav1.ObjectMeta{
			Name: r.name, Labels: map[string]string{v1alpha1.LabelPatch: string(r.patch.UID)},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1alpha1.GroupVersion.String(), Kind: kindPatch, Name: r.patch.Name, UID: r.patch.UID, Controller: new(true),
			}},
		},
		Spec: resourcev1.DeviceTaintRuleSpec{DeviceSelector: &r.selector, Taint: r.taint},
	}
	if r.native != r.taint.Effect {
		object.Annotations = map[string]string{v1alpha1.AnnotationPatchEffect: string(r.taint.Effect)}
		object.Spec.Taint.Effect = r.native
	}
	return object
}

// matches reports whether a tracked rule has the desired selector and taint.
func (r *rule) matches(tracked *tracker.Rule) bool {
	selector, _ := device.SelectorOf(&r.selector)
	return tracked.Patch == r.patch && tracked.Selects && tracked.Selector == selector &&
		tracked.Taint.Key == r.taint.Key && tracked.Taint.Value == r.taint.Value &&
		tracked.Taint.Effect == r.taint.Effect && tracked.NativeTaint().Effect == r.native &&
		tracked.Taint.TimeAdded.Equal(r.taint.TimeAdded)
}

// ruleWriter writes the rules of one patch in one attempt.
type ruleWriter struct {
	*Controller

	patch *v1alpha1.ResourceSlicePatch
	m     *patchState
	// left is the number of rules for which requests may still be made.
	left int
	// shortfalls are the reasons why taints have no rules.
	shortfalls shortfalls
	// confirmed is true after the API server returned the same version of the patch as the
	// cache, and wrote after the first write of a rule.
	confirmed, wrote bool
	// behind is true if the tracker does not have all writes yet.
	behind bool
}

// failedRule is a rule that cannot be written. It is not tried until a time, so that it
// does not use up the requests of an attempt.
type failedRule struct {
	shortfall

	until time.Time
}

// write creates and updates the rules of the patch and deletes all others of it; without
// taints, it deletes all. It returns the delay until the rest is written, zero for none.
// Unwanted rules are deleted first, because they may evict pods; but a few wanted rules are
// written before that, so that no taint is missing meanwhile.
func (w *ruleWriter) write(ctx context.Context, taints []resourcev1.DeviceTaint, report *sliceview.Report) (time.Duration, error) {
	const unreached = "taints reach schedulers that apply patches only, and evict no pod: "
	index := w.Rules.Index
	if index == nil {
		if len(taints) > 0 {
			w.shortfalls.add(ReasonRulesNotServed, unreached+"the feature gate %s is off", w.Rules.Gate)
		}
		return 0, nil
	}
	list := w.wanted(taints, report)
	wanted := make(map[string]*rule, len(list))
	// The tracked rule decides whether to read the stored one, and the stored rule decides
	// what to write.
	var missing []string
	for i := range list {
		rule := &list[i]
		wanted[rule.name] = rule
		if tracked, ok := index.Rule(rule.name); !ok || !rule.matches(&tracked) {
			missing = append(missing, rule.name)
		}
	}
	unwanted := slices.DeleteFunc(index.PatchRules(w.patch.Name), func(name string) bool { return wanted[name] != nil })
	names := slices.Concat(unwanted, missing)
	if len(wanted) <= fewRules {
		names = slices.Concat(missing, unwanted)
	}
	err := w.writeAll(ctx, names, wanted)
	switch {
	case errors.Is(err, errStale):
		return viewPause, nil
	case errors.Is(err, errLimit) && w.behind && !w.wrote:
		return idlePause, nil
	case errors.Is(err, errLimit):
		return time.Millisecond, nil
	case errors.Is(err, devicetaints.ErrNotServed):
		w.shortfalls, w.behind = shortfalls{{ReasonRulesNotServed, unreached + devicetaints.ErrNotServed.Error()}}, false
		return 0, nil
	default:
		return 0, err
	}
}

// wanted returns the desired rules, within the limits.
func (w *ruleWriter) wanted(taints []resourcev1.DeviceTaint, report *sliceview.Report) []rule {
	if len(taints) == 0 {
		return nil
	}
	others, last := 0, w.patch.Name                 // counts the rules of other patches
	for _, patch := range w.Rules.Index.Patches() { // sorted by name
		if patch.Name != w.patch.Name && patch.Name != last {
			others += len(w.Rules.Index.PatchRules(patch.Name))
		}
		last = patch.Name
	}
	devices, all := report.FirstMatched, report.Matched
	if fit := max(min(maxRules, maxTotalRules-others), 0) / len(taints); slicepatch.Conditional(w.patch.Spec.Devices.Filter) && len(devices) > fit {
		devices = devices[:fit]
		w.shortfalls.add(ReasonTooManyDevices,
			"taints reach other schedulers, and evict pods, on the first %d of %d devices only: no more than %d DeviceTaintRules are written for a patch and %d for all; select whole drivers or pools, without class and selectors, for one rule a taint",
			fit, all, maxRules, maxTotalRules)
	}
	return rulesOf(w.patch, taints, devices, w.Shared)
}

// writeAll writes the wanted ones of the named rules and deletes the others. It makes no
// request for a rule that could not be written lately, and returns errLimit if the requests
// of the attempt do not suffice.
func (w *ruleWriter) writeAll(ctx context.Context, names []string, wanted map[string]*rule) error {
	for _, name := range names {
		if failed := w.m.failed[name]; w.Local.Now().Before(failed.until) {
			w.shortfalls.add(failed.reason, "%s", failed.message)
			continue
		}
		if w.left == 0 {
			return errLimit
		}
		w.left--
		var err error
		if rule := wanted[name]; rule != nil {
			err = w.ensure(ctx, rule)
		} else {
			err = w.remove(ctx, name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// ensure creates or updates a rule. Before the first write, which can cause evictions, it
// checks that the API server has the same version of the patch: the cache of a new leader
// may be old.
func (w *ruleWriter) ensure(ctx context.Context, wanted *rule) error {
	if !w.confirmed {
		live, err := w.readLive(ctx, w.patch.Name)
		if err != nil {
			return err
		}
		if versionOf(live) != versionOf(w.patch) {
			return errStale
		}
		w.confirmed = true
	}
	stored, err := w.Rules.Client.Get(ctx, wanted.name)
	if apierrors.IsNotFound(err) {
		return w.finish(ctx, devicetaints.OperationCreate, wanted.name, w.Rules.Client.Create(ctx, wanted.object))
	}
	if err != nil {
		return fmt.Errorf("read rule %s: %w", wanted.name, err)
	}
	// The label of the patch is no proof: any user who may label rules could otherwise have
	// the rules of others deleted or overwritten.
	read := tracker.RuleOf(stored)
	switch {
	case read.Patch.Name != wanted.patch.Name:
		w.fail(wanted.name, ReasonRuleExists,
			"the DeviceTaintRule %s cannot be written, because there is one of that name that is not of this patch; delete it", wanted.name)
		return nil
	case wanted.matches(&read):
		w.behind = true
		return nil
	}
	return w.finish(ctx, devicetaints.OperationUpdate, wanted.name, w.Rules.Client.Update(ctx, stored, wanted.object))
}

// remove deletes a rule of the patch.
func (w *ruleWriter) remove(ctx context.Context, name string) error {
	stored, err := w.Rules.Client.Get(ctx, name)
	switch {
	case apierrors.IsNotFound(err):
		w.behind = true
	case err != nil:
		return fmt.Errorf("read rule %s: %w", name, err)
	case tracker.RuleOf(stored).Patch.Name == w.patch.Name:
		return w.finish(ctx, devicetaints.OperationDelete, name, client.IgnoreNotFound(w.Rules.Client.Delete(ctx, stored)))
	}
	return nil
}

// finish handles the result of a write. A refused write is a shortfall and does not stop
// the others.
func (w *ruleWriter) finish(ctx context.Context, operation, name string, err error) error {
	switch {
	case err == nil:
		w.behind, w.wrote = true, true
		w.Metrics.WithLabelValues(operation).Inc()
		logr.FromContextOrDiscard(ctx).V(1).Info("wrote a rule of a ResourceSlicePatch", "operation", operation, "rule", name)
		return nil
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err):
		w.fail(name, ReasonRulesRefused, "%s DeviceTaintRule %s: %v", operation, name, err)
		return nil
	default:
		return fmt.Errorf("%s rule %s: %w", operation, name, err)
	}
}

// fail records why a rule cannot be written.
func (w *ruleWriter) fail(name, reason, format string, args ...any) {
	why := shortfall{reason, fmt.Sprintf(format, args...)}
	w.m.failed[name] = failedRule{why, w.Local.Now().Add(failurePause)}
	w.shortfalls.add(reason, "%s", why.message)
}

// readLive reads a patch from the API server. It returns a patch without a UID if there is
// none.
func (c *Controller) readLive(ctx context.Context, name string) (*v1alpha1.ResourceSlicePatch, error) {
	patch := &v1alpha1.ResourceSlicePatch{}
	if err := c.Live.Get(ctx, types.NamespacedName{Name: name}, patch); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read ResourceSlicePatch %s: %w", name, err)
	}
	return patch, nil
}

// removeRules deletes the rules of a deleted patch. Where a TaintPolicy governs the key,
// the garbage collector may not delete them.
func (c *Controller) removeRules(ctx context.Context, name string) (time.Duration, error) {
	if c.Rules.Index == nil {
		return 0, nil
	}
	unwanted := c.Rules.Index.PatchRules(name)
	if len(unwanted) == 0 {
		return 0, nil
	}
	// The cache may lag behind.
	patch, err := c.readLive(ctx, name)
	if err != nil {
		return 0, err
	}
	if patch.UID != "" {
		return syncPause, nil
	}
	patch.Name = name
	w := &ruleWriter{Controller: c, patch: patch, m: &patchState{failed: map[string]failedRule{}}, left: writesAtOnce}
	err = w.writeAll(ctx, unwanted, nil)
	switch {
	case errors.Is(err, errLimit) && w.wrote:
		return time.Millisecond, nil
	case err == nil && len(w.shortfalls) > 0:
		return 0, fmt.Errorf("remove the rules of ResourceSlicePatch %s, which is gone: %s", name, w.shortfalls[0].message)
	}
	return 0, err
}
