package v1alpha1

import (
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ResourceSlicePatch changes the attributes, the capacity and the taints of devices as
// schedulers see them (KEP-5027). It does not change the ResourceSlices that drivers
// publish. If several patches set the same attribute or capacity of a device, the patch
// with the highest priority applies; of patches with equal priority the oldest one
// applies, then the first by name.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,path=resourceslicepatches,shortName=rsp,categories=tollgate
// +kubebuilder:printcolumn:name="Class",type=string,JSONPath=`.spec.devices.filter.deviceClassName`
// +kubebuilder:printcolumn:name="Driver",type=string,JSONPath=`.spec.devices.filter.driver`
// +kubebuilder:printcolumn:name="Pool",type=string,JSONPath=`.spec.devices.filter.pool`
// +kubebuilder:printcolumn:name="Device",type=string,JSONPath=`.spec.devices.filter.device`
// +kubebuilder:printcolumn:name="Priority",type=integer,JSONPath=`.spec.devices.priority`
// +kubebuilder:printcolumn:name="Matched",type=integer,JSONPath=`.status.devicesMatched`
// +kubebuilder:printcolumn:name="Failed",type=integer,JSONPath=`.status.devicesFailed`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ResourceSlicePatch struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	//
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec selects devices and describes their changes.
	//
	// +required
	Spec ResourceSlicePatchSpec `json:"spec"`

	// status is the observed state of the patch. Tollgate writes it.
	//
	// +optional
	Status ResourceSlicePatchStatus `json:"status,omitzero"`
}

// ResourceSlicePatchList is a list of ResourceSlicePatches.
//
// +kubebuilder:object:root=true
type ResourceSlicePatchList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []ResourceSlicePatch `json:"items"`
}

// ResourceSlicePatchSpec selects devices and describes their changes.
type ResourceSlicePatchSpec struct {
	// devices selects devices and describes their changes.
	//
	// +required
	Devices DevicePatch `json:"devices"`

	// publish has no effect. Tollgate refuses to set it in an object that does not have
	// it. It was planned to write the patched attributes and capacity into the
	// ResourceSlices of the driver. Such a change could not be undone, because drivers
	// take over values that another program writes there.
	//
	// +optional
	Publish bool `json:"publish,omitempty"`
}

// DevicePatch selects devices and describes their changes.
//
// +kubebuilder:validation:XValidation:rule="(has(self.attributes) ? self.attributes.size() : 0) + (has(self.capacity) ? self.capacity.size() : 0) <= 32",message="at most 32 attributes and capacities together"
type DevicePatch struct {
	// filter selects the devices. If absent or empty, the patch applies to every device
	// of every driver.
	//
	// +optional
	Filter *DevicePatchFilter `json:"filter,omitempty"`

	// priority decides between patches that set the same attribute or capacity of a
	// device: the patch with the highest priority applies. Defaults to 0.
	//
	// +optional
	Priority int32 `json:"priority,omitempty"`

	// attributes maps names of attributes to the values that devices get. The value null
	// removes the attribute. Every name includes a domain; an attribute that a driver
	// publishes without a domain has the name of the driver as its domain.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	Attributes map[resourcev1.QualifiedName]NullableDeviceAttribute `json:"attributes,omitempty"`

	// capacity maps names of capacities to the values that devices get. A value replaces
	// the published value together with its request policy. A capacity cannot be removed:
	// set it to 0. The names follow the same rules as the names of attributes.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	Capacity map[resourcev1.QualifiedName]PatchedCapacity `json:"capacity,omitempty"`

	// taints lists taints that devices get in addition to the taints of the driver and of
	// other patches. The priority of the patch does not matter for taints.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Taints []PatchedTaint `json:"taints,omitempty"`
}

// DevicePatchFilter selects devices. All fields that are set must match. The filter
// applies to devices as the driver publishes them, without the changes by patches.
type DevicePatchFilter struct {
	// deviceClassName restricts the patch to devices that the selectors of this
	// DeviceClass select. While the DeviceClass does not exist, the filter selects no
	// device.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	DeviceClassName *string `json:"deviceClassName,omitempty"`

	// driver restricts the patch to devices of the driver with this name.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Driver *string `json:"driver,omitempty"`

	// pool restricts the patch to devices in pools with this name. Several drivers may
	// have a pool with the same name.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Pool *string `json:"pool,omitempty"`

	// device restricts the patch to devices with this name. Several pools may have a
	// device with the same name.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Device *string `json:"device,omitempty"`

	// selectors restricts the patch to devices that satisfy all selectors. If a selector
	// fails with an error on a device, the patch does not apply to that device, and the
	// status reports the error.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Selectors []PatchedDeviceSelector `json:"selectors,omitempty"`
}

// PatchedDeviceSelector selects devices. Exactly one of its fields is set.
//
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:MaxProperties=1
type PatchedDeviceSelector struct {
	// cel selects devices by a CEL expression.
	//
	// +optional
	CEL *CELDeviceSelector `json:"cel,omitempty"`
}

// CELDeviceSelector selects devices by a CEL expression.
type CELDeviceSelector struct {
	// expression is a CEL expression that is true for the selected devices. As in a
	// ResourceClaim, it reads the variable device: device.driver,
	// device.attributes["domain"].name, device.capacity["domain"].name and
	// device.allowMultipleAllocations.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=10240
	Expression string `json:"expression"`
}

