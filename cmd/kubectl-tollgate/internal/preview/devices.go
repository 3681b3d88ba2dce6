package preview

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/evictor/preview"
	"github.com/tollgate-dev/tollgate/policy/slicepatch"
	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/device"
	"github.com/tollgate-dev/tollgate/tracker/informer"
)

// UnforetoldError means that there is no preview, because the user may read too little of the
// cluster. The write is possible.
type UnforetoldError struct{ Err error }

// Error implements error.
func (e *UnforetoldError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *UnforetoldError) Unwrap() error { return e.Err }

// errClaims is the error of previews of devices without claims.
var errClaims error = &UnforetoldError{errors.New("you may not list resourceclaims, and they say which pods use which devices (ask for a ClusterRole with the verb list on resourceclaims of API group resource.k8s.io)")}

// withNoExecute begins sentences about taints with the effect None.
const withNoExecute = "with the effect NoExecute"

// Rule previews the write of a DeviceTaintRule of any version. An existing rule with its name
// keeps its UID and times.
func (t *Teller) Rule(ctx context.Context, object *unstructured.Unstructured) (Preview, error) {
	rule, err := informer.RuleOf(object)
	if err != nil {
		return Preview{}, err
	}
	typed := &resourcev1.DeviceTaintRule{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, typed); err != nil {
		return Preview{}, fmt.Errorf("read DeviceTaintRule %s: %w", rule.Name, err)
	}
	p, changes, err := t.rule(rule)
	if err != nil {
		return Preview{}, err
	}
	err = t.judgeRule(ctx, &p, rule.Name, &typed.Spec, changes)
	return p, err
}

// rule is Rule that also returns the changes.
func (t *Teller) rule(rule tracker.Rule) (Preview, []tracker.Change, error) {
	of := "devicetaintrule/" + rule.Name
	if len(rule.Unsupported) > 0 {
		return Preview{Of: of, Nothing: fmt.Sprintf("selects no devices: spec.deviceSelector has fields that this version of Tollgate does not know (%v)", rule.Unsupported)}, nil, nil
	}
	var old *tracker.Rule
	if known, stands := t.cluster.Tracker.Rule(rule.Name); stands {
		old = &known
		if rule.Taint.TimeAdded.IsZero() && rule.Taint.Effect == known.Taint.Effect {
			rule.Taint.TimeAdded = known.Taint.TimeAdded
		}
	}
	changes, err := t.view.Rule(old, rule, t.cluster.Now)
	if err != nil {
		return Preview{}, nil, fmt.Errorf("foretell DeviceTaintRule %s: %w", rule.Name, errClaims)
	}
	p := t.tell(of, changes)
	if rule.Taint.Effect != resourcev1.DeviceTaintEffectNone {
		return p, changes, nil
	}
	rule.Taint.Effect, rule.Taint.TimeAdded = resourcev1.DeviceTaintEffectNoExecute, nil
	would, err := t.view.Rule(old, rule, t.cluster.Now)
	if err != nil {
		return Preview{}, nil, fmt.Errorf("foretell DeviceTaintRule %s: %w", rule.Name, errClaims)
	}
	return t.mere(of, withNoExecute, would, p.Ends...), changes, nil
}

// Slice previews the write of a ResourceSlice that is old in the cluster.
func (t *Teller) Slice(old, slice tracker.Slice) (Preview, error) {
	changes, err := t.view.Slice(old, slice, t.cluster.Now)
	if err != nil {
		return Preview{}, fmt.Errorf("foretell ResourceSlice %s: %w", slice.Name, errClaims)
	}
	return t.tell("resourceslice/"+slice.Name, changes), nil
}

// Patch previews the write of a ResourceSlicePatch. A patch with a class or expressions needs a
// cluster read with Selection.
func (t *Teller) Patch(ctx context.Context, patch *v1alpha1.ResourceSlicePatch) (Preview, error) {
	patch = t.merged(patch)
	p, changes, err := t.patch(ctx, patch)
	if err != nil {
		return Preview{}, err
	}
	err = t.judgePatch(ctx, &p, patch, changes)
	return p, err
}

