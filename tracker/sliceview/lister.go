package sliceview

import (
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	resourcelisters "k8s.io/client-go/listers/resource/v1"
)

// List returns all merged slices, by name, as they are at one moment. The slices are
// read-only, the list is the caller's.
func (v *View) List() []*resourcev1.ResourceSlice {
	// The slices that have to be merged anew come first, and the lock is let go of after each:
	// expressions of patches may take long for all of them.
	var stale []*entry
	v.locked(func() {
		for _, e := range v.entries() {
			if e.patched == nil {
				stale = append(stale, e)
			}
		}
	})
	for _, e := range stale {
		v.locked(func() { v.merge(e) })
	}
	v.mutex.Lock()
	defer v.mutex.Unlock()
	entries := v.entries()
	list := make([]*resourcev1.ResourceSlice, 0, len(entries))
	for _, e := range entries {
		list = append(list, v.merge(e))
	}
	return list
}

// Get returns the merged slice with that name, which is read-only.
func (v *View) Get(name string) (*resourcev1.ResourceSlice, bool) {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	slice := v.merged(name)
	return slice, slice != nil
}

// Lister returns a lister of the merged slices for code that asks for one.
func (v *View) Lister() resourcelisters.ResourceSliceLister {
	return lister{view: v}
}

type lister struct {
	view *View
}

// List returns the merged slices with the labels that a selector asks for.
func (l lister) List(selector labels.Selector) ([]*resourcev1.ResourceSlice, error) {
	return slices.DeleteFunc(l.view.List(), func(slice *resourcev1.ResourceSlice) bool {
		return !selector.Matches(labels.Set(slice.Labels))
	}), nil
}

// Get returns the merged slice with that name, or a NotFound error.
func (l lister) Get(name string) (*resourcev1.ResourceSlice, error) {
	slice, found := l.view.Get(name)
	if !found {
		return nil, apierrors.NewNotFound(resourcev1.Resource("resourceslice"), name)
	}
	return slice, nil
}
