package slicepatch

import (
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// Filter says which devices a patch is meant for. It does not change and is safe for
// concurrent use.
type Filter struct {
	// Names are what it asks for by name. Satisfies does not look at them: who has many
	// patches finds by them which to ask.
	Names resourcev1.DeviceTaintSelector
	// Class is the name of a DeviceClass, empty for none.
	Class     string
	selectors []selector
}

// newFilter compiles a filter. A nil one is for every device.
func newFilter(in *v1alpha1.DevicePatchFilter) *Filter {
	if in == nil {
		return &Filter{}
	}
	f := &Filter{Names: NamesOf(in)}
	if in.DeviceClassName != nil {
		f.Class = *in.DeviceClassName
	}
	f.selectors = newSelectors(in.Selectors, func(s *v1alpha1.PatchedDeviceSelector) *string {
		if s.CEL == nil {
			return nil
		}
		return &s.CEL.Expression
	})
	return f
}

// NamesOf returns what a filter, nil for none, asks for by name. Unlike the selector of a
// DeviceTaintRule, one that asks for nothing selects every device.
func NamesOf(in *v1alpha1.DevicePatchFilter) resourcev1.DeviceTaintSelector {
	if in == nil {
		return resourcev1.DeviceTaintSelector{}
	}
	return resourcev1.DeviceTaintSelector{Driver: in.Driver, Pool: in.Pool, Device: in.Device}
}

// Conditional reports whether a filter, nil for none, asks for more than names.
func Conditional(in *v1alpha1.DevicePatchFilter) bool {
	return in != nil && (in.DeviceClassName != nil || len(in.Selectors) > 0)
}

// Conditional reports whether the filter asks for more than names.
func (f *Filter) Conditional() bool {
	return f.Class != "" || len(f.selectors) > 0
}

// Ask tells of the devices of a slice, in the order of their names, which have all that
// the filter asks for beyond its names; of the one with a name only, where one is given.
// Class is the DeviceClass that it names, nil while there is none: then nothing is told,
// and nothing satisfies it. An error says for its user which expression failed, and why.
//
// What expressions may cost is bounded for a slice. What they say of a device is not asked
// again of devices, in whatever slice, of which they read the same.
func (f *Filter) Ask(class *Class, devices *Devices, named *string, tell func(at int, yes bool, err error)) {
	if f.Class != "" && class == nil {
		return
	}
	asking := newAsking(f, class, devices)
	for _, at := range devices.order() {
		if named == nil || *named == devices.list[at].Name {
			yes, err := asking.satisfied(at)
			tell(at, yes, err)
		}
	}
}

// Satisfies is Ask for a device that is the only one of its slice.
func (f *Filter) Satisfies(class *Class, driver string, d *resourcev1.Device) (satisfied bool, err error) {
	devices := See(&resourcev1.ResourceSliceSpec{Driver: driver, Devices: []resourcev1.Device{*d}})
	f.Ask(class, devices, nil, func(_ int, yes bool, problem error) { satisfied, err = yes, problem })
	return satisfied, err
}

// Class is what is kept of a DeviceClass. It does not change and is safe for concurrent
// use.
type Class struct {
	selectors []selector
}

// CompileClass compiles the selectors of a class.
func CompileClass(c *resourcev1.DeviceClass) *Class {
	return &Class{selectors: newSelectors(c.Spec.Selectors, func(s *resourcev1.DeviceSelector) *string {
		if s.CEL == nil {
			return nil
		}
		return &s.CEL.Expression
	})}
}
