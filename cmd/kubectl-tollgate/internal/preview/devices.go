package preview

import (
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
	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/device"
	"github.com/tollgate-dev/tollgate/tracker/informer"
)

// unreadableError means that there is no preview, because the user may read too little of the
// cluster. The write is possible.
type unreadableError struct{ error }

func (e *unreadableError) Unwrap() error { return e.error }

// errClaims is the error of previews of devices without claims.
var errClaims = &unreadableError{errors.New("you may not list resourceclaims, and they say which pods use which devices (ask for a ClusterRole with the verb list on resourceclaims of API group resource.k8s.io)")}

// unnamed is the name of unnamed objects, and not a valid one.
const unnamed = "-"

// change is a write of device taints.
type change struct {
	// of names the preview, and what the write in errors.
	of, what string
	taints   []resourcev1.DeviceTaint
	// needs is the condition under which the taints evict, empty if it is met.
	needs string
	// effects returns the effects of the write with other taints.
	effects func([]resourcev1.DeviceTaint) ([]tracker.Change, error)
}

// preview previews the write, and returns its effects on pods. For taints with the effect None and
// none with NoExecute, the preview is for NoExecute.
func (t *Teller) preview(c change) (Preview, []tracker.Change, error) {
	changes, err := c.effects(c.taints)
	if err != nil {
		return Preview{}, nil, fmt.Errorf("foretell %s: %w", c.what, errClaims)
	}
	p := t.tell(c.of, changes)
	if c.needs != "" {
		p = t.mere(c.of, c.needs, changes)
	}
	var evicting []resourcev1.DeviceTaint
	for _, taint := range c.taints {
		switch taint.Effect { //nolint:exhaustive // NoSchedule has no effect on pods.
		case resourcev1.DeviceTaintEffectNoExecute:
			return p, changes, nil
		case resourcev1.DeviceTaintEffectNone:
			taint.Effect, taint.TimeAdded = resourcev1.DeviceTaintEffectNoExecute, nil
			evicting = append(evicting, taint)
		}
	}
	if len(evicting) == 0 {
		return p, changes, nil
	}
	would, err := c.effects(evicting)
	if err != nil {
		return Preview{}, nil, fmt.Errorf("foretell %s: %w", c.what, errClaims)
	}
	return t.mere(c.of, "with the effect NoExecute", would, p.Ends...), changes, nil
}

// Rule previews the write of a DeviceTaintRule of any version. An existing rule with its name
// keeps its UID and times.
func (t *Teller) Rule(ctx context.Context, object *unstructured.Unstructured) (Preview, error) {
	typed, rule, err := informer.ReadRule(object)
	if err != nil {
		return Preview{}, err
	}
	p := Preview{Of: nameOf(object)}
	var changes []tracker.Change
	if len(rule.Unsupported) > 0 {
		p.Nothing = fmt.Sprintf("selects no devices: spec.deviceSelector has fields that this version of Tollgate does not know (%v)", rule.Unsupported)
	} else {
		var old *tracker.Rule
		if existing, exists := t.cluster.Tracker.Rule(rule.Name); exists {
			old = &existing
			if rule.Taint.TimeAdded.IsZero() && rule.Taint.Effect == old.Taint.Effect {
				rule.Taint.TimeAdded = old.Taint.TimeAdded
			}
		}
		p, changes, err = t.preview(change{
			of: p.Of, what: "DeviceTaintRule " + rule.Name, taints: []resourcev1.DeviceTaint{rule.Taint},
			effects: func(taints []resourcev1.DeviceTaint) ([]tracker.Change, error) {
				rule.Taint = taints[0]
				return t.view.Rule(old, rule, t.cluster.Now)
			},
		})
		if err != nil {
			return Preview{}, err
		}
	}
	err = t.judgeRule(ctx, &p, rule.Name, &typed.Spec, changes)
	return p, err
}

// Patch previews the write of a ResourceSlicePatch. An existing patch with its name keeps its UID
// and status. A patch with a class or expressions needs a cluster read with Selection.
func (t *Teller) Patch(ctx context.Context, patch *v1alpha1.ResourceSlicePatch) (Preview, error) {
	var old *v1alpha1.ResourceSlicePatch
	if at := slices.IndexFunc(t.cluster.Patches, func(p v1alpha1.ResourceSlicePatch) bool { return p.Name == patch.Name }); at >= 0 {
		old, patch = &t.cluster.Patches[at], patch.DeepCopy()
		patch.UID, patch.Status = old.UID, old.Status
	}
	if problems := slicepatch.ValidatePatch(patch); len(problems) > 0 {
		return Preview{}, fmt.Errorf("ResourceSlicePatch %s: %w", patch.Name, problems.ToAggregate())
	}
	selectors, err := t.selectors(ctx, patch)
	if err != nil {
		return Preview{}, err
	}
	var taints []resourcev1.DeviceTaint
	for _, spec := range patch.Spec.Devices.Taints {
		taint := resourcev1.DeviceTaint{Key: spec.Key, Value: spec.Value, Effect: spec.Effect, TimeAdded: spec.TimeAdded}
		if taint.TimeAdded.IsZero() {
			taint.TimeAdded = slicepatch.Since(patch, &spec)
		}
		if taint.TimeAdded.IsZero() {
			taint.TimeAdded = new(metav1.NewTime(t.cluster.Now.Truncate(time.Second)))
		}
		taints = append(taints, taint)
	}
	ref := tracker.PatchRef{Name: patch.Name, UID: patch.UID}
	p, changes, err := t.preview(change{
		of: "resourceslicepatch/" + patch.Name, what: "ResourceSlicePatch " + patch.Name, taints: taints, needs: t.patchesNeed(),
		effects: t.patched(ref, selectors),
	})
	if err != nil {
		return Preview{}, err
	}
	err = t.judgePatch(ctx, &p, patch, old, changes)
	return p, err
}

