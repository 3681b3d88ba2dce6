package slicepatch

import (
	"reflect"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// SameToFilters reports whether two published devices are the same to every filter: who
// knows for one whether a filter is satisfied knows it for the other.
func SameToFilters(a, b *resourcev1.Device) bool {
	return a.Name == b.Name && same(a.AllowMultipleAllocations, b.AllowMultipleAllocations) &&
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
	if reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer() {
		return true
	}
	if len(a) != len(b) {
		return false
	}
	for name, ours := range a {
		theirs, found := b[name]
		if !found || !same(ours, theirs) {
			return false
		}
	}
	return true
}

func sameAttribute(a, b resourcev1.DeviceAttribute) bool {
	return same(a.IntValue, b.IntValue) && same(a.BoolValue, b.BoolValue) &&
		same(a.StringValue, b.StringValue) && same(a.VersionValue, b.VersionValue) &&
		slices.Equal(a.IntValues, b.IntValues) && slices.Equal(a.BoolValues, b.BoolValues) &&
		slices.Equal(a.StringValues, b.StringValues) && slices.Equal(a.VersionValues, b.VersionValues)
}

func sameCapacity(a, b resourcev1.DeviceCapacity) bool {
	return a.Value.Cmp(b.Value) == 0 &&
		(a.RequestPolicy == b.RequestPolicy || equality.Semantic.DeepEqual(a.RequestPolicy, b.RequestPolicy))
}

func same[T comparable](a, b *T) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}
