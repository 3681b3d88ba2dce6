package view

import (
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/tracker/sliceview"
)

// Set is what a number of patches do to slices. It does not change.
type Set interface {
	// Apply makes of a slice what the patches make of it. Earlier is what came of the
	// slice of that name before, by this set or by one before it, and zero for a new one.
	// What it returns depends on the slice and the set alone.
	Apply(slice *resourcev1.ResourceSlice, earlier Result) Result
	// Has reports whether the set applies the patch with that UID, which is to say that
	// the patch is valid.
	Has(uid types.UID) bool
}

// Result is a slice with patches applied.
type Result = sliceview.Patched

// Class finds a DeviceClass by name. It is nil where there is none.
type Class func(name string) *resourcev1.DeviceClass

// Compile makes a set of patches, with the classes as they are: it asks for each that
// a patch filters by. Patches come in no order. What previous has found out may be
// used again; it is nil for the first set.
type Compile func(patches []*v1alpha1.ResourceSlicePatch, class Class, previous Set) Set

// CompilePatches is a Compile.
func CompilePatches(objects []*v1alpha1.ResourceSlicePatch, class Class, previous Set) Set {
	before, _ := previous.(*sliceview.PatchSet)
	return sliceview.NewPatchSet(objects, class, before)
}
