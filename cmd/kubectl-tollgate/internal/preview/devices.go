package preview

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/slicepatch"
	"github.com/tollgate-dev/tollgate/policy/taint"
	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/device"
	"github.com/tollgate-dev/tollgate/tracker/informer"
)

// unreadableError means that there is no preview, because the user may read too little of the
// cluster. The write is possible.
type unreadableError struct{ error }

// errClaims is the error of previews of devices without claims.
var errClaims = &unreadableError{errors.New("you may not list resourceclaims, and they say which pods use which devices (ask for a ClusterRole with the verb list on resourceclaims of API group resource.k8s.io)")}

// unnamed is the name of unnamed objects, and not a valid one.
const unnamed = "-"

// effects returns the effects of a write with device taints on pods.
type effects func(taints []resourcev1.DeviceTaint) []tracker.Change

// preview previews a write of device taints, and returns its effects on pods. For taints with the
// effect None and none with NoExecute, the preview is for NoExecute. What names the write in errors,
// and but is why it evicts no pods as it is, empty if it does.
func (t *Teller) preview(of, what, but string, taints []resourcev1.DeviceTaint, write effects) (Preview, []tracker.Change, error) {
	if !t.DevicesKnown() {
		return Preview{}, nil, fmt.Errorf("foretell %s: %w", what, errClaims)
	}
	changes := write(taints)
	p := t.tell(of, but, changes)
	var evicting []resourcev1.DeviceTaint
	for _, taint := range taints {
		switch taint.Effect { //nolint:exhaustive // NoSchedule has no effect on pods.
		case noExecute:
			return p, changes, nil
		case none:
			taint.Effect, taint.TimeAdded = noExecute, nil
			evicting = append(evicting, taint)
		}
	}
	if len(evicting) > 0 {
		ends := p.Ends
		p = t.tell(of, "with the effect NoExecute", write(evicting))
		p.Ends = ends
	}
	return p, changes, nil
}

// Rule previews the write of a DeviceTaintRule of any version. An existing rule with its name
// keeps its UID and times.
func (t *Teller) Rule(ctx context.Context, object *unstructured.Unstructured) (Preview, error) {
	typed, rule, err := informer.ReadRule(object)
	if err != nil {
		return Preview{}, err
	}
	if len(rule.Unsupported) > 0 {
		why := fmt.Sprintf("selects no devices: spec.deviceSelector has fields that this version of Tollgate does not know (%v)", rule.Unsupported)
		return t.judgeRule(ctx, Preview{Of: nameOf(object), Nothing: why}, rule.Name, &typed.Spec, nil)
	}
	var old *tracker.Rule
	if existing, exists := t.Tracker.Rule(rule.Name); exists {
		old = &existing
		if rule.Taint.TimeAdded.IsZero() && rule.Taint.Effect == old.Taint.Effect {
			rule.Taint.TimeAdded = old.Taint.TimeAdded
		}
	}
	written := []resourcev1.DeviceTaint{rule.Taint}
	p, changes, err := t.preview(nameOf(object), "DeviceTaintRule "+rule.Name, "", written, func(taints []resourcev1.DeviceTaint) []tracker.Change {
		rule.Taint = taints[0]
		return t.Tracker.IfRuleWas(old, rule, t.Now)
	})
	if err != nil {
		return Preview{}, err
	}
	return t.judgeRule(ctx, p, rule.Name, &typed.Spec, changes)
}

// Patch previews the write of a ResourceSlicePatch. An existing patch with its name keeps its UID
// and status. A patch with a class or expressions needs a cluster read with Selection.
func (t *Teller) Patch(ctx context.Context, patch *v1alpha1.ResourceSlicePatch) (Preview, error) {
	change := &taint.PatchChange{Name: patch.Name}
	if patch.Name == unnamed {
		change.Name = placeholderName
	}
	for i := range t.Patches {
		if old := &t.Patches[i]; old.Name == patch.Name {
			patch = patch.DeepCopy()
			patch.UID, patch.Status = old.UID, old.Status
			change.Old = &old.Spec.Devices
		}
	}
	change.New = &patch.Spec.Devices
	if problems := slicepatch.ValidatePatch(patch); len(problems) > 0 {
		return Preview{}, fmt.Errorf("ResourceSlicePatch %s: %w", patch.Name, problems.ToAggregate())
	}
	selectors, err := t.selectors(ctx, patch)
	if err != nil {
		return Preview{}, err
	}
	var taints []resourcev1.DeviceTaint
	for _, spec := range patch.Spec.Devices.Taints {
		if spec.TimeAdded.IsZero() {
			spec.TimeAdded = cmp.Or(slicepatch.Since(patch, &spec), new(metav1.NewTime(t.Now.Truncate(time.Second))))
		}
		taints = append(taints, resourcev1.DeviceTaint(spec))
	}
	write := t.patched(tracker.PatchRef{Name: patch.Name, UID: patch.UID}, selectors)
	p, changes, err := t.preview("resourceslicepatch/"+patch.Name, "ResourceSlicePatch "+patch.Name, t.patchesNeed(), taints, write)
	if err != nil {
		return Preview{}, err
	}
	return t.judge(ctx, p, tracker.SourcePatch, change.Name, taint.Input{Writes: change.Writes(), Patch: change}, changes)
}

