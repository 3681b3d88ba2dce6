package plugins

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// view serves the patched slices over the scheduler's own slices and classes. It is safe for
// concurrent use.
type view struct {
	slices  fwk.ResourceSliceLister
	classes fwk.DeviceClassLister
	// synced is false until all patches that existed at the start are known, and the
	// classes that they may filter by.
	synced func() bool
	// patches returns the patches as an informer knows them; they are read-only.
	patches func() []*v1alpha1.ResourceSlicePatch
	// rules returns the rules that slices has applied; nil for none.
	rules   writtenFor
	compile compileFunc

	// refreshing is held while a generation is made, so that none is made twice and
	// an older one never follows a newer.
	refreshing sync.Mutex
	current    atomic.Pointer[generation]
}

// errNotSynced is the answer before the patches are known: devices as their
// drivers published them would be the wrong answer.
var errNotSynced = errors.New("the ResourceSlicePatches are not known yet")

// ListWithDeviceTaintRules returns all slices, with DeviceTaintRules and patches
// applied. Slices and rules are never older than the scheduler's tracker when it is
// called; patches and classes never older than the last Refresh that has returned.
//
// The scheduler waits for the informers but not for a refresh, so the first list may have to
// make the first generation. All later ones are left to Refresh, whose caller wakes the pods.
func (v *view) ListWithDeviceTaintRules() ([]*resourcev1.ResourceSlice, error) {
	if v.current.Load() == nil {
		if _, err := v.refresh(true); err != nil {
			return nil, err
		}
	}
	now := v.current.Load()
	slices, err := v.slices.ListWithDeviceTaintRules()
	if err != nil {
		return nil, err
	}
	return now.apply(slices, nil), nil
}

// Refresh reads patches and classes anew. If the set of patches has changed it
// compiles it, maps every slice through it and only then lets lists see it, and says
// true: from then on no list sees an older one. It may take long, and holds up no list
// but the first. It fails with errNotSynced before the patches are known.
func (v *view) Refresh() (changed bool, err error) { return v.refresh(false) }

// refresh makes a generation if there is none that stands for the patches. The first one does
// not replace another.
func (v *view) refresh(first bool) (changed bool, err error) {
	v.refreshing.Lock()
	defer v.refreshing.Unlock()
	before := v.current.Load()
	if first && before != nil {
		return false, nil
	}
	if !v.synced() {
		return false, errNotSynced
	}
	patches := v.patches()
	next := &generation{rules: v.rules, patches: make(map[types.UID]int64, len(patches))}
	for _, patch := range patches {
		next.patches[patch.UID] = patch.Generation
	}
	if before == nil {
		before = &generation{}
	} else if same, err := v.standsFor(before, next.patches); err != nil || same {
		return false, err
	}
	if len(patches) > 0 {
		// The classes that the set asks for are kept, nil where there is none.
		next.classes = map[string]*resourcev1.DeviceClass{}
		next.set = v.compile(patches, func(name string) *resourcev1.DeviceClass {
			found, failed := v.class(name)
			if failed != nil {
				err = failed
			}
			next.classes[name] = found
			return found
		}, before.set)
		if err != nil {
			return false, err
		}
	}
	slices, err := v.slices.ListWithDeviceTaintRules()
	if err != nil {
		return false, err
	}
	// The lists that follow find the results, and do not wait for expressions.
	next.apply(slices, before.known())
	v.current.Store(next)
	return true, nil
}

// class is nil for a class that does not exist.
func (v *view) class(name string) (*resourcev1.DeviceClass, error) {
	class, err := v.classes.Get(name)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // No class is an answer.
	}
	if err != nil {
		return nil, fmt.Errorf("get DeviceClass %q: %w", name, err)
	}
	return class, nil
}
