package slicepatch

import (
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

// Explanation is a device as patches make it, with the origin of each part. It is
// read-only.
type Explanation struct {
	// Device is what Overlay.Apply returns.
	Device resourcev1.Device
	// Limited says why the device keeps the attributes and the capacity that it
	// published; nil if it need not. All of them are then the driver's.
	Limited error
	// Attributes and Capacity are all that the device has or that its driver published,
	// by name.
	Attributes []Value[resourcev1.DeviceAttribute]
	Capacity   []Value[resourcev1.DeviceCapacity]
	// Taints are the origins of the taints of the device, in the order in which it has
	// them: the name of a patch, or nothing for the driver.
	Taints []string
}

// Value is the origin of one attribute or one capacity.
type Value[V any] struct {
	// Name is as the device has it or, if it was removed, as the driver published it.
	Name resourcev1.QualifiedName
	// Now is the value that the device has, nil if a patch removed it.
	Now *V
	// Published is the value that the driver published under the name, nil for none.
	Published *V
	// Patch is the name of the patch that decided, empty for the driver.
	Patch string
	// Overruled are the other patches with a value for it, in the order in which they
	// would have their turn.
	Overruled []Offer[V]
}

// Offer is a value that a patch has for a device.
type Offer[V any] struct {
	Patch string
	// Value is nil if the patch removes it.
	Value *V
}

// Explain returns what patches make of a published device together, as Combine and
// Apply do, with the origin of all of it. Patches are in the order of Compare.
func Explain(patches []*Patch, driver string, published *resourcev1.Device) Explanation {
	var e Explanation
	e.Device, e.Limited = Combine(patches).Apply(driver, published)
	e.Taints = make([]string, len(published.Taints), len(e.Device.Taints))
	for _, p := range byName(patches) {
		e.Taints = append(e.Taints, slices.Repeat([]string{p.Name}, len(p.taints))...)
	}
	deciding := patches
	if e.Limited != nil {
		deciding = nil
	}
	e.Attributes = valuesOf(driver, published.Attributes, e.Device.Attributes, deciding, attributesOf)
	e.Capacity = valuesOf(driver, published.Capacity, e.Device.Capacity, deciding, capacitiesOf)
	return e
}

// valuesOf returns the origin of each name that was published or is there now.
func valuesOf[V any](driver string, published, now map[name]V, patches []*Patch, of func(*Patch) map[name]*V) []Value[V] {
	names := sets.List(sets.KeySet(published).Union(sets.KeySet(now)))
	values := make([]Value[V], 0, len(names))
	for _, spelt := range names {
		v := Value[V]{Name: spelt}
		if value, found := now[spelt]; found {
			v.Now = &value
		}
		if value, found := published[spelt]; found {
			v.Published = &value
		}
		var offers []Offer[V]
		for _, p := range patches {
			if value, found := of(p)[full(spelt, driver)]; found {
				offers = append(offers, Offer[V]{Patch: p.Name, Value: value})
			}
		}
		if len(offers) > 0 {
			v.Patch, v.Overruled = offers[0].Patch, offers[1:]
		}
		values = append(values, v)
	}
	return values
}

// full returns a name with its domain, which is the driver's for one that has none.
func full(spelt name, driver string) name {
	if strings.Contains(string(spelt), "/") {
		return spelt
	}
	return name(driver) + "/" + spelt
}