// NullableDeviceAttribute is the value of an attribute, or null to remove the attribute.
// Exactly one of its fields is set.
//
// +structType=atomic
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:MaxProperties=1
type NullableDeviceAttribute struct {
	// int is an integer.
	//
	// +optional
	IntValue *int64 `json:"int,omitempty"`

	// bool is true or false.
	//
	// +optional
	BoolValue *bool `json:"bool,omitempty"`

	// string is a string of at most 64 bytes.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	StringValue *string `json:"string,omitempty"`

	// version is a semantic version of at most 64 bytes, such as 1.2.3.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	VersionValue *string `json:"version,omitempty"`

	// ints is a list of integers. Lists need a scheduler with the feature gate
	// DRAListTypeAttributes.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=48
	IntValues []int64 `json:"ints,omitempty"`

	// bools is a list of values that are true or false.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=48
	BoolValues []bool `json:"bools,omitempty"`

	// strings is a list of strings of at most 64 bytes each.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=48
	// +kubebuilder:validation:items:MaxLength=64
	StringValues []string `json:"strings,omitempty"`

	// versions is a list of semantic versions of at most 64 bytes each.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=48
	// +kubebuilder:validation:items:MaxLength=64
	VersionValues []string `json:"versions,omitempty"`

	// null removes the attribute. Its value is {}.
	//
	// +optional
	NullValue *NullValue `json:"null,omitempty"`
}

// NullValue is the value of the field null. It has no fields.
type NullValue struct{}

// PatchedCapacity is a capacity of a device.
//
// +structType=atomic
type PatchedCapacity struct {
	// value is the amount of the capacity. It is a pointer, so that an absent value
	// differs from 0.
	//
	// +required
	Value *resource.Quantity `json:"value"`

	// requestPolicy restricts the amounts that requests can consume. It is only for
	// devices that allow multiple allocations; other devices keep their published
	// attributes and capacity.
	//
	// +optional
	RequestPolicy *CapacityRequestPolicy `json:"requestPolicy,omitempty"`
}

// CapacityRequestPolicy restricts the amounts of a capacity that requests can consume. At
// most one of validValues and validRange is set, and default is required with either.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.validValues) && has(self.validRange))",message="give validValues or validRange, not both"
type CapacityRequestPolicy struct {
	// default is the amount that a request consumes if it does not name an amount.
	//
	// +optional
	Default *resource.Quantity `json:"default,omitempty"`

	// validValues lists the amounts that a request can consume, in ascending order. A
	// request for an amount between two of them consumes the larger one.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	ValidValues []resource.Quantity `json:"validValues,omitempty"`

	// validRange is the range of the amounts that a request can consume.
	//
	// +optional
	ValidRange *CapacityRequestRange `json:"validRange,omitempty"`
}

// CapacityRequestRange is a range of amounts that a request can consume.
type CapacityRequestRange struct {
	// min is the smallest amount. A request for less consumes min.
	//
	// +required
	Min *resource.Quantity `json:"min"`

	// max is the largest amount. If absent, the range has no upper end.
	//
	// +optional
	Max *resource.Quantity `json:"max,omitempty"`

	// step is the distance between two amounts, counted from min. A request for an amount
	// between two steps consumes the larger one. If absent, every amount in the range is
	// valid.
	//
	// +optional
	Step *resource.Quantity `json:"step,omitempty"`
}

// PatchedTaint is a taint of a device.
//
// +structType=atomic
type PatchedTaint struct {
	// key is the taint key.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	Key string `json:"key"`

	// value is the taint value.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Value string `json:"value,omitempty"`

	// effect is the taint effect: None, NoSchedule or NoExecute. A taint with the effect
	// None has no effect on pods.
	//
	// +required
	// +kubebuilder:validation:Enum=None;NoSchedule;NoExecute
	Effect resourcev1.DeviceTaintEffect `json:"effect"`

	// timeAdded is the time from which the taint counts. If absent in the spec, the taint
	// counts from the time in status.taints, at which Tollgate first saw the taint.
	//
	// +optional
	TimeAdded *metav1.Time `json:"timeAdded,omitempty"`
}

// ResourceSlicePatchStatus is the observed state of a ResourceSlicePatch.
type ResourceSlicePatchStatus struct {
	// observedGeneration is the generation of the spec that the status describes.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// devicesMatched is the number of selected devices in the newest ResourceSlices of
	// each pool. A device that two of these slices publish counts twice.
	//
	// +optional
	DevicesMatched int32 `json:"devicesMatched"`

	// devicesFailed is the number of devices on which an expression failed with an error.
	// The patch does not apply to these devices.
	//
	// +optional
	DevicesFailed int32 `json:"devicesFailed"`

	// devicesLimited is the number of selected devices that keep their published
	// attributes and capacity, because a ResourceSlice does not allow the result of all
	// patches together.
	//
	// +optional
	DevicesLimited int32 `json:"devicesLimited"`

	// matched lists the first selected devices, as driver/pool/device.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=512
	Matched []string `json:"matched,omitempty"`

	// failed lists the first devices on which an expression failed, with the error.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Failed []DevicePatchProblem `json:"failed,omitempty"`

	// limited lists the first devices that keep their published attributes and capacity,
	// with the reason.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Limited []DevicePatchProblem `json:"limited,omitempty"`

	// taints lists the taints of the spec without timeAdded, with the time from which
	// each counts.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Taints []PatchedTaint `json:"taints,omitempty"`

	// conditions are the conditions of the patch. Ready is True when the whole patch is
	// in force as written. EvictionInProgress has the same meaning as in a
	// DeviceTaintRule.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// DevicePatchProblem is the reason why a patch does not apply to a device, or applies
// only in part.
type DevicePatchProblem struct {
	// device identifies the device, as driver/pool/device.
	//
	// +required
	// +kubebuilder:validation:MaxLength=512
	Device string `json:"device"`

	// message explains the reason.
	//
	// +required
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message"`
}
