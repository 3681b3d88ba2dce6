package v1alpha1

import (
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ResourceSlicePatch changes what devices look like to the scheduler: their attributes,
// their capacity and their taints (KEP-5027). What the driver published stays as it is.
// Of the patches that give a device the same attribute or capacity the one with the
// highest priority wins, then the older, then the first by name.
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

	// spec is which devices are patched, and how.
	//
	// +required
	Spec ResourceSlicePatchSpec `json:"spec"`

	// status is what Tollgate says about the patch.
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

// ResourceSlicePatchSpec says which devices are patched, and how.
type ResourceSlicePatchSpec struct {
	// devices is the patch.
	//
	// +required
	Devices DevicePatch `json:"devices"`

	// publish does nothing, and is refused where it is not stored already. It was to write
	// the patched attributes and capacity into the ResourceSlices of the driver, for a
	// scheduler that reads nothing else: drivers take what somebody else writes there for
	// their own, so that it could not be undone.
	//
	// +optional
	Publish bool `json:"publish,omitempty"`
}

// DevicePatch says which devices are patched, and how.
//
// +kubebuilder:validation:XValidation:rule="(has(self.attributes) ? self.attributes.size() : 0) + (has(self.capacity) ? self.capacity.size() : 0) <= 32",message="at most 32 attributes and capacities together"
type DevicePatch struct {
	// filter says which devices are patched. Without it, or with one that asks for
	// nothing, every device of every driver is.
	//
	// +optional
	Filter *DevicePatchFilter `json:"filter,omitempty"`

	// priority decides between patches that give a device the same attribute or
	// capacity: the highest wins. 0 when absent.
	//
	// +optional
	Priority int32 `json:"priority,omitempty"`

	// attributes are set or, if null is set in them, removed. Their names have a
	// domain; an attribute that a driver publishes without one has the domain of the
	// driver.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	Attributes map[resourcev1.QualifiedName]NullableDeviceAttribute `json:"attributes,omitempty"`

	// capacity is set in the place of what the driver published, request policy
	// included. It cannot be removed: set it to 0. Names are as those of attributes.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	Capacity map[resourcev1.QualifiedName]PatchedCapacity `json:"capacity,omitempty"`

	// taints are added to those of the driver and of other patches, whatever the
	// priority is.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Taints []PatchedTaint `json:"taints,omitempty"`
}

// DevicePatchFilter selects the devices that satisfy all that it asks for. It looks at
// devices as they are published, never as they are patched.
type DevicePatchFilter struct {
	// deviceClassName asks for devices that the selectors of this DeviceClass select.
	// While there is no such class, no device is.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	DeviceClassName *string `json:"deviceClassName,omitempty"`

	// driver asks for devices of a driver.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Driver *string `json:"driver,omitempty"`

	// pool asks for devices in pools of that name, which several drivers may have.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Pool *string `json:"pool,omitempty"`

	// device asks for devices of that name, which several pools may have.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Device *string `json:"device,omitempty"`

	// selectors ask for devices that satisfy all of them. A device for which one of
	// them fails is not patched; status says so.
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
	// cel selects by an expression.
	//
	// +optional
	CEL *CELDeviceSelector `json:"cel,omitempty"`
}

// CELDeviceSelector selects devices by an expression.
type CELDeviceSelector struct {
	// expression is about the variable device, as in a ResourceClaim: device.driver,
	// device.attributes["domain"].name, device.capacity["domain"].name and
	// device.allowMultipleAllocations.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=10240
	Expression string `json:"expression"`
}

// NullableDeviceAttribute is the value of an attribute, or null to remove it. Exactly
// one of its fields is set.
//
// +structType=atomic
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:MaxProperties=1
type NullableDeviceAttribute struct {
	// int is a number.
	//
	// +optional
	IntValue *int64 `json:"int,omitempty"`

	// bool is a truth value.
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

	// ints are numbers. Lists need a scheduler with DRAListTypeAttributes.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=48
	IntValues []int64 `json:"ints,omitempty"`

	// bools are truth values.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=48
	BoolValues []bool `json:"bools,omitempty"`

	// strings are strings of at most 64 bytes each.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=48
	// +kubebuilder:validation:items:MaxLength=64
	StringValues []string `json:"strings,omitempty"`

	// versions are semantic versions of at most 64 bytes each.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=48
	// +kubebuilder:validation:items:MaxLength=64
	VersionValues []string `json:"versions,omitempty"`

	// null removes the attribute. It is written as {}.
	//
	// +optional
	NullValue *NullValue `json:"null,omitempty"`
}

// NullValue stands for nothing. It has no fields.
type NullValue struct{}

// PatchedCapacity is how much of something a device has.
//
// +structType=atomic
type PatchedCapacity struct {
	// value is how much. A pointer only so that its absence can be told from 0.
	//
	// +required
	Value *resource.Quantity `json:"value"`

	// requestPolicy says how requests use the capacity. Only for devices that allow
	// multiple allocations; others keep what they published.
	//
	// +optional
	RequestPolicy *CapacityRequestPolicy `json:"requestPolicy,omitempty"`
}

// CapacityRequestPolicy says how requests use a capacity. At most one of validValues
// and validRange is set, and then default is.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.validValues) && has(self.validRange))",message="give validValues or validRange, not both"
type CapacityRequestPolicy struct {
	// default is what a request uses that does not say how much.
	//
	// +optional
	Default *resource.Quantity `json:"default,omitempty"`

	// validValues are what a request can use, in ascending order. A request for
	// something between them gets the next larger one.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	ValidValues []resource.Quantity `json:"validValues,omitempty"`

	// validRange is within what a request can use.
	//
	// +optional
	ValidRange *CapacityRequestRange `json:"validRange,omitempty"`
}

// CapacityRequestRange is a range of how much a request can use.
type CapacityRequestRange struct {
	// min is the least. Smaller requests get this.
	//
	// +required
	Min *resource.Quantity `json:"min"`

	// max is the most.
	//
	// +optional
	Max *resource.Quantity `json:"max,omitempty"`

	// step is by what requests can be more than min. Those between get the next larger.
	//
	// +optional
	Step *resource.Quantity `json:"step,omitempty"`
}

// PatchedTaint is a taint of a device.
//
// +structType=atomic
type PatchedTaint struct {
	// key is the key of the taint.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	Key string `json:"key"`

	// value is the value of the taint.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Value string `json:"value,omitempty"`

	// effect is None, NoSchedule or NoExecute.
	//
	// +required
	// +kubebuilder:validation:Enum=None;NoSchedule;NoExecute
	Effect resourcev1.DeviceTaintEffect `json:"effect"`

	// timeAdded is since when the taint counts. When absent, status says since when.
	//
	// +optional
	TimeAdded *metav1.Time `json:"timeAdded,omitempty"`
}

// ResourceSlicePatchStatus is what Tollgate says about a ResourceSlicePatch.
type ResourceSlicePatchStatus struct {
	// observedGeneration is the generation of the spec that the status is about.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// devicesMatched is how many devices are selected, in the newest slices of each pool.
	// One that two of those publish counts twice.
	//
	// +optional
	DevicesMatched int32 `json:"devicesMatched"`

	// devicesFailed is for how many devices an expression failed. The patch does not
	// apply to them.
	//
	// +optional
	DevicesFailed int32 `json:"devicesFailed"`

	// devicesLimited is how many of the selected devices keep the attributes and the
	// capacity that they published, because what comes out with all patches would not be
	// allowed in a ResourceSlice.
	//
	// +optional
	DevicesLimited int32 `json:"devicesLimited"`

	// matched names the first of the selected devices, as driver/pool/device.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=512
	Matched []string `json:"matched,omitempty"`

	// failed names the first of the devices for which an expression failed, and why.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Failed []DevicePatchProblem `json:"failed,omitempty"`

	// limited names the first of the devices that keep what they published, and why.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Limited []DevicePatchProblem `json:"limited,omitempty"`

	// taints say since when the taints of the spec count that give no time themselves.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Taints []PatchedTaint `json:"taints,omitempty"`

	// conditions of the patch. Ready is True when all of it is in force as written;
	// EvictionInProgress is as that of a DeviceTaintRule.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// DevicePatchProblem says why a patch does not change a device, or not all of it.
type DevicePatchProblem struct {
	// device is driver/pool/device.
	//
	// +required
	// +kubebuilder:validation:MaxLength=512
	Device string `json:"device"`

	// message says why.
	//
	// +required
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message"`
}