// patched returns the effects of taints on devices.
func (t *Teller) patched(ref tracker.PatchRef, selectors []device.Selector) effects {
	return func(taints []resourcev1.DeviceTaint) []tracker.Change {
		return t.Tracker.IfPatch(tracker.PatchedTaints{Patch: ref, Selectors: selectors, Taints: taints}, t.Now)
	}
}

// selectors returns the device selectors of a patch.
func (t *Teller) selectors(ctx context.Context, patch *v1alpha1.ResourceSlicePatch) ([]device.Selector, error) {
	filter := patch.Spec.Devices.Filter
	if !slicepatch.Conditional(filter) {
		selector, _ := device.SelectorOf(new(slicepatch.NamesOf(filter)))
		return []device.Selector{selector}, nil
	}
	ids, err := t.Selected(ctx, patch)
	if err != nil {
		if ctx.Err() == nil {
			err = &unreadableError{err}
		}
		return nil, err
	}
	selectors := make([]device.Selector, 0, len(ids))
	for _, id := range ids {
		selector, _ := device.SelectorOf(&resourcev1.DeviceTaintSelector{Driver: &id.Driver, Pool: &id.Pool, Device: &id.Name})
		selectors = append(selectors, selector)
	}
	return selectors, nil
}

// Target previews DeviceTaintRules or a ResourceSlicePatch for the taints of a target. The error
// is an UnpublishedError if there are no such devices.
func (t *Teller) Target(ctx context.Context, target *Target, taints []Taint) (p Preview, err error) {
	of := "device/" + target.String()
	if target.Conditional() {
		p, err = t.Patch(ctx, target.patch(metav1.ObjectMeta{Name: unnamed}, taints...))
		p.Of = of
	} else {
		var written []resourcev1.DeviceTaint
		for _, taint := range taints {
			written = append(written, resourcev1.DeviceTaint(taint))
		}
		selector, _ := device.SelectorOf(target.DeviceSelector())
		var changes []tracker.Change
		p, changes, err = t.preview(of, "the taints of "+of, "", written, t.patched(tracker.PatchRef{Name: unnamed}, []device.Selector{selector}))
		for i := 0; i < len(taints) && err == nil; i++ {
			spec := target.RuleSpec(taints[i])
			p, err = t.judgeRule(ctx, p, t.ruleFor(&spec), &spec, changes)
		}
	}
	if err != nil || p.Touches() { // A claim has such a device.
		return p, err
	}
	return p, t.published(ctx, target)
}

// UnpublishedError means that the devices do not exist.
type UnpublishedError struct{ error }

// published returns an UnpublishedError if no ResourceSlice publishes a device that the target
// selects. It returns nil where ResourceSlices could not be read.
func (t *Teller) published(ctx context.Context, target *Target) error {
	if t.Unread("resourceslices") {
		return nil
	}
	selectors, err := t.selectors(ctx, target.patch(metav1.ObjectMeta{Name: unnamed}))
	if err != nil || slices.ContainsFunc(selectors, func(s device.Selector) bool { return len(t.Tracker.Devices(s)) > 0 }) {
		return err
	}
	return &UnpublishedError{fmt.Errorf("device %q: no ResourceSlice publishes such a device; %s", target, t.publishedInstead(target))}
}

// publishedInstead describes existing devices: those of the target's pool, else the pools of its
// driver, else the drivers.
func (t *Teller) publishedInstead(target *Target) string {
	const most = 5
	var devices, pools, drivers []string // sorted, as the devices are
	for _, id := range t.Tracker.Devices(device.Selector{}) {
		drivers = append(drivers, id.Driver)
		if id.Driver == target.Driver && target.Pool != "" {
			pools = append(pools, id.Pool)
			if id.Pool == target.Pool && target.Device != "" {
				devices = append(devices, id.Name)
			}
		}
	}
	text, names := "there are devices of ", drivers
	if len(pools) > 0 {
		text, names = fmt.Sprintf("driver %q has the pools ", target.Driver), pools
	}
	if len(devices) > 0 {
		text, names = fmt.Sprintf("pool %q has the devices ", target.Pool), devices
	}
	names = slices.Compact(names)
	if len(names) == 0 {
		return "there are no published devices"
	}
	if more := len(names) - most; more > 0 {
		names = append(names[:most], fmt.Sprintf("%d more", more))
	}
	return text + strings.Join(names, ", ")
}
