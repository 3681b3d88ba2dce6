package plugins

import (
	"maps"
	"sync"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/tracker/sliceview"
)

// generation is a set of patches, what tells it from others, and the slices it has been
// applied to.
type generation struct {
	// patches are the generations of the specs that the set was made of: a write of the
	// status keeps the generation, and a successor of the same name has another UID.
	patches map[types.UID]int64
	// classes are those that were asked for, nil where there was none.
	classes map[string]*resourcev1.DeviceClass
	// set is nil where there are no patches.
	set   patchSet
	rules writtenFor

	// applying guards results.
	applying sync.Mutex
	// results are by the name of the slice.
	results map[string]applied
}

// applied is the result of a set for a slice. It holds while the slice is the same object:
// stores replace objects, they do not change them.
type applied struct {
	slice  *resourcev1.ResourceSlice
	result sliceview.Patched
}

// standsFor reports whether a set made of other patches would be the same.
func (v *view) standsFor(g *generation, patches map[types.UID]int64) (bool, error) {
	if !maps.Equal(g.patches, patches) {
		return false, nil
	}
	for name, before := range g.classes {
		now, err := v.class(name)
		if err != nil || !sameClass(before, now) {
			return false, err
		}
	}
	return true, nil
}

// sameClass compares the parts that a new list of all classes does not change.
func sameClass(one, other *resourcev1.DeviceClass) bool {
	if one == nil || other == nil {
		return one == other
	}
	return one.UID == other.UID && one.ResourceVersion == other.ResourceVersion
}

// apply returns the slices with the set applied. Earlier has the results of the set before
// for those that are new here; nil for nothing. Results for slices that went are dropped
// once they are the greater part.
func (g *generation) apply(slices []*resourcev1.ResourceSlice, earlier map[string]applied) []*resourcev1.ResourceSlice {
	if g.set == nil {
		return slices
	}
	g.applying.Lock()
	defer g.applying.Unlock()
	known := g.results
	dropping := known == nil || len(known) > 2*len(slices)
	if dropping {
		g.results = make(map[string]applied, len(slices))
	}
	patched := make([]*resourcev1.ResourceSlice, len(slices))
	for i, slice := range slices {
		was, found := known[slice.Name]
		if !found {
			was = earlier[slice.Name]
		}
		if !found || was.slice != slice {
			was = applied{slice: slice, result: g.set.Apply(g.leaveOut(slice), was.result)}
			found = false
		}
		if !found || dropping {
			g.results[slice.Name] = was
		}
		patched[i] = was.result.Slice
	}
	return patched
}

// known returns a copy of the results.
func (g *generation) known() map[string]applied {
	g.applying.Lock()
	defer g.applying.Unlock()
	return maps.Clone(g.results)
}
