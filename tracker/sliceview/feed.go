package sliceview

import (
	"fmt"

	toolscache "k8s.io/client-go/tools/cache"
)

// informer is the part of a client-go informer that is needed here.
type informer interface {
	AddEventHandler(handler toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error)
	RemoveEventHandler(registration toolscache.ResourceEventHandlerRegistration) error
}

// Attach subscribes the view to informers of ResourceSlices and DeviceTaintRules,
// both with resource.k8s.io/v1 objects. Rules are nil where they are not served;
// then every slice is passed through (TR-08). Rules that are served later may be
// given to SetRule and DeleteRule. Attach is called once, before Run.
func (v *View) Attach(slices, rules informer) error {
	if err := subscribe(v, "resource slice", slices, v.SetSlice, v.DeleteSlice); err != nil || rules == nil {
		return err
	}
	return subscribe(v, "device taint rule", rules, v.SetRule, v.DeleteRule)
}

// AttachPatches subscribes the view to informers of ResourceSlicePatches and of
// DeviceClasses, the latter with resource.k8s.io/v1 objects. It is called at most once,
// before Run. Without it no device is patched.
func (v *View) AttachPatches(patches, classes informer) error {
	// Classes first: a patch that waits for its class is looked at twice.
	if err := subscribe(v, "device class", classes, v.SetClass, v.DeleteClass); err != nil {
		return err
	}
	return subscribe(v, "resource slice patch", patches, v.SetPatch, v.DeletePatch)
}

// subscribe has set called with the objects of an informer, and remove with the names of those
// that are gone: of an object whose deletion was missed, the informer may know nothing else (K06).
func subscribe[T any](v *View, kind string, from informer, set func(*T), remove func(name string)) error {
	take := func(obj any) {
		if typed, ok := obj.(*T); ok {
			set(typed)
		}
	}
	registration, err := from.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    take,
		UpdateFunc: func(_, obj any) { take(obj) },
		DeleteFunc: func(obj any) {
			// All kinds are cluster-scoped, so that the key is the name.
			if name, err := toolscache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
				remove(name)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("add %s event handler: %w", kind, err)
	}
	v.inputs = append(v.inputs, input{informer: from, registration: registration})
	return nil
}
