package slicepatch

import (
	"cmp"
	"slices"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

type (
	name       = resourcev1.QualifiedName
	attributes = map[name]resourcev1.DeviceAttribute
	capacities = map[name]resourcev1.DeviceCapacity
)

// Patch is a ResourceSlicePatch that can be applied. It does not change and is safe for
// concurrent use.
type Patch struct {
	Name   string
	Filter *Filter

	priority int32
	created  time.Time
	// attributes has nil for those that are removed.
	attributes map[name]*resourcev1.DeviceAttribute
	capacity   map[name]*resourcev1.DeviceCapacity
	taints     []resourcev1.DeviceTaint
}

// Compile returns a patch that can be applied, or what is wrong with it: of a patch that
// is not valid no part is applied. Filter is that of an earlier version of the patch if
// it is the same; nil compiles it.
func Compile(p *v1alpha1.ResourceSlicePatch, filter *Filter) (*Patch, field.ErrorList) {
	if errs := ValidatePatch(p); len(errs) > 0 {
		return nil, errs
	}
	spec := &p.Spec.Devices
	patch := &Patch{
		Name: p.Name, Filter: filter, priority: spec.Priority, created: p.CreationTimestamp.Time,
		attributes: make(map[name]*resourcev1.DeviceAttribute, len(spec.Attributes)),
		capacity:   make(map[name]*resourcev1.DeviceCapacity, len(spec.Capacity)),
		taints:     taintsOf(p),
	}
	if filter == nil {
		patch.Filter = newFilter(spec.Filter)
	}
	for name := range spec.Attributes {
		value := spec.Attributes[name]
		patch.attributes[name] = attributeOf(&value)
	}
	for name, value := range spec.Capacity {
		patch.capacity[name] = capacityOf(&value)
	}
	return patch, nil
}

// Compare is negative if a goes before b where both give a device the same attribute or
// capacity.
func Compare(a, b *Patch) int {
	return cmp.Or(cmp.Compare(b.priority, a.priority), a.created.Compare(b.created), cmp.Compare(a.Name, b.Name))
}

// Changes reports whether a patch gives devices attributes or capacity, or takes
// attributes away.
func (p *Patch) Changes() bool {
	return len(p.attributes)+len(p.capacity) > 0
}

// attributeOf returns the value of an attribute, nil if it is to be removed.
func attributeOf(in *v1alpha1.NullableDeviceAttribute) *resourcev1.DeviceAttribute {
	if in.NullValue != nil {
		return nil
	}
	return &resourcev1.DeviceAttribute{
		IntValue: in.IntValue, BoolValue: in.BoolValue, StringValue: in.StringValue, VersionValue: in.VersionValue,
		IntValues: in.IntValues, BoolValues: in.BoolValues, StringValues: in.StringValues, VersionValues: in.VersionValues,
	}
}

func capacityOf(in *v1alpha1.PatchedCapacity) *resourcev1.DeviceCapacity {
	out := &resourcev1.DeviceCapacity{Value: *in.Value}
	if p := in.RequestPolicy; p != nil {
		out.RequestPolicy = &resourcev1.CapacityRequestPolicy{
			Default: p.Default, ValidValues: p.ValidValues, ValidRange: (*resourcev1.CapacityRequestPolicyRange)(p.ValidRange),
		}
	}
	return out
}

// taintsOf returns the taints of a patch. One without a time counts since the time that
// status has for it.
func taintsOf(p *v1alpha1.ResourceSlicePatch) []resourcev1.DeviceTaint {
	list := deviceTaints(p.Spec.Devices.Taints)
	for i := range list {
		if list[i].TimeAdded == nil {
			list[i].TimeAdded = Since(p, &p.Spec.Devices.Taints[i])
		}
	}
	return list
}

// Since returns the time that the status of a patch has for a taint of its spec, nil for
// none. As for nodes, another value does not start the clock again: without an entry for
// the value, one of the same key and effect counts whose value is gone from the spec. One
// whose value is still there is about that other taint. The time of the taint itself is
// not looked at.
func Since(p *v1alpha1.ResourceSlicePatch, taint *v1alpha1.PatchedTaint) *metav1.Time {
	var replaced *metav1.Time
	for i := range p.Status.Taints {
		entry := &p.Status.Taints[i]
		switch {
		case entry.Key != taint.Key || entry.Effect != taint.Effect || entry.TimeAdded == nil:
		case entry.Value == taint.Value:
			return entry.TimeAdded
		case replaced == nil && !slices.ContainsFunc(p.Spec.Devices.Taints, func(t v1alpha1.PatchedTaint) bool {
			return t.Key == entry.Key && t.Effect == entry.Effect && t.Value == entry.Value
		}):
			replaced = entry.TimeAdded
		}
	}
	return replaced
}

func deviceTaints(in []v1alpha1.PatchedTaint) []resourcev1.DeviceTaint {
	list := make([]resourcev1.DeviceTaint, 0, len(in))
	for i := range in {
		list = append(list, resourcev1.DeviceTaint(in[i]))
	}
	return list
}

// WithoutAttributes returns a patch that only taints, without the attributes and the capacity of
// the patch.
func WithoutAttributes(patch *v1alpha1.ResourceSlicePatch) *v1alpha1.ResourceSlicePatch {
	tainting := patch.DeepCopy()
	tainting.Spec.Devices.Attributes, tainting.Spec.Devices.Capacity = nil, nil
	return tainting
}
