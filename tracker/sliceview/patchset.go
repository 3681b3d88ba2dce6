package sliceview

import (
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// PatchSet is a number of compiled patches for code that has slices of its own, such as a
// scheduler. It does not change. One set is not applied by two goroutines at once; a set and
// the one that was made of it may be.
type PatchSet struct{ patches patches }

// Patched is a slice with patches applied.
type Patched struct {
	// Slice is the published slice itself where patches change nothing, else a copy,
	// which may share the unchanged parts.
	Slice *resourcev1.ResourceSlice
	// Memory has the answers of a PatchSet about the slice.
	Memory any
}

// NewPatchSet compiles patches. Class finds a DeviceClass by name, nil for none. What previous,
// nil for none, has compiled and found out is used again. A patch that is not valid does nothing.
func NewPatchSet(objects []*v1alpha1.ResourceSlicePatch, class func(name string) *resourcev1.DeviceClass, previous *PatchSet) *PatchSet {
	if previous == nil {
		previous = &PatchSet{}
	}
	s := &PatchSet{patches: newPatches()}
	for _, object := range objects {
		if filter := object.Spec.Devices.Filter; filter != nil && filter.DeviceClassName != nil {
			name := *filter.DeviceClassName
			if _, known := s.patches.classes[name]; !known {
				if was, found := previous.patches.classes[name]; found {
					s.patches.classes[name] = was
				}
				s.patches.setClass(name, class(name))
			}
		}
		s.patches.set(s.patches.compile(object, previous.patches.byName[object.Name]))
	}
	return s
}

// Has reports whether the set applies the patch with a UID.
func (s *PatchSet) Has(uid types.UID) bool { return s.patches.inForce(uid) }

// Apply returns a slice with the patches. Earlier is what came of the slice of that name before,
// by this set or by one before it, and zero for a new one.
func (s *PatchSet) Apply(slice *resourcev1.ResourceSlice, earlier Patched) Patched {
	e := &entry{raw: slice}
	if was, found := earlier.Memory.(*entry); found && sameAnswers(was.raw, slice) {
		e.verdicts = make(map[*question]*verdict, len(was.verdicts))
		for q, verdict := range was.verdicts {
			if p := s.patches.byName[q.patch]; p != nil && p.question == q {
				e.verdicts[q] = verdict
			}
		}
	}
	patched, _ := s.patches.apply(e)
	e.devices = nil
	return Patched{Slice: patched, Memory: e}
}