// patched returns the effects of taints on devices.
func (t *Teller) patched(ref tracker.PatchRef, selectors []device.Selector) func([]resourcev1.DeviceTaint) ([]tracker.Change, error) {
	return func(taints []resourcev1.DeviceTaint) ([]tracker.Change, error) {
		return t.view.Patch(tracker.PatchedTaints{Patch: ref, Selectors: selectors, Taints: taints}, t.cluster.Now)
	}
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
	if err != nil {
		if ctx.Err() == nil {
			err = &unreadableError{err}
		}
		return nil, err
	}
	selectors := make([]device.Selector, 0, len(ids))
	for _, id := range ids {
		target := Target{Driver: id.Driver, Pool: id.Pool, Device: id.Name}
		selector, _ := device.SelectorOf(target.DeviceSelector())
		selectors = append(selectors, selector)
	}
	return selectors, nil
}

// Target previews DeviceTaintRules or a ResourceSlicePatch for the taints of a target. The error
// is an UnpublishedError if there are no such devices.
func (t *Teller) Target(ctx context.Context, target *Target, taints []Taint) (Preview, error) {
	p, err := t.target(ctx, target, taints)
	if err != nil || p.Touches() { // A claim has such a device.
		return p, err
	}
	return p, t.Published(ctx, target)
}

func (t *Teller) target(ctx context.Context, target *Target, taints []Taint) (Preview, error) {
	of := "device/" + target.String()
	if target.Conditional() {
		patch := target.patch(metav1.ObjectMeta{Name: unnamed}, taints...)
		p, err := t.Patch(ctx, patch)
		p.Of = of
		return p, err
	}
	selector, _ := device.SelectorOf(target.DeviceSelector())
	written := make([]resourcev1.DeviceTaint, 0, len(taints))
	for _, taint := range taints {
		written = append(written, taint.onDevice())
	}
	p, changes, err := t.preview(change{
		of: of, what: "the taints of " + of, taints: written,
		effects: t.patched(tracker.PatchRef{Name: unnamed}, []device.Selector{selector}),
	})
	for i := 0; i < len(written) && err == nil; i++ {
		spec := &resourcev1.DeviceTaintRuleSpec{DeviceSelector: target.DeviceSelector(), Taint: written[i]}
		err = t.judgeRule(ctx, &p, t.ruleFor(spec), spec, changes)
	}
	return p, err
}

// UnpublishedError means that the devices do not exist.
type UnpublishedError struct {
	// Devices are the requested devices, Instead describes existing ones.
	Devices, Instead string
}

// Error implements error.
func (e *UnpublishedError) Error() string {
	return fmt.Sprintf("device %q: no ResourceSlice publishes such a device; %s", e.Devices, e.Instead)
}

// Published returns an UnpublishedError if no ResourceSlice publishes a device that the target
// selects. It returns nil where ResourceSlices could not be read.
func (t *Teller) Published(ctx context.Context, target *Target) error {
	if t.cluster.Unread("resourceslices") {
		return nil
	}
	var ids []device.ID
	if target.Conditional() {
		var err error
		if ids, err = t.cluster.Selected(ctx, target.patch(metav1.ObjectMeta{Name: unnamed})); err != nil {
			return &unreadableError{err}
		}
	} else {
		ids = t.published(*target)
	}
	if len(ids) > 0 {
		return nil
	}
	return &UnpublishedError{Devices: target.String(), Instead: t.publishedInstead(target)}
}

// published returns the published devices with the names of a target.
func (t *Teller) published(target Target) []device.ID {
	selector, _ := device.SelectorOf(target.DeviceSelector())
	return t.cluster.Tracker.Devices(selector)
}

// publishedInstead describes existing devices: those of the target's pool, else the pools of its
// driver, else the drivers.
func (t *Teller) publishedInstead(target *Target) string {
	const most = 5
	list := func(text string, ids []device.ID, name func(device.ID) string) string {
		var names []string
		for _, id := range ids {
			names = append(names, name(id))
		}
		slices.Sort(names)
		names = slices.Compact(names)
		if more := len(names) - most; more > 0 {
			names = append(names[:most], fmt.Sprintf("%d more", more))
		}
		return text + " " + strings.Join(names, ", ")
	}
	if target.Driver != "" && target.Pool != "" {
		if target.Device != "" {
			if ids := t.published(Target{Driver: target.Driver, Pool: target.Pool}); len(ids) > 0 {
				return list(fmt.Sprintf("pool %q has the devices", target.Pool), ids, func(id device.ID) string { return id.Name })
			}
		}
		if ids := t.published(Target{Driver: target.Driver}); len(ids) > 0 {
			return list(fmt.Sprintf("driver %q has the pools", target.Driver), ids, func(id device.ID) string { return id.Pool })
		}
	}
	if ids := t.published(Target{}); len(ids) > 0 {
		return list("there are devices of", ids, func(id device.ID) string { return id.Driver })
	}
	return "there are no published devices"
}
