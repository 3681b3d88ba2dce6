package webhook

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/evictor/preview"
	"github.com/tollgate-dev/tollgate/policy/slicepatch"
	"github.com/tollgate-dev/tollgate/policy/taint"
	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/device"
)

// PatchSelection says which devices ResourceSlicePatches are meant for, by what is
// published. It is asked for patches that ask for a class or for expressions: names are
// looked at here.
type PatchSelection interface {
	// Selected returns the devices that a patch is meant for; false while not all devices
	// and classes are known. The patch need not be one that is stored, and one that is on
	// its way out need not be valid: that is meant for none. It must be safe for concurrent
	// use, and is asked while a request waits. A device may stand there twice.
	Selected(ctx context.Context, patch *v1alpha1.ResourceSlicePatch) (devices []device.ID, known bool)
}

// askingTime is how long devices are asked about: the rest of a review's time is for the
// answer.
const askingTime = time.Second

// errUnlisted is why nothing can be foretold yet of a patch by class or expressions.
var errUnlisted = errors.New("not all devices have been read yet")

// errUnasked is why nothing is foretold of a patch whose expressions take too long.
var errUnasked = errors.New("there was no time to ask all devices")

const unaskedWarning = "it is not known how many pods this evicts: there was no time to ask all devices; name a driver or a pool in spec.devices.filter"

// errDevicesUnasked is why a patch that has a limit cannot be judged.
var errDevicesUnasked = errors.New("a TaintPolicy limits how many pods the taint may affect, and there was no time to ask all devices: name a driver or a pool in spec.devices.filter")

const unlistedWarning = "the preview is not complete yet: not all devices have been read, so it is not known how many pods this evicts"

// errDevicesUnread is why a patch that has a limit cannot be judged yet.
var errDevicesUnread = errors.New("a TaintPolicy limits how many pods the taint may affect, and not all devices have been read yet")

// patch looks at the write of a ResourceSlicePatch. Of one whose taints evict nobody it
// says what those with the effect None would do.
func (p *Preview) patch(ctx context.Context, req admission.Request, set *taint.Set, in taint.Input, w *patchWrite) (previewed, error) {
	if writes(in.Writes, resourcev1.DeviceTaintEffectNoExecute) {
		return p.see(ctx, writeOf(ctx, &req, tracker.SourcePatch, w.name, set, in), func(view *preview.View, now time.Time) ([]tracker.Change, error) {
			return p.patched(ctx, w, w.dated(now), now)
		})
	}
	if w.has(resourcev1.DeviceTaintEffectNoExecute) || !writes(in.Writes, resourcev1.DeviceTaintEffectNone) {
		return previewed{}, nil
	}
	return p.merePatch(ctx, w), nil
}

// writes reports whether a taint with that effect comes, or changes.
func writes(list []taint.Write, effect resourcev1.DeviceTaintEffect) bool {
	return slices.ContainsFunc(list, func(w taint.Write) bool {
		return w.Operation != v1alpha1.TaintRemove && w.New.Effect == corev1.TaintEffect(effect)
	})
}

// merePatch says what a patch with the effect None would do.
func (p *Preview) merePatch(ctx context.Context, w *patchWrite) previewed {
	if p == nil {
		return previewed{}
	}
	if off := p.off(tracker.SourcePatch); off != "" {
		return previewed{warnings: []string{off}}
	}
	var evicting []resourcev1.DeviceTaint
	for _, taint := range patchedTaints(w.now).Taints {
		if taint.Effect == resourcev1.DeviceTaintEffectNone {
			taint.Effect, taint.TimeAdded = resourcev1.DeviceTaintEffectNoExecute, nil
			evicting = append(evicting, taint)
		}
	}
	now := p.config.Clock.Now()
	changes, err := p.patched(ctx, w, evicting, now)
	if err != nil {
		warning, _ := unforetold(tracker.SourcePatch, err)
		return previewed{warnings: []string{warning}}
	}
	f := p.config.View.Forecast(now, changes)
	if text := f.If(); text != "" {
		return previewed{warnings: []string{"with the effect NoExecute " + patchNamed(w.name) + " " + text}}
	}
	return previewed{}
}

