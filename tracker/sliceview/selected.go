package sliceview

import (
	"context"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/slicepatch"
	"github.com/tollgate-dev/tollgate/tracker/device"
)

// Holds reports whether the view does what a patch says: whether it has taken in this
// version of it, or another one that does the same.
func (v *View) Holds(patch *v1alpha1.ResourceSlicePatch) bool {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	known := v.patches.byName[patch.Name]
	return known != nil && sameObject(known.object, patch)
}

// Would returns the devices in the newest slices that a patch would be meant for if it were
// written, sorted and each once; none for one that is not valid. Nobody is kept waiting
// meanwhile. The error is that of ctx, which is looked at between slices.
func (v *View) Would(ctx context.Context, patch *v1alpha1.ResourceSlicePatch) ([]device.ID, error) {
	compiled, problems := slicepatch.Compile(patch, nil)
	if len(problems) > 0 {
		return nil, nil
	}
	selector, _ := device.SelectorOf(&compiled.Filter.Names)
	v.mutex.Lock()
	class := v.patches.classes[compiled.Filter.Class].compiled
	var published []*resourcev1.ResourceSlice
	for _, e := range v.newest(selector) {
		published = append(published, e.raw)
	}
	v.mutex.Unlock()
	var ids []device.ID
	for _, slice := range published {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		//nolint:contextcheck // What is asked here ends by its cost.
		compiled.Filter.Ask(class, slicepatch.See(&slice.Spec), compiled.Filter.Names.Device, func(at int, yes bool, _ error) {
			if yes { // One on which an expression fails is left alone.
				ids = append(ids, idAt(slice, at))
			}
		})
	}
	slices.SortFunc(ids, device.Compare)
	return slices.Compact(ids), nil
}
