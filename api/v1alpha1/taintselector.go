package v1alpha1

import corev1 "k8s.io/api/core/v1"

// TaintTarget says what carries a taint.
//
// +kubebuilder:validation:Enum=Node;Device
type TaintTarget string

// The targets of taints.
const (
	// TaintTargetNode is a taint in the spec of a Node.
	TaintTargetNode TaintTarget = "Node"
	// TaintTargetDevice is a taint of a DRA device, set in a ResourceSlice or by
	// a DeviceTaintRule (KEP-5055).
	TaintTargetDevice TaintTarget = "Device"
)

// TaintSelector selects taints by what carries them, key, value and effect. All
// fields that are set must match. The system keys of nodes (node.kubernetes.io/* and
// node.cloudprovider.kubernetes.io/*) are only selected by naming them: with target
// Node the key "*" leaves them out.
//
// +structType=atomic
type TaintSelector struct {
	// target says what carries the taint: Node (the default) or Device.
	//
	// +optional
	// +kubebuilder:default=Node
	Target TaintTarget `json:"target,omitempty"`

	// key is a taint key, "prefix/*" for every key below a prefix, or "*" for
	// every key; of nodes, for every key that is not a system key.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	Key string `json:"key"`

	// values are the taint values selected. None means every value.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	Values []string `json:"values,omitempty"`

	// effects are the taint effects selected: NoSchedule, PreferNoSchedule and
	// NoExecute for nodes, None, NoSchedule and NoExecute for devices. None
	// given means every effect.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:Enum=None;NoSchedule;PreferNoSchedule;NoExecute
	Effects []corev1.TaintEffect `json:"effects,omitempty"`

	// deviceClasses narrows device tolerations to requests for these
	// DeviceClasses. Only with target Device.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	DeviceClasses []string `json:"deviceClasses,omitempty"`

	// drivers narrows device taints to devices of these DRA drivers. Only with
	// target Device, and only where taints are selected, not tolerations.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	Drivers []string `json:"drivers,omitempty"`
}
