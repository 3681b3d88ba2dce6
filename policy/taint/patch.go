package taint

import (
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
)

// The paths of what is judged of a ResourceSlicePatch.
var (
	patchTaintsPath = field.NewPath("spec", "devices", "taints")
	patchFilterPath = field.NewPath("spec", "devices", "filter")
)

// PatchChange is a write of a ResourceSlicePatch: Old is nil when it is created, New when
// it is deleted.
type PatchChange struct {
	// Name is that of the patch; empty while it is still to be generated.
	Name     string
	New, Old *v1alpha1.DevicePatch
}

// Writes returns what the request changes of the taints of the patch. A taint that stays
// is changed where the filter is another one: it comes to other devices. What else a
// patch does is no taint, and without taints there are no writes.
func (c *PatchChange) Writes() []Write {
	d := diff{
		path: patchTaintsPath.Index, gone: patchTaintsPath, same: func(Taint, Taint) bool { return false },
		old: ofPatch(c.Old), now: ofPatch(c.New),
	}
	if len(d.old)+len(d.now) == 0 {
		return nil
	}
	fresh, gone := d.unmatched()
	writes := d.pair(fresh, gone)
	if c.New != nil && c.Old != nil && !c.sameFilter() {
		for i, t := range d.now {
			if !slices.Contains(fresh, i) {
				writes = append(writes, Write{Operation: v1alpha1.TaintChange, Old: t, New: t, Path: patchFilterPath})
			}
		}
	}
	was, is := patchedDriver(c.Old), patchedDriver(c.New)
	for i := range writes {
		w := &writes[i]
		if w.Operation != v1alpha1.TaintAdd {
			w.Old.Driver = was
		}
		if w.Operation != v1alpha1.TaintRemove {
			w.New.Driver = is
		}
	}
	return writes
}

// ofPatch returns the taints of a patch, nil for none, without the driver.
func ofPatch(p *v1alpha1.DevicePatch) []Taint {
	if p == nil || len(p.Taints) == 0 {
		return nil
	}
	taints := make([]Taint, 0, len(p.Taints))
	for i := range p.Taints {
		t := &p.Taints[i]
		taints = append(taints, OfDevice("", &resourcev1.DeviceTaint{Key: t.Key, Value: t.Value, Effect: t.Effect, TimeAdded: t.TimeAdded}))
	}
	return taints
}

// patchedDriver returns the driver that a patch names. One that names none may be for
// devices of every driver, whatever class and expressions it asks for.
func patchedDriver(p *v1alpha1.DevicePatch) string {
	if p == nil || p.Filter == nil || p.Filter.Driver == nil {
		return ""
	}
	return *p.Filter.Driver
}

func (c *PatchChange) sameFilter() bool {
	return equality.Semantic.DeepEqual(filterOf(c.Old), filterOf(c.New))
}

// filterOf returns the filter of a patch. To have none is the same as one that asks for
// nothing.
func filterOf(p *v1alpha1.DevicePatch) v1alpha1.DevicePatchFilter {
	if p.Filter == nil {
		return v1alpha1.DevicePatchFilter{}
	}
	return *p.Filter
}

// everyDevicePatched reports whether a patch is for every device.
func everyDevicePatched(p *v1alpha1.DevicePatch) bool {
	return equality.Semantic.DeepEqual(filterOf(p), v1alpha1.DevicePatchFilter{})
}

// unbounded reports whether a taint of the patch comes to every device and did not stand
// there before, or does more to them than it did: to make it do less must always be
// possible.
func (c *PatchChange) unbounded(t *Taint) bool {
	if !everyDevicePatched(c.New) {
		return false
	}
	return c.Old == nil || !everyDevicePatched(c.Old) || !slices.ContainsFunc(c.Old.Taints, func(old v1alpha1.PatchedTaint) bool {
		return old.Key == t.Key && old.Value == t.Value && severity(old.Effect) >= severity(resourcev1.DeviceTaintEffect(t.Effect))
	})
}

// previewed reports whether a taint of the patch evicts nobody, or those alone that could
// be seen before: it stood at None, or evicted already, with the same filter.
func (c *PatchChange) previewed(t *Taint) bool {
	if resourcev1.DeviceTaintEffect(t.Effect) != resourcev1.DeviceTaintEffectNoExecute {
		return true
	}
	return c.Old != nil && c.sameFilter() && slices.ContainsFunc(c.Old.Taints, func(old v1alpha1.PatchedTaint) bool {
		return old.Key == t.Key && old.Value == t.Value &&
			(old.Effect == resourcev1.DeviceTaintEffectNone || old.Effect == resourcev1.DeviceTaintEffectNoExecute)
	})
}

// named returns how sentences call the patch.
func (c *PatchChange) named() string {
	if c.Name == "" {
		return "the ResourceSlicePatch"
	}
	return "ResourceSlicePatch " + policy.Short(c.Name, policy.MaxKeyLength)
}

// judgePatch holds a patch against the limits that are about what selects devices. They
// are about what its taints are to do, and not about their end.
func (c *compiled) judgePatch(patch *PatchChange, writes []governed, f *filer) {
	if patch == nil || patch.New == nil || c.limits == nil {
		return
	}
	unbounded := false
	for i := range writes {
		w := &writes[i]
		if w.operation == v1alpha1.TaintRemove {
			continue
		}
		unbounded = unbounded || patch.unbounded(&w.New)
		if !c.limits.RequirePreview || patch.previewed(&w.New) {
			continue
		}
		path := w.Path
		if path != patchFilterPath {
			path = path.Child("effect")
		}
		f.file(policy.Finding{
			Reason:  policy.PreviewRequired,
			Field:   path.String(),
			Value:   w.New.String(),
			Problem: "evicts pods, and " + patch.named() + " did not stand at effect None with this taint and filter before",
			Remedy:  "write it with effect None, read its status, then change the effect alone",
		})
	}
	if c.limits.RequireSelector && unbounded {
		f.file(policy.Finding{
			Reason:  policy.SelectorRequired,
			Field:   patchFilterPath.String(),
			Problem: "asks for nothing: " + patch.named() + " taints every device",
			Remedy:  "ask for a class, a driver, a pool or a device, or for what an expression says",
		})
	}
}
