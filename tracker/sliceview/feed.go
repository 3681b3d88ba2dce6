package sliceview

import (
	"fmt"

	resourcev1 "k8s.io/api/resource/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
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
	err := v.subscribe(slices, toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { take(obj, v.SetSlice) },
		UpdateFunc: func(_, obj any) { take(obj, v.SetSlice) },
		DeleteFunc: func(obj any) { drop(obj, v.DeleteSlice) },
	})
	if err != nil {
		return fmt.Errorf("add resource slice event handler: %w", err)
	}
	if rules == nil {
		return nil
	}
	err = v.subscribe(rules, toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { take(obj, v.SetRule) },
		UpdateFunc: func(_, obj any) { take(obj, v.SetRule) },
		DeleteFunc: func(obj any) { drop(obj, v.DeleteRule) },
	})
	if err != nil {
		return fmt.Errorf("add device taint rule event handler: %w", err)
	}
	return nil
}

// AttachPatches subscribes the view to informers of ResourceSlicePatches and of
// DeviceClasses, the latter with resource.k8s.io/v1 objects. It is called at most once,
// before Run. Without it no device is patched.
func (v *View) AttachPatches(patches, classes informer) error {
	// Classes first: a patch that waits for its class is looked at twice.
	err := v.subscribe(classes, toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { take(obj, v.SetClass) },
		UpdateFunc: func(_, obj any) { take(obj, v.SetClass) },
		DeleteFunc: func(obj any) { drop(obj, v.DeleteClass) },
	})
	if err != nil {
		return fmt.Errorf("add device class event handler: %w", err)
	}
	err = v.subscribe(patches, toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { take(obj, v.SetPatch) },
		UpdateFunc: func(_, obj any) { take(obj, v.SetPatch) },
		DeleteFunc: func(obj any) { drop(obj, v.DeletePatch) },
	})
	if err != nil {
		return fmt.Errorf("add resource slice patch event handler: %w", err)
	}
	return nil
}

func (v *View) subscribe(informer informer, handler toolscache.ResourceEventHandler) error {
	registration, err := informer.AddEventHandler(handler)
	if err != nil {
		return err
	}
	v.inputs = append(v.inputs, input{informer: informer, registration: registration})
	return nil
}

func take[T resourcev1.ResourceSlice | resourcev1.DeviceTaintRule | resourcev1.DeviceClass | v1alpha1.ResourceSlicePatch](obj any, set func(*T)) {
	if typed, ok := obj.(*T); ok {
		set(typed)
	}
}

// drop deletes by name alone: of an object whose deletion was missed, the informer
// may know nothing else (K06).
func drop(obj any, remove func(name string)) {
	// All kinds are cluster-scoped, so that the key is the name.
	if name, err := toolscache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
		remove(name)
	}
}
