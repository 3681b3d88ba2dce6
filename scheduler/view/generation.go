package view

import (
	"maps"
	"sync"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// identity tells specs of patches apart: a write of the status keeps the generation, and
// a successor of the same name has another UID.
type identity struct {
	uid        types.UID
	generation int64
}

type getClass func(name string) (*resourcev1.DeviceClass, error)

// generation is a set of patches, what it was made of, and the slices it has been
// applied to.
type generation struct {
	patches    []*v1alpha1.ResourceSlicePatch
	identities map[identity]struct{}
	// classes are those that were asked for, nil where there was none.
	classes map[string]*resourcev1.DeviceClass
	// set is nil where there are no patches.
	set   Set
	rules Rules

	// applying guards results.
	applying sync.Mutex
	// results are by the name of the slice.
	results map[string]applied
}

// applied is what a set made of a slice. It holds while the slice is the same object:
// stores replace objects, they do not change them.
type applied struct {
	slice  *resourcev1.ResourceSlice
	result Result
}

// read makes a generation that is not compiled yet.
func read(patches []*v1alpha1.ResourceSlicePatch, rules Rules) *generation {
	next := &generation{patches: patches, rules: rules, identities: make(map[identity]struct{}, len(patches))}
	for _, patch := range patches {
		next.identities[identity{uid: patch.UID, generation: patch.Generation}] = struct{}{}
	}
	return next
}

// standsFor tells whether a set made of the other's patches would be the same.
func (g *generation) standsFor(other *generation, class getClass) (bool, error) {
	if g == nil || !maps.Equal(g.identities, other.identities) {
		return false, nil
	}
	for name, before := range g.classes {
		now, err := class(name)
		if err != nil || !sameClass(before, now) {
			return false, err
		}
	}
	return true, nil
}

// sameClass compares what a new list of all classes does not change.
func sameClass(one, other *resourcev1.DeviceClass) bool {
	if one == nil || other == nil {
		return one == other
	}
	return one.UID == other.UID && one.ResourceVersion == other.ResourceVersion
}

func (g *generation) compile(compile Compile, class getClass, before *generation) error {
	if len(g.patches) == 0 {
		return nil
	}
	var previous Set
	if before != nil {
		previous = before.set
	}
	g.classes = map[string]*resourcev1.DeviceClass{}
	var failed error
	g.set = compile(g.patches, func(name string) *resourcev1.DeviceClass {
		found, err := class(name)
		if err != nil {
			failed = err
		}
		g.classes[name] = found
		return found
	}, previous)
	return failed
}

// apply returns the slices as the set makes them. Earlier has what came of them before
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

// known are the results as they are now.
func (g *generation) known() map[string]applied {
	if g == nil {
		return nil
	}
	g.applying.Lock()
	defer g.applying.Unlock()
	return maps.Clone(g.results)
}