// patch is Patch that also returns the changes.
func (t *Teller) patch(ctx context.Context, patch *v1alpha1.ResourceSlicePatch) (Preview, []tracker.Change, error) {
	of := "resourceslicepatch/" + patch.Name
	if problems := slicepatch.ValidatePatch(patch); len(problems) > 0 {
		return Preview{}, nil, fmt.Errorf("ResourceSlicePatch %s: %w", patch.Name, problems.ToAggregate())
	}
	selectors, err := t.selectors(ctx, patch)
	if err != nil {
		return Preview{}, nil, err
	}
	written := tracker.PatchedTaints{
		Patch: tracker.PatchRef{Name: patch.Name, UID: patch.UID}, Selectors: selectors, Taints: t.dated(patch),
	}
	changes, err := t.view.Patch(written, t.cluster.Now)
	if err != nil {
		return Preview{}, nil, fmt.Errorf("foretell ResourceSlicePatch %s: %w", patch.Name, errClaims)
	}
	if !merely(written.Taints) {
		if t.observing() {
			return t.mere(of, t.instead(), changes), changes, nil
		}
		return t.tell(of, changes), changes, nil
	}
	var ends []preview.Pod
	if !t.observing() {
		ends = t.tell(of, changes).Ends
	}
	written.Taints = evicting(written.Taints)
	would, err := t.view.Patch(written, t.cluster.Now)
	if err != nil {
		return Preview{}, nil, fmt.Errorf("foretell ResourceSlicePatch %s: %w", patch.Name, errClaims)
	}
	return t.mere(of, withNoExecute, would, ends...), changes, nil
}

// instead returns the condition under which patches would evict.
func (t *Teller) instead() string {
	if !t.cluster.Tollgate.Installed {
		return "with Tollgate in the cluster"
	}
	return "in another eviction mode than Observe"
}

// Named previews DeviceTaintRules with a selector and one of the taints each.
func (t *Teller) Named(ctx context.Context, of string, selector *resourcev1.DeviceTaintSelector, taints []resourcev1.DeviceTaint) (Preview, error) {
	p, changes, err := t.named(of, selector, taints)
	if err != nil {
		return Preview{}, err
	}
	for i := range taints {
		spec := &resourcev1.DeviceTaintRuleSpec{DeviceSelector: selector, Taint: taints[i]}
		if err := t.judgeRule(ctx, &p, t.ruleFor(spec), spec, changes); err != nil {
			return Preview{}, err
		}
	}
	return p, nil
}

// named is Named that also returns the changes; none if no effect evicts.
func (t *Teller) named(of string, selector *resourcev1.DeviceTaintSelector, taints []resourcev1.DeviceTaint) (Preview, []tracker.Change, error) {
	mere := merely(taints)
	if mere {
		taints = evicting(taints)
	}
	selects, _ := device.SelectorOf(selector)
	changes, err := t.view.Patch(tracker.PatchedTaints{
		Patch: tracker.PatchRef{Name: unnamed}, Selectors: []device.Selector{selects}, Taints: taints,
	}, t.cluster.Now)
	switch {
	case err != nil:
		return Preview{}, nil, fmt.Errorf("foretell the taints of %s: %w", of, errClaims)
	case mere:
		return t.mere(of, withNoExecute, changes), nil, nil
	default:
		return t.tell(of, changes), changes, nil
	}
}

// unnamed is the name of unnamed objects, and not a valid one.
const unnamed = "-"

// merged returns a patch with the UID and the status of the existing one with its name.
func (t *Teller) merged(patch *v1alpha1.ResourceSlicePatch) *v1alpha1.ResourceSlicePatch {
	for i := range t.cluster.Patches {
		if stands := &t.cluster.Patches[i]; stands.Name == patch.Name {
			patch = patch.DeepCopy()
			patch.UID, patch.Status = stands.UID, stands.Status
		}
	}
	return patch
}

