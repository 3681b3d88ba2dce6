package view

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// Patches are the ResourceSlicePatches as an informer knows them.
type Patches interface {
	// HasSynced is false until all that existed at the start are known, and the
	// classes that they may filter by.
	HasSynced() bool
	// List returns the patches; they are not changed by anyone.
	List() []*v1alpha1.ResourceSlicePatch
}

// View serves the patched slices. It is safe for concurrent use.
type View struct {
	slices  fwk.ResourceSliceLister
	classes fwk.DeviceClassLister
	patches Patches
	rules   Rules
	compile Compile

	// refreshing is held while a generation is made, so that none is made twice and
	// an older one never follows a newer.
	refreshing sync.Mutex
	current    atomic.Pointer[generation]
}

var _ fwk.ResourceSliceLister = &View{}

// ErrNotSynced is what is answered before the patches are known: devices as their
// drivers published them would be the wrong answer.
var ErrNotSynced = errors.New("the ResourceSlicePatches are not known yet")

// New returns a view over the scheduler's own slices and classes. Rules are those that
// slices has applied.
func New(slices fwk.ResourceSliceLister, classes fwk.DeviceClassLister, patches Patches, rules Rules, compile Compile) *View {
	return &View{slices: slices, classes: classes, patches: patches, rules: rules, compile: compile}
}

// ListWithDeviceTaintRules returns all slices, with DeviceTaintRules and patches
// applied. Slices and rules are never older than the scheduler's tracker when it is
// called; patches and classes never older than the last Refresh that has returned.
func (v *View) ListWithDeviceTaintRules() ([]*resourcev1.ResourceSlice, error) {
	now, err := v.first()
	if err != nil {
		return nil, err
	}
	slices, err := v.slices.ListWithDeviceTaintRules()
	if err != nil {
		return nil, err
	}
	return now.apply(slices, nil), nil
}

// first is the current generation. The scheduler waits for the informers but not for a
// refresh, so the first list may have to make it. What comes after it is left to
// Refresh, whose caller wakes the pods.
func (v *View) first() (*generation, error) {
	if now := v.current.Load(); now != nil {
		return now, nil
	}
	v.refreshing.Lock()
	defer v.refreshing.Unlock()
	if v.current.Load() == nil {
		if _, err := v.refresh(); err != nil {
			return nil, err
		}
	}
	return v.current.Load(), nil
}

// Refresh reads patches and classes anew. If the set of patches has changed it
// compiles it, maps every slice through it and only then lets lists see it, and says
// true: from then on no list sees an older one. It may take long, and holds up no list
// but the first. It fails with ErrNotSynced before the patches are known.
func (v *View) Refresh() (changed bool, err error) {
	v.refreshing.Lock()
	defer v.refreshing.Unlock()
	return v.refresh()
}

func (v *View) refresh() (changed bool, err error) {
	if !v.patches.HasSynced() {
		return false, ErrNotSynced
	}
	before := v.current.Load()
	next := read(v.patches.List(), v.rules)
	same, err := before.standsFor(next, v.class)
	if err != nil || same {
		return false, err
	}
	if err := next.compile(v.compile, v.class, before); err != nil {
		return false, err
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
func (v *View) class(name string) (*resourcev1.DeviceClass, error) {
	class, err := v.classes.Get(name)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // That there is none is an answer.
	}
	if err != nil {
		return nil, fmt.Errorf("get DeviceClass %q: %w", name, err)
	}
	return class, nil
}