// patched returns what would change if the patch that is written had taints.
func (p *Preview) patched(ctx context.Context, w *patchWrite, taints []resourcev1.DeviceTaint, now time.Time) ([]tracker.Change, error) {
	patched := tracker.PatchedTaints{Patch: tracker.PatchRef{Name: w.name, UID: w.now.UID}, Taints: taints}
	filter := w.now.Spec.Devices.Filter
	if !slicepatch.Conditional(filter) {
		names := slicepatch.NamesOf(filter)
		selector, _ := device.SelectorOf(&names)
		patched.Selectors = []device.Selector{selector}
		return p.config.View.Patch(patched, now)
	}
	switch {
	case p.config.Selection == nil && p.off(tracker.SourcePatch) != "":
		return nil, errOff
	case p.config.Selection == nil:
		return nil, preview.ErrUnfollowed
	}
	ctx, cancel := context.WithTimeout(ctx, askingTime)
	defer cancel()
	devices, known := p.config.Selection.Selected(ctx, w.now)
	switch {
	case !known && ctx.Err() != nil:
		return nil, errUnasked
	case !known:
		return nil, errUnlisted
	}
	patched.Selectors = make([]device.Selector, 0, len(devices))
	for i := range devices {
		id := &devices[i]
		selector, _ := device.SelectorOf(&resourcev1.DeviceTaintSelector{Driver: &id.Driver, Pool: &id.Pool, Device: &id.Name})
		patched.Selectors = append(patched.Selectors, selector)
	}
	return p.config.View.Patch(patched, now)
}

// has reports whether the patch that is written has a taint with that effect.
func (w *patchWrite) has(effect resourcev1.DeviceTaintEffect) bool {
	return slices.ContainsFunc(w.now.Spec.Devices.Taints, func(t v1alpha1.PatchedTaint) bool { return t.Effect == effect })
}

// dated returns the taints of the patch that is written with the times from which they
// count: those of the spec, else those that the status of the patch has had for their key
// and effect, else now.
func (w *patchWrite) dated(now time.Time) []resourcev1.DeviceTaint {
	taints := patchedTaints(w.now).Taints
	for i := range taints {
		t := &taints[i]
		if t.TimeAdded.IsZero() {
			t.TimeAdded = w.since(t)
		}
		if t.TimeAdded.IsZero() {
			t.TimeAdded = new(metav1.NewTime(now.Truncate(time.Second)))
		}
	}
	return taints
}

// since returns the time that the status of the patch had for a taint, nil for none.
func (w *patchWrite) since(taint *resourcev1.DeviceTaint) *metav1.Time {
	if w.old == nil {
		return nil
	}
	patch := *w.now
	patch.Status = w.old.Status
	return slicepatch.Since(&patch, &v1alpha1.PatchedTaint{Key: taint.Key, Value: taint.Value, Effect: taint.Effect})
}

// carrierNamed returns how sentences call what has a taint of a device.
func carrierNamed(source tracker.Source) string {
	if source.Kind == tracker.SourcePatch {
		return patchNamed(source.Name)
	}
	return "it"
}

// patchNamed returns how sentences call a patch.
func patchNamed(name string) string {
	if name == unnamed {
		return "the ResourceSlicePatch"
	}
	return "ResourceSlicePatch " + clip(name)
}

// off says that taints of a kind are as if they were not there; nothing where they are.
func (p *Preview) off(kind tracker.SourceKind) string {
	gate := p.config.Off[kind]
	if gate == "" {
		return ""
	}
	return "the feature gate " + gate + " is off: the taint has no effect until it is on"
}

// sentence says what a write does to pods, nothing where it is nothing. In mode Observe a
// taint of a patch that evicts is written out as one that does not, so that nobody evicts
// for it: then it is what it would do, as it is while a feature gate is off.
func (p *Preview) sentence(source tracker.Source, f *preview.Forecast) string {
	text, off := f.String(), p.off(source.Kind)
	switch {
	case off != "" && f.If() != "":
		return off + "; then " + carrierNamed(source) + " " + f.If()
	case off != "":
		return off
	case text == "" || source.Kind != tracker.SourcePatch:
		return text
	case p.config.Observe:
		return "in eviction mode Observe nobody is evicted for a ResourceSlicePatch; in another, " + patchNamed(source.Name) + " " + f.If()
	default:
		return patchNamed(source.Name) + " " + text
	}
}