// selectors returns the device selectors of a patch.
func (t *Teller) selectors(ctx context.Context, patch *v1alpha1.ResourceSlicePatch) ([]device.Selector, error) {
	filter := patch.Spec.Devices.Filter
	if !slicepatch.Conditional(filter) {
		names := slicepatch.NamesOf(filter)
		selector, _ := device.SelectorOf(&names)
		return []device.Selector{selector}, nil
	}
	ids, err := t.cluster.Selected(ctx, patch)
	switch {
	case err != nil && ctx.Err() == nil:
		return nil, &UnforetoldError{err}
	case err != nil:
		return nil, err
	}
	selectors := make([]device.Selector, 0, len(ids))
	for i := range ids {
		id := &ids[i]
		selector, _ := device.SelectorOf(&resourcev1.DeviceTaintSelector{Driver: &id.Driver, Pool: &id.Pool, Device: &id.Name})
		selectors = append(selectors, selector)
	}
	return selectors, nil
}

// dated returns the taints of a patch with their timeAdded.
func (t *Teller) dated(patch *v1alpha1.ResourceSlicePatch) []resourcev1.DeviceTaint {
	taints := make([]resourcev1.DeviceTaint, 0, len(patch.Spec.Devices.Taints))
	for i := range patch.Spec.Devices.Taints {
		spec := &patch.Spec.Devices.Taints[i]
		taint := resourcev1.DeviceTaint{Key: spec.Key, Value: spec.Value, Effect: spec.Effect, TimeAdded: spec.TimeAdded}
		if taint.TimeAdded.IsZero() {
			taint.TimeAdded = slicepatch.Since(patch, spec)
		}
		if taint.TimeAdded.IsZero() {
			taint.TimeAdded = new(metav1.NewTime(t.cluster.Now.Truncate(time.Second)))
		}
		taints = append(taints, taint)
	}
	return taints
}

// merely reports whether there are taints with the effect None and none with NoExecute.
func merely(taints []resourcev1.DeviceTaint) bool {
	has := func(effect resourcev1.DeviceTaintEffect) bool {
		return slices.ContainsFunc(taints, func(t resourcev1.DeviceTaint) bool { return t.Effect == effect })
	}
	return has(resourcev1.DeviceTaintEffectNone) && !has(resourcev1.DeviceTaintEffectNoExecute)
}

// evicting returns the taints with the effect None, changed to NoExecute.
func evicting(taints []resourcev1.DeviceTaint) []resourcev1.DeviceTaint {
	var would []resourcev1.DeviceTaint
	for _, taint := range taints {
		if taint.Effect == resourcev1.DeviceTaintEffectNone {
			taint.Effect, taint.TimeAdded = resourcev1.DeviceTaintEffectNoExecute, nil
			would = append(would, taint)
		}
	}
	return would
}

// Target previews DeviceTaintRules or a ResourceSlicePatch for the taints of a target. The error
// is an UnpublishedError if there are no such devices.
func (t *Teller) Target(ctx context.Context, target *Target, taints []Taint) (Preview, error) {
	p, err := t.target(ctx, target, taints)
	if err != nil {
		return Preview{}, err
	}
	if p.Touches() { // A claim has such a device.
		return p, nil
	}
	return p, t.Published(ctx, target)
}

func (t *Teller) target(ctx context.Context, target *Target, taints []Taint) (Preview, error) {
	of := "device/" + target.String()
	if !target.Conditional() {
		specs := make([]resourcev1.DeviceTaint, 0, len(taints))
		for _, taint := range taints {
			specs = append(specs, resourcev1.DeviceTaint{Key: taint.Key, Value: taint.Value, Effect: resourcev1.DeviceTaintEffect(taint.Effect)})
		}
		return t.Named(ctx, of, target.DeviceSelector(), specs)
	}
	patch := &v1alpha1.ResourceSlicePatch{ObjectMeta: metav1.ObjectMeta{Name: unnamed}}
	patch.Spec.Devices.Filter = target.Filter()
	for _, taint := range taints {
		patch.Spec.Devices.Taints = append(patch.Spec.Devices.Taints, v1alpha1.PatchedTaint{
			Key: taint.Key, Value: taint.Value, Effect: resourcev1.DeviceTaintEffect(taint.Effect),
		})
	}
	p, err := t.Patch(ctx, patch)
	p.Of = of
	return p, err
}
