package patching

import (
	"fmt"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/wording"
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
	f := &Filter{Names: names(in)}
	if in.DeviceClassName != nil {
		f.Class = *in.DeviceClassName
	}
	for i := range in.Selectors {
		if in.Selectors[i].CEL == nil {
			f.selectors = append(f.selectors, missing())
		} else {
			f.selectors = append(f.selectors, newSelector(in.Selectors[i].CEL.Expression))
		}
	}
	return f
}

func names(in *v1alpha1.DevicePatchFilter) resourcev1.DeviceTaintSelector {
	return resourcev1.DeviceTaintSelector{Driver: in.Driver, Pool: in.Pool, Device: in.Device}
}

// Conditional reports whether the filter asks for more than names.
func (f *Filter) Conditional() bool {
	return f.Class != "" || len(f.selectors) > 0
}

// Satisfies reports whether a published device has all that the filter asks for beyond
// its names. Class is the DeviceClass that it names, nil while there is none: then
// nothing satisfies it. An error says for its user which expression failed, and why.
func (f *Filter) Satisfies(class *Class, driver string, d *resourcev1.Device) (bool, error) {
	if f.Class != "" && class == nil {
		return false, nil
	}
	device, spent := deviceOf(driver, d), uint64(0)
	if class != nil {
		selected, err := selects(class.selectors, device, &spent)
		if err != nil {
			return false, fmt.Errorf("device class %s: %w", wording.Short(f.Class, wording.Key), err)
		}
		if !selected {
			return false, nil
		}
	}
	return selects(f.selectors, device, &spent)
}

// Class is what is kept of a DeviceClass. It does not change and is safe for concurrent
// use.
type Class struct {
	selectors []selector
}

// CompileClass compiles the selectors of a class.
func CompileClass(c *resourcev1.DeviceClass) *Class {
	class := &Class{}
	for i := range c.Spec.Selectors {
		if c.Spec.Selectors[i].CEL == nil {
			class.selectors = append(class.selectors, missing())
		} else {
			class.selectors = append(class.selectors, newSelector(c.Spec.Selectors[i].CEL.Expression))
		}
	}
	return class
}
