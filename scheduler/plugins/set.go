package plugins

import (
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/tracker/sliceview"
)

// patchSet applies a number of patches to slices. It does not change.
type patchSet interface {
	// Apply returns a slice with the patches. Earlier is the result for the slice of that
	// name before, by this set or by one before it, and zero for a new one. The result
	// depends on the slice and the set alone.
	Apply(slice *resourcev1.ResourceSlice, earlier sliceview.Patched) sliceview.Patched
	// Has reports whether the set applies the patch with that UID, and so whether the
	// patch is valid.
	Has(uid types.UID) bool
}

// findClass finds a DeviceClass by name. It is nil where there is none.
type findClass = func(name string) *resourcev1.DeviceClass

// compileFunc makes a set of patches, with the classes as they are: it asks for each that
// a patch filters by. Patches come in no order. The answers of previous may be used again;
// it is nil for the first set.
type compileFunc func(patches []*v1alpha1.ResourceSlicePatch, class findClass, previous patchSet) patchSet

// compilePatches is a compileFunc.
func compilePatches(objects []*v1alpha1.ResourceSlicePatch, class findClass, previous patchSet) patchSet {
	before, _ := previous.(*sliceview.PatchSet)
	return sliceview.NewPatchSet(objects, class, before)
}
