package slicepatch

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"
)

// Overlay is what patches that are meant for the same device make of it together. It
// does not change and is safe for concurrent use.
type Overlay struct {
	attributes []change[resourcev1.DeviceAttribute]
	capacity   []change[resourcev1.DeviceCapacity]
	taints     []resourcev1.DeviceTaint
}

// change is what becomes of an attribute or a capacity. No value removes it.
type change[V any] struct {
	// full is the name with its domain.
	full  name
	value *V
}

// Combine returns what patches make of a device together. They are in the order of
// Compare. Their taints are in the order of the names of the patches.
func Combine(patches []*Patch) *Overlay {
	o := &Overlay{
		attributes: winners(patches, attributesOf),
		capacity:   winners(patches, capacitiesOf),
	}
	for _, p := range byName(patches) {
		o.taints = append(o.taints, p.taints...)
	}
	return o
}

func attributesOf(p *Patch) map[name]*resourcev1.DeviceAttribute { return p.attributes }

func capacitiesOf(p *Patch) map[name]*resourcev1.DeviceCapacity { return p.capacity }

func byName(patches []*Patch) []*Patch {
	return slices.SortedFunc(slices.Values(patches), func(a, b *Patch) int { return cmp.Compare(a.Name, b.Name) })
}

// winners returns the changes by the first patch that has one for each name.
func winners[V any](patches []*Patch, of func(*Patch) map[name]*V) []change[V] {
	decided := map[name]*V{}
	for _, p := range patches {
		for full, value := range of(p) {
			if _, found := decided[full]; !found {
				decided[full] = value
			}
		}
	}
	changes := make([]change[V], 0, len(decided))
	for _, full := range slices.Sorted(maps.Keys(decided)) {
		changes = append(changes, change[V]{full: full, value: decided[full]})
	}
	return changes
}

// Apply returns a published device with the changes. What does not change is shared
// with what was published. An error says why the device keeps the attributes and the
// capacity that it published: what would come out is not allowed in a ResourceSlice. Its
// taints are added all the same.
func (o *Overlay) Apply(driver string, published *resourcev1.Device) (resourcev1.Device, error) {
	device := *published
	switch {
	case len(o.taints) == 0:
	case len(published.Taints) == 0:
		device.Taints = slices.Clip(o.taints)
	default:
		device.Taints = slices.Concat(published.Taints, o.taints)
	}
	attributes, otherAttributes := apply(published.Attributes, o.attributes, driver, sameAttribute)
	capacity, otherCapacity := apply(published.Capacity, o.capacity, driver, sameCapacity)
	if !otherAttributes && !otherCapacity {
		return device, nil
	}
	if err := o.allowed(published, attributes, capacity); err != nil {
		return device, err
	}
	device.Attributes, device.Capacity = attributes, capacity
	return device, nil
}

// apply returns what was published with the changes, and whether that is anything else.
// A name stays as the driver spelt it.
func apply[V any](published map[name]V, changes []change[V], driver string, same func(a, b V) bool) (changed map[name]V, other bool) {
	changed = published
	own := func() map[name]V {
		if !other {
			changed, other = make(map[name]V, len(published)+len(changes)), true // a map that grows costs more than a copy
			maps.Copy(changed, published)
		}
		return changed
	}
	for _, c := range changes {
		target, short := c.full, bare(c.full, driver)
		_, spelt := published[c.full]
		if _, spelt2 := published[short]; short != "" && spelt2 {
			if spelt {
				delete(own(), short) // one thing under two names
			} else {
				target = short
			}
		}
		was, found := published[target]
		switch {
		case c.value == nil && found:
			delete(own(), target)
		case c.value != nil && (!found || !same(was, *c.value)):
			own()[target] = *c.value
		}
	}
	return changed, other
}

// bare returns the name without its domain if that is the driver's, or else nothing.
func bare(full name, driver string) name {
	rest, found := strings.CutPrefix(string(full), driver)
	if !found || !strings.HasPrefix(rest, "/") {
		return ""
	}
	return name(rest[1:])
}

// allowed returns why a device with these attributes and capacities would not be allowed
// in a ResourceSlice, with which limit it would break.
func (o *Overlay) allowed(published *resourcev1.Device, attributes attributes, capacity capacities) error {
	const maxEntries, maxValues = resourcev1.ResourceSliceMaxAttributesAndCapacitiesPerDevice, resourcev1.ResourceSliceMaxAttributeValuesPerDevice
	if n := len(attributes) + len(capacity); n > maxEntries {
		return fmt.Errorf("would have %d attributes and capacities, of which %d are allowed", n, maxEntries)
	}
	values := 0
	for name := range attributes {
		a := attributes[name]
		values += max(1, len(a.IntValues)+len(a.BoolValues)+len(a.StringValues)+len(a.VersionValues))
	}
	if values > maxValues {
		return fmt.Errorf("would have %d values of attributes, of which %d are allowed", values, maxValues)
	}
	if ptr.Deref(published.AllowMultipleAllocations, false) {
		return nil
	}
	for _, c := range o.capacity {
		if c.value.RequestPolicy != nil {
			return fmt.Errorf("capacity %s would have a requestPolicy, which needs allowMultipleAllocations", c.full)
		}
	}
	return nil
}

// SameToFilters reports whether two published devices are the same to every filter: both or
// neither satisfy it.
func SameToFilters(a, b *resourcev1.Device) bool {
	return a.Name == b.Name && ptr.Equal(a.AllowMultipleAllocations, b.AllowMultipleAllocations) &&
		SameAttributes(a.Attributes, b.Attributes) && SameCapacity(a.Capacity, b.Capacity)
}

// SameAttributes reports whether two devices have the same attributes, by the names that
// they have there.
func SameAttributes(a, b map[resourcev1.QualifiedName]resourcev1.DeviceAttribute) bool {
	return sameMap(a, b, sameAttribute)
}

// SameCapacity is SameAttributes for capacity.
func SameCapacity(a, b map[resourcev1.QualifiedName]resourcev1.DeviceCapacity) bool {
	return sameMap(a, b, sameCapacity)
}

// sameMap is called for each device of a slice that is written, and allocates nothing. It
// looks into two maps only if they are not one and the same, as those of devices that no
// patch changes are.
func sameMap[V any](a, b map[name]V, same func(a, b V) bool) bool {
	return reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer() || maps.EqualFunc(a, b, same)
}

func sameAttribute(a, b resourcev1.DeviceAttribute) bool {
	return ptr.Equal(a.IntValue, b.IntValue) && ptr.Equal(a.BoolValue, b.BoolValue) &&
		ptr.Equal(a.StringValue, b.StringValue) && ptr.Equal(a.VersionValue, b.VersionValue) &&
		slices.Equal(a.IntValues, b.IntValues) && slices.Equal(a.BoolValues, b.BoolValues) &&
		slices.Equal(a.StringValues, b.StringValues) && slices.Equal(a.VersionValues, b.VersionValues)
}

func sameCapacity(a, b resourcev1.DeviceCapacity) bool {
	return a.Value.Cmp(b.Value) == 0 &&
		(a.RequestPolicy == b.RequestPolicy || equality.Semantic.DeepEqual(a.RequestPolicy, b.RequestPolicy))
}
